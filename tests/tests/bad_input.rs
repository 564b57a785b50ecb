//! What a hostile or clumsy client sends: refused with a reason, and nothing changed.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::os::unix::fs::symlink;
use std::path::Path;

use prost::Message;
use prost::bytes::{Buf, BufMut, Bytes};
use substrat_proto::{Refusal, v1};
use substrat_tests::harness::{Client, Daemon, channel, reason, say, text, tmpfs};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status};

const ECHO: &str = r#"fn turn(prompt) { "you said: " + messages()[0].text }"#;

/// A daemon with an agent, and what it must be like after all that is refused.
struct Untouched {
    daemon: Daemon,
    client: Client,
    sequence: u64,
}

impl Untouched {
    async fn new() -> Self {
        let daemon = Daemon::start();
        let client = daemon.client().await;
        client.create("echo", ECHO).await;
        let request = v1::CreateWorkspaceRequest { name: "desk".into(), ..Default::default() };
        client.workspaces.clone().create_workspace(request).await.unwrap();
        let sequence = client.sequence().await;
        Self { daemon, client, sequence }
    }

    /// It was refused for this reason, in words, and nothing changed.
    async fn refused<T: std::fmt::Debug>(
        &self,
        result: Result<tonic::Response<T>, Status>,
        (code, expected): (Code, &str),
    ) {
        let status = result.expect_err("it is refused");
        assert_eq!((status.code(), reason(&status).as_str()), (code, expected), "{status:?}");
        assert!(!status.message().is_empty());
        assert_eq!(self.client.sequence().await, self.sequence, "after {status:?}");
    }

    async fn create(&self, request: v1::CreateAgentRequest, expected: (Code, &str)) {
        self.refused(self.client.agents.clone().create_agent(request).await, expected).await;
    }

    async fn send(&self, agent: &str, text: &str, expected: (Code, &str)) {
        let (agent, text) = (agent.into(), text.into());
        let request = v1::SendMessageRequest { agent, text, ..Default::default() };
        self.refused(self.client.agents.clone().send_message(request).await, expected).await;
    }

    async fn link(&self, host: &Path, mount: &str, expected: (Code, &str)) {
        let request = link(host, mount, v1::LinkMode::ReadWrite);
        let linked = self.client.workspaces.clone().link_directory(request).await;
        self.refused(linked, expected).await;
    }
}

fn named(name: &str) -> v1::CreateAgentRequest {
    v1::CreateAgentRequest { name: name.into(), instructions: ECHO.into(), ..Default::default() }
}

fn link(host: &Path, mount: &str, mode: v1::LinkMode) -> v1::LinkDirectoryRequest {
    v1::LinkDirectoryRequest {
        workspace: "desk".into(),
        host_path: host.to_str().unwrap().into(),
        mount_path: mount.into(),
        mode: mode.into(),
        ..Default::default()
    }
}

const NOT_FOUND: (Code, &str) = (Code::NotFound, "AGENT_NOT_FOUND");
const NAME: (Code, &str) = (Code::InvalidArgument, "NAME_INVALID");
const FIELD: (Code, &str) = (Code::InvalidArgument, "FIELD_INVALID");

#[tokio::test]
async fn names_and_references_that_do_not_fit_are_refused() {
    let untouched = Untouched::new().await;
    untouched.create(named("echo"), (Code::AlreadyExists, "AGENT_EXISTS")).await;
    let long = "x".repeat(65);
    for name in ["", "a/b", "a b", "nul\0", "line\n", "USER", "system", "..", "-x", &long] {
        untouched.create(named(name), NAME).await;
    }
    for agent in ["nobody", "echo/child", "/echo", "echo/", "", "..", "nul\0", "%", &long] {
        untouched.send(agent, "hi", NOT_FOUND).await;
    }
    let orphan = v1::CreateAgentRequest { parent: "nobody".into(), ..named("child") };
    untouched.create(orphan, NOT_FOUND).await;
    let odd = v1::CreateAgentRequest { provider: "oracle".into(), ..named("odd") };
    untouched.create(odd, (Code::NotFound, "PROVIDER_UNKNOWN")).await;
    let homeless = v1::CreateAgentRequest { workspace: "nowhere".into(), ..named("odd") };
    untouched.create(homeless, (Code::NotFound, "WORKSPACE_NOT_FOUND")).await;
    let metadata = [("x".repeat(65), "v".to_owned())].into_iter().collect();
    let labelled = v1::CreateAgentRequest { metadata, ..named("odd") };
    untouched.create(labelled, (Code::InvalidArgument, "METADATA_INVALID")).await;
    let request_id = "k".repeat(129);
    let keyed = v1::CreateAgentRequest { request_id, ..named("odd") };
    untouched.create(keyed, (Code::InvalidArgument, "REQUEST_ID_INVALID")).await;
}

