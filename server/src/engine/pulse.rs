//! Signs of life of backends, and what is done where there are none.
//!
//! Whatever a backend tells is a sign of life. Silence does not count while a question is open or
//! a tool of Substrat runs: then the backend waits. It is told once when nothing was heard for
//! [`SILENCE`], and an attempt at a turn that stays silent for as long as its provider may is
//! ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::by_agent::ByAgent;
use crate::model::{AgentId, FailureClass};
use crate::provider::{Ended, Failure};

/// How long nothing is heard before it is told.
const SILENCE: Duration = Duration::from_secs(10);
/// How long an attempt that was silent for too long may take to end.
const GRACE: Duration = Duration::from_secs(20);

struct Heart {
    last: Instant,
    /// What the backend waits for.
    waits: usize,
    /// Its own tools that run.
    tools: Vec<String>,
}

/// The signs of life of one attempt at a turn.
pub(super) struct Pulse(Mutex<Heart>);

/// How long an attempt may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Patience {
    /// Without a tool of its own; none for as long as it likes.
    pub(super) alone: Option<Duration>,
    /// While one runs.
    pub(super) in_tool: Option<Duration>,
}

/// How long nothing was heard, and whether a tool of the backend runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Silent {
    since: Instant,
    waits: bool,
    in_tool: bool,
}

impl Pulse {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Heart { last: Instant::now(), waits: 0, tools: Vec::new() }))
    }

    fn heart(&self) -> MutexGuard<'_, Heart> {
        // Nothing under this lock can be left half done by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was heard.
    pub(super) fn beat(&self) {
        self.heart().last = Instant::now();
    }

    /// A tool of the backend starts.
    pub(super) fn tool_started(&self, id: &str) {
        let mut heart = self.heart();
        heart.last = Instant::now();
        heart.tools.push(id.to_owned());
    }

    /// It ended.
    pub(super) fn tool_ended(&self, id: &str) {
        let mut heart = self.heart();
        heart.last = Instant::now();
        heart.tools.retain(|open| open != id);
    }

    /// The backend waits until what is returned is dropped.
    pub(super) fn wait(self: &Arc<Self>) -> Waits {
        let mut heart = self.heart();
        heart.last = Instant::now();
        heart.waits += 1;
        Waits(self.clone())
    }

    fn silent(&self) -> Silent {
        let heart = self.heart();
        let (waits, in_tool) = (heart.waits > 0, !heart.tools.is_empty());
        Silent { since: heart.last, waits, in_tool }
    }

    /// Returns when nothing was heard for as long as may be, and how long that was. Each silence is
    /// told once.
    async fn stalls(&self, patience: Patience, tell: impl Fn(Duration)) -> Duration {
        let mut told = None;
        loop {
            let silent = self.silent();
            let allowed = if silent.in_tool { patience.in_tool } else { patience.alone };
            let (now, is_told) = (Instant::now(), told == Some(silent.since));
            let since = now - silent.since;
            if !silent.waits && allowed.is_some_and(|allowed| since >= allowed) {
                return since;
            }
            if !silent.waits && !is_told && since >= SILENCE {
                told = Some(silent.since);
                tell(since);
                continue;
            }
            let notice = if is_told { SILENCE + since } else { SILENCE };
            let next = silent.since + allowed.map_or(notice, |allowed| allowed.min(notice));
            // One that waits is looked at again; a sign of life moves the time on.
            let next = if silent.waits { now + SILENCE } else { next };
            tokio::time::sleep_until(next).await;
        }
    }
}

/// Held while a backend waits for something.
pub(super) struct Waits(Arc<Pulse>);

impl Drop for Waits {
    fn drop(&mut self) {
        let mut heart = self.0.heart();
        heart.last = Instant::now();
        heart.waits -= 1;
    }
}

/// How an attempt ended that was watched.
pub(super) struct Watched {
    pub(super) ended: Result<Ended, Failure>,
    /// Whether it was dropped, since it did not end when it was asked to.
    pub(super) abandoned: bool,
}

