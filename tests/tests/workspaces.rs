//! Workspaces as people and agents have them: views, rights, links, and how many there may be.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use substrat_proto::v1;
use substrat_tests::harness::{Client, Daemon, Said, reason, say};

/// Does what it was told last; what failed before lies in its inbox, too.
const OBEY: &str = r#"fn turn(prompt) {
    let said = messages()[-1].text;
    if said.starts_with("read ") { return read_file(said.sub_string(5)).text; }
    if said.starts_with("list") { return list_files("", true).entries.map(|e| e.path); }
    write_file(said.sub_string(6), "written");
    "written"
}"#;

fn ctl(daemon: &Daemon, args: &[&str]) -> Said {
    say(&daemon.home, args)
}

fn json(daemon: &Daemon, args: &[&str]) -> Value {
    let said = ctl(daemon, &[args, &["-o", "json"]].concat());
    assert_eq!(said.code, Some(0), "{args:?}: {said:?}");
    said.json()
}

fn refused(daemon: &Daemon, args: &[&str]) -> String {
    let said = ctl(daemon, &[args, &["-o", "json"]].concat());
    let error: Value = serde_json::from_str(&said.stderr).unwrap_or_else(|_| panic!("{said:?}"));
    error["error"]["reason"].as_str().unwrap_or_else(|| panic!("{said:?}")).to_owned()
}

fn root(daemon: &Daemon, workspace: &str) -> PathBuf {
    let shown = json(daemon, &["workspace", "show", workspace]);
    PathBuf::from(shown["workspace"]["root"].as_str().unwrap())
}

fn folder(home: &Path, name: &str) -> String {
    let folder = home.join(name);
    fs::create_dir_all(&folder).unwrap();
    folder.to_str().unwrap().to_owned()
}

async fn agent(client: &Client, name: &str, script: &str, workspace: &str, mode: v1::LinkMode) {
    let request = v1::CreateAgentRequest {
        name: name.into(),
        instructions: script.into(),
        workspace: workspace.into(),
        workspace_access: mode.into(),
        ..Default::default()
    };
    client.agents.clone().create_agent(request).await.unwrap();
}

