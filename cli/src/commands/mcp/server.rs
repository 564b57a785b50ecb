//! What the MCP client sees.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest,
    CustomResult, Implementation, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ProgressToken, ServerCapabilities, ServerConfig, SubscriptionFilter,
    Tool,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use substrat_proto::v1;
use tokio::sync::watch;

use super::line;
use super::link::{Failure, Link, Tools};
use super::value;
use crate::client::request_id;

/// Longest wait for the first list of tools; clients do not wait for long when they start.
const LISTING: Duration = Duration::from_secs(3);
/// How often a client is told that a call still runs.
const PROGRESS: Duration = Duration::from_secs(3);
/// Longest key of a call, in bytes.
const MAX_KEY: usize = 128;
/// Where clients say which call of the model this is.
const CALL_IDS: [&str; 2] = ["claudecode/toolUseId", "callId"];

const INSTRUCTIONS: &str = "\
These tools are your place in a team of agents that outlives this conversation. Use them to send \
messages to your parent, your children and your siblings, to spawn children for parts of your \
work, and to see what your team is doing. An answer that does not come in the call comes as a \
message later: end your turn to wait for it.";

/// Offers the tools behind a link; clones share it.
#[derive(Clone)]
pub(super) struct Server {
    link: Link,
    /// The list that the client has; none before it asked.
    served: Arc<Mutex<Option<Tools>>>,
    ready: Arc<watch::Sender<bool>>,
}

impl Server {
    /// `ready` becomes true when the client says that it is initialized.
    pub(super) fn new(link: Link, ready: watch::Sender<bool>) -> Self {
        Self { link, served: Arc::default(), ready: Arc::new(ready) }
    }

    /// The list of now, which the client has from now on, and whether it had another one.
    fn serve_list(&self) -> (Tools, bool) {
        // Nothing under this lock can be left half done by a panic.
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.link.tools().borrow().clone().unwrap_or_default();
        let before = served.replace(now.clone());
        let another = before.is_some_and(|before| before != now);
        (now, another)
    }

    /// Whether the client has a list that is not that of now. It is taken to have the new one then.
    fn is_outdated(&self) -> bool {
        let asked = self.served.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        asked && self.serve_list().1
    }

    /// Tells the client when the list becomes another one than it has. Ends with the link only.
    pub(super) async fn announce(
        &self,
        peer: &Peer<RoleServer>,
        mut initialized: watch::Receiver<bool>,
    ) {
        let mut tools = self.link.tools();
        if initialized.wait_for(|initialized| *initialized).await.is_err() {
            return std::future::pending().await;
        }
        loop {
            tools.mark_unchanged();
            if self.is_outdated() {
                // A client that is gone ends the server by itself.
                let _ = peer.notify_tool_list_changed().await;
            }
            if tools.changed().await.is_err() {
                return;
            }
        }
    }

    async fn call(
        &self,
        name: &str,
        arguments: serde_json::Map<String, Value>,
        key: String,
    ) -> Result<CallToolResult, ErrorData> {
        if let Err(failure) = self.link.wait_until_live().await {
            return Ok(failed(failure));
        }
        let tools = self.link.tools().borrow().clone().unwrap_or_default();
        if !tools.iter().any(|tool| tool.name == name) {
            let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
            let text = format!("unknown tool {name:?}; there are: {}", names.join(", "));
            return Err(ErrorData::invalid_params(text, None));
        }
        let call = v1::CallToolRequest {
            name: name.to_owned(),
            arguments: Some(value::to_struct(arguments)),
            request_id: key,
        };
        Ok(match self.link.call(call).await {
            Ok(result) => match result.map_or(Value::Null, value::from_wire) {
                object @ Value::Object(_) => CallToolResult::structured(object),
                other => CallToolResult::success(vec![ContentBlock::text(other.to_string())]),
            },
            Err(failure) => failed(failure),
        })
    }
}

