//! The tools of an agent: one catalogue for every provider.
//!
//! Each tool is a variant of [`Tool`] with its arguments as a struct; name, description and JSON
//! Schema are made from the two, so that what is offered is what is accepted.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Access, Kind, Rejection, arguments};

/// A tool as it is offered to a model.
#[derive(Debug, Clone)]
pub struct ToolSpec {
    /// Its name.
    pub name: &'static str,
    /// What it does, for a model to read.
    pub description: &'static str,
    /// JSON Schema of its arguments.
    pub schema: serde_json::Value,
    /// Names of its arguments in the order in which a script gives them, required ones first.
    pub parameters: &'static [&'static str],
}

macro_rules! tools {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident = $text:literal {
            $($(#[doc = $field_doc:literal])+ $(#[serde($serde:meta)])? $field:ident: $type:ty,)*
        }
    )+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
            #[serde(deny_unknown_fields)]
            pub struct $name {
                $($(#[doc = $field_doc])+ $(#[serde($serde)])? pub $field: $type,)*
            }
        )+

        /// A tool call with its arguments.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Tool {
            $($(#[doc = $doc])+ $name($name),)+
        }

        impl Tool {
            /// Reads a call.
            pub fn parse(name: &str, args: &str) -> Result<Self, Rejection> {
                // A call without arguments comes as null from some, as {} from others.
                let args = if args.trim() == "null" { "{}" } else { args };
                match name {
                    $($text => match arguments::read(args) {
                        Ok(args) => Ok(Self::$name(args)),
                        Err(problem) => Err(Rejection::ArgumentsInvalid { tool: $text, problem }),
                    },)+
                    _ => Err(Rejection::ToolUnknown {
                        name: name.to_owned(),
                        known: vec![$($text),+],
                    }),
                }
            }
        }

        static CATALOGUE: LazyLock<Vec<ToolSpec>> = LazyLock::new(|| {
            let mut tools = vec![$(ToolSpec {
                name: $text,
                description: concat!($($doc),+).trim_ascii(),
                schema: schemars::schema_for!($name).to_value(),
                parameters: &[$(stringify!($field)),*],
            }),+];
            tools.sort_by_key(|tool| tool.name);
            tools
        });
    };
}

/// The tools, by name.
pub fn catalogue() -> &'static [ToolSpec] {
    &CATALOGUE
}

tools! {
    /// Sends a message to your parent, a child or a sibling; a root may also send to USER.
    /// By default waits for the answer and returns it; one call can wait at a time. With reply_to,
    /// answers a message that you were sent.
    SendMessage = "send_message" {
        /// Name of the recipient, "parent", or "USER".
        recipient: String,
        /// The text.
        text: String,
        /// Whether to wait for the answer. False: a notification, which wants none.
        #[serde(default = "yes")]
        sync: bool,
        /// Longest wait for the answer, in seconds; none by default.
        #[serde(default)]
        timeout: Option<u32>,
        /// Id of the request that this answers; its sender must be the recipient. Waits for
        /// nothing.
        #[serde(default)]
        reply_to: Option<String>,
        /// Whether it goes before others in the recipient's inbox.
        #[serde(default)]
        priority: Option<Urgency>,
    }

    /// Sends a message to every sibling. Their answers are collected; you are told when all have
    /// answered or the time is up.
    Broadcast = "broadcast" {
        /// The text.
        text: String,
        /// Longest wait for the answers, in seconds; 10 minutes unless configured otherwise.
        #[serde(default)]
        timeout: Option<u32>,
        /// Whether it goes before others in the inboxes.
        #[serde(default)]
        priority: Option<Urgency>,
    }

    /// Reads the messages that arrived since your turn started.
    CheckInbox = "check_inbox" {
        /// Only those of this sender.
        #[serde(default)]
        sender: Option<String>,
        /// Only those of this kind.
        #[serde(default)]
        kind: Option<KindFilter>,
    }

    /// Creates a child agent. It starts when your turn ends or waits.
    SpawnAgent = "spawn_agent" {
        /// Its name, unique among your children.
        name: String,
        /// What it is to be and do; for the scripted provider, its script.
        instructions: String,
        /// Its role, such as "worker" or "reviewer".
        #[serde(default)]
        role: Option<String>,
        /// Workspace, by name: yours (the default), one within it, or one that you created.
        #[serde(default)]
        workspace: Option<String>,
        /// Folder of the workspace that is to be all that it sees; created if it is not there.
        #[serde(default)]
        workspace_subdir: Option<String>,
        /// Provider; yours by default.
        #[serde(default)]
        provider: Option<String>,
        /// Model; yours by default.
        #[serde(default)]
        model: Option<String>,
        /// Labels.
        #[serde(default)]
        metadata: BTreeMap<String, String>,
        /// Whether it may only read there, or write, too; what you may yourself by default, and no
        /// more than that.
        #[serde(default)]
        workspace_access: Option<Mode>,
    }

    /// Shows what a child, a sibling or your parent is doing; of a child also what waits in its
    /// inbox and what it did last. With your own name: your reminders and subscriptions.
    InspectAgent = "inspect_agent" {
        /// Its name.
        name: String,
    }

    /// Lists your children and what they are doing.
    ListChildren = "list_children" {}

    /// Answers your parent with a result and ends you when this turn ends. Not for roots, nor for
    /// agents with children.
    Complete = "complete" {
        /// The result.
        result: String,
    }

    /// Wakes a child, a sibling or your parent that is idle.
    Poke = "poke" {
        /// Its name.
        agent_name: String,
    }

    /// Sends you a message after a time, and then again and again if you want.
    RemindMe = "remind_me" {
        /// What to remind you of.
        reason: String,
        /// Seconds until then.
        after: u64,
        /// Seconds between repetitions; once only by default.
        #[serde(default)]
        every: Option<u64>,
    }

    /// Ends a reminder.
    CancelReminder = "cancel_reminder" {
        /// Its id, as remind_me returned it.
        reminder_id: String,
    }

    /// Sends you a message whenever a child, a sibling or your parent goes from one state to
    /// another. The states are idle, busy, waiting and terminated.
    Subscribe = "subscribe" {
        /// Its name.
        agent_name: String,
        /// From which state to which, such as "busy->idle"; "*" stands for any.
        transition: String,
        /// Whether to end with the first time.
        #[serde(default)]
        once: bool,
    }

    /// Ends a subscription.
    Unsubscribe = "unsubscribe" {
        /// Its id, as subscribe returned it.
        subscription_id: String,
    }

    /// Sets or removes a label of a child, or of yourself.
    SetAgentMetadata = "set_agent_metadata" {
        /// Its name.
        agent_name: String,
        /// The label, 1 to 64 bytes.
        key: String,
        /// Its value; null removes it.
        #[serde(default)]
        value: Option<String>,
    }

    /// Holds back new turns of a child until you ungate it or permit one. A running one goes on.
    GateAgent = "gate" {
        /// Its name.
        agent_name: String,
    }

    /// Lets turns of a gated child start again.
    UngateAgent = "ungate" {
        /// Its name.
        agent_name: String,
    }

    /// Lets one turn of a gated child start.
    PermitTurn = "permit_turn" {
        /// Its name.
        agent_name: String,
    }

    /// Reads a text file of your workspace, by lines.
    ReadFile = "read_file" {
        /// Path, relative to the root of the workspace.
        path: String,
        /// First line to return, from 1.
        #[serde(default = "one")]
        first_line: u64,
        /// Most lines to return.
        #[serde(default)]
        max_lines: Option<u64>,
    }

    /// Writes a text file of your workspace; folders on the way are created.
    WriteFile = "write_file" {
        /// Path, relative to the root of the workspace.
        path: String,
        /// The text.
        content: String,
        /// Whether to append instead of replacing the file.
        #[serde(default)]
        append: bool,
    }

    /// Lists files and folders of your workspace.
    ListFiles = "list_files" {
        /// Folder, relative to the root of the workspace; the root by default.
        #[serde(default)]
        path: String,
        /// Whether to descend into folders.
        #[serde(default)]
        recursive: bool,
    }

    /// Creates a workspace for agents that you spawn: an empty folder, or a view: a window on your
    /// workspace, or on one that you created.
    CreateWorkspace = "create_workspace" {
        /// Its name, unique in the daemon.
        name: String,
        /// Whether it reaches the network; only if yours does.
        #[serde(default)]
        network_access: bool,
        /// Workspace to be a view of, by name; an empty folder by default.
        #[serde(default)]
        view_of: Option<String>,
        /// Folder that the view shows; all by default.
        #[serde(default)]
        subdir: String,
        /// Whether the view is for reading only, or for writing, too.
        #[serde(default)]
        mode: Mode,
    }

    /// Deletes a workspace that you created, with its files and its views. Not while agents are in
    /// it.
    DeleteWorkspace = "delete_workspace" {
        /// Its name.
        workspace: String,
    }

    /// Lists your workspace and those that you created, with their links.
    ListWorkspaces = "list_workspaces" {}

    /// Shows a folder of your workspace inside of another workspace that is yours.
    LinkDir = "link_dir" {
        /// Where it is to be seen: a workspace that you created, or your own, by name.
        workspace: String,
        /// The folder, relative to the root of your workspace.
        source: String,
        /// Where it is to be seen there, relative to the root.
        target: String,
        /// Whether for reading only, or for writing, too; no more than you may.
        #[serde(default)]
        mode: Mode,
    }

    /// Removes a link that an agent made; the folder stays.
    UnlinkDir = "unlink_dir" {
        /// The workspace that shows it, by name.
        workspace: String,
        /// Where it is seen, relative to the root.
        target: String,
    }

    /// Shows a folder of one workspace that is yours inside of another one.
    LinkFrom = "link_from" {
        /// Where the folder lies: a workspace that you created, or your own, by name.
        source_workspace: String,
        /// The folder, relative to the root.
        source: String,
        /// Where it is to be seen, relative to the root.
        target: String,
        /// The workspace in which it is to be seen; your own by default.
        #[serde(default)]
        target_workspace: Option<String>,
        /// Whether for reading only, or for writing, too; no more than you may.
        #[serde(default)]
        mode: Mode,
    }

    /// Runs a command with bash in your workspace, and returns what it printed. The folder that it
    /// ends in and the variables that it exports are kept for your next command; processes that it
    /// leaves running are ended.
    RunCommand = "run_command" {
        /// The command.
        command: String,
        /// Longest time that it may take, in seconds; 120 by default, 3600 at most.
        #[serde(default)]
        timeout: Option<u32>,
    }
}

impl Tool {
    /// Whether it works in the agent's workspace, outside of the core.
    pub fn is_on_files(&self) -> bool {
        use Tool::{ListFiles, ReadFile, RunCommand, WriteFile};
        matches!(self, ReadFile(_) | WriteFile(_) | ListFiles(_) | RunCommand(_))
    }
}

/// Where a message goes in an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Urgency {
    /// Before all that are not high.
    High,
    /// In order of arrival.
    Normal,
}

