//! `substratctl agent attach`: watch an agent live and talk to it.
//!
//! The stream is opened again whenever it breaks, with the cursor of the last item that was seen
//! and the number of deltas of the turn that was running: nothing is missed and nothing comes
//! twice. Inputs that were not confirmed are sent again under the same request id.

mod input;
mod questions;
mod view;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use substrat_proto::v1::attach_open::Start;
use substrat_proto::v1::attach_request::Request as Asked;
use substrat_proto::v1::attach_response::Item;
use substrat_proto::{MAX_MESSAGE_BYTES, v1};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use self::input::{Console, Typed};
use self::questions::{Meant, Questions};
use self::view::View;
use super::Context;
use crate::bounded::too_large;
use crate::client::request_id;
use crate::error::{Error, Kind, is_lost};

/// How often each side says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// After how long a silent daemon is taken for dead.
const DEAD: Duration = Duration::from_secs(15);
/// Longest pause between two attempts to reconnect.
const MAX_BACKOFF: Duration = Duration::from_secs(2);
/// Inputs that may be open at once: what is typed beyond them waits to be read.
const MAX_OPEN: usize = 256;
/// Longest input that fits a request, beside its id, in bytes.
const MAX_INPUT: usize = MAX_MESSAGE_BYTES - 1024;

/// Watch an agent live and talk to it.
///
/// Type to send; answers stream. Ctrl-C cancels a running turn, again (or when none runs)
/// detaches; /quit and Ctrl-D detach, too. The agent lives on. On a terminal, what its backend asks
/// is shown: /allow, /always and /deny [REASON] answer the oldest question.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The agent
    agent: String,
    /// Watch its descendants, too
    #[arg(long)]
    tree: bool,
    /// Start after this sequence instead of now
    #[arg(long, value_name = "SEQ", conflicts_with = "last")]
    from: Option<u64>,
    /// Start with the last so many turns
    #[arg(long, value_name = "TURNS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    last: Option<u32>,
}

/// An input that the daemon has not confirmed.
struct Unconfirmed {
    request_id: String,
    text: String,
    /// Whether it was sent over this connection.
    sent: bool,
}

/// The client's side of an attachment, across reconnects.
struct Session<'a> {
    context: &'a Context,
    args: Args,
    view: View,
    console: Console,
    /// Sequence of the last item that was seen; none before the first attachment.
    cursor: Option<u64>,
    /// The turn whose output is being seen, and how much of it was.
    seen: (u64, u64),
    unconfirmed: VecDeque<Unconfirmed>,
    inputs: Inputs,
    questions: Questions,
    /// The running turn of the attached agent.
    running: Option<String>,
    cancelled: bool,
    /// The turn whose cancel is still to be sent.
    cancel: Option<String>,
    /// No more input comes.
    closed: bool,
    failed: bool,
}

/// Which inputs still wait for a turn to end that they are in: a turn takes all messages that are
/// there when it starts.
#[derive(Default)]
struct Inputs {
    /// Confirmed, and in no turn that has ended.
    open: BTreeSet<String>,
    /// Enqueued since the last turn started.
    queued: BTreeSet<String>,
    /// In the running turn.
    in_turn: BTreeSet<String>,
    /// In turns that ended before their inputs were confirmed.
    done: BTreeSet<String>,
}

impl Inputs {
    fn confirmed(&mut self, message: &str) {
        if !self.done.remove(message) {
            self.open.insert(message.to_owned());
        }
    }

    fn turn_started(&mut self) {
        self.in_turn.append(&mut self.queued);
    }

    fn turn_ended(&mut self) {
        for message in std::mem::take(&mut self.in_turn) {
            if !self.open.remove(&message) {
                self.done.insert(message);
            }
        }
    }
}

