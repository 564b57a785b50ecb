//! Homes in the exact formats of the Python Substrat, taken over on the simulated disk.
#![allow(clippy::disallowed_methods, reason = "reads files of the project")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::engine::RandomIds;
use crate::journal::{Crash, Fault, SimDisk};
use crate::model::{
    Activity, Agent, Context, Gate, Party, Policy, ProviderPolicy, Resume, SessionState, State,
    next_step,
};
use crate::recovery::{self, Recovered};

type Files = BTreeMap<String, Vec<u8>>;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn read_folder(folder: &Path, prefix: &str, found: &mut Files) {
    for entry in std::fs::read_dir(folder).expect("the fixture is there") {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        match entry.path().is_dir() {
            true => read_folder(&entry.path(), &format!("{name}/"), found),
            false => drop(found.insert(name, std::fs::read(entry.path()).unwrap())),
        }
    }
}

fn fixture(name: &str) -> Files {
    let mut found = Files::new();
    read_folder(&folder(name), "", &mut found);
    found
}

/// A disk that durably holds these files.
fn disk_with(files: &Files, seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    let mut dirs = BTreeSet::from([String::new(), journal::DIR.to_owned()]);
    disk.create_dir(journal::DIR).unwrap();
    for (path, bytes) in files {
        for (at, _) in path.match_indices('/') {
            disk.create_dir(&path[..at]).unwrap();
            dirs.insert(path[..at].to_owned());
        }
        disk.create(path).unwrap().write_at(bytes, 0).unwrap();
    }
    let paths: Vec<String> = files.keys().cloned().collect();
    disk.sync_many(&paths, &dirs.into_iter().collect::<Vec<_>>()).unwrap();
    disk
}

const NOW: Timestamp = Timestamp::from_micros(1_780_000_000_000_000);

/// What a start does before it recovers.
fn start(disk: &SimDisk) -> Result<Option<Report>, Error> {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    finish(disk)?;
    if !is_waiting(disk)? {
        return Ok(None);
    }
    let home = Path::new("/home/me/.substrat");
    let journal = journal::Options { segment_bytes: 4096 };
    let options = Options { home, real: &|_| None, journal, max_open_files: 3 };
    take_over(&shared, &options, NOW, &mut RandomIds::from_seed(7)).map(Some)
}

fn policy() -> Policy {
    let provider = ProviderPolicy { slots: 4, call_limit: None };
    Policy {
        providers: BTreeMap::from([("scripted".into(), provider)]),
        default_provider: "scripted".into(),
        max_text: 10_000,
        max_inbox: 100,
        max_user_inbox: 1000,
        max_inbox_bytes: 1 << 20,
        max_agents: 10_000,
        max_depth: 5,
        max_waiting: 10,
        max_reminders: 5,
        max_subscriptions: 5,
        multicast_timeout: Duration::from_secs(600),
        max_setbacks: 3,
        resume: Resume::None,
        request_retention: Duration::from_secs(60),
        draining: true,
    }
}

/// Recovers a home that was taken over. Nothing is started.
fn recover(disk: &SimDisk) -> Recovered {
    disk.create_dir(projection::DIR).unwrap();
    let journal = journal::Options { segment_bytes: 4096 };
    let options = recovery::Options { journal, max_open_files: 3, boot: String::new() };
    let policy = policy();
    let mut ids = RandomIds::from_seed(9);
    let cx = &mut Context { now: NOW, policy: &policy, ids: &mut ids, attended: &|_| false };
    let scanned = recovery::scan(Arc::new(disk.clone()), options).unwrap();
    let mut recovered = scanned.replay().unwrap().reconcile(cx, "1").unwrap();
    recovered.projector.end_recovery().unwrap();
    assert_eq!(recovered.projector.repaired(), 0, "the logs are as the checkpoint says");
    judge(&recovered.state);
    let cx = &mut Context { now: NOW, policy: &policy, ids: &mut ids, attended: &|_| false };
    assert_eq!(next_step(&recovered.state, cx), vec![]);
    let rebuilt = projection::rebuild(disk, None).unwrap();
    assert_eq!(rebuilt.state, recovered.state, "the logs hold everything");
    recovered
}

