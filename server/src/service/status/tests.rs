use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::model::{AgentId, Excess, Measure, MessageId, Name, PermissionId, Scope, Stage, TurnId};

/// Every reason that does not come from a rejection of the core.
const OTHERS: &[Reason] = &[
    Reason::ConfigInvalid,
    Reason::ProviderFailed,
    Reason::ToolFailed,
    Reason::TurnFailed,
    Reason::TurnCancelled,
    Reason::RequestIdInvalid,
    Reason::MalformedRequest,
    Reason::FieldInvalid,
    Reason::PageTokenInvalid,
    Reason::PeerSilent,
    Reason::PeerNotAllowed,
    Reason::DiskFull,
    Reason::DeadlineExceeded,
    Reason::Overloaded,
    Reason::LogUnreadable,
    Reason::GitFailed,
    Reason::WorkLeft,
    Reason::SandboxUnavailable,
    Reason::SandboxFailed,
    Reason::MountFailed,
    Reason::CommandNotFound,
];

fn not_there(id: Option<u128>, taken: bool) -> Rejection {
    let id = id.map(MessageId::from_u128);
    Rejection::MessageNotFound { name: Name::known("worker"), id, taken }
}

fn rejections() -> Vec<Rejection> {
    let name = || Name::known("worker");
    let text = || "thing".to_owned();
    let mut all = vec![
        Rejection::AgentNotFound { reference: text() },
        Rejection::AgentAmbiguous { reference: text(), paths: vec!["a/x".into(), "b/x".into()] },
        Rejection::AgentExists { path: text() },
        Rejection::AgentTerminated { name: name() },
        Rejection::AgentHasChildren { name: name(), children: 1 },
        Rejection::AgentHasChildren { name: name(), children: 2 },
        Rejection::AgentNotGated { name: name() },
        Rejection::TreeLimit { what: "the depth of the tree", limit: 6 },
        Name::parse("a b").unwrap_err(),
        Name::parse("USER").unwrap_err(),
        Rejection::MetadataInvalid { key: text(), problem: "it is too long" },
        Rejection::ProviderUnknown { name: text(), known: vec!["scripted".into(), "x".into()] },
        Rejection::ScriptInvalid { name: text(), problem: "it has no fn turn".into() },
        Rejection::ModelInvalid { name: text(), problem: "no command line was given".into() },
        Rejection::ToolUnknown { name: text(), known: vec!["poke", "subscribe"] },
        Rejection::ArgumentsInvalid { tool: "poke", problem: "missing field `agent_name`".into() },
        Rejection::NotANeighbour { sender: name(), recipient: text() },
        Rejection::UserNotReachable { sender: name() },
        Rejection::SelfSend { sender: name() },
        Rejection::MessageTooLarge { bytes: 11, limit: 10 },
        Rejection::InboxFull { name: name(), messages: 50, bytes: 700 },
        Rejection::BudgetExhausted { name: name(), excess: excess(Scope::Agent, Measure::Cost) },
        Rejection::BudgetExhausted { name: name(), excess: excess(Scope::Tree, Measure::Tokens) },
        Rejection::WouldDeadlock { sender: name(), recipient: Name::known("lead") },
        Rejection::NoTeam { sender: name() },
        Rejection::NotAChild { agent: Name::known("lead"), other: name() },
        Rejection::NothingToAnswer { id: text() },
        Rejection::NoAnswerWanted { id: text(), answered: true },
        Rejection::NoAnswerWanted { id: text(), answered: false },
        not_there(None, false),
        not_there(Some(7), false),
        not_there(Some(7), true),
        Rejection::TooMany { what: "reminders", limit: 100 },
        Rejection::ReminderInvalid { problem: "every is 0" },
        Rejection::ReminderNotFound { id: text() },
        Rejection::TransitionInvalid { text: text() },
        Rejection::SubscriptionNotFound { id: text() },
        Rejection::WorkspaceNotVisible { name: name() },
        Rejection::NoParent { name: name() },
        Rejection::NoWorkspace { name: name() },
        Rejection::NoTurn { name: name(), turn: None },
        Rejection::NoTurn { name: name(), turn: Some(TurnId::from_u64(7)) },
        Rejection::PermissionNotOpen { name: name(), permission: None },
        Rejection::PermissionNotOpen { name: name(), permission: Some(PermissionId::from_u64(7)) },
        Rejection::PermissionAmbiguous { open: vec!["permission-1".into(), "permission-2".into()] },
        Rejection::TurnNotFound { turn: TurnId::from_u64(7) },
        Rejection::TurnNotReplayable {
            turn: TurnId::from_u64(7),
            reason: "execution_incomplete",
            stage: Some(Stage::DuringAgentExecution),
        },
        Rejection::TurnNotReplayable {
            turn: TurnId::from_u64(7),
            reason: "execution_cancelled",
            stage: None,
        },
        Rejection::SessionNotFound { reference: text() },
        Rejection::SessionBusy { name: name() },
        Rejection::SessionTerminated { name: name() },
        Rejection::SessionNotTerminated { name: name() },
        Rejection::RequestIdReused { id: text() },
        Rejection::RecordTooLarge { bytes: 11, limit: 10 },
        Rejection::Draining,
        Rejection::Bug { what: "a panic".into() },
    ];
    all.extend(rejections_of_workspaces());
    all
}