#[test]
fn a_workspace_is_made_changed_and_shown() {
    let daemon = Daemon::start();
    daemon.ctl_ok(&[
        "workspace",
        "create",
        "desk",
        "--network",
        "--env",
        "A=1",
        "--env",
        "EMPTY=",
        "--memory",
        "2G",
        "--cpus",
        "1.5",
        "--processes",
        "64",
    ]);
    let shown = daemon.ctl_ok(&["workspace", "show", "desk"]);
    for line in [
        "network    on",
        "variable   A=1",
        "variable   EMPTY=",
        "limit      memory 2 GiB",
        "limit      processors 1.5",
        "limit      processes 64",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    daemon.ctl_ok(&[
        "workspace",
        "set",
        "desk",
        "--network",
        "off",
        "--env",
        "B=x y",
        "--unset-env",
        "A",
        "--memory",
        "0",
        "--disk",
        "1G",
    ]);
    let shown = &json(&daemon, &["workspace", "show", "desk"])["workspace"];
    assert_eq!(shown.get("network"), None, "what is off is absent");
    assert_eq!(shown["env"], serde_json::json!({ "B": "x y", "EMPTY": "" }));
    assert_eq!(shown["limits"].get("memoryBytes"), None);
    assert_eq!(shown["limits"]["diskBytes"], (1_u64 << 30).to_string());
    assert_eq!(shown["limits"]["cpuMillis"], 1500, "what is not named stays");
    for args in [
        &["workspace", "create", "x", "--env", "LD_PRELOAD=/x"][..],
        &["workspace", "create", "x", "--env", "1=x"],
        &["workspace", "create", "x", "--memory", "1M"],
        &["workspace", "set", "desk", "--processes", "1"],
        &["workspace", "set", "desk", "--unset-env", "A"],
    ] {
        assert_eq!(refused(&daemon, args), "WORKSPACE_INVALID", "{args:?}");
    }
    assert_eq!(ctl(&daemon, &["workspace", "set", "desk"]).code, Some(6));
}

#[test]
fn a_folder_that_is_not_there_yet_is_told_when_an_agent_is_to_see_it() {
    let daemon = Daemon::start();
    let host = folder(&daemon.home.join(".."), "host");
    daemon.ctl_ok(&["workspace", "create", "desk"]);
    daemon.ctl_ok(&["workspace", "link", "desk", &host, "docs"]);
    fs::create_dir(root(&daemon, "desk").join("there")).unwrap();
    let create = |name: &str, part: &str| {
        let of = ["--instructions", OBEY, "--workspace", "desk", "--workspace-subdir", part];
        let said = ctl(&daemon, &[&["agent", "create", name][..], &of].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        said.stderr
    };
    let told = "note: reports/new/ does not exist in desk yet; it is made when typo starts\n";
    assert_eq!(create("typo", "reports/new"), told);
    assert_eq!(create("here", "there"), "");
    assert_eq!(create("linked", "docs/none"), "", "what is linked is not made");
}

#[test]
fn a_root_that_was_removed_is_made_anew_and_the_log_says_so() {
    let daemon = Daemon::start();
    daemon.ctl_ok(&["workspace", "create", "desk"]);
    let (desk, told) = (root(&daemon, "desk"), "it is made anew, empty");
    let exec = ["workspace", "exec", "desk", "--", "true"];
    daemon.ctl_ok(&exec);
    assert!(!daemon.log().contains(told));
    fs::remove_dir_all(&desk).unwrap();
    daemon.ctl_ok(&exec);
    let log = daemon.log();
    assert!(desk.is_dir() && log.contains(told) && log.contains(desk.to_str().unwrap()), "{log}");
}

#[test]
fn what_was_made_of_a_workspace_is_there_after_a_death() {
    let mut daemon = Daemon::start();
    let host = folder(&daemon.home.join(".."), "host");
    daemon.ctl_ok(&["workspace", "create", "desk", "--network", "--env", "A=1", "--disk", "1G"]);
    daemon.ctl_ok(&["workspace", "link", "desk", &host, "src/host", "--rw"]);
    daemon.ctl_ok(&["workspace", "view", "desk", "--name", "look", "--subdir", "src"]);
    daemon.ctl_ok(&[
        "agent",
        "create",
        "reader",
        "--instructions",
        OBEY,
        "--workspace",
        "look",
        "--ro",
    ]);
    let all = |daemon: &Daemon| {
        let agents = json(daemon, &["agent", "list"]);
        (json(daemon, &["workspace", "list"]), agents["agents"][0]["workspaceAccess"].clone())
    };
    let before = all(&daemon);
    assert_eq!(before.1, "LINK_MODE_READ_ONLY");
    daemon.kill();
    daemon.start_again();
    assert_eq!(all(&daemon), before);
}

#[tokio::test]
async fn two_agents_have_different_rights_on_one_workspace() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    daemon.ctl_ok(&["workspace", "create", "desk"]);
    agent(&client, "writer", OBEY, "desk", v1::LinkMode::Unspecified).await;
    agent(&client, "reader", OBEY, "desk", v1::LinkMode::ReadOnly).await;
    assert_eq!(client.ask("writer", "write a/b.txt").await.unwrap(), "written");
    assert_eq!(client.ask("reader", "read a/b.txt").await.unwrap(), "written");
    let no = client.ask("reader", "write a/c.txt").await.unwrap_err();
    assert!(no.message().contains("\"a/c.txt\" is read-only"), "{no:?}");
    assert!(!root(&daemon, "desk").join("a/c.txt").exists());
}

#[tokio::test]
async fn a_view_shows_a_part_and_goes_with_what_it_shows() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let host = folder(&daemon.home.join(".."), "host");
    fs::write(Path::new(&host).join("page"), "linked").unwrap();
    daemon.ctl_ok(&["workspace", "create", "desk"]);
    daemon.ctl_ok(&["workspace", "link", "desk", &host, "src/docs", "--rw"]);
    let desk = root(&daemon, "desk");
    fs::create_dir_all(desk.join("src")).unwrap();
    fs::write(desk.join("src/a"), "inside").unwrap();
    fs::write(desk.join("above"), "outside").unwrap();
    let view = ["workspace", "view", "desk", "--name", "look", "--subdir", "src"];
    assert!(daemon.ctl_ok(&view).starts_with("created look ("));
    assert!(daemon.ctl_ok(&["workspace", "show", "look"]).contains("view       of desk, src (ro)"));
    agent(&client, "reader", OBEY, "look", v1::LinkMode::Unspecified).await;
    assert_eq!(client.ask("reader", "read a").await.unwrap(), "inside");
    assert_eq!(client.ask("reader", "read docs/page").await.unwrap(), "linked");
    assert!(client.ask("reader", "read ../above").await.is_err());
    for place in ["new", "docs/new"] {
        let no = client.ask("reader", &format!("write {place}")).await.unwrap_err();
        assert!(no.message().contains("read-only"), "{no:?}");
    }
    let said = ctl(&daemon, &["workspace", "delete", "desk"]);
    assert_eq!(said.code, Some(5));
    assert!(said.stderr.contains("agent \"reader\" (in its view \"look\")"), "{said:?}");
    daemon.ctl_ok(&["agent", "terminate", "reader"]);
    let from = client.sequence().await;
    let said = daemon.ctl_ok(&["workspace", "delete", "desk"]);
    assert_eq!(said, "deleted desk, with its view look\n");
    let gone = |event: &v1::Event| event.sequence > from && event.r#type == "workspace.deleted";
    let gone: Vec<_> = client.events().await.into_iter().filter(gone).collect();
    assert_eq!(gone.len(), 2);
    assert_eq!(gone[0].time, gone[1].time, "they go together");
    assert_eq!(refused(&daemon, &["workspace", "show", "look"]), "WORKSPACE_NOT_FOUND");
    assert!(Path::new(&host).join("page").exists(), "what was linked stays");
}

