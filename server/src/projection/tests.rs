//! Projections on the simulated disk.