/// How a connection ended.
enum Ended {
    Detached,
    Lost,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<(), Error> {
    let mut session = Session {
        view: View::new(context.output, args.tree),
        console: Console::start(context.output.is_json()),
        context,
        args,
        cursor: None,
        seen: (0, 0),
        unconfirmed: VecDeque::new(),
        inputs: Inputs::default(),
        questions: Questions::default(),
        running: None,
        cancelled: false,
        cancel: None,
        closed: false,
        failed: false,
    };
    session.run().await?;
    if session.failed {
        return Err(Error::new(Kind::Failed, "a turn did not complete", ""));
    }
    Ok(())
}

impl Session<'_> {
    async fn run(&mut self) -> Result<(), Error> {
        let mut backoff = Duration::from_millis(100);
        let mut told = false;
        let mut lost = Instant::now();
        loop {
            match self.connection().await {
                Ok(Ended::Detached) => return Ok(()),
                Ok(Ended::Lost) => {
                    backoff = Duration::from_millis(100);
                    told = false;
                    lost = Instant::now();
                }
                Err(error) if self.cursor.is_none() => return Err(error),
                Err(error) if error.kind != Kind::Unreachable => return Err(error),
                Err(error) if self.context.place.timeout.is_some_and(|t| lost.elapsed() > t) => {
                    return Err(error);
                }
                Err(_) => {}
            }
            if !told {
                told = true;
                self.running = None;
                self.view.lost(&self.console);
                self.console.prompt(&self.args.agent);
            }
            if self.wait_typing(backoff).await {
                return Ok(());
            }
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    /// Takes input while there is no daemon. True when the user leaves.
    async fn wait_typing(&mut self, pause: Duration) -> bool {
        let until = sleep(pause);
        tokio::pin!(until);
        loop {
            tokio::select! {
                () = &mut until => return false,
                typed = self.console.next(), if self.has_room() => match typed {
                    Typed::Line(text) if text.trim() == "/quit" => return true,
                    Typed::Line(text) => {
                        self.queue(text);
                        self.console.prompt(&self.args.agent);
                    }
                    Typed::Interrupt => return true,
                    Typed::End => self.closed = true,
                },
            }
        }
    }

    fn queue(&mut self, text: String) {
        if text.len() > MAX_INPUT {
            self.failed = true;
            let text = format!(
                "this input has {} bytes, which is too much: {}",
                text.len(),
                too_large().hint
            );
            self.view.note(&self.console, &text);
        } else if !text.trim().is_empty() {
            let (request_id, sent) = (request_id(), false);
            self.unconfirmed.push_back(Unconfirmed { request_id, text, sent });
        }
    }

    /// Whether more input may be taken.
    fn has_room(&self) -> bool {
        self.unconfirmed.len() + self.inputs.open.len() < MAX_OPEN
    }

    /// What is to be sent next.
    fn next_request(&mut self) -> Option<Asked> {
        if let Some(turn_id) = self.cancel.take() {
            return Some(Asked::Cancel(v1::AttachCancel { turn_id }));
        }
        if let Some(answer) = self.questions.next() {
            return Some(Asked::Decision(answer));
        }
        let waiting = self.unconfirmed.iter_mut().find(|waiting| !waiting.sent)?;
        waiting.sent = true;
        Some(input(waiting))
    }

    fn has_requests(&self) -> bool {
        self.cancel.is_some()
            || self.questions.has_answers()
            || self.unconfirmed.iter().any(|waiting| !waiting.sent)
    }

    fn open(&self) -> v1::AttachOpen {
        let start = match (self.cursor, self.args.from, self.args.last) {
            (Some(cursor), _, _) => Some(Start::AfterSequence(cursor)),
            (None, Some(from), _) => Some(Start::AfterSequence(from)),
            (None, None, last) => last.map(Start::LastTurns),
        };
        v1::AttachOpen {
            agent: self.args.agent.clone(),
            tree: self.args.tree,
            start,
            seen_turn: self.seen.0,
            seen_deltas: self.seen.1,
            answers_permissions: self.console.is_terminal(),
        }
    }

    /// One connection, from its opening to its end.
    async fn connection(&mut self) -> Result<Ended, Error> {
        let client = self.context.connect().await?;
        let (requests, queue) = mpsc::channel(64);
        let open = Some(Asked::Open(self.open()));
        // There is room for the first, and the receiver is right here.
        let _ = requests.try_send(v1::AttachRequest { request: open });
        let mut items = match client.attach().attach(ReceiverStream::new(queue)).await {
            Ok(response) => response.into_inner(),
            Err(status) if is_lost(&status) => {
                return Err(Error::unreachable("the daemon went away"));
            }
            Err(status) => return Err(status.into()),
        };
        self.cancel = None;
        for waiting in &mut self.unconfirmed {
            waiting.sent = false;
        }
        self.converse(&requests, &mut items).await
    }

    async fn converse(
        &mut self,
        requests: &mpsc::Sender<v1::AttachRequest>,
        items: &mut Streaming<v1::AttachResponse>,
    ) -> Result<Ended, Error> {
        let mut beat = interval(HEARTBEAT);
        let mut heard = Instant::now();
        loop {
            let answered = self.unconfirmed.is_empty() && self.inputs.open.is_empty();
            if self.closed && answered && self.running.is_none() {
                return Ok(Ended::Detached);
            }
            tokio::select! {
                item = items.message() => {
                    heard = Instant::now();
                    match item {
                        Ok(Some(response)) => self.item(response)?,
                        Ok(None) => return Ok(Ended::Lost),
                        Err(status) if is_lost(&status) || status.code() == Code::Aborted => {
                            return Ok(Ended::Lost);
                        }
                        Err(status) => return Err(status.into()),
                    }
                }
                // Never waited for without reading: the daemon reads no more while nobody takes
                // what it has to say.
                Ok(permit) = requests.reserve(), if self.has_requests() => {
                    let request = self.next_request();
                    permit.send(v1::AttachRequest { request });
                }
                typed = self.console.next(), if !self.closed && self.has_room() => {
                    if self.typed(typed) {
                        return Ok(Ended::Detached);
                    }
                }
                _ = beat.tick() => {
                    if heard.elapsed() > DEAD {
                        return Ok(Ended::Lost);
                    }
                    let beat = Some(Asked::Heartbeat(v1::Heartbeat {}));
                    // Requests that wait are as good a sign of life.
                    let _ = requests.try_send(v1::AttachRequest { request: beat });
                }
            }
        }
    }

    /// Handles what the user typed. True when the user leaves.
    fn typed(&mut self, typed: Typed) -> bool {
        match typed {
            Typed::Line(text) if text.trim() == "/quit" => return true,
            Typed::Line(text) if text.trim().is_empty() => self.console.prompt(&self.args.agent),
            Typed::Line(text) => self.line(text),
            Typed::Interrupt if self.running.is_some() && !self.cancelled => {
                self.cancelled = true;
                self.view.note(&self.console, "cancelling the turn; Ctrl-C again detaches");
                self.cancel.clone_from(&self.running);
            }
            Typed::Interrupt => return true,
            Typed::End => self.closed = true,
        }
        false
    }

    fn line(&mut self, text: String) {
        let meant =
            if self.console.is_terminal() { self.questions.typed(&text) } else { Meant::Text };
        match meant {
            Meant::Text => {
                self.cancelled = false;
                self.queue(text);
            }
            Meant::Answered => {}
            Meant::Missed => {
                self.view.note(&self.console, "that question is closed; now the oldest is:");
                self.view.asked(&self.console, self.questions.oldest());
            }
            Meant::NothingAsked => self.view.note(&self.console, "nothing is asked"),
        }
        if self.questions.is_open() || meant == Meant::NothingAsked {
            self.console.prompt(&self.args.agent);
        }
    }

    fn item(&mut self, response: v1::AttachResponse) -> Result<(), Error> {
        if response.sequence > 0 {
            self.cursor = Some(response.sequence);
        }
        match &response.item {
            Some(Item::Attached(attached)) => {
                let running = attached.agent.as_ref().map(|agent| agent.turn_id.clone());
                self.running = running.filter(|turn| !turn.is_empty());
                if let Some(agent) = &attached.agent {
                    self.view.set_own(&agent.id);
                }
                if self.cursor.is_none() {
                    self.cursor = Some(attached.cursor);
                }
                if self.running.is_none() {
                    self.console.prompt(&self.args.agent);
                }
            }
            Some(Item::TurnStarted(turn)) if self.view.is_own(&turn.agent_id) => {
                self.inputs.turn_started();
                self.seen = (response.sequence, 0);
                self.running = Some(turn.turn_id.clone());
                self.cancelled = false;
            }
            Some(Item::MessageSeen(v1::MessageSeen { message: Some(message) }))
                if self.view.is_own(&message.recipient_id) =>
            {
                self.inputs.queued.insert(message.id.clone());
            }
            Some(Item::OutputDelta(delta)) => self.seen = (delta.turn, delta.index + 1),
            _ => {}
        }
        if self.context.output.is_json() {
            self.context.output.item(&response, |_| {})?;
        } else {
            self.view.show(&self.console, &response);
        }
        if let Some(item) = &response.item {
            self.questions.take(item);
        }
        if self.questions.is_open() {
            self.console.prompt(&self.args.agent);
        }
        match response.item {
            Some(Item::TurnEnded(turn)) if self.view.is_own(&turn.agent_id) => {
                self.running = None;
                self.inputs.turn_ended();
                self.failed = turn.outcome() != v1::TurnOutcome::Completed;
                self.console.prompt(&self.args.agent);
            }
            Some(Item::InputResult(result)) => self.confirmed(&result),
            _ => {}
        }
        Ok(())
    }

    fn confirmed(&mut self, result: &v1::InputResult) {
        self.unconfirmed.retain(|waiting| waiting.request_id != result.request_id);
        if !result.message_id.is_empty() {
            self.inputs.confirmed(&result.message_id);
        }
        if self.questions.is_result(result) {
            return;
        }
        if !result.reason.is_empty() {
            self.failed = true;
            self.console.prompt(&self.args.agent);
        }
    }
}

fn input(waiting: &Unconfirmed) -> Asked {
    Asked::Input(v1::AttachInput {
        text: waiting.text.clone(),
        request_id: waiting.request_id.clone(),
    })
}
