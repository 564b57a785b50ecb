//! The only wiring: configuration, home, recovery, engine, API, and the way out.

mod adapters;
mod config;
mod home;
mod logging;
mod reload;
mod run;

pub use config::{Config, ConfigError, environment};
pub use home::{Home, HomeError};
pub use run::{Options, RunError, run};
