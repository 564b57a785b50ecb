use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::fake::Fake;
use super::*;
use crate::engine::{
    Answer, Archive, CheckpointDone, Ended, Engine, Fatal, Handle, Item, Limits, Parts, RandomIds,
    Refusal, Removal, Sink, Span, ToolSocket, ToolSockets, now,
};
use crate::journal::{self, Disk, DiskFile, Fault, Journal, SimDisk, Writer};
use crate::model::{
    AgentId, Commit, Entry, Event, FailureClass, Outcome, Rejection, Request, SessionId, State,
};
use crate::provider::{Provider, Registry};
use crate::workspace::Files;

/// A simulated disk whose syncs can be held back.
#[derive(Clone)]
struct SlowDisk {
    disk: SimDisk,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
    /// Cancelled when a sync is held back.
    held: CancellationToken,
}

impl Gate {
    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let mut closed = self.closed.lock().unwrap();
        while *closed {
            self.held.cancel();
            closed = self.opened.wait(closed).unwrap();
        }
    }
}

impl SlowDisk {
    fn file(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(SlowFile { file, gate: self.gate.clone() })
    }
}

impl Disk for SlowDisk {
    fn open(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(path).map(|file| self.file(file))
    }
    fn create(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.disk.create(path).map(|file| self.file(file))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.disk.create_dir(path)
    }
    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.disk.remove_dir(path)
    }
    fn size(&self, path: &str) -> io::Result<u64> {
        self.disk.size(path)
    }
    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.disk.list(path)
    }
    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn sync_many(&self, files: &[String], dirs: &[String]) -> io::Result<()> {
        self.disk.sync_many(files, dirs)
    }
}

struct SlowFile {
    file: Box<dyn DiskFile>,
    gate: Arc<Gate>,
}

impl DiskFile for SlowFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(data, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.gate.pass();
        self.file.sync()
    }
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
    fn set_size(&self, size: u64) -> io::Result<()> {
        self.file.set_size(size)
    }
}

/// What went where, in order.
type Log = Arc<Mutex<Vec<String>>>;

struct Recorder(Log, mpsc::UnboundedSender<SessionId>);

impl Sink for Recorder {
    fn commit(&mut self, commit: &Arc<Commit>) {
        let names = commit.lines.iter().map(|line| line.entry.event.name().to_owned());
        self.0.lock().unwrap().extend(names);
    }
    fn removal(&self, session: SessionId) -> Removal {
        let removed = self.1.clone();
        Box::new(move || removed.send(session).unwrap())
    }
    fn checkpoint(&mut self, sequence: u64, _: Vec<u8>, done: Option<CheckpointDone>) {
        self.0.lock().unwrap().push(format!("checkpoint {sequence}"));
        if let Some(done) = done {
            let _ = done.send(Ok(()));
        }
    }
    fn backlog(&self) -> u64 {
        0
    }
}

struct Nothing;

impl Archive for Nothing {
    fn settled(&self) -> BoxFuture<'_, ()> {
        async {}.boxed()
    }
    fn read(&self, _: &[Span], _: u64, _: u64) -> io::Result<Vec<Entry>> {
        Ok(Vec::new())
    }
    fn scan(&self, _: SessionId, _: u64, _: &mut dyn FnMut(Entry) -> bool) -> io::Result<()> {
        Ok(())
    }
    fn tail(&self, _: SessionId, _: usize) -> io::Result<Vec<Entry>> {
        Ok(Vec::new())
    }
    fn before(&self, _: SessionId, _: u64, _: usize) -> io::Result<Vec<Entry>> {
        Ok(Vec::new())
    }
    fn transcript(&self, _: SessionId, _: u64, _: usize) -> io::Result<(String, u64)> {
        Ok((String::new(), 0))
    }
}

impl ToolSockets for Nothing {
    fn open(&self, _: AgentId, _: SessionId, _: Handle) -> io::Result<ToolSocket> {
        Ok(ToolSocket { path: std::path::PathBuf::new(), guard: Box::new(()) })
    }
}

pub(super) struct World {
    slow: SlowDisk,
    journal: Journal,
    pub(super) handle: Handle,
    log: Log,
    /// Deleted sessions of which what lies outside the log was removed.
    pub(super) removed: mpsc::UnboundedReceiver<SessionId>,
    running: JoinSet<Result<Ended, Fatal>>,
    _folder: tempfile::TempDir,
}

impl World {
    pub(super) fn new(segment_bytes: u64) -> Self {
        Self::with(segment_bytes, Registry::of([Arc::new(Fake::default()) as Arc<dyn Provider>]))
    }

