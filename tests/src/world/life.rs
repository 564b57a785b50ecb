//! One daemon, from its recovery to its end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use substrat_server::engine::{
    Clock, Engine, Handle, Limits, Parts, RandomIds, ToolSocket, ToolSockets,
};
use substrat_server::journal::{self, Disk, Journal, SimDisk};
use substrat_server::model::{AgentId, Context, SessionId, Timestamp};
use substrat_server::projection;
use substrat_server::provider::{Provider, Registry};
use substrat_server::recovery::{self, Recovered, Replayed};
use substrat_server::workspace::Files;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::client::{self, CLIENTS, Client};
use super::memory::Memory;
use super::provider::Seeded;
use super::pumps::{self, Logs, Pace, Queue};
use super::{End, Fate, policy};

/// Virtual time in which everything must have come to rest.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A daemon to be.
pub(super) struct Life {
    pub(super) disk: SimDisk,
    pub(super) memory: Memory,
    pub(super) fate: Fate,
    pub(super) seed: u64,
    pub(super) number: u64,
    pub(super) begun: Timestamp,
    /// Which run of the machine this is.
    pub(super) boot: u32,
}

/// Settings that make everything happen often: small segments, few open files.
fn options(boot: u32) -> recovery::Options {
    let journal = journal::Options { segment_bytes: 16 << 10 };
    recovery::Options { journal, max_open_files: 4, boot: format!("boot {boot}") }
}

/// Recovers as a daemon does.
pub(super) fn recover(
    disk: &SimDisk,
    now: Timestamp,
    ids: &mut RandomIds,
    boot: u32,
) -> Result<Recovered, recovery::Error> {
    let policy = policy();
    let mut context = Context { now, policy: &policy, ids, attended: &|_| false };
    replay(disk, boot)?.reconcile(&mut context, "1")
}

/// The first part of it: what was durable.
pub(super) fn replay(disk: &SimDisk, boot: u32) -> Result<Replayed, recovery::Error> {
    disk.create_dir(journal::DIR).map_err(failed)?;
    disk.create_dir(projection::DIR).map_err(failed)?;
    disk.sync_dir("").map_err(failed)?;
    recovery::scan(Arc::new(disk.clone()), options(boot))?.replay()
}

fn failed(error: std::io::Error) -> recovery::Error {
    journal::Error::Io { what: "making the folders".into(), error: Arc::new(error) }.into()
}

struct NoSockets;

impl ToolSockets for NoSockets {
    fn open(&self, _: AgentId, _: SessionId, _: Handle) -> std::io::Result<ToolSocket> {
        Ok(ToolSocket { path: PathBuf::new(), guard: Box::new(()) })
    }
}

impl Life {
    /// Lives; how it ended and after what time.
    pub(super) fn run(self) -> (End, Duration) {
        if let Some((operation, fault)) = self.fate.fault {
            self.disk.set_fault(self.disk.operations() + operation, fault);
        }
        let faults_from = self.disk.operations();
        let mut ids = RandomIds::from_seed(self.seed);
        let recovered = match recover(&self.disk, self.begun, &mut ids, self.boot) {
            Ok(recovered) => recovered,
            Err(error) => {
                self.must_have_failed(faults_from, &error);
                return (End::Died, Duration::ZERO);
            }
        };
        self.memory.serve();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let ended = runtime.block_on(self.live(recovered, ids, faults_from));
        self.disk.set_capacity(None);
        ended
    }

    /// A daemon may fail only because the disk did.
    fn must_have_failed(&self, faults_from: u64, error: &dyn std::fmt::Display) {
        let struck = self
            .fate
            .fault
            .is_some_and(|(operation, _)| self.disk.operations() >= faults_from + operation);
        assert!(struck, "life {} failed by itself: {error}", self.number);
    }