/// What may be done in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
pub enum Mode {
    /// Reading only.
    #[default]
    #[serde(rename = "ro")]
    ReadOnly,
    /// Reading and writing.
    #[serde(rename = "rw")]
    ReadWrite,
}

impl From<Mode> for Access {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::ReadOnly => Self::ReadOnly,
            Mode::ReadWrite => Self::ReadWrite,
        }
    }
}

/// A kind of message to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KindFilter {
    /// Requests.
    Request,
    /// Responses.
    Response,
    /// Notifications.
    Notification,
    /// Multicasts.
    Multicast,
    /// Errors.
    Error,
}

impl From<KindFilter> for Kind {
    fn from(kind: KindFilter) -> Self {
        match kind {
            KindFilter::Request => Self::Request,
            KindFilter::Response => Self::Response,
            KindFilter::Notification => Self::Notification,
            KindFilter::Multicast => Self::Multicast,
            KindFilter::Error => Self::Error,
        }
    }
}

fn yes() -> bool {
    true
}

fn one() -> u64 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_names_the_arguments_that_are_accepted() {
        for tool in catalogue() {
            let properties = tool.schema.get("properties").and_then(|p| p.as_object());
            let names: Vec<&str> =
                properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            let mut parameters = tool.parameters.to_vec();
            parameters.sort_unstable();
            assert_eq!(names, parameters, "{}", tool.name);
            assert!(!tool.description.is_empty());
            assert_eq!(tool.schema.get("additionalProperties"), Some(&false.into()));
        }
    }

    #[test]
    fn a_bad_call_says_what_is_wrong() {
        let no = Tool::parse("send_mesage", "{}").unwrap_err();
        assert_eq!(no.code(), "TOOL_UNKNOWN");
        assert!(no.hint().contains("send_message"), "{no:?}");
        let problem = |tool, args| {
            let no = Tool::parse(tool, args).unwrap_err();
            assert_eq!(no.code(), "ARGUMENTS_INVALID");
            no.to_string()
        };
        assert_eq!(
            problem("send_message", r#"{"text":"x"}"#),
            "bad arguments for send_message: missing field `recipient`"
        );
        assert_eq!(
            problem("list_children", r#"{"all":true}"#),
            "bad arguments for list_children: all: unknown field `all`, there are no fields"
        );
        assert!(Tool::parse("list_children", "null").is_ok());
    }
}