/// What holds of every state.
fn judge(state: &State) {
    for agent in state.agents() {
        let beside = state.agents().filter(|other| other.is_live() && other.parent == agent.parent);
        let named = beside.filter(|other| other.name == agent.name).count();
        assert!(!agent.is_live() || named == 1, "{:?} twice", agent.name);
        if let Some(parent) = agent.parent.and_then(|id| state.agent(id)) {
            assert!(!agent.is_live() || parent.is_live(), "{:?} has a dead parent", agent.name);
            assert_eq!(parent.children.contains(&agent.id), agent.is_live());
        }
        match &agent.activity {
            Activity::Terminated => assert_eq!(agent.session.state, SessionState::Terminated),
            _ => assert_eq!(agent.session.state, SessionState::Suspended, "{:?}", agent.name),
        }
        assert!(agent.is_live() || agent.inbox.is_empty());
        assert_eq!(agent.ready.is_some(), !agent.inbox.is_empty(), "{:?}", agent.name);
    }
}

fn agent<'a>(state: &'a State, path: &str) -> &'a Agent {
    state.resolve(path).unwrap_or_else(|no| panic!("{path}: {no}"))
}

fn inbox(agent: &Agent) -> Vec<&str> {
    agent.inbox.iter().map(|message| message.text.as_ref()).collect()
}

fn saved(agent: &Agent) -> serde_json::Value {
    serde_json::from_slice(agent.session.saved.as_ref().unwrap().as_slice()).unwrap()
}

/// The events in the log of an agent.
fn log(disk: &SimDisk, agent: &Agent) -> Vec<Event> {
    let tail = projection::read_tail(disk, agent.session.id, 1000).unwrap();
    tail.into_iter().map(|entry| entry.event).collect()
}

fn has_note(report: &Report, words: &[&str]) -> bool {
    report.notes.iter().any(|note| words.iter().all(|word| note.contains(word)))
}

#[test]
fn a_team_is_taken_over_with_its_mail_gate_labels_and_ends() {
    let disk = disk_with(&fixture("fixtures/python-home-team"), 1);
    let report = start(&disk).unwrap().expect("it is a home of the Python Substrat");
    let Recovered { state, report: recovered, .. } = recover(&disk);
    let paths: Vec<String> =
        state.agents().filter(|a| a.is_live()).map(|agent| state.path(agent)).collect();
    assert_eq!(paths, ["lead", "lead/worker", "lead/code-reviewer", "late"]);
    assert_eq!((report.agents, report.ended, report.workspaces), (4, 1, 2));
    assert_eq!((report.turns, report.messages, report.pending), (8, 7, 3));

    let lead = agent(&state, "lead");
    assert_eq!(&*lead.instructions, "Lead the team. Grüße ✓");
    assert_eq!(lead.metadata["team"], "one");
    assert_eq!(lead.metadata["phase"], "two");
    assert_eq!((lead.turns.completed, lead.inbox.len()), (3, 0), "the pending entry counts");
    let worker = agent(&state, "lead/worker");
    assert_eq!(inbox(worker), ["task two", "task three"]);
    assert_eq!(worker.inbox[0].sender, Party::Agent(lead.id));
    assert_eq!(worker.turns.completed, 2);
    let reviewer = agent(&state, "lead/code-reviewer");
    assert_eq!(reviewer.gate, Gate::Gated { permits: 1 });
    assert_eq!(inbox(reviewer), ["review this"]);
    let old = state.agents().find(|agent| !agent.is_live()).unwrap();
    assert_eq!((old.name.as_str(), old.turns.completed), ("worker", 1));
    let late = agent(&state, "late");
    assert_eq!((late.turns.failed, late.turns.interrupted), (1, 1));
    assert_eq!(recovered.interrupted_turns, 1);

    assert!(has_note(&report, &["code reviewer", "code-reviewer"]));
    assert!(has_note(&report, &["events.pending", "torn", "never acknowledged"]));
    assert_eq!(report.subscriptions, 1);
    let watched: Vec<AgentId> = reviewer.subscriptions.iter().map(|one| one.target).collect();
    assert_eq!(watched, [worker.id]);
    assert!(has_note(&report, &["late", "interrupted"]));
    assert!(!has_note(&report, &["last line"]), "a pending entry stood for it: {report:?}");
    assert_eq!(report.left["send (the provider's echo)"], 7);
}

