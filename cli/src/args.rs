//! The words of the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::commands::{
    agent, config, daemon, demo, events, inbox, mcp, provider, session, turn, workspace,
};

/// Runs and watches teams of LLM agents that survive crashes.
///
/// An agent is named by its path (lead/reviewer), by its bare name where that is unique, or by
/// its id or a unique prefix of it.
#[derive(Parser)]
#[command(name = "substratctl", version, max_term_width = 100, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every command.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// Home of the daemon [default: ~/.substrat]
    #[arg(long, global = true, env = "SUBSTRAT_HOME", value_name = "DIR", hide_env = true)]
    pub(crate) home: Option<PathBuf>,
    /// Socket of the daemon [default: substratd.sock in the home]
    #[arg(long, global = true, env = "SUBSTRAT_SOCKET", value_name = "PATH", hide_env = true)]
    pub(crate) socket: Option<PathBuf>,
    /// What is written to stdout
    #[arg(long, short, global = true, value_enum, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Longest time to wait for an answer, such as 500ms, 30s, 5m
    #[arg(long, global = true, value_parser = duration, value_name = "TIME")]
    pub(crate) timeout: Option<Duration>,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    pub(crate) color: Color,
    /// Start the daemon when it does not run
    #[arg(long, global = true)]
    pub(crate) start: bool,
    /// Say why in more detail when something fails
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

/// What is written to stdout.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// The response as canonical protobuf JSON; streams as one object a line
    Json,
}

/// When to use colours.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start, stop and look at the daemon
    #[command(subcommand)]
    Daemon(daemon::Command),
    /// Create agents, talk to them, govern them
    #[command(subcommand)]
    Agent(agent::Command),
    /// Low-level control of sessions
    #[command(subcommand)]
    Session(session::Command),
    /// What was asked in turns, what happened, and how they ended
    #[command(subcommand)]
    Turn(turn::Command),
    /// Folders that agents work in
    #[command(subcommand)]
    Workspace(workspace::Command),
    /// Messages to you; shown messages are removed
    Inbox(inbox::Args),
    /// Events of all logs, or of one agent's
    Events(events::Args),
    /// Backends that run turns
    #[command(subcommand)]
    Provider(provider::Command),
    /// The daemon's configuration
    #[command(subcommand)]
    Config(config::Command),
    /// A guided demonstration: a team reviews a source tree and survives kill -9
    Demo(demo::Args),
    /// Offer an agent its tools: an MCP server on stdin and stdout
    ///
    /// For the MCP client of an agent, such as its coding CLI. Who reaches the tool socket is the
    /// agent. The server goes on when the daemon starts again; see docs/mcp.md.
    Mcp(mcp::Args),
    /// Completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Reads a duration such as `500ms`, `30s`, `5m`, `2h` or plain seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{unit:?} is no unit; use ms, s, m or h")),
    };
    let number: f64 = number.parse().map_err(|_| "a number and a unit fit, such as 30s")?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn durations_are_read() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("7"), Ok(Duration::from_secs(7)));
        for bad in ["", "s", "5 s", "3d", "-1s"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_help_pages_are_as_they_were() {
        let mut pages = String::new();
        let mut root = Args::command().term_width(100);
        root.build();
        write_help(&mut root, &mut pages);
        insta::assert_snapshot!(pages);
    }

    fn write_help(command: &mut clap::Command, pages: &mut String) {
        let name = command.get_bin_name().unwrap_or("substratctl").to_owned();
        pages.push_str(&format!("=== {name}\n{}\n", command.render_long_help()));
        for inner in command.get_subcommands_mut() {
            write_help(inner, pages);
        }
    }
}