/// Runs an attempt, and ends it when it is silent for too long.
pub(super) async fn watched(
    run: impl Future<Output = Result<Ended, Failure>>,
    pulse: &Pulse,
    patience: Patience,
    cancel: &CancellationToken,
    tell: impl Fn(Duration),
) -> Watched {
    let mut run = Box::pin(run);
    let silent = tokio::select! {
        biased;
        ended = &mut run => return Watched { ended, abandoned: false },
        silent = pulse.stalls(patience, tell) => silent,
    };
    cancel.cancel();
    let ended = tokio::time::timeout(GRACE, run).await;
    let abandoned = ended.is_err();
    let ended = match ended {
        Ok(Ok(done @ Ended::Completed { .. })) => Ok(done),
        _ => {
            let message = format!("nothing was heard of it for {} s", silent.as_secs());
            Err(Failure::new(FailureClass::Stalled, message))
        }
    };
    Watched { ended, abandoned }
}

/// The pulses of all running attempts.
pub(super) type Pulses = ByAgent<Pulse>;

impl Pulses {
    /// The backend of an agent waits until what is returned is dropped.
    pub(super) fn wait(&self, agent: AgentId) -> Option<Waits> {
        self.get(agent).as_ref().map(Pulse::wait)
    }

    /// Whether nothing has been heard of an agent's backend for long.
    pub(super) fn is_silent(&self, agent: AgentId) -> bool {
        let silent = self.get(agent).map(|pulse| pulse.silent());
        silent.is_some_and(|silent| !silent.waits && silent.since.elapsed() >= SILENCE)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const PATIENCE: Patience =
        Patience { alone: Some(Duration::from_secs(30)), in_tool: Some(Duration::from_secs(300)) };

    /// Watches a pulse while something happens: how long after the start it was told of silence,
    /// and when it was too much.
    async fn course(happens: impl AsyncFnOnce(Arc<Pulse>)) -> (Vec<u64>, u64) {
        let (begun, told) = (Instant::now(), RefCell::new(Vec::new()));
        let pulse = Arc::new(Pulse::new());
        let tell = |_| told.borrow_mut().push(begun.elapsed().as_secs());
        let happens = async {
            happens(pulse.clone()).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            _ = pulse.stalls(PATIENCE, tell) => {}
            () = happens => {}
        }
        (told.into_inner(), begun.elapsed().as_secs())
    }

    async fn seconds(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_told_once_and_then_too_much() {
        assert_eq!(course(async |_| ()).await, (vec![10], 30));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sign_of_life_begins_the_time_anew() {
        let happens = async |pulse: Arc<Pulse>| {
            seconds(9).await;
            pulse.beat();
            seconds(15).await;
            pulse.beat();
        };
        assert_eq!(course(happens).await, (vec![19, 34], 54));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tool_of_the_backend_may_take_longer() {
        let happens = async |pulse: Arc<Pulse>| {
            pulse.tool_started("a");
            seconds(100).await;
            pulse.tool_ended("a");
        };
        assert_eq!(course(happens).await, (vec![10, 110], 130));
        let stays = async |pulse: Arc<Pulse>| pulse.tool_started("a");
        assert_eq!(course(stays).await, (vec![10], 300));
    }

    #[tokio::test(start_paused = true)]
    async fn a_backend_that_waits_is_not_silent() {
        let happens = async |pulse: Arc<Pulse>| {
            let waits = pulse.wait();
            seconds(1000).await;
            drop(waits);
        };
        assert_eq!(course(happens).await, (vec![1010], 1030));
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_be_silent_for_ever_is_told_of_once() {
        let pulse = Pulse::new();
        let told = RefCell::new(0);
        let patience = Patience { alone: None, in_tool: None };
        let stalls = pulse.stalls(patience, |_| *told.borrow_mut() += 1);
        let day = Duration::from_secs(86_400);
        assert!(tokio::time::timeout(day, stalls).await.is_err());
        assert_eq!(told.into_inner(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_does_not_end_when_it_is_asked_to_is_dropped() {
        let (pulse, cancel) = (Pulse::new(), CancellationToken::new());
        let hangs = watched(std::future::pending(), &pulse, PATIENCE, &cancel, |_| ()).await;
        assert!(hangs.abandoned && cancel.is_cancelled());
        assert_eq!(hangs.ended.unwrap_err().class, FailureClass::Stalled);
        let (pulse, cancel) = (Pulse::new(), CancellationToken::new());
        let ends = async {
            cancel.cancelled().await;
            Ok(Ended::Cancelled)
        };
        let ends = watched(ends, &pulse, PATIENCE, &cancel, |_| ()).await;
        assert!(!ends.abandoned);
        assert_eq!(ends.ended.unwrap_err().class, FailureClass::Stalled);
    }
}