    async fn live(
        &self,
        recovered: Recovered,
        ids: RandomIds,
        faults_from: u64,
    ) -> (End, Duration) {
        let start = Instant::now();
        let begun = self.begun;
        let clock: Clock = Arc::new(move || begun.after(start.elapsed()));
        let Recovered { state, effects, writer, projector, .. } = recovered;
        let (journal, stepper) = Journal::stepped(writer);
        let (queue, (cuts, cut)) = (Queue::default(), mpsc::unbounded_channel());
        let pace = |number| Pace::new(self.seed.wrapping_add(number));
        let mut committing = tokio::spawn(pumps::commit(stepper, pace(1)));
        let mut projecting = tokio::spawn(pumps::project(projector, queue.clone(), cuts, pace(2)));
        let disk = self.disk.clone();
        let checkpoints = pumps::checkpoint(disk, journal.clone(), cut, pace(3));
        let checkpointing = tokio::spawn(checkpoints);
        let parts = Parts {
            journal,
            sink: Box::new(queue.clone()),
            providers: Registry::of([Arc::new(Seeded::new(self.seed)) as Arc<dyn Provider>]),
            files: Files::new("/nowhere", "/nowhere"),
            shells: Arc::new(substrat_server::engine::NoShells),
            sockets: Arc::new(NoSockets),
            limits: Limits { checkpoint_bytes: 24 << 10, ..Limits::default() },
            clock: clock.clone(),
        };
        let archive = Arc::new(Logs(self.disk.clone()));
        let (engine, handle) = Engine::new(state, effects, policy(), Box::new(ids), archive, parts);
        let mut others = JoinSet::new();
        others.spawn(client::watch(handle.clone(), self.memory.clone()));
        if let Some(full) = self.fate.full {
            others.spawn(fill(self.disk.clone(), full));
        }
        let mut engine = std::pin::pin!(engine.run());
        let mut clients = std::pin::pin!(self.clients(handle, clock, start + self.fate.after));
        let end = loop {
            tokio::select! {
                biased;
                ended = &mut engine => break match ended {
                    Ok(_) => End::Stopped,
                    Err(fatal) => {
                        self.must_have_failed(faults_from, &fatal);
                        End::Died
                    }
                },
                failed = &mut committing => {
                    let error = failed.expect("no panic").expect_err("commits do not end");
                    self.must_have_failed(faults_from, &error);
                    break End::Died;
                }
                failed = &mut projecting => {
                    let error = failed.expect("no panic").expect_err("projections do not end");
                    self.must_have_failed(faults_from, &error);
                    break End::Died;
                }
                Some(joined) = others.join_next() => joined.expect("no panic"),
                end = &mut clients => if let Some(end) = end { break end },
            }
        };
        if end == End::Stopped {
            queue.close();
            projecting.await.expect("no panic").expect("projections are written");
            checkpointing.await.expect("no panic");
        }
        (end, start.elapsed())
    }

    /// Lets clients work until the daemon is to die; the last one is told to stop when everything
    /// has come to rest, and ends by itself.
    async fn clients(&self, handle: Handle, clock: Clock, until: Instant) -> Option<End> {
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let client = Client::new(number, handle.clone(), self.memory.clone(), self.seed);
            clients.spawn(client.run(until));
        }
        if !self.fate.last {
            let died = tokio::time::sleep_until(until);
            tokio::pin!(died);
            loop {
                tokio::select! {
                    biased;
                    () = &mut died => return Some(End::Died),
                    Some(joined) = clients.join_next() => joined.expect("no panic"),
                }
            }
        }
        let rest = async {
            while let Some(joined) = clients.join_next().await {
                joined.expect("no panic");
            }
            for number in 0..CLIENTS {
                // Asks for what a full disk refused.
                let client = Client::new(number, handle.clone(), self.memory.clone(), self.seed);
                client.run(until).await;
            }
            client::quiet(&handle, &clock).await;
        };
        if tokio::time::timeout(PATIENCE, rest).await.is_err() {
            let restless = handle.read(client::restless).await.unwrap_or_default();
            panic!("not everything came to rest: {restless:#?}");
        }
        handle.drain(None).await.expect("it drains");
        std::future::pending().await
    }
}

/// Fills the disk for a while.
async fn fill(disk: SimDisk, (after, length): (Duration, Duration)) {
    tokio::time::sleep(after).await;
    disk.set_capacity(Some(disk.used()));
    tokio::time::sleep(length).await;
    disk.set_capacity(None);
}