    pub(super) fn with(segment_bytes: u64, providers: Registry) -> Self {
        Self::of(segment_bytes, providers, Arc::new(Nothing))
    }

    pub(super) fn of(
        segment_bytes: u64,
        providers: Registry,
        sockets: Arc<dyn ToolSockets>,
    ) -> Self {
        let slow = SlowDisk { disk: SimDisk::new(1), gate: Arc::default() };
        slow.create_dir(journal::DIR).unwrap();
        let scanned = journal::scan::<journal::Error>(&slow, 0, |_| Ok(())).unwrap();
        let options = journal::Options { segment_bytes };
        let writer = Writer::open(Arc::new(slow.clone()), options, &scanned).unwrap();
        let journal = Journal::start(writer).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let log = Log::default();
        let (told, removed) = mpsc::unbounded_channel();
        let parts = Parts {
            journal: journal.clone(),
            sink: Box::new(Recorder(log.clone(), told)),
            providers,
            files: Files::new(folder.path().join("workspaces"), folder.path()),
            shells: Arc::new(crate::engine::NoShells),
            sockets,
            limits: Limits::default(),
            clock: Arc::new(now),
        };
        let ids = Box::new(RandomIds::from_seed(1));
        let (engine, handle) =
            Engine::new(State::default(), Vec::new(), policy(), ids, Arc::new(Nothing), parts);
        let mut running = JoinSet::new();
        running.spawn(engine.run());
        Self { slow, journal, handle, log, removed, running, _folder: folder }
    }

    async fn agents(&self) -> usize {
        self.handle.read(|state| state.agents().count()).await.unwrap()
    }

    pub(super) async fn ask(&self, agent: &str, text: &str) -> Answer {
        self.handle.send(send(agent, text), None).await.unwrap().answer.await.unwrap()
    }