#[tokio::test]
async fn texts_that_are_too_long_are_refused() {
    let untouched = Untouched::new().await;
    let too_large = (Code::InvalidArgument, "MESSAGE_TOO_LARGE");
    untouched.send("echo", &"x".repeat((1 << 20) + 1), too_large).await;
    // Larger than any request may be.
    untouched.send("echo", &"x".repeat(5 << 20), too_large).await;
    let script = format!("{ECHO} // {}", "x".repeat(1 << 20));
    let long = v1::CreateAgentRequest { instructions: script, ..named("long") };
    untouched.create(long, too_large).await;
    let answer = untouched.client.ask("echo", &"x".repeat(1 << 20)).await.unwrap();
    assert_eq!(answer.len(), (1 << 20) + "you said: ".len());
}

#[tokio::test]
async fn a_page_is_never_too_large_to_be_read() {
    let untouched = Untouched::new().await;
    let client = &untouched.client;
    for _ in 0..6 {
        client.ask("echo", &"x".repeat(900 << 10)).await.unwrap();
    }
    let events = client.events().await;
    assert!(events.windows(2).all(|pair| pair[0].sequence + 1 == pair[1].sequence));
    assert_eq!(events.last().unwrap().sequence, client.sequence().await);
    let agent = client.agent("echo").await;
    untouched.daemon.ctl_ok(&["agent", "gate", "echo"]);
    for _ in 0..6 {
        client.tell("echo", &"x".repeat(900 << 10)).await;
    }
    let request = v1::InspectAgentRequest { agent: agent.id, recent: 1000 };
    let inspected = client.agents.clone().inspect_agent(request).await.unwrap().into_inner();
    assert_eq!(inspected.agent.unwrap().inbox_size, 6);
    assert!(!inspected.inbox.is_empty() && !inspected.recent.is_empty());
    assert_eq!(inspected.recent.last().unwrap().sequence, client.sequence().await);
}

/// Bytes as they are, in place of a message.
#[derive(Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// Calls a method with bytes.
async fn raw(
    daemon: &Daemon,
    method: &str,
    bytes: Vec<u8>,
) -> Result<tonic::Response<Bytes>, Status> {
    let mut client = tonic::client::Grpc::new(channel(&daemon.socket()).await.unwrap());
    client.ready().await.unwrap();
    let path = format!("/substrat.v1.{method}").parse().unwrap();
    client.unary(tonic::Request::new(Bytes::from(bytes)), path, Raw).await
}

#[tokio::test]
async fn bytes_that_are_no_request_are_refused() {
    let untouched = Untouched::new().await;
    let malformed = (Code::InvalidArgument, "MALFORMED_REQUEST");
    let create = "AgentService/CreateAgent";
    for bytes in [
        b"\x0a\x02\xff\xfe".to_vec(),     // a name that is not UTF-8
        b"\x0a\x05ab".to_vec(),           // a name that is longer than what there is
        b"\xff\xff\xff\xff\xff".to_vec(), // no field at all
        b"\x08\x01".to_vec(),             // a number where a text belongs
        [b"\x0b".repeat(200)].concat(),   // groups without end
    ] {
        let answer = raw(&untouched.daemon, create, bytes).await;
        untouched.refused(answer, malformed).await;
    }
    let answer = raw(&untouched.daemon, "AgentService/Explode", Vec::new()).await;
    assert_eq!(answer.unwrap_err().code(), Code::Unimplemented);

    // What a later version adds is passed over.
    let mut newer = v1::GetAgentRequest { agent: "echo".into() }.encode_to_vec();
    newer.extend(b"\xfa\x7f\x03new");
    let answer = raw(&untouched.daemon, "AgentService/GetAgent", newer).await.unwrap();
    let found = v1::GetAgentResponse::decode(answer.into_inner()).unwrap();
    assert_eq!(found.agent.unwrap().name, "echo");
}