#[test]
fn no_session_is_unusable_after_the_move() {
    let disk = disk_with(&fixture("fixtures/python-home-team"), 1);
    let report = start(&disk).unwrap().unwrap();
    let Recovered { state, .. } = recover(&disk);
    let lead = saved(agent(&state, "lead"));
    assert_eq!(lead["session_id"], "7ea20829-0001", "its record had no state yet");
    assert_eq!(lead["workspace"], "/tmp/substrat-1");
    assert_eq!(lead["system_prompt"], "You are lead.");
    assert_eq!(saved(agent(&state, "lead/code-reviewer"))["session_id"], "7ea20829-0003");
    assert_eq!(saved(agent(&state, "late"))["session_id"], "7ea20829-0005");
    assert!(agent(&state, "lead/worker").session.saved.is_none());
    assert_eq!(report.left["provider state of a Python script"], 1);
    assert_eq!(agent(&state, "late").session.provider.as_ref(), "cursor-agent");
}

#[test]
fn the_history_reads_as_if_it_had_happened_here() {
    let disk = disk_with(&fixture("fixtures/python-home-team"), 1);
    start(&disk).unwrap().unwrap();
    let Recovered { state, .. } = recover(&disk);
    let worker = agent(&state, "lead/worker");
    let names: Vec<&str> = log(&disk, worker).iter().map(Event::name).collect();
    assert_eq!(
        names,
        [
            "session.created",
            "agent.created",
            "session.opened",
            "turn.start",
            "turn.complete",
            "suspend.result",
            "message.enqueued",
            "session.restored",
            "turn.start",
            "message.enqueued",
            "tool_call.invoked",
            "tool_call.result",
            "message.delivered",
            "message.delivered",
            "turn.complete",
            "suspend.result",
            "message.enqueued",
            "message.enqueued",
        ]
    );
    let mut turns = log(&disk, worker).into_iter().filter_map(|event| match event {
        Event::TurnStart(data) => Some(data.messages.len()),
        _ => None,
    });
    assert_eq!((turns.next(), turns.next()), (Some(0), Some(1)), "the message that woke it");
    let transcript = projection::transcript_path(worker.session.id);
    let transcript = String::from_utf8(disk.contents()[&transcript].clone()).unwrap();
    assert!(transcript.contains("lead → worker: task one\n"), "{transcript}");
    let event = projection::read_merged(
        &disk,
        &[projection::Span { session: None, first: 1, last: u64::MAX }],
        1,
        u64::MAX,
    );
    let imported = event.unwrap().into_iter().find_map(|(entry, _)| match entry.event {
        Event::HomeImported(data) => Some(data),
        _ => None,
    });
    let imported = imported.expect("the daemon's log tells of it");
    assert_eq!((imported.agents, imported.kept.as_str()), (4, "python-agents"));
}

#[test]
fn workspaces_stay_where_they_are_and_show_what_they_may() {
    let files = fixture("fixtures/python-home-team");
    let disk = disk_with(&files, 1);
    let report = start(&disk).unwrap().unwrap();
    let Recovered { state, .. } = recover(&disk);
    let project = state.resolve_workspace("project").unwrap();
    let scope = "00000000000000000000000000000001";
    assert_eq!(project.root, format!("{scope}/project/root"));
    assert!(disk.contents().contains_key(&format!("workspaces/{}/notes.md", project.root)));
    let links: Vec<&str> = project.links.keys().map(String::as_str).collect();
    assert_eq!(links, ["data", "out/today"]);
    assert_eq!(agent(&state, "lead").workspace, Some(project.id));
    let other = state.resolve_workspace("project-00000001").unwrap();
    assert!(other.links.is_empty());
    assert_eq!(agent(&state, "lead/code-reviewer").workspace, Some(other.id));
    assert!(project.network && !other.network);
    assert!(has_note(&report, &["project-00000001", "does not show"]));
}

