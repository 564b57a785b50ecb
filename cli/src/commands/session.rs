//! `substratctl session`: low-level control of sessions.

use clap::Subcommand;
use substrat_proto::v1;

use super::Context;
use crate::client::request_id;
use crate::error::Error;
use crate::output::{Table, line, short_id};
use crate::sandbox::{self, Column};
use crate::time;

/// Low-level control of sessions.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List sessions, those of terminated agents included
    List,
    /// Show a session
    Show(Args),
    /// Suspend an idle session, which frees its slot
    Suspend(Args),
    /// Make a session live before it is needed
    Resume(Args),
    /// Delete the session of a terminated agent with its log
    Delete(Args),
}

/// A session.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Id of the session, or a unique prefix of it
    session: String,
}

pub(crate) async fn run(context: &Context, command: Command) -> Result<(), Error> {
    let client = context.connect().await?;
    let mut service = client.sessions();
    let request_id = request_id();
    match command {
        Command::List => {
            let mut found = v1::ListSessionsResponse::default();
            loop {
                let page_token = std::mem::take(&mut found.next_page_token);
                let request = v1::ListSessionsRequest { page_size: 1000, page_token };
                let page = service.list_sessions(request).await?.into_inner();
                found.sessions.extend(page.sessions);
                found.next_page_token = page.next_page_token;
                if found.next_page_token.is_empty() {
                    break;
                }
            }
            context.output.response(&found, |found| table(context, &found.sessions))?;
            sandbox::warn(&client).await
        }
        Command::Show(Args { session }) => {
            let request = v1::GetSessionRequest { session };
            let response = service.get_session(request).await?.into_inner();
            context.output.response(&response, |response| show(response.session.as_ref()))
        }
        Command::Suspend(Args { session }) => {
            let request = v1::SuspendSessionRequest { session, request_id };
            let response = service.suspend_session(request).await?.into_inner();
            context.output.response(&response, |response| said(response.session.as_ref()))
        }
        Command::Resume(Args { session }) => {
            let request = v1::ResumeSessionRequest { session, request_id };
            let response = service.resume_session(request).await?.into_inner();
            context.output.response(&response, |response| said(response.session.as_ref()))
        }
        Command::Delete(Args { session }) => {
            let request = v1::DeleteSessionRequest { session, request_id };
            let response = service.delete_session(request).await?.into_inner();
            context.output.response(&response, |response| {
                line(&format!("deleted {}", response.session_id));
            })
        }
    }
}

fn state_word(session: &v1::Session) -> &'static str {
    match session.state() {
        v1::SessionState::Unspecified => "?",
        v1::SessionState::Created => "created",
        v1::SessionState::Active => "active",
        v1::SessionState::Suspending => "suspending",
        v1::SessionState::Suspended => "suspended",
        v1::SessionState::Terminated => "terminated",
    }
}

/// How its processes are started; nothing of one that starts no more.
fn sandbox_of(session: &v1::Session) -> Option<&v1::SandboxStatus> {
    session.sandbox.as_ref().filter(|_| session.state() != v1::SessionState::Terminated)
}

fn table(context: &Context, sessions: &[v1::Session]) {
    let sandboxes = Column::of(sessions.iter().map(sandbox_of));
    let headings = &["SESSION", "AGENT", "STATE", "PROVIDER", "EVENTS", "CREATED", "SANDBOX"];
    let mut table = Table::new(sandboxes.headings(headings));
    for session in sessions {
        let cells = vec![
            short_id(&session.id),
            session.agent_path.clone(),
            state_word(session).to_owned(),
            session.provider.clone(),
            session.event_count.to_string(),
            time::ago(session.create_time.as_ref()),
        ];
        table.row(sandboxes.cells(cells, sandbox_of(session)));
    }
    table.print(context.output, "no sessions; an agent has one");
}

fn said(session: Option<&v1::Session>) {
    if let Some(session) = session {
        line(&format!("session of {} is {}", session.agent_path, state_word(session)));
    }
}

fn show(session: Option<&v1::Session>) {
    let Some(session) = session else { return };
    line(&format!("session    {}", session.id));
    line(&format!("agent      {} ({})", session.agent_path, session.agent_id));
    line(&format!("state      {}", state_word(session)));
    line(&format!("provider   {}", session.provider));
    line(&format!("created    {}", time::date(session.create_time.as_ref())));
    line(&format!("suspended  {}", time::date(session.suspend_time.as_ref())));
    line(&format!("saved      {}", time::bytes(session.provider_state_size)));
    line(&format!("events     {}, the last one {}", session.event_count, session.last_sequence));
    if let Some(lack) = sandbox::lack_line(sandbox_of(session)) {
        line(&format!("sandbox    {lack}"));
    }
}