#[tokio::test]
async fn fields_that_make_no_sense_are_refused() {
    let untouched = Untouched::new().await;
    let Untouched { client, .. } = &untouched;
    let folder = tempfile::tempdir().unwrap();
    let odd =
        v1::LinkDirectoryRequest { mode: 77, ..link(folder.path(), "x", v1::LinkMode::ReadOnly) };
    untouched.refused(client.workspaces.clone().link_directory(odd).await, FIELD).await;
    let mask = Some(prost_types::FieldMask { paths: vec!["name".into()] });
    let odd =
        v1::UpdateAgentRequest { agent: "echo".into(), update_mask: mask, ..Default::default() };
    untouched.refused(client.agents.clone().update_agent(odd).await, FIELD).await;
    let odd = v1::CancelTurnRequest {
        agent: "echo".into(),
        turn_id: "turn".into(),
        ..Default::default()
    };
    untouched.refused(client.agents.clone().cancel_turn(odd).await, FIELD).await;
    let odd = v1::CancelTurnRequest { agent: "echo".into(), ..Default::default() };
    let no_turn = (Code::FailedPrecondition, "NO_TURN");
    untouched.refused(client.agents.clone().cancel_turn(odd).await, no_turn).await;
    let odd = v1::AckInboxRequest { message_ids: vec!["x".into()], ..Default::default() };
    untouched.refused(client.agents.clone().ack_inbox(odd).await, FIELD).await;
    let odd = v1::AckInboxRequest { message_ids: vec!["0".repeat(32); 1001], ..Default::default() };
    untouched.refused(client.agents.clone().ack_inbox(odd).await, FIELD).await;
    let odd = v1::InspectAgentRequest { agent: "echo".into(), recent: 1001 };
    untouched.refused(client.agents.clone().inspect_agent(odd).await, FIELD).await;
    let wait = Some(prost_types::Duration { seconds: -1, nanos: 0 });
    let odd = v1::ListInboxRequest { wait, ..Default::default() };
    untouched.refused(client.agents.clone().list_inbox(odd).await, FIELD).await;
}

#[tokio::test]
async fn pages_that_were_never_given_out_are_refused() {
    let untouched = Untouched::new().await;
    let Untouched { client, .. } = &untouched;
    let forged = (Code::InvalidArgument, "PAGE_TOKEN_INVALID");
    for (page_size, token, expected) in [
        (-1, "", FIELD),
        (1001, "", FIELD),
        (i32::MAX, "", FIELD),
        (0, "-1", forged),
        (0, "1; drop", forged),
        (0, "18446744073709551616", forged),
        (0, "\0", forged),
    ] {
        let page_token = token.to_owned();
        let request = v1::ListAgentsRequest { page_size, page_token, ..Default::default() };
        untouched.refused(client.agents.clone().list_agents(request).await, expected).await;
        let page_token = token.to_owned();
        let request = v1::ListEventsRequest { page_size, page_token, ..Default::default() };
        untouched.refused(client.sessions.clone().list_events(request).await, expected).await;
        let page_token = token.to_owned();
        let request = v1::ListSessionsRequest { page_size, page_token };
        untouched.refused(client.sessions.clone().list_sessions(request).await, expected).await;
        let page_token = token.to_owned();
        let request = v1::ListWorkspacesRequest { page_size, page_token };
        untouched.refused(client.workspaces.clone().list_workspaces(request).await, expected).await;
        let page_token = token.to_owned();
        let request = v1::ListInboxRequest { page_size, page_token, wait: None };
        untouched.refused(client.agents.clone().list_inbox(request).await, expected).await;
    }
    for odd in ["bogus", "bogus.*", "", "turn"] {
        let types = vec!["turn.*".to_owned(), odd.to_owned()];
        let request = v1::ListEventsRequest { types: types.clone(), ..Default::default() };
        untouched.refused(client.sessions.clone().list_events(request).await, FIELD).await;
        let request = v1::WatchEventsRequest { types, ..Default::default() };
        let watched = client.sessions.clone().watch_events(request).await;
        untouched.refused(watched.map(|_| tonic::Response::new(())), FIELD).await;
    }
    // One far beyond the end is the end.
    let beyond = || u64::MAX.to_string();
    let request = v1::ListEventsRequest { page_token: beyond(), ..Default::default() };
    let page = client.sessions.clone().list_events(request).await.unwrap().into_inner();
    assert_eq!((page.events.len(), page.next_page_token.as_str()), (0, ""));
    let request = v1::ListAgentsRequest { page_token: beyond(), ..Default::default() };
    assert_eq!(client.agents.clone().list_agents(request).await.unwrap().into_inner().agents, []);
    let request = v1::WatchEventsRequest { from_sequence: u64::MAX, ..Default::default() };
    client.sessions.clone().watch_events(request).await.unwrap();
    assert_eq!(client.ask("echo", "hi").await.unwrap(), "you said: hi");
}