#[test]
fn a_damaged_session_stops_no_other_and_is_said() {
    let disk = disk_with(&fixture("fixtures/python-home-damaged"), 2);
    let report = start(&disk).unwrap().unwrap();
    let Recovered { state, .. } = recover(&disk);
    let live: Vec<&str> =
        state.agents().filter(|a| a.is_live()).map(|agent| agent.name.as_str()).collect();
    assert_eq!(live, ["good", "damaged", "glued", "good-2"]);
    let ended: BTreeSet<&str> =
        state.agents().filter(|a| !a.is_live()).map(|agent| agent.name.as_str()).collect();
    assert_eq!(ended, BTreeSet::from(["lost", "child", "ring", "cut"]));
    assert_eq!(agent(&state, "damaged").turns.completed, 1, "the lines before the damage");
    assert_eq!(inbox(agent(&state, "glued")), ["acknowledged"]);
    let session = |number: u32| format!("agents/{number:08x}5e555e555e555e555e555e55");
    for (number, words) in [
        (2, "damaged"),
        (3, "line 6"),
        (4, "no agent.created"),
        (5, "is not there"),
        (6, "torn write"),
        (7, "has ended"),
        (8, "good-2"),
        (9, "no session.json"),
        (10, "its own descendant"),
        (12, "last line"),
    ] {
        assert!(has_note(&report, &[&session(number), words]), "{number} {words}: {report:#?}");
    }
}

#[test]
fn a_second_start_takes_nothing_over_and_the_old_files_stay() {
    for name in ["fixtures/python-home-team", "fixtures/python-home-damaged"] {
        let files = fixture(name);
        let disk = disk_with(&files, 3);
        assert!(start(&disk).unwrap().is_some());
        let state = recover(&disk).state;
        assert!(start(&disk).unwrap().is_none());
        let again = recover(&disk);
        assert_eq!(again.report.interrupted_turns, 0);
        assert_eq!(again.state.agents().len(), state.agents().len());
        let now = disk.contents();
        for (path, bytes) in &files {
            let kept = path.replacen("agents/", "python-agents/", 1);
            assert_eq!(now.get(&kept), Some(bytes), "{kept}");
        }
        assert!(!now.keys().any(|path| path.starts_with("agents.import")));
        let text = String::from_utf8(now["import-report.txt"].clone()).unwrap();
        assert!(text.contains("python-agents") && text.contains("What to look at"), "{text}");
    }
}

#[test]
fn a_crash_at_every_operation_leaves_the_old_home_or_the_new_one() {
    let files = fixture("fixtures/python-home-team");
    let whole = disk_with(&files, 4);
    let before = whole.operations();
    start(&whole).unwrap().unwrap();
    let operations = whole.operations() - before;
    let expected = recover(&whole).state.seq();
    let (mut old, mut new) = (0, 0);
    for number in 1..=operations {
        for (seed, crash) in [(5, Crash::Process), (6, Crash::Power), (7, Crash::Power)] {
            let disk = disk_with(&files, seed + 31 * number);
            disk.set_fault(disk.operations() + number, Fault::Stop);
            assert!(start(&disk).is_err(), "operation {number}");
            disk.crash(crash);
            let now = disk.contents();
            let counts = now.contains_key("checkpoint");
            for (path, bytes) in &files {
                let kept = path.replacen("agents/", "python-agents/", 1);
                let found = now.get(path).filter(|_| path == &kept || !now.contains_key(&kept));
                let found = found.or_else(|| now.get(&kept));
                assert_eq!(found, Some(bytes), "{path} after operation {number}");
                assert!(counts || now.get(path) == Some(bytes), "{path} moved too soon");
            }
            let imports_again = start(&disk).unwrap().is_some();
            assert_eq!(imports_again, !counts, "operation {number}");
            assert_eq!(recover(&disk).state.seq(), expected, "operation {number}");
            old += u32::from(!counts);
            new += u32::from(counts);
        }
    }
    assert!(old > 0 && new > 0, "both sides of the checkpoint were met");
}

#[test]
fn a_failed_operation_leaves_a_home_that_the_next_start_takes_over() {
    let files = fixture("fixtures/python-home-team");
    let whole = disk_with(&files, 4);
    let before = whole.operations();
    start(&whole).unwrap().unwrap();
    for number in 1..=whole.operations() - before {
        let disk = disk_with(&files, number);
        disk.set_fault(disk.operations() + number, Fault::Eio);
        assert!(start(&disk).is_err(), "operation {number}");
        start(&disk).unwrap();
        let names: Vec<String> =
            recover(&disk).state.agents().map(|agent| agent.name.to_string()).collect();
        assert_eq!(names.len(), 5, "operation {number}: {names:?}");
    }
}

