//! Recovery on the simulated disk: a small story of a team, with a crash at every operation.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::engine::{Core, Staged};
use crate::journal::{Crash, Fault, SimDisk};
use crate::model::{
    CallId, Command, IdSource, Json, NewAgent, NewWorkspace, Outcome, Policy, ProviderPolicy,
    Request, Resume, Saved, Snapshot, Timestamp, TurnEnd,
};

/// What a story was told under: other bytes would make the golden files differ.
const BEGUN: i64 = 1_772_107_200_000_000;

/// Identities that count up, each written as if it were random.
#[derive(Clone)]
struct Counted(u128);

impl IdSource for Counted {
    fn next_u128(&mut self) -> u128 {
        self.0 += 1;
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
    }
}

fn policy() -> Policy {
    let provider = ProviderPolicy { slots: 2, call_limit: None };
    Policy {
        providers: BTreeMap::from([("scripted".into(), provider)]),
        default_provider: "scripted".into(),
        max_text: 10_000,
        max_inbox: 100,
        max_user_inbox: 1000,
        max_inbox_bytes: 1 << 20,
        max_agents: 100,
        max_depth: 5,
        max_waiting: 10,
        max_reminders: 5,
        max_subscriptions: 5,
        multicast_timeout: Duration::from_secs(600),
        max_setbacks: 3,
        resume: Resume::Roots,
        request_retention: Duration::from_secs(3600),
        draining: false,
    }
}

fn options(boot: &str) -> Options {
    let journal = journal::Options { segment_bytes: 4096 };
    Options { journal, max_open_files: 3, boot: boot.to_owned() }
}

/// A daemon that does one thing at a time.
struct Daemon {
    disk: SimDisk,
    core: Core,
    writer: Writer,
    projector: Projector,
    ids: Counted,
    now: Timestamp,
    report: Report,
    /// Sequence of the last event that was acknowledged.
    durable: u64,
}

impl Daemon {
    /// Recovers. Everything follows from the disk and the number of the start.
    fn start(disk: &SimDisk, boot: &str, number: u64) -> Result<Self, Error> {
        disk.create_dir(journal::DIR).map_err(journal::Error::io("making a folder"))?;
        disk.create_dir(projection::DIR).map_err(journal::Error::io("making a folder"))?;
        disk.sync_dir("").map_err(journal::Error::io("syncing the home"))?;
        let now = Timestamp::from_micros(BEGUN).after(Duration::from_secs(60 * number));
        let mut ids = Counted(u128::from(number) * 1000);
        let policy = policy();
        let cx = &mut Context { now, policy: &policy, ids: &mut ids, attended: &|_| false };
        let replayed = scan(Arc::new(disk.clone()), options(boot))?.replay()?;
        let Recovered { state, writer, mut projector, report, .. } =
            replayed.reconcile(cx, "1.0.0")?;
        projector.end_recovery()?;
        let durable = state.seq();
        let core = Core::new(state, policy, Box::new(ids.clone()), 1 << 20);
        Ok(Self { disk: disk.clone(), core, writer, projector, ids, now, report, durable })
    }

    fn run(&mut self, command: Command) -> Result<Outcome, Error> {
        self.run_request(command, None)
    }

    /// Does a command, makes it durable, and projects it.
    fn run_request(
        &mut self,
        command: Command,
        request: Option<&Request>,
    ) -> Result<Outcome, Error> {
        self.now = self.now.after(Duration::from_millis(250));
        let outcome = self.core.submit(command, request, self.now).expect("it is not refused");
        let Some(Staged { records, release }) = self.core.take() else { return Ok(outcome) };
        let mut pending = Pending::default();
        for record in &records {
            assert!(pending.push(record.sequence, &record.lines, record.events));
        }
        while let Some(plan) = self.writer.needs(&pending) {
            self.writer.adopt(plan.prepare()?);
        }
        self.writer.commit(&mut pending)?;
        self.durable = self.core.state().seq();
        self.projector.push(&release.commit);
        self.projector.flush()?;
        Ok(outcome)
    }

    fn checkpoint(&mut self) -> Result<(), Error> {
        let mut state = Vec::new();
        Snapshot::write(self.core.state(), &mut state).expect("a snapshot");
        let files = self.projector.cut()?.sync(&self.disk)?;
        files.write(&self.disk, self.core.state().seq(), &state, self.writer.segment())?;
        Ok(())
    }

