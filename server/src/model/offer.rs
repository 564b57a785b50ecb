//! Which tools an agent is offered: those that can work for it and that it does not have already.
//! A call of one that cannot is refused with the reason.

use super::{Agent, ToolSpec, catalogue};

/// The tools that an agent is offered, by name. One whose provider has `native_tools` runs commands
/// with those: a second shell, with a folder and variables of its own, would only confuse it.
pub fn offered(agent: &Agent, native_tools: bool) -> impl Iterator<Item = &'static ToolSpec> {
    let (child, has_files) = (agent.parent.is_some(), agent.workspace.is_some());
    catalogue().iter().filter(move |tool| match tool.name {
        "broadcast" | "complete" => child,
        "list_files" | "read_file" | "write_file" => has_files,
        "run_command" => has_files && !native_tools,
        // What an agent gives on is of its own workspace.
        "create_workspace" | "delete_workspace" | "list_workspaces" | "link_dir" | "unlink_dir"
        | "link_from" => has_files,
        _ => true,
    })
}
