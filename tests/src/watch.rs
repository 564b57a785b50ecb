//! An attached stream, as a client sees it.

use std::time::Duration;

use substrat_proto::v1;
use substrat_proto::v1::attach_open::Start;
use substrat_proto::v1::attach_request::Request as Asked;
use substrat_proto::v1::attach_response::Item;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::harness::{Client, text};

/// How long a test waits for something that must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An attached stream. Its request side ends when it is dropped.
pub struct Watch {
    requests: Option<mpsc::Sender<v1::AttachRequest>>,
    items: Streaming<v1::AttachResponse>,
    /// What the daemon said when it attached.
    pub attached: v1::Attached,
}

/// Opens a stream of an agent, from a sequence on or from now.
pub fn open(agent: &str, after: Option<u64>) -> v1::AttachOpen {
    let (agent, start) = (agent.into(), after.map(Start::AfterSequence));
    v1::AttachOpen { agent, start, ..Default::default() }
}

impl Client {
    /// Attaches to an agent, after a sequence or from now.
    pub async fn attach(&self, agent: &str, after: Option<u64>) -> Watch {
        self.try_attach(open(agent, after)).await.expect("the stream opens")
    }

    /// Opens an attached stream.
    pub async fn try_attach(&self, open: v1::AttachOpen) -> Result<Watch, Status> {
        let (requests, queue) = mpsc::channel(256);
        let first = v1::AttachRequest { request: Some(Asked::Open(open)) };
        requests.send(first).await.expect("there is room");
        let mut attach = self.attach.clone().max_decoding_message_size(usize::MAX);
        let mut items = attach.attach(ReceiverStream::new(queue)).await?.into_inner();
        let first = items.message().await?.and_then(|first| first.item);
        let Some(Item::Attached(attached)) = first else { panic!("attached comes first") };
        Ok(Watch { requests: Some(requests), items, attached })
    }
}

impl Watch {
    /// The next item, heartbeats included; none when the daemon ended the stream.
    pub async fn any(&mut self) -> Result<Option<v1::AttachResponse>, Status> {
        tokio::time::timeout(PATIENCE, self.items.message()).await.expect("an item comes")
    }

    /// The next item that is no heartbeat; those are answered.
    pub async fn next(&mut self) -> v1::AttachResponse {
        loop {
            let item = self.any().await.expect("the stream goes on").expect("an item");
            if !matches!(item.item, Some(Item::Heartbeat(_))) {
                return item;
            }
            if self.requests.is_some() {
                self.ask(Asked::Heartbeat(v1::Heartbeat {})).await;
            }
        }
    }

    /// The items up to the first that fits, that one included.
    pub async fn until(
        &mut self,
        fits: impl Fn(&v1::AttachResponse) -> bool,
    ) -> Vec<v1::AttachResponse> {
        let mut items = Vec::new();
        loop {
            items.push(self.next().await);
            if items.last().is_some_and(&fits) {
                return items;
            }
        }
    }

    /// The items up to an event, that one included.
    pub async fn until_sequence(&mut self, sequence: u64) -> Vec<v1::AttachResponse> {
        self.until(|item| item.sequence >= sequence).await
    }

    pub async fn ask(&self, request: Asked) {
        let requests = self.requests.as_ref().expect("the request side is open");
        // A stream that has ended is noticed where it is read.
        let _ = requests.send(v1::AttachRequest { request: Some(request) }).await;
    }

    pub async fn input(&self, text: &str, request_id: &str) {
        let (text, request_id) = (text.into(), request_id.into());
        self.ask(Asked::Input(v1::AttachInput { text, request_id })).await;
    }

    /// Asks for the end of a turn, or of whichever runs.
    pub async fn cancel(&self, turn: &str) {
        self.ask(Asked::Cancel(v1::AttachCancel { turn_id: turn.to_owned() })).await;
    }

    /// What became of the next input or cancel.
    pub async fn result(&mut self) -> v1::InputResult {
        let items = self.until(|item| matches!(item.item, Some(Item::InputResult(_)))).await;
        match items.into_iter().next_back().and_then(|last| last.item) {
            Some(Item::InputResult(result)) => result,
            other => panic!("no result: {other:?}"),
        }
    }

    /// Ends the request side; the stream goes on.
    pub fn close_requests(&mut self) {
        self.requests = None;
    }
}

/// The name of the event behind an item; none for items that stand in no log.
pub fn event_name(item: &v1::AttachResponse) -> Option<&str> {
    Some(match item.item.as_ref()? {
        Item::TurnStarted(_) => "turn.start",
        Item::ToolCallStarted(call) if call.native => "tool_use.started",
        Item::ToolCallStarted(_) => "tool_call.invoked",
        Item::ToolCallFinished(call) if call.native => "tool_use.ended",
        Item::ToolCallFinished(_) => "tool_call.result",
        Item::ProcessNotice(notice) => &notice.event,
        Item::MessageSeen(_) => "message.enqueued",
        Item::TurnEnded(ended) => match ended.outcome() {
            v1::TurnOutcome::Completed => "turn.complete",
            v1::TurnOutcome::Failed => "turn.failed",
            v1::TurnOutcome::Cancelled => "turn.cancelled",
            v1::TurnOutcome::Interrupted => "turn.interrupted",
            v1::TurnOutcome::Unspecified => "?",
        },
        Item::StateChanged(changed) => &changed.event,
        Item::AgentCrashed(_) => "agent.crashed",
        Item::DaemonRecovered(_) => "daemon.recovered",
        _ => return None,
    })
}

/// The items that stand in a log, as sequences and names.
pub fn durable(items: &[v1::AttachResponse]) -> Vec<(u64, String)> {
    let logged = items.iter().filter(|item| item.sequence > 0);
    logged.map(|item| (item.sequence, event_name(item).expect("a name").to_owned())).collect()
}

/// What a watcher of an agent has to see of these events.
pub fn expected(events: &[v1::Event], agent: &str) -> Vec<(u64, String)> {
    const SHOWN: &[&str] = &[
        "turn.start",
        "turn.complete",
        "turn.failed",
        "turn.cancelled",
        "turn.interrupted",
        "turn.waiting",
        "turn.resumed",
        "tool_call.invoked",
        "tool_call.result",
        "turn.retry",
        "turn.stalled",
        "message.enqueued",
        "agent.created",
        "agent.updated",
        "agent.terminated",
        "agent.crashed",
        "metadata.updated",
        "session.opened",
        "session.restored",
        "suspend.result",
        "tool.gate",
        "tool.permit_turn",
        "turn.refused",
        "budget.changed",
        "budget.warning",
        "budget.exhausted",
        "budget.released",
    ];
    let is_shown = |event: &&v1::Event| match event.r#type.as_str() {
        "daemon.recovered" => true,
        "message.enqueued" if text(event, "sender") == agent => true,
        name => event.agent_id == agent && SHOWN.contains(&name),
    };
    let shown = events.iter().filter(is_shown);
    shown.map(|event| (event.sequence, event.r#type.clone())).collect()
}

/// The pieces of output among items, by turn, with what was skipped as none.
pub fn deltas(items: &[v1::AttachResponse]) -> Vec<(u64, u64, Option<String>)> {
    let piece = |item: &v1::AttachResponse| match &item.item {
        Some(Item::OutputDelta(delta)) => Some((delta.turn, delta.index, Some(delta.text.clone()))),
        Some(Item::Lagged(lagged)) => Some((lagged.turn, lagged.from_index, None)),
        _ => None,
    };
    items.iter().filter_map(piece).collect()
}
