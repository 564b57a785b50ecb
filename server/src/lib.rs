//! The Substrat daemon as a library: see `docs/ARCHITECTURE.md` for the rooms and their borders.

pub mod journal;
pub mod model;