#[tokio::test]
async fn deleting_a_view_leaves_the_files_that_it_shows() {
    let daemon = Daemon::start();
    daemon.ctl_ok(&["workspace", "create", "desk"]);
    let desk = root(&daemon, "desk");
    fs::write(desk.join("kept"), "kept").unwrap();
    daemon.ctl_ok(&["workspace", "view", "desk", "--name", "all", "--rw"]);
    assert_eq!(root(&daemon, "all"), desk);
    daemon.ctl_ok(&["workspace", "delete", "all"]);
    // Folders are removed in the order in which their workspaces are.
    daemon.ctl_ok(&["workspace", "create", "after"]);
    assert_eq!(fs::read_to_string(desk.join("kept")).unwrap(), "kept");
}

#[tokio::test]
async fn a_lead_gives_its_children_parts_of_what_it_sees() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    daemon.ctl_ok(&["workspace", "create", "desk"]);
    daemon.ctl_ok(&["workspace", "create", "foreign"]);
    fs::create_dir_all(root(&daemon, "desk").join("data")).unwrap();
    fs::write(root(&daemon, "desk").join("data/in"), "given").unwrap();
    let lead = r#"fn turn(prompt) {
        if messages()[0].from != "USER" { return; }
        create_workspace("lab");
        link_dir("lab", "data", "in/data");
        let kid = "fn turn(prompt) { let r = read_file(\"in/data/in\").text;"
            + " let w = \"\"; try { write_file(\"in/data/x\", r); } catch (e) { w = e; }"
            + " write_file(\"out\", r); complete(r + \"|\" + w); }";
        spawn_agent("kid", kid, #{ workspace: "lab" });
        let refused = [];
        for what in [
            || link_dir("foreign", "data", "x"),
            || link_from("foreign", "", "x"),
            || create_workspace("net", true),
            || create_workspace("v", false, "foreign"),
            || unlink_dir("desk", "nothing"),
            || delete_workspace("foreign"),
            || link_from("lab", "results", "results"),
        ] {
            try { what.call(); } catch (e) { refused.push(e); }
        }
        send_message("USER", list_workspaces().workspaces.len().to_string());
        refused
    }"#;
    agent(&client, "lead", lead, "desk", v1::LinkMode::Unspecified).await;
    let refused: Vec<String> =
        serde_json::from_str(&client.ask("lead", "go").await.unwrap()).unwrap();
    let expected = [
        "not yours",
        "not yours",
        "reach the network",
        "not yours",
        "nothing is linked",
        "not yours",
        "it is not there",
    ];
    assert_eq!(refused.len(), expected.len(), "{refused:?}");
    for (no, why) in refused.iter().zip(expected) {
        assert!(no.contains(why), "{why}: {no}");
    }
    let answered = |event: &v1::Event| {
        event.r#type == "message.enqueued"
            && substrat_tests::harness::text(event, "sender_name") == "kid"
    };
    let answer = client.wait_event(1, answered).await;
    let answer = substrat_tests::harness::text(&answer, "payload").to_owned();
    let (read, written) = answer.split_once('|').unwrap();
    assert_eq!(read, "given");
    assert!(written.contains("read-only"), "{written}");
    assert_eq!(fs::read_to_string(root(&daemon, "lab").join("out")).unwrap(), "given");
    assert!(!root(&daemon, "desk").join("data/x").exists());
    let shown = daemon.ctl_ok(&["workspace", "show", "lab"]);
    assert!(shown.contains("made by    lead") && shown.contains("(ro, by an agent)"), "{shown}");
}

