//! Values of the protocol, as far as they mean something here.

use serde_json::Value;

use super::requests::VERSION;
use crate::model::Usage;
use crate::provider::Model;
use crate::provider::activity::{
    PermissionKind, PermissionOption, TurnOver, content, number, text,
};
use crate::provider::failure::{Failed, FailureKind, body, missing_program};
use crate::provider::jsonrpc::Error;
use crate::provider::meter::openai;

/// What adapters say when the CLI is gone that they run, and the session with it.
const LOST: &[&str] = &[
    "process exited unexpectedly",
    "claude agent session has ended",
    "codex process ",
    "codex app-server ",
    NO_SESSION,
];
/// The same in answer to a prompt, with which nothing was done.
pub(super) const NO_SESSION: &str = "session not found";

/// What an agent says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Agent {
    /// Its name; empty if it has none.
    pub name: String,
    /// Its version; empty if it has none.
    pub version: String,
    /// Whether it can go on with a session, and tells its history then.
    pub can_load: bool,
    /// Whether it can go on with a session without that.
    pub can_resume: bool,
    /// Whether it can use MCP servers by their URL.
    pub http_servers: bool,
    /// How it can be authenticated.
    pub auth_methods: Vec<String>,
}

/// Reads the answer to the first request.
pub(super) fn agent(result: &Value) -> Result<Agent, Failed> {
    let version = &result["protocolVersion"];
    if *version != VERSION {
        let problem = format!("it speaks version {version} of the protocol, not {VERSION}");
        return Err(Failed::new(FailureKind::Protocol, problem));
    }
    let (can, info) = (&result["agentCapabilities"], &result["agentInfo"]);
    let methods = result["authMethods"].as_array().into_iter().flatten();
    Ok(Agent {
        name: text(info, "name").to_owned(),
        version: text(info, "version").to_owned(),
        can_load: can["loadSession"] == true,
        can_resume: can["sessionCapabilities"]["resume"].is_object(),
        http_servers: can["mcpCapabilities"]["http"] == true,
        auth_methods: methods.map(|method| text(method, "id").to_owned()).collect(),
    })
}

/// Reads why a request was refused.
pub(super) fn failed(error: &Error) -> Failed {
    let data = &error.data;
    let detail = match data {
        Value::String(detail) => detail.as_str(),
        _ => [text(data, "message"), text(data, "details")]
            .into_iter()
            .find(|detail| !detail.is_empty())
            .unwrap_or_default(),
    };
    let message = match (error.message.as_str(), detail) {
        (message, "") => message.to_owned(),
        ("Internal error" | "", detail) => detail.to_owned(),
        (message, detail) => format!("{message}: {detail}"),
    };
    let code = match error.code {
        -32000 => Some(FailureKind::Auth),
        -32002 => Some(FailureKind::Gone),
        -32602 | -32601 => Some(FailureKind::InvalidRequest),
        // Gemini's is the status of the endpoint.
        code => FailureKind::of_status(code),
    };
    let is_lost = matches!(code, None | Some(FailureKind::Gone)) && says(&message, LOST);
    let codex = match &data["codex_error_info"] {
        Value::Object(info) => info.keys().next().map(String::as_str).unwrap_or_default(),
        name => name.as_str().unwrap_or_default(),
    };
    let (by_words, refused) = (FailureKind::of_text(&message), body(&message));
    let kind = match by_words {
        // What stands behind it may be the last words of that CLI.
        _ if is_lost => FailureKind::Killed,
        Some(kind @ (FailureKind::Overflow | FailureKind::NotFound)) => kind,
        // Gemini gives a stream that broke off the status of a server with trouble.
        _ if message == "terminated" => FailureKind::Network,
        // Claude's adapter names any of them an error of the server.
        Some(kind @ FailureKind::Network) if matches!(code, None | Some(FailureKind::Overload)) => {
            kind
        }
        _ => code
            .or_else(|| FailureKind::of_name(text(data, "errorKind")))
            .or_else(|| FailureKind::of_name(codex))
            .or(by_words)
            .or(refused.is_some().then_some(FailureKind::InvalidRequest))
            // An internal error may be any, and pass.
            .unwrap_or(match error.code {
                -32603 => FailureKind::Unclear,
                _ => FailureKind::Other,
            }),
    };
    Failed::new(kind, refused.unwrap_or(message))
}

/// The same of an agent that has done nothing yet, which may lack the CLI that it runs.
pub(super) fn failed_at_first(error: &Error) -> Failed {
    let failed = failed(error);
    match failed.kind {
        FailureKind::Killed | FailureKind::Unclear | FailureKind::Other
            if missing_program(&failed.message).is_some() =>
        {
            Failed { kind: FailureKind::Missing, ..failed }
        }
        _ => failed,
    }
}

/// Whether a message says one of these, which are in lower case.
pub(super) fn says(message: &str, words: &[&str]) -> bool {
    let lower = message.to_lowercase();
    words.iter().any(|words| lower.contains(words))
}

/// The setting of a session that is its model, if it has one.
pub(super) fn model_setting(opened: &Value) -> Option<&Value> {
    let mut settings = opened["configOptions"].as_array()?.iter();
    settings.find(|setting| text(setting, "category") == "model")
}

