//! Which tools an agent is offered: those that can work for it. A call of another one is refused
//! with the reason.

use super::{Agent, ToolSpec, catalogue};

/// The tools that an agent is offered, by name.
pub fn offered(agent: &Agent) -> impl Iterator<Item = &'static ToolSpec> {
    let (child, has_files) = (agent.parent.is_some(), agent.workspace.is_some());
    catalogue().iter().filter(move |tool| match tool.name {
        "broadcast" | "complete" => child,
        "list_files" | "read_file" | "write_file" | "run_command" => has_files,
        // What an agent gives on is of its own workspace.
        "create_workspace" | "delete_workspace" | "list_workspaces" | "link_dir" | "unlink_dir"
        | "link_from" => has_files,
        _ => true,
    })
}