    fn create(&mut self, name: &str, parent: Option<&str>) -> Result<(), Error> {
        let agent = NewAgent {
            name: name.into(),
            instructions: "fn turn(prompt) { prompt }".into(),
            ..NewAgent::default()
        };
        self.run(Command::CreateAgent { agent, parent: parent.map(Into::into) }).map(drop)
    }

    fn send(&mut self, agent: &str, text: &str) -> Result<(), Error> {
        let request = Request { id: format!("key of {text}"), fingerprint: text.into() };
        let metadata = BTreeMap::new();
        let send = Command::SendMessage { agent: agent.into(), text: text.into(), metadata };
        self.run_request(send, Some(&request)).map(drop)
    }

    fn call(&mut self, agent: &str, tool: &str, args: &serde_json::Value) -> Result<(), Error> {
        let id = self.core.state().resolve(agent).expect("it is there").id;
        let call = CallId::fresh(&mut self.ids);
        let args = Json::of(args).expect("JSON");
        let call = Command::CallTool {
            agent: id,
            turn: None,
            call,
            tool: tool.into(),
            args,
            objection: None,
        };
        self.run(call).map(drop)
    }

    fn complete(&mut self, agent: &str, response: &str) -> Result<(), Error> {
        let agent = self.core.state().resolve(agent).expect("it is there");
        let (agent, turn) = (agent.id, agent.turn().expect("a turn runs").id);
        let saved = Saved::State(response.as_bytes().to_vec().into());
        let end = TurnEnd::Completed { response: response.into(), saved };
        self.run(Command::FinishTurn { agent, turn, end, attended: Vec::new() }).map(drop)
    }

    fn records(&mut self) -> Result<(), Error> {
        while self.projector.flush_record()? {}
        Ok(())
    }
}

/// A lead asks a helper while USER waits; a checkpoint; another helper comes and goes.
fn story(daemon: &mut Daemon) -> Result<(), Error> {
    daemon.create("lead", None)?;
    daemon.create("alpha", Some("lead"))?;
    daemon.send("lead", "what is the answer?")?;
    let ask = serde_json::json!({"recipient": "alpha", "text": "do you know?"});
    daemon.call("lead", "send_message", &ask)?;
    daemon.complete("alpha", "forty-two\nor so")?;
    daemon.complete("lead", "it is 42")?;
    daemon.run(Command::CreateWorkspace { new: NewWorkspace::named("source") })?;
    daemon.records()?;
    daemon.checkpoint()?;
    daemon.create("beta", Some("lead"))?;
    daemon.run(Command::Gate { agent: "beta".into() })?;
    daemon.send("beta", "you may not")?;
    daemon.run(Command::Terminate { agent: "beta".into(), recursive: false })?;
    daemon.send("lead", "and now?")?;
    daemon.records()
}

/// The lines of all logs, in order.
fn logged(disk: &SimDisk) -> Vec<(Entry, Vec<u8>)> {
    let names = disk.list(projection::DIR).unwrap();
    let sessions = names.iter().filter_map(|name| name.parse().ok()).map(Some).chain([None]);
    let spans: Vec<_> =
        sessions.map(|session| projection::Span { session, first: 1, last: u64::MAX }).collect();
    projection::read_merged(disk, &spans, 1, u64::MAX).unwrap()
}

/// Everything that a recovered home must be.
fn check(daemon: &mut Daemon) {
    daemon.records().unwrap();
    let (disk, state) = (&daemon.disk, daemon.core.state());
    let mut fold = State::default();
    for (at, (entry, _)) in logged(disk).iter().enumerate() {
        assert_eq!(entry.seq, at as u64 + 1, "no event is missing");
        fold.apply(entry);
    }
    assert_eq!(fold, *state, "the state is the fold of the logs");
    let before = disk.contents();
    let copy = disk.fork();
    assert_eq!(projection::rebuild(&copy, None).unwrap().state, fold);
    assert_eq!(copy.contents(), before, "a rebuild writes the transcripts as they were");
    for agent in state.agents() {
        let path = format!("{}/session.json", projection::session_dir(agent.session.id));
        let mut record = serde_json::to_vec_pretty(&agent.session.record()).unwrap();
        record.push(b'\n');
        assert_eq!(before.get(&path), Some(&record), "{path}");
    }
    assert!(daemon.report.quarantined.is_empty() && daemon.projector.quarantined().is_empty());
}