/// The models that a session offers.
pub(super) fn models(opened: &Value) -> Vec<Model> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (models, name) = match model_setting(opened) {
        Some(setting) => (list(&setting["options"]), "value"),
        None => (list(&opened["models"]["availableModels"]), "modelId"),
    };
    let ungrouped = models.into_iter().flat_map(|model| match &model["options"] {
        Value::Array(group) => group.clone(),
        _ => vec![model],
    });
    let models = ungrouped.map(|model| Model {
        id: text(&model, name).to_owned(),
        label: text(&model, "name").to_owned(),
        context_tokens: 0,
    });
    models.filter(|model| !model.id.is_empty()).collect()
}

/// How a prompt ended that was answered. None for a good end.
pub(super) fn stopped(result: &Value) -> Option<TurnOver> {
    let (kind, message) = match text(result, "stopReason") {
        "end_turn" => return None,
        "cancelled" => return Some(TurnOver::Cancelled),
        "max_tokens" => (FailureKind::Limit, "the answer is longer than it may be".to_owned()),
        "max_turn_requests" => {
            (FailureKind::Limit, "the turn took more steps than it may".to_owned())
        }
        "refusal" => (FailureKind::Refused, "the model declined".to_owned()),
        other => (FailureKind::Protocol, format!("it stopped for {other:?}, which is no reason")),
    };
    Some(TurnOver::Failed(Failed::new(kind, message)))
}

/// Trouble of a session, as Codex's adapter tells it beside the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    /// Whether a turn failed by it. Others are warnings.
    pub(super) is_error: bool,
    pub(super) failed: Failed,
}

/// Reads the trouble that an answer or an update carries.
pub(super) fn trouble(carrier: &Value) -> Option<Trouble> {
    let told = &carrier["_meta"]["jetbrains"]["air"]["sessionFailure"];
    let title = told["title"].as_str()?;
    let message = match text(told, "details") {
        "" => title.to_owned(),
        details => format!("{title}: {details}"),
    };
    let actions = told["actions"].as_array().into_iter().flatten();
    let offers = |action: &str| actions.clone().any(|one| one == action);
    let kind = match text(told, "category") {
        "connection" => FailureKind::Network,
        "access" => FailureKind::Auth,
        "request" => FailureKind::InvalidRequest,
        "limit" if offers("retry") => FailureKind::RateLimit,
        // A budget that is used up is told in the same way.
        "limit" if offers("new_session") => match says(&message, &["budget"]) {
            true => FailureKind::Budget,
            false => FailureKind::Overflow,
        },
        // A plan or a quota: it passes, and another provider has one of its own.
        "limit" => FailureKind::RateLimit,
        "service" => FailureKind::Unclear,
        _ => FailureKind::Other,
    };
    // Of what it takes for the connection's or the service's trouble, or wrong, words tell more.
    let refused = body(&message);
    let kind = match kind {
        FailureKind::Auth
        | FailureKind::RateLimit
        | FailureKind::Overflow
        | FailureKind::Budget => kind,
        kind => {
            let by_body = refused.is_some().then_some(FailureKind::InvalidRequest);
            FailureKind::of_text(&message).or(by_body).unwrap_or(kind)
        }
    };
    let failed = Failed::new(kind, refused.unwrap_or(message));
    Some(Trouble { is_error: text(told, "severity") != "warning", failed })
}

/// What a prompt used, by its answer. Claude Code and Codex tell all of the turn, opencode its last
/// call of the model, Gemini no more than what went in and out.
pub(super) fn used(result: &Value, agent: &str) -> Usage {
    let (usage, gemini) = (&result["usage"], &result["_meta"]["quota"]["token_count"]);
    if agent.contains("codex") {
        let names = ["inputTokens", "cachedReadTokens", "cachedWriteTokens", "outputTokens"];
        return openai(usage, names);
    }
    if gemini.is_object() {
        return Usage {
            input_tokens: number(gemini, "input_tokens"),
            output_tokens: number(gemini, "output_tokens"),
            ..Usage::default()
        };
    }
    Usage {
        input_tokens: number(usage, "inputTokens"),
        output_tokens: number(usage, "outputTokens"),
        cache_read_tokens: number(usage, "cachedReadTokens"),
        cache_write_tokens: number(usage, "cachedWriteTokens"),
        ..Usage::default()
    }
}

/// What may be answered to a question.
pub(super) fn options(params: &Value) -> Vec<PermissionOption> {
    let option = |option: &Value| {
        let kind = match text(option, "kind") {
            "allow_once" => PermissionKind::AllowOnce,
            "allow_always" => PermissionKind::AllowAlways,
            "reject_once" => PermissionKind::RejectOnce,
            "reject_always" => PermissionKind::RejectAlways,
            _ => return None,
        };
        let (id, name) = (text(option, "optionId").to_owned(), text(option, "name").to_owned());
        Some(PermissionOption { id, name, kind })
    };
    params["options"].as_array().into_iter().flatten().filter_map(option).collect()
}

/// What a tool call gave.
pub(super) fn output(call: &Value) -> String {
    match content(&call["content"]) {
        output if !output.is_empty() => output,
        _ => match &call["rawOutput"]["output"] {
            Value::Null => content(&call["rawOutput"]),
            output => content(output),
        },
    }
}
