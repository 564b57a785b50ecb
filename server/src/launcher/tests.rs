//! What needs no sandbox: its command line, what is said over the socket, and leftovers.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "processes to be found")]

mod argv;
mod control;
mod leftovers;
