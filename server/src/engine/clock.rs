//! The only place where the model's time and identities come from.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::model::{IdSource, Timestamp};

/// Where the engine reads the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The time of the system now.
#[expect(clippy::disallowed_methods, reason = "this is where the clock is read")]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// Identities from a random generator.
pub struct RandomIds(StdRng);

impl RandomIds {
    /// Seeded by the operating system.
    pub fn from_os() -> std::io::Result<Self> {
        StdRng::try_from_rng(&mut rand::rngs::SysRng).map(Self).map_err(std::io::Error::other)
    }

    /// The same identities for the same seed.
    pub fn from_seed(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }
}

impl IdSource for RandomIds {
    fn next_u128(&mut self) -> u128 {
        (u128::from(self.0.next_u64()) << 64) | u128::from(self.0.next_u64())
    }
}
