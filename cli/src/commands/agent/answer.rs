//! `substratctl agent answer`, and how questions are shown.

use prost_types::Value;
use prost_types::value::Kind;
use substrat_proto::v1;

use super::Context;
use crate::client::request_id;
use crate::error::Error;
use crate::output::line;

/// Most characters of the arguments of a tool that are shown.
const MAX_INPUT: usize = 2000;

/// Answer a question of an agent's backend whether it may use a tool.
///
/// The first answer counts. Without the id of a question, the only open one is answered; "agent
/// inspect" shows them.
#[derive(clap::Args)]
#[command(allow_missing_positional = true)]
pub(crate) struct Args {
    /// The agent
    agent: String,
    /// The question, if more than one is open
    permission: Option<String>,
    /// Whether it may: "always" also allows the same later, as long as the backend's process lives
    decision: Decision,
    /// Why, for the model to read
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Decision {
    /// It may
    Allow,
    /// It may, and need not ask again
    Always,
    /// It may not
    Deny,
}

impl Decision {
    /// The answer on the wire.
    pub(super) fn verdict(self) -> i32 {
        match self {
            Self::Allow => v1::PermissionVerdict::Allow.into(),
            Self::Always => v1::PermissionVerdict::Always.into(),
            Self::Deny => v1::PermissionVerdict::Deny.into(),
        }
    }
}

pub(super) async fn run(context: &Context, args: Args) -> Result<(), Error> {
    let client = context.connect().await?;
    let request = v1::AnswerPermissionRequest {
        agent: args.agent,
        permission_id: args.permission.unwrap_or_default(),
        verdict: args.decision.verdict(),
        reason: args.reason.unwrap_or_default(),
        request_id: request_id(),
    };
    let response = client.agents().answer_permission(request).await?.into_inner();
    context.output.response(&response, |response| {
        line(&format!("answered {}", response.permission_id));
    })
}

/// What is asked, in a line.
pub(super) fn question(permission: &v1::Permission) -> String {
    let input = permission.input.as_ref().map(json).unwrap_or_default();
    let mut cut: String = input.chars().take(MAX_INPUT).collect();
    if cut.len() < input.len() {
        cut.push('…');
    }
    format!("may it use {}? {cut}", permission.tool).trim_end().to_owned()
}

/// What became of a question, in a line.
pub(super) fn resolved(resolved: &v1::PermissionResolved) -> String {
    let answer = match resolved.verdict() {
        v1::PermissionVerdict::Allow => "allowed",
        v1::PermissionVerdict::Always => "allowed from now on",
        v1::PermissionVerdict::Deny => "denied",
        v1::PermissionVerdict::Unspecified => return "the question was taken back".to_owned(),
    };
    let why = if resolved.reason.is_empty() { "" } else { &format!(": {}", resolved.reason) };
    format!("{answer} by {}{why}", resolved.by)
}

/// JSON in a line.
fn json(value: &Value) -> String {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => "null".to_owned(),
        Some(Kind::BoolValue(value)) => value.to_string(),
        Some(Kind::NumberValue(number)) => number.to_string(),
        Some(Kind::StringValue(text)) => quoted(text),
        Some(Kind::ListValue(list)) => {
            let values: Vec<String> = list.values.iter().map(json).collect();
            format!("[{}]", values.join(", "))
        }
        Some(Kind::StructValue(object)) => {
            let pair = |(key, value): (&String, _)| format!("{}: {}", quoted(key), json(value));
            let pairs: Vec<String> = object.fields.iter().map(pair).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value { kind: Some(Kind::StringValue(text.to_owned())) }
    }

    #[test]
    fn a_question_names_the_tool_and_what_it_is_given() {
        let fields = [("command".to_owned(), text("ls\n-l"))].into();
        let object = Kind::StructValue(prost_types::Struct { fields });
        let input = Some(Value { kind: Some(object) });
        let asked = v1::Permission { tool: "Bash".into(), input, ..Default::default() };
        assert_eq!(question(&asked), r#"may it use Bash? {"command": "ls\n-l"}"#);
        let long = v1::Permission { input: Some(text(&"x".repeat(3000))), ..asked };
        assert!(question(&long).ends_with("xx…"));
    }

    #[test]
    fn an_answer_is_told_with_who_gave_it() {
        let by = v1::PermissionResolved {
            verdict: Decision::Deny.verdict(),
            by: "policy".into(),
            reason: "no".into(),
            ..Default::default()
        };
        assert_eq!(resolved(&by), "denied by policy: no");
        assert_eq!(resolved(&Default::default()), "the question was taken back");
    }
}
