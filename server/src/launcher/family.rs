//! The children of the daemon: those that it started, and those that fell to it.
//!
//! Without a sandbox, a command can kill the first process of its launch. What that one leaves
//! falls to the daemon, which ends it. Which of its children the daemon started is known here and
//! nowhere else, so everything that it starts is started here. A process has one family, so this is
//! one for all launchers.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, pidfd_open,
    set_child_subreaper, waitid, waitpid,
};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::leftovers::{children, is_gone, is_zombie, start_time, wait_for};

/// How long the end of what fell to the daemon is pursued.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long who cannot wait for them lets them end.
const SHORT: Duration = Duration::from_millis(50);
/// How often it is looked for at most.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether this process adopts: else its children are not the launcher's alone.
static ADOPTS: AtomicBool = AtomicBool::new(false);
/// Read by who starts a child, until that is in [`OWN`].
static STARTING: RwLock<()> = RwLock::new(());
/// Children that were started, by their numbers.
static OWN: Mutex<BTreeMap<i32, Own>> = Mutex::new(BTreeMap::new());
/// Held by who signals or reaps a stranger it has just found: its number is not another's meanwhile.
static REAPING: Mutex<()> = Mutex::new(());
/// First processes of launches without a sandbox that nobody waits for any more.
static LEFT: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// A child that was started.
struct Own {
    /// The clock tick in which it was; none if that could not be read.
    started: Option<u64>,
    /// Whether what it leaves falls to the daemon only if it is killed.
    keeps: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a child of the daemon.
///
/// # Errors
///
/// What the system said.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    start(command, false)
}

/// Starts the first process of a launch without a sandbox.
pub(super) fn spawn_keeper(command: &mut Command) -> io::Result<Child> {
    start(command, true)
}

fn start(command: &mut Command, keeps: bool) -> io::Result<Child> {
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    let child = command.spawn()?;
    own(child.id(), keeps);
    Ok(child)
}

/// Runs a child to its end, and returns what it wrote to stdout.
pub(super) fn output(command: &mut std::process::Command) -> io::Result<Vec<u8>> {
    let child = {
        let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
        let child = command.stdout(std::process::Stdio::piped()).spawn()?;
        own(Some(child.id()), false);
        child
    };
    Ok(child.wait_with_output()?.stdout)
}

fn own(pid: Option<u32>, keeps: bool) {
    if let Some(pid) = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
        let started = start_time(pid).ok();
        lock(&OWN).insert(pid.as_raw_nonzero().get(), Own { started, keeps });
    }
}

/// Whether a child that was started may still be there: where that cannot be told, it is.
fn is_there(pid: i32, own: &Own) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return false };
    match start_time(pid) {
        Ok(now) => own.started.is_none_or(|started| started == now),
        Err(error) => !is_gone(&error),
    }
}

/// Makes this process the one to which what its descendants leave falls. Children that it has are
/// taken for its own.
pub(super) fn adopt() -> io::Result<()> {
    let _alone = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    for child in children(getpid())? {
        own(u32::try_from(child.as_raw_nonzero().get()).ok(), false);
    }
    set_child_subreaper(Some(getpid()))?;
    ADOPTS.store(true, Ordering::Release);
    Ok(())
}

/// Children that nobody here started.
fn strangers() -> Vec<Pid> {
    if !ADOPTS.load(Ordering::Acquire) {
        return Vec::new();
    }
    let _alone = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    // Who cannot look takes nobody for a stranger.
    let Ok(mut all) = children(getpid()) else { return Vec::new() };
    let mut own = lock(&OWN);
    // The list may leave one out that is there.
    own.retain(|pid, own| is_there(*pid, own));
    all.retain(|pid| !own.contains_key(&pid.as_raw_nonzero().get()));
    all
}

/// Whether the first process of a launch was ended by somebody else: it ends itself by exiting.
pub(super) fn was_killed(status: &io::Result<ExitStatus>) -> bool {
    status.as_ref().map_or(true, |status| status.signal().is_some())
}

/// Keeps an eye on a first process that nobody waits for.
pub(super) fn leave(child: Child) {
    if ADOPTS.load(Ordering::Acquire) {
        lock(&LEFT).push(child);
    }
}

/// Ends all that fell to the daemon, however often it forks.
pub(super) fn end_strangers() {
    let begun = Instant::now();
    loop {
        let (found, open) = kill_strangers();
        if found.is_empty() {
            return;
        }
        if begun.elapsed() > PATIENCE {
            tracing::error!(pids = ?found, "what a killed launch left does not end");
            return;
        }
        if open.is_empty() {
            #[expect(
                clippy::disallowed_methods,
                reason = "files are short, so none tells of its end"
            )]
            std::thread::sleep(SHORT);
        }
        for open in open {
            wait_for(&open);
            let _reaping = lock(&REAPING);
            let _ =
                waitid(WaitId::PidFd(open.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
    }
}

/// Kills all that fell to the daemon. Returns what it is, and what to wait for it with.
fn kill_strangers() -> (Vec<Pid>, Vec<OwnedFd>) {
    let _reaping = lock(&REAPING);
    let found = strangers();
    let running = found.iter().filter(|pid| !is_zombie(**pid)).count();
    if running > 0 {
        tracing::warn!(processes = running, "ending what a killed launch left");
    }
    let killed = found.iter().filter_map(|pid| {
        // One that has ended meanwhile is what is wanted.
        let _ = kill_process(*pid, Signal::KILL);
        pidfd_open(*pid, PidfdFlags::empty()).ok()
    });
    let killed = killed.collect();
    (found, killed)
}

/// Whether a child was killed for which nobody has waited yet: who reads what it wrote first waits
/// until what it left lets go of that.
fn is_killed(pid: i32) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let looked = Pid::from_raw(pid).and_then(|pid| waitid(WaitId::Pid(pid), look).ok()?);
    looked.is_some_and(|status| status.terminating_signal().is_some())
}

/// Waits for what has ended and for what nobody else waits. Returns whether a launch was killed.
fn tidy() -> bool {
    {
        let _reaping = lock(&REAPING);
        for pid in strangers().into_iter().filter(|pid| is_zombie(*pid)) {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
    let mut killed = lock(&OWN).iter().any(|(pid, own)| own.keeps && is_killed(*pid));
    lock(&LEFT).retain_mut(|child| match child.try_wait() {
        Ok(None) => true,
        Ok(Some(status)) => {
            killed |= was_killed(&Ok(status));
            false
        }
        Err(_) => false,
    });
    killed
}

/// Looks after what falls to the daemon, for as long as it runs.
pub(super) async fn watch() -> Infallible {
    let Ok(mut ended) = signal(SignalKind::child()) else { return std::future::pending().await };
    loop {
        let looked = tokio::task::spawn_blocking(|| {
            if tidy() {
                end_strangers();
            }
        });
        if let Err(error) = looked.await {
            tracing::error!(%error, "looking after children failed");
        }
        ended.recv().await;
        // Many end together.
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_forgotten_only_when_it_is_gone() {
        let pid = getpid().as_raw_nonzero().get();
        let own = |started| Own { started, keeps: false };
        let started = start_time(getpid()).unwrap();
        assert!(is_there(pid, &own(Some(started))) && is_there(pid, &own(None)));
        assert!(!is_there(pid, &own(Some(started + 1))), "another process has its number");
        assert!(!is_there(i32::MAX, &own(None)));
    }
}