#[tokio::test]
async fn a_link_whose_folder_vanishes_is_said_and_the_rest_works() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let host = folder(&daemon.home.join(".."), "host");
    daemon.ctl_ok(&["workspace", "create", "desk"]);
    daemon.ctl_ok(&["workspace", "link", "desk", &host, "docs", "--rw"]);
    agent(&client, "a", OBEY, "desk", v1::LinkMode::Unspecified).await;
    fs::remove_dir(&host).unwrap();
    let no = client.ask("a", "read docs/page").await.unwrap_err();
    assert!(no.message().contains("there is nothing at \"docs/page\""), "{no:?}");
    assert!(client.ask("a", "write docs/page").await.is_err());
    assert_eq!(client.ask("a", "write own").await.unwrap(), "written");
    let listed: Vec<String> =
        serde_json::from_str(&client.ask("a", "list").await.unwrap()).unwrap();
    assert_eq!(listed, ["docs", "own"]);
    assert_eq!(refused(&daemon, &["workspace", "link", "desk", &host, "x"]), "LINK_FORBIDDEN");
}

#[tokio::test]
async fn an_agent_links_no_folder_that_is_not_there() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    daemon.ctl_ok(&["workspace", "create", "desk"]);
    fs::create_dir(root(&daemon, "desk").join("data")).unwrap();
    fs::write(root(&daemon, "desk").join("file"), "x").unwrap();
    std::os::unix::fs::symlink("data", root(&daemon, "desk").join("sym")).unwrap();
    let lead = r#"fn turn(prompt) {
        create_workspace("lab");
        let refused = [];
        for what in [
            || link_dir("lab", "none", "x"),
            || link_dir("lab", "file", "x"),
            || link_dir("lab", "sym", "x"),
            || link_dir("desk", "data", "file"),
            || create_workspace("v", false, "desk", "none"),
        ] {
            try { what.call(); } catch (e) { refused.push(e); }
        }
        link_dir("lab", "data", "x");
        link_from("lab", "x", "back");
        refused
    }"#;
    agent(&client, "lead", lead, "desk", v1::LinkMode::Unspecified).await;
    let refused: Vec<String> =
        serde_json::from_str(&client.ask("lead", "go").await.unwrap()).unwrap();
    let no_folder = "the folder: it is no folder, or a symbolic link";
    let expected = [
        "\"none\" cannot be shown in workspace \"desk\": the folder: it is not there",
        no_folder,
        no_folder,
        "\"file\" cannot be shown in workspace \"desk\": at its place: it is no folder",
        "\"none\" cannot be shown in workspace \"desk\": the folder: it is not there",
    ];
    assert_eq!(refused.len(), expected.len(), "{refused:?}");
    for (no, why) in refused.iter().zip(expected) {
        assert!(no.contains(why), "{why}: {no}");
    }
    assert_eq!(daemon.ctl_ok(&["workspace", "exec", "lab", "--", "ls"]), "x\n");
    // What vanishes is named with what to do, and is not made again.
    fs::remove_dir(root(&daemon, "desk").join("data")).unwrap();
    let said = ctl(&daemon, &["workspace", "exec", "lab", "--", "ls"]);
    assert!(said.stderr.contains("\"x\" cannot be shown in the workspace"), "{said:?}");
    assert!(said.stderr.contains("\"substratctl workspace unlink lab x\""), "{said:?}");
    assert!(!root(&daemon, "desk").join("data").exists());
    daemon.ctl_ok(&["workspace", "unlink", "lab", "x"]);
    daemon.ctl_ok(&["workspace", "exec", "lab", "--", "ls"]);
}