/// A disk on which the story was told as far as an operation; what was acknowledged of it.
fn told(seed: u64, until: Option<u64>) -> (SimDisk, u64) {
    let disk = SimDisk::new(seed);
    if let Some(operation) = until {
        disk.set_fault(operation, Fault::Stop);
    }
    let durable = match Daemon::start(&disk, "boot 1", 0) {
        Ok(mut daemon) => {
            let told = story(&mut daemon);
            assert!(told.is_ok() || until.is_some(), "{told:?}");
            daemon.durable
        }
        Err(error) => {
            assert!(until.is_some(), "{error}");
            0
        }
    };
    (disk, durable)
}

#[test]
fn a_crash_at_any_operation_loses_nothing_acknowledged() {
    let operations = told(1, None).0.operations();
    assert!(operations > 100, "{operations}");
    for operation in 1..=operations {
        for (crash, boot) in [(Crash::Power, "boot 2"), (Crash::Process, "boot 1")] {
            let (disk, durable) = told(operation, Some(operation));
            disk.crash(crash);
            let mut daemon = Daemon::start(&disk, boot, 1).unwrap();
            assert!(daemon.durable >= durable, "{durable} was acknowledged");
            check(&mut daemon);
            daemon.create("late", None).unwrap();
            check(&mut daemon);
        }
    }
}

#[test]
fn a_folder_that_a_kill_kept_from_being_removed_is_removed_by_the_next_daemon() {
    let disk = SimDisk::new(0);
    let mut daemon = Daemon::start(&disk, "boot 1", 0).unwrap();
    let create = |name: &str, parent: Option<&str>| {
        let parent = parent.map(str::to_owned);
        Command::CreateWorkspace { new: NewWorkspace { parent, ..NewWorkspace::named(name) } }
    };
    let delete = |name: &str| Command::DeleteWorkspace { workspace: name.to_owned(), force: false };
    for (name, parent) in [("kept", None), ("gone", None), ("child", Some("kept"))] {
        daemon.run(create(name, parent)).unwrap();
    }
    let gone = daemon.core.state().workspaces().find(|one| one.name.to_string() == "gone").unwrap();
    let (workspace, root) = (gone.id, gone.root.clone());
    daemon.run(delete("gone")).unwrap();
    // Another one may lie where this one did.
    daemon.run(delete("child")).unwrap();
    let now = daemon.now;
    let removed = |disk: &SimDisk| {
        let policy = policy();
        let ids = &mut Counted(9000);
        let cx = &mut Context { now, policy: &policy, ids, attended: &|_| false };
        let replayed = scan(Arc::new(disk.fork()), options("boot 2")).unwrap().replay().unwrap();
        replayed.reconcile(cx, "1.0.0").unwrap().effects
    };
    assert_eq!(removed(&disk), [Effect::RemoveFolder { workspace, root, git: None }]);
    // What a checkpoint holds was begun.
    daemon.checkpoint().unwrap();
    assert_eq!(removed(&disk), []);
}

#[test]
fn a_crash_at_any_operation_of_a_recovery_is_recovered_from() {
    let operations = told(1, None).0.operations();
    for operation in (1..=operations).step_by(9) {
        let (disk, durable) = told(operation, Some(operation));
        disk.crash(Crash::Power);
        let recovery = {
            let copy = disk.fork();
            Daemon::start(&copy, "boot 2", 1).unwrap();
            copy.operations() - disk.operations()
        };
        for at in 1..=recovery {
            for (crash, boot) in [(Crash::Power, "boot 3"), (Crash::Process, "boot 2")] {
                let copy = disk.fork();
                copy.set_fault(copy.operations() + at, Fault::Stop);
                assert!(Daemon::start(&copy, "boot 2", 1).is_err());
                copy.crash(crash);
                let mut daemon = Daemon::start(&copy, boot, 2).unwrap();
                assert!(daemon.durable >= durable);
                check(&mut daemon);
            }
        }
    }
}

#[test]
fn recovering_the_same_disk_twice_comes_to_the_same_bytes() {
    let (disk, _) = told(3, Some(90));
    disk.crash(Crash::Power);
    let contents: Vec<_> = [disk.fork(), disk.fork()]
        .iter()
        .map(|copy| {
            Daemon::start(copy, "boot 2", 1).unwrap().records().unwrap();
            copy.contents()
        })
        .collect();
    assert_eq!(contents[0], contents[1]);
}

#[test]
fn without_its_checkpoint_the_state_is_made_from_the_logs() {
    let (disk, _) = told(4, None);
    let expected = Daemon::start(&disk.fork(), "boot 1", 1).unwrap();
    disk.flip_bit(checkpoint::PATH, 3000).unwrap();
    let mut daemon = Daemon::start(&disk, "boot 1", 1).unwrap();
    let why = daemon.report.rebuilt.clone().expect("the logs were needed");
    assert!(why.contains("damaged"), "{why}");
    assert_eq!(daemon.core.state(), expected.core.state());
    check(&mut daemon);
}