fn failed(failure: Failure) -> CallToolResult {
    let (text, reason) = match failure {
        Failure::Told { text, reason } => (text, reason),
        Failure::Gone(patience) => {
            let text = format!(
                "the daemon that runs this team has not answered for {} s; whether the call had \
                 an effect is unknown, so look before you repeat it",
                patience.as_secs_f64()
            );
            (text, String::new())
        }
    };
    let structured = json!({ "error": text, "reason": reason });
    let mut failed = CallToolResult::error(vec![ContentBlock::text(text)]);
    failed.structured_content = Some(structured);
    failed
}

/// Tells the client every few seconds that a call still runs.
async fn report(peer: &Peer<RoleServer>, token: Option<ProgressToken>) {
    let Some(token) = token else { return std::future::pending().await };
    for count in 1_u32.. {
        tokio::time::sleep(PROGRESS).await;
        let seconds = f64::from(count) * PROGRESS.as_secs_f64();
        let progress = ProgressNotificationParam::new(token.clone(), seconds)
            .with_message(format!("{seconds} s"));
        // A client that is gone ends the server by itself.
        let _ = peer.notify_progress(progress).await;
    }
}

/// The key of a call: that which the client has for it, or a new one.
fn key(context: &RequestContext<RoleServer>) -> String {
    let named = |name: &&str| context.meta.0.0.get(*name).filter(|key| is_key(key));
    CALL_IDS.iter().find_map(named).map_or_else(request_id, as_key)
}

fn is_key(given: &Value) -> bool {
    !given.is_null() && given.as_str() != Some("")
}

/// What a client has as the key of a call, in the form that the daemon takes.
fn as_key(given: &Value) -> String {
    let fits = |key: &&str| key.len() <= MAX_KEY && !key.chars().any(char::is_control);
    match given.as_str().filter(fits) {
        Some(key) => key.to_owned(),
        // Another spelling of the same key must stay the same key.
        None => {
            let hash = Sha256::digest(given.to_string());
            hash.iter().map(|byte| format!("{byte:02x}")).collect()
        }
    }
}

fn listed(tool: &v1::Tool) -> Tool {
    let schema = value::from_struct(tool.input_schema.clone().unwrap_or_default());
    Tool::new(tool.name.clone(), tool.description.clone(), schema)
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("substrat", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn on_initialized(&self, _: NotificationContext<RoleServer>) {
        self.ready.send_replace(true);
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.link.wait_for_tools(LISTING).await;
        let (tools, _) = self.serve_list();
        Ok(ListToolsResult::with_all_items(tools.iter().map(listed).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let token = context.meta.get_progress_token();
        tokio::select! {
            biased;
            called = self.call(&request.name, arguments, key(&context)) => called.map(Into::into),
            // Nobody is told of this; the daemon is, by the end of its call.
            () = context.ct.cancelled() => Err(ErrorData::internal_error("cancelled", None)),
            () = report(&context.peer, token) => Err(ErrorData::internal_error("endless", None)),
        }
    }

    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut tools = self.link.tools();
        loop {
            tools.mark_unchanged();
            if self.is_outdated() {
                // A client that is gone ends the server by itself.
                let _ = context.sink().notify_tool_list_changed().await;
            }
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = tools.changed() => if changed.is_err() { return Ok(()) },
            }
        }
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        // A known method with parameters of another shape arrives here, too.
        if request.method == "tools/call" {
            let text = "tools/call wants a name, and arguments that are an object";
            return Err(ErrorData::invalid_params(text, None));
        }
        if request.method == line::TOO_LONG {
            let most = line::MAX_BYTES;
            let text = format!(
                "a line may have {most} bytes; write what is longer to a file and send the path"
            );
            return Err(ErrorData::invalid_request(text, None));
        }
        let method = rmcp::model::ErrorCode::METHOD_NOT_FOUND;
        Err(ErrorData::new(method, request.method, None))
    }
}
