//! The way to an agent's tools, across restarts of the daemon.
//!
//! ```text
//!            connects, and gets the tools
//!  waiting ─────────────────────────────────► live
//!     ▲  └─ again, later and later             │
//!     └────────────────────────────────────────┘
//!            the stream of tools ends
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use substrat_proto::v1::tool_service_client::ToolServiceClient;
use substrat_proto::{MAX_MESSAGE_BYTES, Refusal, v1};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::Endpoint;
use tonic::{Code, Status};

use crate::bounded::Bounded;
use crate::{error, output};

/// The first wait before it connects again; it doubles up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How long after a call failed the connection may still look well, if it was lost.
const NOTICE: Duration = Duration::from_secs(1);

/// The tools of the agent, as the daemon listed them last.
pub(super) type Tools = Arc<Vec<v1::Tool>>;

/// A connection; a later one has a higher number.
#[derive(Clone)]
struct Live {
    number: u64,
    client: ToolServiceClient<Bounded>,
}

/// Why there is nothing to wait for.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The socket serves something else.
    NotTools(PathBuf),
}

/// Why a call has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// The daemon refused it, or the tool failed; the text is for the model.
    Told { text: String, reason: String },
    /// There was no daemon to make it for so long.
    Gone(Duration),
}

/// The way to an agent's tools; clones share it.
#[derive(Clone)]
pub(super) struct Link {
    live: watch::Receiver<Option<Live>>,
    tools: watch::Receiver<Option<Tools>>,
    patience: Duration,
}

/// Keeps the link up.
pub(super) struct Keeper {
    socket: PathBuf,
    live: watch::Sender<Option<Live>>,
    tools: watch::Sender<Option<Tools>>,
}

impl Link {
    pub(super) fn new(socket: PathBuf, patience: Duration) -> (Self, Keeper) {
        let (live_sender, live) = watch::channel(None);
        let (tools_sender, tools) = watch::channel(None);
        let keeper = Keeper { socket, live: live_sender, tools: tools_sender };
        (Self { live, tools, patience }, keeper)
    }

    /// The tools as they were listed last, and word of later lists; none before the first.
    pub(super) fn tools(&self) -> watch::Receiver<Option<Tools>> {
        self.tools.clone()
    }

    /// Waits until the tools are known; false if they are not in time.
    pub(super) async fn wait_for_tools(&self, most: Duration) -> bool {
        let mut tools = self.tools();
        let known = tools.wait_for(Option::is_some);
        matches!(tokio::time::timeout(most, known).await, Ok(Ok(_)))
    }

    /// Waits for a connection after the one with this number. The patience is that of one outage.
    async fn live_after(&self, number: u64) -> Result<Live, Failure> {
        let mut live = self.live.clone();
        let newer = |live: &Option<Live>| live.as_ref().is_some_and(|live| live.number > number);
        let found = tokio::time::timeout(self.patience, live.wait_for(newer)).await;
        let found = found.ok().and_then(|found| found.ok().and_then(|found| found.clone()));
        found.ok_or(Failure::Gone(self.patience))
    }

    /// Waits until there is a daemon to call.
    pub(super) async fn wait_until_live(&self) -> Result<(), Failure> {
        self.live_after(0).await.map(drop)
    }

    /// Fails if the connection with this number goes on after a call broke off: no other follows.
    async fn expect_loss(&self, number: u64, status: &Status) -> Result<(), Failure> {
        // A daemon that stops says so first.
        if !Refusal::from(status).reason.is_empty() {
            return Ok(());
        }
        let mut live = self.live.clone();
        let other = |live: &Option<Live>| live.as_ref().is_none_or(|live| live.number != number);
        let lost = tokio::time::timeout(NOTICE, live.wait_for(other)).await;
        lost.map(drop).map_err(|_| {
            let advice = "whether the call had an effect is unknown, so look before you repeat it";
            Failure::Told {
                text: format!("the call broke off: {}; {advice}", status.message()),
                reason: String::new(),
            }
        })
    }

    /// Calls a tool. The call has a key, so it is made again when the daemon went away meanwhile.
    pub(super) async fn call(&self, call: v1::CallToolRequest) -> Result<Option<Wire>, Failure> {
        let mut last = 0;
        loop {
            let mut live = self.live_after(last).await?;
            match live.client.call_tool(call.clone()).await {
                Ok(response) => {
                    let response = response.into_inner();
                    return match response.error.is_empty() {
                        true => Ok(response.result),
                        false => {
                            Err(Failure::Told { text: response.error, reason: response.reason })
                        }
                    };
                }
                Err(status) if error::is_lost(&status) => {
                    self.expect_loss(live.number, &status).await?;
                    last = live.number;
                }
                Err(status) => return Err(told(&status)),
            }
        }
    }
}

type Wire = prost_types::Value;

fn told(status: &Status) -> Failure {
    let Refusal { message, hint, reason, .. } = Refusal::from(status);
    let text = match hint.is_empty() {
        true => message,
        false => format!("{message}; {hint}"),
    };
    Failure::Told { text, reason }
}

impl Keeper {
    /// Connects, and again whenever the connection is lost.
    pub(super) async fn run(&mut self) -> Trouble {
        let mut wait = FIRST_WAIT;
        let mut number = 0;
        loop {
            let begun = Instant::now();
            number += 1;
            if let Err(status) = self.follow(number).await
                && status.code() == Code::Unimplemented
            {
                return Trouble::NotTools(self.socket.clone());
            }
            if self.live.send_replace(None).is_some() {
                output::note("the connection to the daemon was lost; it is looked for");
            }
            // One that was up for a while is looked for at once.
            wait = if begun.elapsed() > LONGEST_WAIT { FIRST_WAIT } else { wait };
            tokio::time::sleep(wait).await;
            wait = (2 * wait).min(LONGEST_WAIT);
        }
    }

    /// Connects and takes the tools, until the connection is lost.
    async fn follow(&self, number: u64) -> Result<(), Status> {
        let uri: tonic::transport::Uri = hyperlocal::Uri::new(&self.socket, "/").into();
        let channel = Endpoint::from(uri).connect_with_connector(hyperlocal::UnixConnector).await;
        let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
        let mut client = ToolServiceClient::new(Bounded::new(channel))
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
            .max_decoding_message_size(usize::MAX);
        let lists = client.watch_tools(v1::WatchToolsRequest {}).await?;
        let mut lists = lists.into_inner();
        while let Some(list) = lists.message().await? {
            let tools = Arc::new(list.tools);
            self.tools.send_if_modified(|known| {
                let changed = known.as_ref() != Some(&tools);
                *known = Some(tools);
                changed
            });
            let live = Some(Live { number, client: client.clone() });
            self.live.send_if_modified(|known| {
                let new = known.is_none();
                *known = live;
                new
            });
        }
        Ok(())
    }
}
