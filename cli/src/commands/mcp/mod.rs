//! An MCP server on stdin and stdout that offers an agent its tools.
//!
//! ```text
//!  MCP client ─► line.rs ─► server.rs ─► link.rs ◄─ ToolService ─► the agent's tool socket
//! ```
//!
//! Who reaches the socket is the agent, so nothing here names one. The link outlives the daemon:
//! the client of this process notices nothing when the daemon starts again.

mod line;
mod link;
mod server;
mod value;

use std::path::PathBuf;
use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use tokio::sync::watch;

use self::link::{Link, Trouble};
use self::server::Server;
use super::Context;
use crate::args::duration;
use crate::error::Error;

/// What may wait between the filter of lines and their reader.
const PIPE_BYTES: usize = 64 << 10;

/// Arguments of `mcp`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Tool socket of the agent; the daemon gives it to what it starts for the agent
    #[arg(long, env = "SUBSTRAT_TOOL_SOCKET", value_name = "PATH", hide_env_values = true)]
    socket: Option<PathBuf>,
    /// How long a call waits for a daemon that does not answer, before it fails
    #[arg(long, default_value = "60s", value_parser = duration, value_name = "TIME")]
    patience: Duration,
}

pub(crate) async fn run(_: &Context, args: Args) -> Result<(), Error> {
    let Some(socket) = args.socket else {
        return Err(Error::invalid(
            "there is no tool socket; give one with --socket or SUBSTRAT_TOOL_SOCKET",
        ));
    };
    let (link, mut keeper) = Link::new(socket, args.patience);
    tokio::select! {
        trouble = keeper.run() => Err(explain(&trouble)),
        served = serve(link) => served,
    }
}

fn explain(trouble: &Trouble) -> Error {
    match trouble {
        Trouble::NotTools(socket) => {
            let socket = socket.display();
            Error::invalid(format!("{socket} is not the tool socket of an agent"))
        }
    }
}

async fn serve(link: Link) -> Result<(), Error> {
    let (ready, initialized) = watch::channel(false);
    let server = Server::new(link, ready);
    let (lines, filtered) = tokio::io::duplex(PIPE_BYTES);
    let filter = line::filter(tokio::io::stdin(), filtered);
    tokio::pin!(filter);
    let starting = server.clone().serve((lines, tokio::io::stdout()));
    let running = tokio::select! {
        running = starting => running,
        never = &mut filter => match never {},
    };
    let running = match running {
        Ok(running) => running,
        // Whoever started this wanted nothing of it.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(Error::failed(error.to_string())),
    };
    let peer = running.peer().clone();
    tokio::select! {
        ended = running.waiting() => {
            ended.map(drop).map_err(|error| Error::failed(error.to_string()))
        }
        () = server.announce(&peer, initialized) => Ok(()),
        never = filter => match never {},
    }
}