#[test]
fn a_log_cut_off_anywhere_is_taken_as_far_as_it_goes() {
    let mut files = fixture("fixtures/python-home-team");
    files.retain(|path, _| !path.ends_with("events.pending"));
    let path = files.keys().find(|path| path.contains("00000002") && path.ends_with("jsonl"));
    let path = path.unwrap().clone();
    let log = files[&path].clone();
    for cut in (0..log.len()).step_by(37) {
        files.insert(path.clone(), log[..cut].to_vec());
        let disk = disk_with(&files, 8);
        let report = start(&disk).unwrap().unwrap();
        let state = recover(&disk).state;
        assert!(state.resolve("lead").is_ok() && state.resolve("late").is_ok());
        let is_torn = cut > 0 && !log[..cut].ends_with(b"\n") && log[cut] != b'\n';
        assert_eq!(has_note(&report, &["last line", "agents/00000002"]), is_torn, "cut at {cut}");
    }
}

#[test]
fn a_home_of_this_daemon_that_lost_its_journal_is_not_taken_for_another() {
    let mut files = fixture("golden/home-v1");
    files.retain(|path, _| path.starts_with("agents/") || path == "events.jsonl");
    let disk = disk_with(&files, 9);
    assert!(!is_waiting(&disk).unwrap());
    assert!(!is_waiting(&disk_with(&Files::new(), 9)).unwrap(), "a new home");
}

#[test]
fn folders_that_are_in_the_way_are_gone_around() {
    let mut files = fixture("fixtures/python-home-team");
    files.insert("python-agents/mine.txt".into(), b"mine".to_vec());
    let disk = disk_with(&files, 10);
    start(&disk).unwrap().unwrap();
    let now = disk.contents();
    assert_eq!(now["python-agents/mine.txt"], b"mine");
    assert!(now.keys().any(|path| path.starts_with("python-agents-2/")));
    recover(&disk);
}

#[test]
fn a_thousand_sessions_of_a_hundred_lines_are_taken_over() {
    let mut files = Files::new();
    for number in 0..1000_u32 {
        let session = format!("{number:032x}");
        let line = |at: u32, event: &str, data: &str| {
            format!(
                "{{\"session_id\":\"{session}\",\"ts\":\"2026-03-01T10:{:02}:{:02}.{number:06}+00:00\",\
                 \"event\":\"{event}\",\"data\":{data}}}\n",
                at / 60,
                at % 60
            )
        };
        let parent = number.checked_sub(1).map(|before| format!("\"{:032x}\"", before / 10));
        let created = format!(
            "{{\"agent_id\":\"{:032x}\",\"name\":\"a{number}\",\"parent_session_id\":{},\
             \"instructions\":\"go\",\"workspace\":null,\"metadata\":null}}",
            number + 10_000,
            parent.unwrap_or_else(|| "null".to_owned())
        );
        let mut log = line(0, "agent.created", &created);
        for turn in 0..33 {
            log += &line(3 * turn + 1, "turn.start", "{\"prompt\":\"a prompt of some length\"}");
            log += &line(3 * turn + 2, "tool.call", "{\"tool\":\"x\",\"args\":{},\"result\":{}}");
            log += &line(3 * turn + 3, "turn.complete", "{\"response\":\"a response\"}");
        }
        let record = format!(
            "{{\n  \"id\": \"{session}\",\n  \"state\": \"active\",\n  \"provider_name\": \"p\",\n  \
             \"model\": \"\",\n  \"created_at\": \"2026-03-01T09:00:00+00:00\",\n  \
             \"suspended_at\": null,\n  \"provider_state\": \"\"\n}}"
        );
        files.insert(format!("agents/{session}/session.json"), record.into_bytes());
        files.insert(format!("agents/{session}/events.jsonl"), log.into_bytes());
    }
    let disk = disk_with(&files, 11);
    let report = start(&disk).unwrap().unwrap();
    assert_eq!((report.agents, report.turns, report.notes.len()), (1000, 33_000, 0));
    let state = recover(&disk).state;
    assert!(state.agents().all(|agent| agent.turns.completed == 33));
    // Created, opened and suspended, two events more for each call, and the daemon's own three.
    assert_eq!(state.seq(), 1000 * (4 + 33 * 4) + 3);
}