#[tokio::test]
async fn a_mount_path_may_have_any_characters() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    daemon.ctl_ok(&["workspace", "create", "desk"]);
    let mounts = ["with space", "line\nbreak", "größe/日本", "-dash", "a\"quote\\"];
    for (number, mount) in mounts.iter().enumerate() {
        let host = folder(&daemon.home.join(".."), &format!("host {number}\n"));
        fs::write(Path::new(&host).join("page"), mount).unwrap();
        daemon.ctl_ok(&["workspace", "link", "desk", &host, "--", mount]);
    }
    agent(&client, "a", OBEY, "desk", v1::LinkMode::Unspecified).await;
    for mount in mounts {
        assert_eq!(client.ask("a", &format!("read {mount}/page")).await.unwrap(), mount);
    }
    let shown = daemon.ctl_ok(&["workspace", "show", "desk"]);
    assert!(shown.contains("link       \"line\\nbreak\" (ro)"), "{shown}");
}

#[tokio::test]
async fn workspaces_lie_in_each_other_fifty_deep() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let mut service = client.workspaces.clone();
    let mut parent = String::new();
    for depth in 0..64 {
        let name = format!("level-{depth}");
        let request =
            v1::CreateWorkspaceRequest { name: name.clone(), parent, ..Default::default() };
        service.create_workspace(request).await.unwrap();
        parent = name;
    }
    let request = v1::CreateWorkspaceRequest { name: "more".into(), parent, ..Default::default() };
    let no = service.create_workspace(request).await.unwrap_err();
    assert_eq!(reason(&no), "TREE_LIMIT");
    agent(&client, "deep", OBEY, "level-50", v1::LinkMode::Unspecified).await;
    agent(&client, "top", OBEY, "level-0", v1::LinkMode::Unspecified).await;
    client.ask("deep", "write a").await.unwrap();
    let path: Vec<String> = (1..=50).map(|depth| format!("level-{depth}")).collect();
    let read = client.ask("top", &format!("read {}/a", path.join("/"))).await.unwrap();
    assert_eq!(read, "written");
}

#[tokio::test]
async fn a_thousand_workspaces_are_made_listed_and_deleted() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..1000 {
        let mut service = client.workspaces.clone();
        tasks.spawn(async move {
            let name = format!("w{number}");
            let request = v1::CreateWorkspaceRequest { name, ..Default::default() };
            service.create_workspace(request).await.map(|_| ())
        });
    }
    while let Some(made) = tasks.join_next().await {
        made.unwrap().unwrap();
    }
    assert_eq!(client.status().await.workspace_count, 1000);
    let listed = json(&daemon, &["workspace", "list"]);
    assert_eq!(listed["workspaces"].as_array().unwrap().len(), 1000);
    for number in 0..1000 {
        let mut service = client.workspaces.clone();
        tasks.spawn(async move {
            let workspace = format!("w{number}");
            let request = v1::DeleteWorkspaceRequest { workspace, ..Default::default() };
            service.delete_workspace(request).await.map(|_| ())
        });
    }
    while let Some(gone) = tasks.join_next().await {
        gone.unwrap().unwrap();
    }
    assert_eq!(client.status().await.workspace_count, 0);
}

#[tokio::test]
async fn the_daemon_says_how_processes_are_kept_in_their_workspaces() {
    let daemon = Daemon::with(&["sandbox.policy=preferred"]);
    let sandbox = daemon.client().await.status().await.sandbox.expect("it says");
    assert_eq!(sandbox.policy(), v1::SandboxPolicy::Preferred);
    assert!(sandbox.in_force || !sandbox.reason.is_empty(), "{sandbox:?}");
    assert!(daemon.ctl_ok(&["daemon", "status"]).contains("sandbox   preferred, "));
}