fn rejections_of_workspaces() -> Vec<Rejection> {
    let name = || Name::known("worker");
    let text = || "thing".to_owned();
    vec![
        Rejection::WorkspaceNotFound { reference: text() },
        Rejection::WorkspaceExists { name: name() },
        Rejection::WorkspaceInUse { name: name(), by: "agent \"a\"".into() },
        Rejection::WorkspaceInvalid { problem: text(), hint: "raise the limit" },
        Rejection::ReadOnly { what: "workspace \"w\"".into() },
        Rejection::NetworkNotAllowed { name: text() },
        Rejection::LinkNotYours { mount: text() },
        Rejection::LinkExists { mount: text(), other: "other".into() },
        Rejection::LinkNotFound { mount: text(), known: vec!["docs".into()] },
        Rejection::LinkForbidden { path: "/x".into(), problem: "it is not a folder" },
        Rejection::MountFailed {
            workspace: name(),
            path: "src".into(),
            problem: "the folder: it is not there any more".into(),
            hint: "make the folder first, or name one that is there",
        },
        Rejection::PathInvalid { path: "../x".into(), problem: "it leads out" },
    ]
}

fn excess(scope: Scope, measure: Measure) -> Excess {
    let (whose, whose_name) = (AgentId::from_u128(7), Name::known("lead"));
    Excess { scope, whose, whose_name, measure, used: 1_200_000, limit: 1_000_000 }
}

fn shown(status: &Status) -> String {
    let wire = Wire::from(status);
    let mut text = format!("{} {:?}\n  {}\n", wire.reason, status.code(), wire.message);
    if !wire.hint.is_empty() {
        text += &format!("  {}\n", wire.hint);
    }
    if let Some(after) = wire.retry_after {
        text += &format!("  retry after {after:?}\n");
    }
    text
}

#[test]
#[expect(clippy::disallowed_methods, reason = "reads and writes the golden text")]
fn every_refusal_says_what_is_wrong_and_what_to_do() {
    let mut text = String::new();
    for rejection in rejections() {
        let status = refused(&Refusal::Rejected(rejection));
        assert!(!Wire::from(&status).hint.is_empty(), "{status:?}");
        text += &shown(&status);
    }
    text += &shown(&refused(&Refusal::DiskFull));
    text += &shown(&refused(&Refusal::Stopped));
    let turn = TurnId::from_u64(7);
    for class in [FailureClass::Permanent, FailureClass::Budget] {
        let failed = Answer::Failed { turn, class, error: "why".into() };
        text += &shown(&unanswered("worker", &failed));
    }
    text += &shown(&unanswered("worker", &Answer::Cancelled { turn }));
    text += &shown(&unanswered("worker", &Answer::Left));
    let refused = Answer::Refused(excess(Scope::Tree, Measure::Turns));
    text += &shown(&unanswered("worker", &refused));
    text += &shown(&unanswered("worker", &Answer::Terminated));
    text += &shown(&unanswered("worker", &Answer::Discarded));
    text += &shown(&unreadable(&std::io::Error::other("why")));
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/service/status/refusals.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(golden).unwrap(), text, "UPDATE_GOLDEN=1 writes it anew");
}

#[test]
fn a_rejection_is_on_record_by_the_reason_that_a_client_is_told() {
    for rejection in rejections() {
        assert_eq!(rejection.code(), classify(&rejection).1.as_str());
    }
}

#[test]
fn every_reason_has_a_way_to_come_about() {
    let from_core = rejections();
    let from_core = from_core.iter().map(|rejection| classify(rejection).1.as_str());
    let all: BTreeSet<&str> =
        from_core.chain(OTHERS.iter().map(|reason| reason.as_str())).collect();
    let reasons: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(all, reasons);
    for reason in reasons {
        assert!(reason.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'), "{reason}");
    }
}

#[test]
fn a_full_disk_under_git_and_under_a_process_says_to_make_room() {
    let command = "config".to_owned();
    let git = git::Error::Run { command, error: git::RunError::DiskFull };
    let launched = not_launched(&launcher::Error::DiskFull);
    for told in [git_failed(&git), not_looked_for(&git), launched] {
        let wire = Wire::from(&told);
        assert_eq!((told.code(), wire.reason.as_str()), (Code::ResourceExhausted, "DISK_FULL"));
        assert!(wire.hint.starts_with("make room there"), "{told:?}");
    }
    let (command, error) = ("config".to_owned(), git::RunError::Unkept("why".to_owned()));
    let told = git_failed(&git::Error::Run { command, error });
    assert_eq!(Wire::from(&told).reason, "SANDBOX_UNAVAILABLE");
}

#[test]
fn what_force_loses_is_told_with_the_work_that_is_left() {
    let left = git::WorkLeft { uncommitted: vec!["notes.md".to_owned()], ..Default::default() };
    let hint = Wire::from(&work_left(&left)).hint;
    assert!(hint.contains("what is uncommitted is lost, commits stay on the branch"), "{hint}");
}

#[test]
fn a_worktree_that_cannot_be_looked_at_can_be_deleted_all_the_same() {
    let path = std::path::PathBuf::from("/repo/.git/worktrees/w");
    let errors = [
        git::Error::Tampered { path: path.clone(), problem: "it is no regular file" },
        git::Error::Special { path: path.clone(), what: "a pipe" },
        git::Error::Io { path, error: std::io::ErrorKind::PermissionDenied.into() },
        git::Error::Run { command: "status".to_owned(), error: git::RunError::DiskFull },
    ];
    for error in errors {
        let wire = Wire::from(&not_looked_for(&error));
        assert!(wire.hint.contains("delete with --force"), "{wire:?}");
    }
}
