//! Programs as agents: any executable that speaks lines of JSON.
//!
//! ```text
//!  turn ─► Session ─► Running ─── stdin ──► program
//!             │          ▲                     │
//!            Work ◄──────┴────── stdout ───────┘
//! ```
//!
//! The agent's model is its command line. `Session` keeps one process for a live session, starts
//! it when there is none, and ends it when what it sees has changed. `turn` runs one turn on it:
//! `docs/program.md` is what the two say to each other. Whatever the process does, it is the turn
//! that fails.

pub mod protocol;
mod session;
#[cfg(test)]
mod tests;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use self::session::Session;
use super::registry::{Kind, Nothing};
use super::{Capabilities, Failure, Health, Info, Instance, Objection, Provider, Spec, lines};
use crate::launcher::Launcher;

/// Programs are there without being configured, and once.
pub const KIND: Kind = Kind {
    name: "program",
    read: |section| {
        let Nothing {} = section.read()?;
        let name = section.name.clone();
        Ok(Box::new(move |settings| {
            let (program, launcher) = (settings.program.clone(), settings.launcher.clone());
            Arc::new(Program { name: name.clone(), settings: program, launcher })
        }))
    },
    presets: &[("program", "")],
};

/// Bounds of programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a turn may take; none for any time.
    pub turn: Option<Duration>,
}

/// The provider of programs.
pub struct Program {
    name: Arc<str>,
    settings: Settings,
    launcher: Launcher,
}

impl Provider for Program {
    fn info(&self) -> Info {
        Info {
            name: self.name.clone(),
            kind: KIND.name,
            description: "any executable that speaks lines of JSON; its command line is the model"
                .to_owned(),
            capabilities: Capabilities {
                pulse: false,
                steering: false,
                keeps_history: true,
                resumes: false,
                native_tools: true,
                tool_socket: true,
                processes: true,
            },
            call_limit: None,
        }
    }

    fn examine(&self, _: bool) -> BoxFuture<'_, Health> {
        async { Health { version: "1".to_owned(), ..Health::default() } }.boxed()
    }

    fn check(&self, _: &str, model: Option<&str>) -> Result<(), Objection> {
        split(model).map(drop).map_err(Objection::Model)
    }

    fn open(&self, spec: Spec) -> BoxFuture<'_, Result<Box<dyn Instance>, Failure>> {
        async move {
            let argv = split(spec.model.as_deref()).map_err(|problem| {
                Failure::permanent(format!("{problem}; its model is to be a command line"))
            })?;
            let session = Session::new(self.launcher.clone(), self.settings.clone(), argv, &spec)?;
            Ok(Box::new(session) as Box<dyn Instance>)
        }
        .boxed()
    }
}

/// The words of a command line, as a shell splits it.
fn split(model: Option<&str>) -> Result<Vec<String>, String> {
    let words = shell_words::split(model.unwrap_or_default())
        .map_err(|error| format!("the command line cannot be split into words: {error}"))?;
    match words.first().map(String::as_str) {
        None => Err("no command line was given as the model".to_owned()),
        Some("") => Err("the command line starts with an empty word".to_owned()),
        Some(_) if words.iter().any(|word| word.contains('\0')) => {
            Err("the command line holds a byte that no command line can hold".to_owned())
        }
        Some(_) => Ok(words),
    }
}