#[tokio::test]
async fn paths_out_of_a_workspace_are_refused() {
    let untouched = Untouched::new().await;
    let folder = tempfile::tempdir().unwrap();
    let create =
        |name: &str| v1::CreateWorkspaceRequest { name: name.into(), ..Default::default() };
    for name in ["../x", "/etc", "a/b", "..", ".", "nul\0", ""] {
        let created = untouched.client.workspaces.clone().create_workspace(create(name)).await;
        untouched.refused(created, NAME).await;
    }
    let again = untouched.client.workspaces.clone().create_workspace(create("desk")).await;
    untouched.refused(again, (Code::AlreadyExists, "WORKSPACE_EXISTS")).await;
    for mount in ["../x", "a/../../x", "/etc", "", ".", "nul\0x"] {
        untouched.link(folder.path(), mount, (Code::InvalidArgument, "PATH_INVALID")).await;
    }
    let forbidden = (Code::InvalidArgument, "LINK_FORBIDDEN");
    let home = &untouched.daemon.home;
    let sly = folder.path().join("sly");
    symlink(home.join("journal"), &sly).unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let above = home.parent().unwrap();
    let hosts =
        [home, above, Path::new("/"), &sly, &file, Path::new("relative"), &home.join("x/..")];
    for host in hosts {
        untouched.link(host, "mount", forbidden).await;
    }
    untouched.link(Path::new("/no/such/folder"), "mount", forbidden).await;
}

#[tokio::test]
async fn an_agent_cannot_leave_its_workspace() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    let request = v1::CreateWorkspaceRequest { name: "desk".into(), ..Default::default() };
    let created = client.workspaces.clone().create_workspace(request).await.unwrap();
    let root = std::path::PathBuf::from(created.into_inner().workspace.unwrap().root);
    let shown = outside.path().join("shown");
    std::fs::create_dir(&shown).unwrap();
    let request = link(&shown, "shown", v1::LinkMode::ReadOnly);
    client.workspaces.clone().link_directory(request).await.unwrap();
    symlink(outside.path(), root.join("way-out")).unwrap();
    symlink(outside.path().join("secret"), root.join("secret")).unwrap();
    symlink("../secret", shown.join("up")).unwrap();
    let secret = outside.path().join("secret");
    let absolute = secret.to_str().unwrap();
    let script = r#"fn turn(prompt) {
        let path = messages()[0].text;
        let said = [];
        try { said.push(read_file(path).text); } catch (error) { said.push("read: " + error); }
        try { list_files(path); said.push("listed"); } catch (error) { said.push("list: " + error); }
        try { write_file(path, "mine"); said.push("written"); } catch (error) { said.push("write: " + error); }
        said
    }"#;
    client.create_in("thief", script, "desk").await;
    let up = format!("{}etc/passwd", "../".repeat(12));
    for path in ["../secret", &up, absolute, "way-out/secret", "shown/up", "shown/../../x", "a\0b"]
    {
        let said: Vec<String> =
            serde_json::from_str(&client.ask("thief", path).await.unwrap()).unwrap();
        assert!(said.iter().all(|said| said.contains(": ")), "{path:?}: {said:?}");
        assert!(
            !said.iter().any(|said| said.contains("secret") && !said.contains(": ")),
            "{said:?}"
        );
    }
    // Writing where a link leads out replaces the link, and nothing behind it.
    let said: Vec<String> =
        serde_json::from_str(&client.ask("thief", "secret").await.unwrap()).unwrap();
    assert!(said[0].starts_with("read: "), "{said:?}");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
    assert_eq!(std::fs::read_dir(&shown).unwrap().count(), 1);
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 2);
}