    pub(super) fn events(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    async fn ended(mut self) -> Result<Ended, Fatal> {
        self.running.join_next().await.unwrap().unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.slow.gate.set(false);
        self.journal.close();
    }
}

/// Lets everything else that can go on do so.
pub(super) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn nobody_is_told_anything_before_it_is_durable() {
    let world = World::new(1 << 20);
    world.slow.gate.set(true);
    let mut waiting: VecDeque<BoxFuture<'_, String>> = VecDeque::new();
    let created = world.handle.execute(create("a"), None);
    waiting.push_back(created.map(|done| format!("created {}", done.is_ok())).boxed());
    let twice = world.handle.execute(create("a"), None);
    waiting.push_back(twice.map(|done| format!("twice {}", done.is_ok())).boxed());
    waiting.push_back(world.agents().map(|count| format!("{count} agents")).boxed());
    for future in &mut waiting {
        assert_eq!(future.now_or_never(), None);
    }
    world.slow.gate.held.cancelled().await;
    settle().await;
    for future in &mut waiting {
        assert_eq!(future.now_or_never(), None, "the disk has not synced");
    }
    assert_eq!(world.handle.feed().last(), 0);
    assert!(world.events().is_empty());

    world.slow.gate.set(false);
    let mut told = Vec::new();
    for future in waiting {
        told.push(future.await);
    }
    assert_eq!(told, ["created true", "twice false", "1 agents"]);
    assert!(world.handle.feed().last() > 0);
    assert_eq!(world.handle.feed().last(), world.journal.durable());
}

#[tokio::test]
async fn a_rejection_and_a_read_with_nothing_to_wait_for_are_told_at_once() {
    let world = World::new(1 << 20);
    world.slow.gate.set(true);
    let refused = world.handle.execute(send("nobody", "x"), None).await;
    assert!(matches!(refused, Err(Refusal::Rejected(Rejection::AgentNotFound { .. }))));
    assert_eq!(world.agents().await, 0);
    assert!(!world.slow.gate.held.is_cancelled());
}

#[tokio::test]
async fn a_journal_that_failed_acknowledges_nothing_more() {
    let mut world = World::new(1 << 20);
    world.handle.execute(create("before"), None).await.unwrap();
    let last = world.handle.feed().last();
    let operations = world.slow.disk.operations();
    for operation in 1..=20 {
        world.slow.disk.set_fault(operations + operation, Fault::Eio);
    }
    let lost = world.handle.execute(create("lost"), None).await;
    assert_eq!(lost, Err(Refusal::Stopped));
    assert_eq!(world.handle.feed().last(), last, "and nobody saw it");
    let ended = world.running.join_next().await.unwrap().unwrap();
    assert!(ended.unwrap_err().to_string().contains("nothing more is acknowledged"));
    assert_eq!(world.handle.execute(create("later"), None).await, Err(Refusal::Stopped));
    assert_eq!(world.handle.read(|state| state.seq()).await, Err(Refusal::Stopped));
}

#[tokio::test]
async fn a_full_disk_refuses_changes_until_there_is_space() {
    let world = World::new(4096);
    world.handle.execute(create("first"), None).await.unwrap();
    // None, whatever the journal removes meanwhile.
    world.slow.disk.set_capacity(Some(0));
    let mut full = world.journal.watch_full();
    let mut accepted = 1;
    let mut pending = None;
    while !*full.borrow_and_update() {
        let name = format!("agent-{accepted}");
        let handle = world.handle.clone();
        let mut done = async move { handle.execute(create(&name), None).await }.boxed();
        tokio::select! {
            done = &mut done => match done {
                Ok(_) => accepted += 1,
                Err(refusal) => assert_eq!(refusal, Refusal::DiskFull),
            },
            // Told also of a segment that was prepared before.
            _ = full.wait_for(|full| *full) => pending = Some(done),
        }
    }
    for _ in 0..3 {
        let refused = world.handle.execute(create("refused"), None).await;
        assert_eq!(refused, Err(Refusal::DiskFull));
    }
    world.slow.disk.set_capacity(None);
    full.wait_for(|full| !*full).await.unwrap();
    if let Some(pending) = pending
        && pending.await.is_ok()
    {
        accepted += 1;
    }
    assert_eq!(world.agents().await, accepted, "what was refused left nothing behind");
    world.handle.execute(create("refused"), None).await.unwrap();
    assert_eq!(world.agents().await, accepted + 1);
}

#[tokio::test]
async fn what_makes_room_is_done_on_a_full_disk() {
    let world = World::new(1 << 20);
    for name in ["first", "hog"] {
        world.handle.execute(create(name), None).await.unwrap();
    }
    world.slow.disk.set_capacity(Some(0));
    let long = Command::UpdateAgent {
        agent: "hog".into(),
        instructions: Some("x".repeat(900).into()),
        role: None,
        metadata: BTreeMap::new(),
        budgets: Vec::new(),
    };
    let refusal = loop {
        if let Err(refusal) = world.handle.execute(long.clone(), None).await {
            break refusal;
        }
    };
    assert_eq!(refusal, Refusal::DiskFull);
    assert!(world.journal.is_full());
    let refused = world.handle.execute(send("hog", "more"), None).await;
    assert_eq!(refused, Err(Refusal::DiskFull));
    let end = Command::Terminate { agent: "first".into(), recursive: false };
    world.handle.execute(end, None).await.unwrap();
    assert!(world.journal.is_full());
    assert_eq!(world.handle.feed().last(), world.journal.durable());
    // That is refused before there is no room, and nothing waits for what may never come.
    let gate = Command::Gate { agent: "hog".into() };
    let mut gated = 0;
    let refusal = loop {
        // One that changes nothing is remembered by its key.
        let request = Request { id: format!("gate-{gated}"), fingerprint: "f".into() };
        match world.handle.execute(gate.clone(), Some(request)).await {
            Ok(_) => gated += 1,
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refusal, Refusal::DiskFull);
    assert!(gated > 100, "{gated}");
}

#[tokio::test]
async fn who_asks_again_of_an_agent_that_has_ended_is_told_so() {
    let world = World::new(1 << 20);
    world.handle.execute(create("a"), None).await.unwrap();
    let again = || Request { id: "once".into(), fingerprint: "f".into() };
    world.handle.execute(Command::Gate { agent: "a".into() }, None).await.unwrap();
    drop(world.handle.send(send("a", "hello"), Some(again())).await.unwrap());
    let end = Command::Terminate { agent: "a".into(), recursive: false };
    world.handle.execute(end, None).await.unwrap();
    let waiting = world.handle.send(send("a", "hello"), Some(again())).await.unwrap();
    assert_eq!(waiting.answer.await, Ok(Answer::Terminated));
}

#[tokio::test]
async fn checkpoints_asked_for_at_once_are_all_answered() {
    let world = World::new(1 << 20);
    world.handle.execute(create("a"), None).await.unwrap();
    let (one, two, three) = tokio::join!(
        world.handle.checkpoint(),
        world.handle.checkpoint(),
        world.handle.checkpoint()
    );
    assert_eq!([one, two, three], [Ok(Ok(())), Ok(Ok(())), Ok(Ok(()))]);
    let last = format!("checkpoint {}", world.handle.feed().last());
    assert!(world.events().contains(&last), "{:?}", world.events());
}

#[tokio::test]
async fn a_message_is_answered_with_how_its_turn_ended() {
    let world = World::new(1 << 20);
    world.handle.execute(create("a"), None).await.unwrap();
    let answer = world.ask("a", "hello").await;
    assert!(matches!(answer, Answer::Completed { response, .. } if &*response == "done: hello"));
    let answer = world.ask("a", "fail").await;
    assert!(matches!(answer, Answer::Failed { class: FailureClass::Permanent, .. }), "{answer:?}");
}

#[tokio::test]
async fn a_panic_in_a_turn_is_told_and_disturbs_no_other_agent() {
    let world = World::new(1 << 20);
    for name in ["a", "b"] {
        world.handle.execute(create(name), None).await.unwrap();
    }
    let waiting = world.handle.send(send("b", "wait"), None).await.unwrap();
    let Outcome::Message { .. } = world.handle.execute(send("a", "panic"), None).await.unwrap()
    else {
        panic!("a message was sent")
    };
    let mut news = world.handle.feed().watch();
    while !world.events().iter().any(|name| name == "agent.crashed") {
        news.changed().await.unwrap();
    }
    let cancel = Command::CancelTurn { agent: "b".into(), turn: None };
    world.handle.execute(cancel, None).await.unwrap();
    let answer = waiting.answer.await;
    assert!(matches!(answer, Ok(Answer::Cancelled { .. })), "{answer:?}");
    let answer = world.ask("b", "go on").await;
    assert!(matches!(answer, Answer::Completed { .. }), "{answer:?}");
}

#[tokio::test]
async fn a_turn_that_fails_in_passing_is_tried_again() {
    let world = World::new(1 << 20);
    world.handle.execute(create("a"), None).await.unwrap();
    let answer = world.ask("a", "fail once").await;
    assert!(matches!(answer, Answer::Completed { .. }), "{answer:?}");
    let tried = world.events().iter().filter(|name| *name == "turn.start").count();
    assert_eq!(tried, 1, "as one turn: {:?}", world.events());
}

#[tokio::test]
async fn only_a_call_that_has_an_event_holds_back_what_is_said_after_it() {
    let world = World::new(1 << 20);
    let created = world.handle.execute(create("a"), None).await.unwrap();
    let Outcome::Agent(agent) = created else { panic!("an agent was created") };
    let _waiting = world.handle.send(send("a", "call"), None).await.unwrap();
    let mut news = world.handle.feed().watch();
    let output = loop {
        match world.handle.outputs().get(agent) {
            Some(output) => break output,
            None => news.changed().await.unwrap(),
        }
    };
    let (mut place, mut items) = (0, Vec::new());
    while !matches!(items.last(), Some(Item::Delta { index: 1, .. })) {
        output.changed(place).await;
        items.extend(output.read(&mut place, 1).items);
    }
    let kinds: Vec<&str> = items
        .iter()
        .map(|item| match item {
            Item::Delta { text, .. } => &**text,
            Item::Call(_) => "call",
            Item::After(_) => "after",
            Item::Mark(_) | Item::Replaced { .. } => "other",
        })
        .collect();
    assert_eq!(kinds, ["after", "refused", "call", "after", "called"]);
}

#[tokio::test]
async fn a_drain_lets_turns_end_and_says_so_last() {
    let world = World::new(1 << 20);
    world.handle.execute(create("a"), None).await.unwrap();
    let waiting = world.handle.send(send("a", "wait"), None).await.unwrap();
    let mut draining = world.handle.draining();
    let (handle, log) = (world.handle.clone(), world.log.clone());
    assert_eq!(handle.drain(Some(Duration::ZERO)).await, Ok(1));
    draining.wait_for(|draining| *draining).await.unwrap();
    waiting.answer.await.expect_err("the message stays for the next daemon");
    let Ended { sequence } = world.ended().await.unwrap();
    assert_eq!(handle.feed().last(), sequence);
    let mut last = None;
    handle
        .feed()
        .read(sequence - 1, |line| {
            last = Some(line.entry.event.clone());
            true
        })
        .unwrap();
    assert!(matches!(last, Some(Event::DaemonStopped(_))), "{:?}", log.lock().unwrap());
    assert_eq!(handle.execute(create("late"), None).await, Err(Refusal::Stopped));
}