fn session_of_lead(disk: &SimDisk) -> SessionId {
    let daemon = Daemon::start(&disk.fork(), "boot 1", 1).unwrap();
    daemon.core.state().resolve("lead").unwrap().session.id
}

#[test]
fn a_journal_whose_start_is_gone_needs_logs_without_gaps() {
    let (disk, _) = told(5, None);
    let first = journal::first_sequence(&disk).unwrap().unwrap();
    assert!(first > 1, "the checkpoint let segments go");
    disk.remove(checkpoint::PATH).unwrap();
    let lead = session_of_lead(&disk);
    disk.remove(&projection::events_path(Some(lead))).unwrap();
    match Daemon::start(&disk, "boot 1", 1).map(drop) {
        Err(Error::Projection(projection::Error::Damaged { problem, .. })) => {
            assert!(problem.contains("in no log"), "{problem}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn agents_without_journal_and_checkpoint_are_not_taken_for_a_new_home() {
    let (disk, _) = told(6, None);
    for name in disk.list(journal::DIR).unwrap() {
        disk.remove(&format!("{}/{name}", journal::DIR)).unwrap();
    }
    let copy = disk.fork();
    copy.remove(checkpoint::PATH).unwrap();
    assert!(matches!(Daemon::start(&copy, "boot 1", 1).map(drop), Err(Error::JournalMissing)));
    disk.flip_bit(checkpoint::PATH, 4000).unwrap();
    assert!(matches!(Daemon::start(&disk, "boot 1", 1).map(drop), Err(Error::JournalMissing)));
}

#[test]
fn a_log_shorter_than_it_durably_was_is_set_aside_and_said() {
    let (disk, _) = told(7, None);
    let lead = session_of_lead(&disk);
    let path = projection::events_path(Some(lead));
    disk.open(&path).unwrap().set_size(10).unwrap();
    let mut daemon = Daemon::start(&disk, "boot 2", 1).unwrap();
    let aside = format!("{}.damaged-1", projection::session_dir(lead));
    assert_eq!(daemon.projector.quarantined(), std::slice::from_ref(&aside));
    assert_eq!(disk.contents()[&format!("{aside}/events.jsonl")].len(), 10);
    daemon.complete("lead", "it goes on").unwrap();
    let last = logged(&disk).pop().unwrap().0;
    assert!(matches!(last.event, Event::TurnComplete(_)), "{last:?}");
}

#[test]
fn a_journal_that_lost_its_end_is_refused() {
    let (disk, _) = told(7, None);
    let (path, segment) = disk
        .contents()
        .into_iter()
        .rfind(|(path, bytes)| path.ends_with(".wal") && bytes[journal::frame::HEADER] != 0)
        .unwrap();
    let end = segment.iter().rposition(|byte| *byte != 0).unwrap();
    let zeros = vec![0; 200];
    disk.open(&path).unwrap().write_at(&zeros, end as u64 - 199).unwrap();
    match Daemon::start(&disk, "boot 1", 1).map(drop) {
        Err(Error::JournalBehind { last, sequence, file }) => {
            assert!(sequence > last && file.ends_with("events.jsonl"), "{sequence} {file}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn logs_that_differ_from_the_journal_are_mended() {
    let (disk, _) = told(8, None);
    let expected = {
        let copy = disk.fork();
        Daemon::start(&copy, "boot 2", 1).unwrap().records().unwrap();
        copy.contents()
    };
    for (path, bytes) in disk.contents() {
        let log = path.ends_with("events.jsonl") || path.ends_with("transcript.txt");
        if !log || bytes.is_empty() {
            continue;
        }
        let copy = disk.fork();
        let file = copy.open(&path).unwrap();
        file.write_at(b"left over from a crash\n", bytes.len() as u64).unwrap();
        let daemon = Daemon::start(&copy, "boot 2", 1);
        daemon.unwrap().records().unwrap();
        let mut found = copy.contents();
        if found[&path] != expected[&path] {
            // Not written to since the checkpoint: what stands after it is nobody's.
            assert!(found[&path].starts_with(&expected[&path]), "{path}");
            found.insert(path.clone(), expected[&path].clone());
        }
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn a_full_disk_stops_a_start_and_space_lets_it_go_on() {
    let (disk, durable) = told(9, None);
    disk.set_capacity(Some(disk.used()));
    let mut room = 0;
    let mut daemon = loop {
        match Daemon::start(&disk, "boot 2", 1) {
            Ok(daemon) => break daemon,
            Err(Error::Journal(journal::Error::Full)) => {}
            Err(Error::Projection(projection::Error::Disk(journal::Error::Full))) => {}
            Err(error) => panic!("{error}"),
        }
        room += 512;
        disk.set_capacity(Some(disk.used() + room));
    };
    disk.set_capacity(None);
    assert!(daemon.durable > durable);
    check(&mut daemon);
}

#[test]
fn an_event_of_a_newer_version_is_refused_and_nothing_changed() {
    let disk = SimDisk::new(10);
    let mut daemon = Daemon::start(&disk, "boot 1", 0).unwrap();
    daemon.create("lead", None).unwrap();
    let Daemon { mut writer, durable, .. } = daemon;
    let line = format!(
        "{{\"seq\":{},\"session_id\":null,\"ts\":\"2026-02-26T12:00:00Z\",\
         \"event\":\"agent.cloned\",\"data\":{{}}}}\n",
        durable + 1
    );
    let mut pending = Pending::default();
    assert!(pending.push(durable + 1, line.as_bytes(), 1));
    assert!(writer.needs(&pending).is_none());
    writer.commit(&mut pending).unwrap();
    let before = disk.contents();
    match Daemon::start(&disk, "boot 1", 1).map(drop) {
        Err(Error::Event { sequence, error }) => {
            assert_eq!(sequence, durable + 1);
            assert!(error.to_string().contains("agent.cloned"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(disk.contents(), before);
}

mod golden {
    //! Homes as older versions left them. `UPDATE_GOLDEN=1` writes the newest anew: only when its
    //! format is new too, and then under a new name.
    #![allow(clippy::disallowed_methods, reason = "reads files of the project")]

    use std::path::{Path, PathBuf};

    use super::*;

    /// Homes of all versions, the newest last. In version 2, `turn.start` has its envelope's hash;
    /// in version 3, the key of a message has the sequence of its event.
    const HOMES: [&str; 3] = ["home-v1", "home-v2", "home-v3"];

    fn folder(home: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(home)
    }

    fn files(folder: &Path, prefix: &str, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(folder).expect("the golden home is there") {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                files(&entry.path(), &format!("{name}/"), found);
            } else {
                found.insert(name, std::fs::read(entry.path()).unwrap());
            }
        }
    }

    fn golden(home: &str) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        files(&folder(home), "", &mut found);
        found
    }

    #[test]
    fn this_version_writes_the_same_bytes() {
        let (disk, _) = told(0, None);
        let (written, newest) = (disk.contents(), HOMES[HOMES.len() - 1]);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            for (path, bytes) in &written {
                let path = folder(newest).join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, bytes).unwrap();
            }
        }
        let golden = golden(newest);
        assert_eq!(
            written.keys().collect::<Vec<_>>(),
            golden.keys().collect::<Vec<_>>(),
            "the files of a home are a contract"
        );
        for (path, bytes) in &written {
            let (written, golden) =
                (String::from_utf8_lossy(bytes), String::from_utf8_lossy(&golden[path]));
            assert_eq!(written, golden, "the format of {path} is a contract");
        }
    }

    #[test]
    fn homes_of_all_versions_are_read() {
        HOMES.iter().for_each(|home| is_read(home));
    }

    fn is_read(home: &str) {
        let disk = SimDisk::new(0);
        disk.create_dir(journal::DIR).unwrap();
        disk.create_dir(projection::DIR).unwrap();
        for (path, bytes) in golden(home) {
            if let Some((dir, _)) = path.rsplit_once('/') {
                disk.create_dir(dir).unwrap();
            }
            disk.create(&path).unwrap().write_at(&bytes, 0).unwrap();
        }
        let mut daemon = Daemon::start(&disk, "boot 2", 1).unwrap();
        assert!(daemon.report.checkpoint > 0 && daemon.report.rebuilt.is_none());
        check(&mut daemon);
        let state = daemon.core.state();
        let names: Vec<_> = state.agents().map(|agent| state.path(agent)).collect();
        assert_eq!(names, ["lead", "lead/alpha", "lead/beta"]);
        assert_eq!(state.workspaces().count(), 1);
        let lead = state.resolve("lead").unwrap();
        let transcript = projection::transcript_path(lead.session.id);
        let transcript = disk.contents()[&transcript].clone();
        assert!(
            String::from_utf8(transcript)
                .unwrap()
                .starts_with("[12:00:00] USER → lead: what is the answer?\n")
        );
    }
}