#[tokio::test]
async fn a_script_that_runs_away_is_stopped_and_disturbs_nobody() {
    let daemon = Daemon::with(&["scripted.max_operations=2000000"]);
    let client = daemon.client().await;
    client.create("echo", ECHO).await;
    let scripts = [
        ("loops", "fn turn(prompt) { let n = 0; loop { n += 1; } }", "operations"),
        ("recurses", "fn turn(prompt) { turn(prompt) }", "tack"),
        ("grows", r#"fn turn(prompt) { let s = "x"; loop { s += s; } }"#, "ength of string"),
        ("hoards", "fn turn(prompt) { let a = []; loop { a.push(a); } }", "rray"),
        ("crashes", "fn turn(prompt) { 1 / 0 }", "ivision by zero"),
    ];
    let running = scripts.map(|(name, script, complaint)| {
        let client = client.clone();
        tokio::spawn(async move {
            let agent = client.create(name, script).await;
            let failed = client.ask(name, "go").await.unwrap_err();
            (agent, failed, complaint)
        })
    });
    let mut asked = 0;
    for one in running {
        while !one.is_finished() {
            assert_eq!(client.ask("echo", "hi").await.unwrap(), "you said: hi");
            asked += 1;
        }
        let (agent, failed, complaint) = one.await.unwrap();
        assert_eq!((failed.code(), reason(&failed).as_str()), (Code::Aborted, "TURN_FAILED"));
        assert!(failed.message().contains(complaint), "{}: {failed}", agent.name);
        // Where a limit is met has no place; a mistake has.
        let placed = failed.message().contains("line 1, column ");
        assert!(placed || agent.name != "crashes", "{failed}");
        assert_eq!(client.agent(&agent.id).await.turns.unwrap().failed, 1);
    }
    assert!(asked > 0);
    assert_eq!(client.ask("echo", "hi").await.unwrap(), "you said: hi");

    let untouched = Untouched::new().await;
    let deep = format!("fn turn(prompt) {{ {}1{} }}", "(".repeat(5000), ")".repeat(5000));
    for script in ["", "fn turn() { }", "let x = ;", "fn turn(prompt) { nowhere }", &deep] {
        let bad = v1::CreateAgentRequest { instructions: script.into(), ..named("bad") };
        untouched.create(bad, (Code::InvalidArgument, "SCRIPT_INVALID")).await;
    }
}

#[tokio::test]
async fn a_bad_name_or_reference_is_told_before_a_bad_script() {
    let untouched = Untouched::new().await;
    for script in ["", "let x = ;"] {
        let bad = |name| v1::CreateAgentRequest { instructions: script.into(), ..named(name) };
        untouched.create(bad("two words"), NAME).await;
        untouched.create(bad("echo"), (Code::AlreadyExists, "AGENT_EXISTS")).await;
        let provider = "scripted".to_owned();
        let orphan = v1::CreateAgentRequest { parent: "nobody".into(), provider, ..bad("child") };
        untouched.create(orphan, NOT_FOUND).await;
        let homeless = v1::CreateAgentRequest { workspace: "nowhere".into(), ..bad("odd") };
        untouched.create(homeless, (Code::NotFound, "WORKSPACE_NOT_FOUND")).await;
    }
}

#[tokio::test]
async fn an_endless_turn_can_be_cancelled() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let agent = client.create("loops", "fn turn(prompt) { loop { sleep_ms(1000); } }").await;
    let asked = {
        let client = client.clone();
        tokio::spawn(async move { client.ask("loops", "go").await })
    };
    client.wait_type(1, &agent, "turn.start").await;
    daemon.ctl_ok(&["agent", "cancel", "loops"]);
    assert_eq!(reason(&asked.await.unwrap().unwrap_err()), "TURN_CANCELLED");
}

/// Sends to an agent that reads nothing until the disk is full; returns how many were taken.
async fn send_until_full(client: &Client) -> u64 {
    let mut taken = 0;
    loop {
        let request = v1::SendMessageRequest {
            agent: "gated".into(),
            text: "x".repeat(50_000),
            no_wait: true,
            ..Default::default()
        };
        match client.agents.clone().send_message(request).await {
            Ok(_) => taken += 1,
            Err(status) => {
                let refusal = Refusal::from(&status);
                let expected = (Code::ResourceExhausted, "DISK_FULL");
                assert_eq!((refusal.code, refusal.reason.as_str()), expected);
                assert!(refusal.hint.contains("make room") && refusal.retry_after.is_some());
                return taken;
            }
        }
    }
}

