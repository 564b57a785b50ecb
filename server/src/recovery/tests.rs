//! Recovery on the simulated disk.
