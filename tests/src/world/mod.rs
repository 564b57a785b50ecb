//! The simulated world: the real engine on a simulated disk, in virtual time, with seeded
//! providers and clients, on one thread.
//!
//! A world lives through several daemons. All but the last die: killed at a random moment, with
//! the power lost or not, by a machine that stops at a random operation of the disk, or by a disk
//! that fails. Everything follows from the seed, to the byte.
//!
//! ```text
//!  World ─► Life (one daemon) ─► Engine ─► journal, projections on the SimDisk
//!    │        └─ clients ─► Memory: what was asked, what was acknowledged, what was seen
//!    └─ judge: what the disk came back with, against that memory
//! ```

mod client;
mod judge;
mod life;
mod memory;
mod provider;
mod pumps;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use substrat_server::journal::{Crash, Fault, SimDisk};
use substrat_server::model::{Policy, ProviderPolicy, Resume, Timestamp};

use self::life::Life;
use self::memory::Memory;

/// Name of the seeded provider.
const PROVIDER: &str = "seeded";
/// Daemons that a world lives through.
const LIVES: u64 = 4;

/// What a world came to.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Every file with its bytes.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Daemons that died.
    pub deaths: u32,
    /// Events of the whole history.
    pub events: u64,
    /// Mutations that were acknowledged.
    pub acknowledged: usize,
    /// Answers that were received.
    pub answers: usize,
}

/// How a daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It was killed, or the disk failed.
    Died,
    /// It drained.
    Stopped,
}

/// What befalls a daemon.
#[derive(Debug, Clone, Copy)]
struct Fate {
    /// When it is killed, or told to stop if it is the last.
    after: Duration,
    /// What goes wrong at which operation of the disk from its start on.
    fault: Option<(u64, Fault)>,
    /// When the disk is full and for how long.
    full: Option<(Duration, Duration)>,
    /// Whether it is the last one, which drains.
    last: bool,
}

/// Runs the world of a seed.
///
/// # Panics
///
/// When something does not hold that must, with the seed.
pub fn run(seed: u64) -> Outcome {
    let mut random = StdRng::seed_from_u64(seed);
    let disk = SimDisk::new(random.random());
    let memory = Memory::default();
    let mut now = Timestamp::from_micros(1_772_107_200_000_000);
    let (mut deaths, mut boots) = (0, 1);
    for number in 1..=LIVES {
        let fate = Fate::draw(&mut random, number == LIVES);
        let life = Life {
            disk: disk.clone(),
            memory: memory.clone(),
            fate,
            seed: random.random(),
            number,
            begun: now,
            boot: boots,
        };
        let (end, time) = life.run();
        now = now.after(time + Duration::from_millis(1));
        if end == End::Died {
            deaths += 1;
            let crash = if random.random() { Crash::Power } else { Crash::Process };
            disk.crash(crash);
            boots += u32::from(crash == Crash::Power);
        }
        judge::recovered(&disk, &memory, now, boots);
    }
    judge::settled(&disk, &memory, now, boots);
    let (events, acknowledged, answers) = memory.counts();
    Outcome { files: disk.contents(), deaths, events, acknowledged, answers }
}

impl Fate {
    fn draw(random: &mut StdRng, last: bool) -> Self {
        let after = Duration::from_millis(random.random_range(1..4000));
        let second = Duration::from_millis(random.random_range(0..3000));
        let full = random.random_bool(0.15).then_some((second, Duration::from_millis(1500)));
        if last {
            return Self { after: Duration::from_secs(5) + after, fault: None, full, last };
        }
        let fault = match random.random_range(0..4) {
            0 => None,
            1 => Some((random.random_range(1..60), Fault::Stop)),
            2 => Some((random.random_range(1..3000), Fault::Stop)),
            _ => Some((random.random_range(20..2000), Fault::Eio)),
        };
        Self { after, fault, full, last }
    }
}

fn policy() -> Policy {
    let provider = ProviderPolicy { slots: 3, call_limit: Some(Duration::from_secs(20)) };
    Policy {
        providers: BTreeMap::from([(Arc::from(PROVIDER), provider)]),
        default_provider: PROVIDER.into(),
        max_text: 10_000,
        max_inbox: 100,
        max_user_inbox: 1000,
        max_inbox_bytes: 1 << 20,
        max_agents: 60,
        max_depth: 5,
        max_waiting: 100,
        max_reminders: 8,
        max_subscriptions: 8,
        multicast_timeout: Duration::from_secs(30),
        max_setbacks: 5,
        resume: Resume::All,
        request_retention: Duration::from_secs(3600),
        draining: false,
    }
}
