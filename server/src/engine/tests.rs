//! The engine with its threads, on a real disk.
