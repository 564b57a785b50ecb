//! A process that a provider runs turns on: its input, the lines of its output, the end of what it
//! writes to its standard error, and how it is ended.

mod running;
mod stderr;

pub(super) use self::running::{Ask, End, GRACE, MAX_WAITING, PIPE_END, Running};
