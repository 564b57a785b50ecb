//! What earlier systems of this kind got wrong, and the test that fails if it happens here.
//!
//! | what went wrong | what holds it |
//! |---|---|
//! | **Python Substrat** | |
//! | a restart made sessions unusable | `a_restart_leaves_every_session_usable` |
//! | a session that made room took its log with it | `a_session_that_made_room_answers_its_next_message` |
//! | after a torn tail the next entry was lost | `a_torn_tail_loses_no_later_entry`, `journal::tests::a_crash_at_any_operation_loses_nothing_acknowledged` |
//! | USER's inbox was in memory only | `messages_to_the_user_are_there_until_they_are_acknowledged` |
//! | message and gate of a child spawned in the same turn were lost | `a_message_and_a_gate_of_a_child_just_spawned_survive`, `team_tools.rs::what_a_parent_does_to_a_child_in_the_turn_that_spawned_it_survives_a_kill` |
//! | woken turns ran one after the other | `four_woken_agents_run_at_the_same_time`, `make bench` |
//! | of three senders on two slots two failed | `three_senders_on_two_slots_all_succeed`, `multiplexer.rs` |
//! | a file descriptor for each session | `more_sessions_than_file_descriptors_recover` |
//! | permits were in memory only | `gates_and_permits_survive_a_kill` |
//! | reminders and subscriptions were in memory only | `team_tools.rs::a_reminder_comes_although_the_daemon_was_killed_and_down_when_it_was_due`, `team_tools.rs::a_subscription_outlives_the_daemon_and_ends_with_whom_it_watches` |
//! | syncs blocked everyone | `engine::tests::driver::a_rejection_and_a_read_with_nothing_to_wait_for_are_told_at_once` |
//! | unreadable lines of a log were passed over in silence | `a_line_that_was_garbled_is_mended_or_told` |
//! | one failing child killed the wake loop | `a_child_that_fails_stops_no_other` |
//! | one bad session.json ended the scan | `a_damaged_session_file_stops_no_other_session` |
//! | "B replied, A never got it" | `an_answer_to_a_turn_that_a_crash_cut_off_still_arrives` |
//! | a stop that failed left a process | `lifecycle.rs`, `engine::tests::driver::a_panic_in_a_turn_is_told_and_disturbs_no_other_agent` |
//! | **Opal** | |
//! | kill -9 lost prompt, finished tool results and queue | `a_kill_in_a_turn_keeps_prompt_finished_calls_and_queue` |
//! | a kill during a save lost the session | `crash_points.rs`, `journal::tests::a_checkpoint_is_old_or_new_after_a_crash_at_any_operation` |
//! | the client showed nothing of a crash (gap 1) | `attach_cli.rs::a_terminal_goes_on_over_a_kill_and_tells_of_the_lost_turn` |
//! | a restarted agent was blank, and saving was an option (gaps 2, 5) | `an_agent_remembers_after_its_daemon_was_killed` |
//! | watchers were not told of a crash (gap 3) | `attach_ends.rs::a_stream_goes_on_over_a_kill_with_everything_that_happened` |
//! | nobody noticed who was silent (gap 4) | `attach_ends.rs::a_client_that_beats_stays_and_one_that_is_silent_is_dropped` |
//! | the client did not reconnect (gap 6) | `attach_cli.rs::a_piped_client_goes_on_over_kills_without_losing_or_doubling_a_line` |
//! | calls without results after an abort (gap 7) | `a_call_of_a_cancelled_turn_is_closed` |
//! | **IntentusNet** | |
//! | the command line did not start | `cli.rs` |
//! | records were written over the old ones in place | there are none: `records.rs` reads them from the journal |
//! | a torn last line blocked resuming and aborting | `a_torn_tail_loses_no_later_entry` |
//! | the hash of an envelope was not checked | `records.rs`, `model::canonical` (vectors, byte for byte) |
//! | what failed left half a record | `a_failed_turn_leaves_a_whole_record` |
//! | kill -9 inside an agent left no record, and was judged safe to go on | `a_kill_inside_a_turn_is_on_record_and_not_judged_safe` |
//! | the id in the log was not that of the record | `a_turn_has_one_identity_everywhere` |
//! | a writer opened again broke the chain | `a_journal_that_is_opened_again_goes_on_without_a_seam` |
//! | the refusal raised an error of its own | `service::status::tests`, which makes every refusal |
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

mod substrat;
mod turns;

use std::path::PathBuf;

use substrat_proto::v1;
use substrat_tests::harness::{Client, Daemon};

const ECHO: &str = r#"fn turn(prompt) { "you said: " + messages()[0].text }"#;
const COUNTER: &str = r#"fn turn(prompt) {
    let n = (recall("n") ?? 0) + 1; remember("n", n); n.to_string() }"#;
/// Works until the file `go` is in its workspace.
const PATIENT: &str = r#"fn turn(prompt) {
    write_file("begun", "");
    while !("go" in list_files().entries.map(|entry| entry.path)) { sleep_ms(10); }
    let texts = messages().map(|message| message.text);
    let all = "";
    for text in texts { all += text + ";"; }
    all
}"#;

/// A workspace for all, and where it is.
async fn desk(client: &Client) -> PathBuf {
    let request = v1::CreateWorkspaceRequest { name: "desk".into(), ..Default::default() };
    let created = client.workspaces.clone().create_workspace(request).await.unwrap();
    PathBuf::from(created.into_inner().workspace.unwrap().root)
}

async fn child(client: &Client, parent: &str, name: &str, script: &str) -> v1::Agent {
    let request = v1::CreateAgentRequest {
        name: name.into(),
        parent: parent.into(),
        instructions: script.into(),
        workspace: "desk".into(),
        ..Default::default()
    };
    let created = client.agents.clone().create_agent(request).await.unwrap();
    created.into_inner().agent.unwrap()
}

async fn inbox(client: &Client) -> Vec<v1::Message> {
    let request = v1::ListInboxRequest { page_size: 1000, ..Default::default() };
    client.agents.clone().list_inbox(request).await.unwrap().into_inner().messages
}

/// Waits until an agent has finished a file or another call in a turn from a sequence on.
async fn worked(client: &Client, from: u64, agent: &v1::Agent) -> v1::Event {
    client.wait_type(from, agent, "tool_call.result").await
}

/// Kills the daemon, or lets it stop, and starts it again.
async fn restart(daemon: &mut Daemon, kill: bool) -> Client {
    match kill {
        true => daemon.kill(),
        false => assert!(daemon.stop()),
    }
    daemon.start_again();
    daemon.client().await
}
