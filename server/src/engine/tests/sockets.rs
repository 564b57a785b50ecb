//! When the tool socket of a session is closed, and what lies of it is removed.

use std::io;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::driver::{World, settle};
use super::fake::Fake;
use super::*;
use crate::engine::handle::Report;
use crate::engine::{Handle, ToolSocket, ToolSockets};
use crate::model::{AgentId, SessionId};
use crate::provider::{Provider, Registry};

/// Sockets that are told of in the log: one that closes creates an agent.
struct Told;

struct Guard(Handle);

impl ToolSockets for Told {
    fn open(&self, _: AgentId, _: SessionId, handle: Handle) -> io::Result<ToolSocket> {
        let path = std::path::PathBuf::new();
        Ok(ToolSocket { path, guard: Box::new(Guard(handle)) })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.reports.send(Report::Command(create("closed")));
    }
}

fn world() -> World {
    let fake = Arc::new(Fake::with_socket()) as Arc<dyn Provider>;
    World::of(1 << 20, Registry::of([fake]), Arc::new(Told))
}

/// What the log says once both an agent was created and something else was told.
async fn until(world: &World, wanted: &str) -> Vec<String> {
    let mut news = world.handle.feed().watch();
    loop {
        let events = world.events();
        let created = events.iter().filter(|name| *name == "agent.created").count();
        if created == 2 && events.iter().any(|name| name == wanted) {
            return events
                .into_iter()
                .filter(|name| name == "agent.created" || name == wanted)
                .collect();
        }
        news.changed().await.unwrap();
    }
}

#[tokio::test]
async fn a_session_is_suspended_once_its_socket_is_closed() {
    let world = world();
    world.handle.execute(create("a"), None).await.unwrap();
    world.ask("a", "hello").await;
    let session = world.handle.read(|state| state.agents().next().unwrap().session.id);
    let session = session.await.unwrap().to_string();
    world.handle.execute(Command::SuspendSession { session }, None).await.unwrap();
    let told = until(&world, "suspend.result").await;
    assert_eq!(told, ["agent.created", "agent.created", "suspend.result"]);
}

#[tokio::test]
async fn a_crash_is_told_once_the_socket_is_closed() {
    let world = world();
    world.handle.execute(create("a"), None).await.unwrap();
    world.handle.execute(send("a", "panic"), None).await.unwrap();
    let told = until(&world, "agent.crashed").await;
    assert_eq!(told, ["agent.created", "agent.created", "agent.crashed"]);
}

#[test]
fn what_lies_of_a_session_is_removed_once_nothing_of_it_runs() {
    // What blocks is done in the order in which it came, by a single thread.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(delete_one_that_still_runs());
}

async fn delete_one_that_still_runs() {
    let may_close = Arc::new(Semaphore::new(0));
    let fake = Arc::new(Fake::slow(may_close.clone())) as Arc<dyn Provider>;
    let mut world = World::with(1 << 20, Registry::of([fake]));
    world.handle.execute(create("a"), None).await.unwrap();
    world.ask("a", "hello").await;
    let agent = "a".to_owned();
    world.handle.execute(Command::Terminate { agent, recursive: false }, None).await.unwrap();
    let session = world.handle.read(|state| state.agents().next().unwrap().session.id);
    let session = session.await.unwrap();
    let deleted = Command::DeleteSession { session: session.to_string() };
    world.handle.execute(deleted, None).await.unwrap();
    settle().await;
    tokio::task::spawn_blocking(|| ()).await.unwrap();
    assert!(world.removed.try_recv().is_err(), "its backend still runs");
    may_close.add_permits(1);
    assert_eq!(world.removed.recv().await, Some(session));
}