#[tokio::test]
async fn a_full_disk_refuses_and_loses_nothing_and_goes_on_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_mount) = tmpfs(folder.path(), "size=24m,mode=700") else { return };
    let home = folder.path().join("home");
    let settings = ["journal.segment_mib=1", "journal.checkpoint_mib=1"];
    let mut daemon = Daemon::on(&home, &settings);
    let client = daemon.client().await;
    client.create("echo", ECHO).await;
    client.create("gated", ECHO).await;
    daemon.ctl_ok(&["agent", "gate", "gated"]);
    let filler = folder.path().join("filler");
    let mut taken = 0;
    for round in 0..2 {
        // Everything that is free is taken by someone else.
        fill(&filler);
        taken += send_until_full(&client).await;
        let create = ["agent", "create", "late", "--instructions", ECHO];
        assert_eq!(say(&home, &create).code, Some(7));
        // Reading goes on, and says so.
        assert!(client.status().await.journal.unwrap().full);
        assert_eq!(u64::from(client.agent("gated").await.inbox_size), taken);
        assert!(daemon.ctl_ok(&["daemon", "status"]).contains("DISK FULL"));

        std::fs::remove_file(&filler).unwrap();
        loop {
            match client.ask("echo", &format!("round {round}")).await {
                Ok(answer) => break assert_eq!(answer, format!("you said: round {round}")),
                Err(status) => assert_eq!(reason(&status), "DISK_FULL"),
            }
        }
        assert!(!client.status().await.journal.unwrap().full);
    }
    for clean in [false, true] {
        match clean {
            true => assert!(daemon.stop()),
            false => daemon.kill(),
        }
        daemon.start_again();
        let client = daemon.client().await;
        assert_eq!(u64::from(client.agent("gated").await.inbox_size), taken);
        assert_eq!(client.agent("echo").await.turns.unwrap().completed, 2);
        let events = client.events().await;
        let sent = events.iter().filter(|event| text(event, "recipient_name") == "gated");
        assert_eq!(sent.count() as u64, taken);
        assert!(events.windows(2).all(|pair| pair[0].sequence + 1 == pair[1].sequence));
    }
}

#[tokio::test]
async fn a_full_disk_is_emptied_by_the_daemon_itself() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_mount) = tmpfs(folder.path(), "size=24m,mode=700") else { return };
    let home = folder.path().join("home");
    let daemon = Daemon::on(&home, &["journal.segment_mib=1"]);
    let client = daemon.client().await;
    for name in ["gated", "echo"] {
        client.create(name, ECHO).await;
    }
    daemon.ctl_ok(&["agent", "gate", "gated"]);
    daemon.ctl_ok(&["workspace", "create", "hog"]);
    daemon.ctl_ok(&["agent", "create", "hog", "--workspace", "hog", "--instructions", ECHO]);
    let root = std::fs::read_dir(home.join("workspaces")).unwrap().next().unwrap().unwrap();
    fill(&root.path().join("filler"));
    send_until_full(&client).await;
    daemon.ctl_ok(&["agent", "terminate", "hog"]);
    daemon.ctl_ok(&["workspace", "delete", "hog"]);
    loop {
        match client.ask("echo", "goes on").await {
            Ok(answer) => break assert_eq!(answer, "you said: goes on"),
            Err(status) => assert_eq!(reason(&status), "DISK_FULL"),
        }
    }
}

/// Takes all the space there is.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    for size in [1 << 20, 1 << 16, 1 << 12] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_requests_at_once_are_shed_with_a_reason() {
    let untouched = Untouched::new().await;
    let mut waiting = tokio::task::JoinSet::new();
    // As many connections as it takes, each with as many requests as it may have at once.
    for _ in 0..100 {
        let channel = channel(&untouched.daemon.socket()).await.unwrap();
        let client = v1::agent_service_client::AgentServiceClient::new(channel);
        for _ in 0..190 {
            let mut client = client.clone();
            let wait = Some(prost_types::Duration { seconds: 3600, nanos: 0 });
            let request = v1::ListInboxRequest { wait, ..Default::default() };
            waiting.spawn(async move { client.list_inbox(request).await });
        }
    }
    let shed = waiting.join_next().await.unwrap().unwrap().expect_err("it is shed");
    let refusal = Refusal::from(&shed);
    assert_eq!((refusal.code, refusal.reason.as_str()), (Code::ResourceExhausted, "OVERLOADED"));
    assert!(refusal.retry_after.is_some());
    // The daemon itself can still be asked, and stopped.
    untouched.client.daemon.clone().get_daemon(v1::GetDaemonRequest {}).await.unwrap();
    waiting.shutdown().await;
    // Those who wait no longer make room.
    loop {
        let request = tonic::Request::new(v1::ListAgentsRequest::default());
        match untouched.client.agents.clone().list_agents(request).await {
            Ok(_) => break,
            Err(status) => assert_eq!(reason(&status), "OVERLOADED"),
        }
    }
    assert_eq!(untouched.client.sequence().await, untouched.sequence);
    assert_eq!(untouched.client.ask("echo", "hi").await.unwrap(), "you said: hi");
}
