//! The embedded provider: an agent whose turns are run by a Rhai script.
//!
//! The script is the agent's instructions. `docs/scripted.md` is its reference: `fn turn(prompt)`,
//! the agent's tools as functions, `say`, `remember` and `recall`, `sleep_ms`, `usage`, `fail`. A script
//! runs on a thread of its own while a turn lasts, within limits of operations, sizes and memory;
//! it can reach nothing but its agent's tools.

mod bounded;
mod conversation;
mod host;
#[cfg(test)]
mod tests;
mod usage;

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rhai::{AST, Dynamic, Engine, EvalAltResult, Map, ParseError, Position};

use self::host::Running;
use super::registry::{self, Kind, Nothing};
use super::{
    Capabilities, Ended, Failure, Health, Info, Instance, Objection, Prompt, Provider, Spec, TurnIo,
};
use crate::memory;
use crate::model::{Blob, Saved};

/// Scripts are there without being configured, and once.
pub const KIND: Kind = Kind {
    name: "scripted",
    read: |section| {
        let Nothing {} = section.read()?;
        let name = section.name.clone();
        let make = move |settings: &registry::Settings| Scripted {
            name: name.clone(),
            ..Scripted::new(settings.scripted)
        };
        Ok(Box::new(move |settings| Arc::new(make(settings))))
    },
    presets: &[("scripted", "")],
};

/// Limits of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Operations that one turn may take; a loop of nothing takes about three a round.
    pub max_operations: u64,
    /// Bytes of the longest string; the texts within one array or map count together.
    pub max_string: usize,
    /// Elements of the largest array or map; those of nested ones count together.
    pub max_elements: usize,
    /// Bytes of memory that a turn may hold. Looked at with each operation, so that a single one
    /// may pass it before the turn ends: by as much as the turn holds, when it copies that, or by
    /// some hundred times `max_string`, when it parses a text of that length.
    pub max_heap: usize,
    /// Bytes of JSON that a script may remember from turn to turn.
    pub max_memory: usize,
    /// Whether the agent's tool socket is opened while a session is live, for a helper process.
    pub tool_socket: bool,
}

impl Settings {
    /// Bytes of stack that a thread needs which runs scripts: values may be nested as deep as they
    /// may be large, and are dropped, compared and printed by recursion.
    pub fn stack_bytes(&self) -> usize {
        (8 << 20) + self.max_elements.saturating_mul(2 << 10)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_operations: 50_000_000,
            max_string: 4 << 20,
            max_elements: 100_000,
            max_heap: 64 << 20,
            max_memory: 256 << 10,
            tool_socket: false,
        }
    }
}

/// The embedded provider.
pub struct Scripted {
    name: Arc<str>,
    engine: Arc<Engine>,
    settings: Settings,
}

impl Scripted {
    /// The provider with these limits.
    pub fn new(settings: Settings) -> Self {
        let engine = Arc::new(host::engine(&settings));
        Self { name: KIND.name.into(), engine, settings }
    }

    fn compile(&self, script: &str) -> Result<AST, String> {
        let ast = self.engine.compile(script).map_err(|error| explain_parse(&error))?;
        let turn = ast.iter_functions().find(|f| f.name == "turn").map(|f| f.params.len());
        match turn {
            Some(1) => Ok(ast),
            Some(other) => {
                Err(format!("fn turn must take one parameter, the prompt; it takes {other}"))
            }
            None => Err("the script has no fn turn(prompt)".to_owned()),
        }
    }
}

impl Provider for Scripted {
    fn info(&self) -> Info {
        Info {
            name: self.name.clone(),
            kind: KIND.name,
            description: "an agent whose turns are run by a Rhai script, without a model"
                .to_owned(),
            capabilities: Capabilities {
                tool_socket: self.settings.tool_socket,
                ..Capabilities::default()
            },
            call_limit: None,
        }
    }

    fn examine(&self, _: bool) -> BoxFuture<'_, Health> {
        async { Health { version: "rhai 1.27".to_owned(), ..Health::default() } }.boxed()
    }

    fn check(&self, instructions: &str, _: Option<&str>) -> Result<(), Objection> {
        self.compile(instructions).map(drop).map_err(Objection::Instructions)
    }

    fn open(&self, spec: Spec) -> BoxFuture<'_, Result<Box<dyn Instance>, Failure>> {
        async move {
            let ast = self.compile(&spec.instructions).map_err(|error| {
                Failure::permanent(match spec.model.as_deref() {
                    Some(script) if script.ends_with(".py") => format!(
                        "its script {script:?} is a Python program of the Python Substrat; give \
                         the agent a Rhai script as its instructions"
                    ),
                    _ => format!("script error: {error}"),
                })
            })?;
            let memory = match &spec.saved {
                None => Map::new(),
                Some(blob) => read_memory(blob)?,
            };
            let memory = Arc::new(memory);
            let instance: Box<dyn Instance> = Box::new(Script {
                engine: self.engine.clone(),
                ast: Arc::new(ast),
                settings: self.settings,
                memory,
            });
            Ok(instance)
        }
        .boxed()
    }
}

/// A live session: a compiled script and what it remembers.
struct Script {
    engine: Arc<Engine>,
    ast: Arc<AST>,
    settings: Settings,
    memory: Arc<Map>,
}

impl Instance for Script {
    fn turn<'a>(
        &'a mut self,
        prompt: Prompt,
        io: Arc<dyn TurnIo>,
    ) -> BoxFuture<'a, Result<Ended, Failure>> {
        async move {
            let (engine, ast) = (self.engine.clone(), self.ast.clone());
            let (settings, memory) = (self.settings, self.memory.clone());
            let run = move || {
                memory::begin();
                let text = prompt.text.clone();
                Running::new(prompt, io, settings, (*memory).clone()).run(&engine, &ast, &text)
            };
            let (outcome, memory) = match tokio::task::spawn_blocking(run).await {
                Ok(done) => done,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            };
            let Some(response) = outcome? else { return Ok(Ended::Cancelled) };
            let saved = self.save(&memory)?;
            self.memory = Arc::new(memory);
            Ok(Ended::Completed { response, saved })
        }
        .boxed()
    }

    fn suspend(self: Box<Self>) -> BoxFuture<'static, Result<Saved, Failure>> {
        // What it remembers was saved with its last turn.
        async { Ok(Saved::Unchanged) }.boxed()
    }
}

impl Script {
    fn save(&self, memory: &Map) -> Result<Saved, Failure> {
        let json = serde_json::to_vec(&Dynamic::from(memory.clone()))
            .map_err(|error| Failure::permanent(format!("cannot remember this: {error}")))?;
        // Nothing remembered is the state of a new session.
        Ok(if memory.is_empty() && self.memory.is_empty() {
            Saved::Unchanged
        } else {
            Saved::State(Blob::from(json))
        })
    }
}

fn read_memory(blob: &Blob) -> Result<Map, Failure> {
    let unreadable =
        |why: String| Failure::permanent(format!("what the script remembers is unreadable: {why}"));
    let memory: Dynamic =
        serde_json::from_slice(blob.as_slice()).map_err(|error| unreadable(error.to_string()))?;
    if memory.is_unit() {
        // A provider that had the session before has nothing to remember.
        return Ok(Map::new());
    }
    memory.try_cast().ok_or_else(|| unreadable("it is no map".to_owned()))
}

fn explain_parse(error: &ParseError) -> String {
    at(error.position(), &error.err_type().to_string())
}

/// A script's error as a failure, with line and column.
fn explain(mut error: EvalAltResult, settings: &Settings) -> Failure {
    // The innermost error is where it happened; what called it comes around it.
    let mut position = Position::NONE;
    while let EvalAltResult::ErrorInFunctionCall(_, _, inner, called) = error {
        (error, position) = (*inner, called);
    }
    // A step that has no position of its own is within what was called there.
    position = error.take_position().or_else(position);
    let what = match &error {
        // Why the script was ended.
        EvalAltResult::ErrorTerminated(why, _) if why.is_string() => why.to_string(),
        EvalAltResult::ErrorRuntime(thrown, _) if !thrown.is_string() => {
            let text = bounded::text(thrown, settings.max_string);
            format!("Runtime error: {}", text.as_deref().unwrap_or("too large to be shown"))
        }
        other => other.to_string(),
    };
    Failure::permanent(format!("script error: {}", at(position, &what)))
}

fn at(position: Position, what: &str) -> String {
    match (position.line(), position.position()) {
        (Some(line), Some(column)) => format!("line {line}, column {column}: {what}"),
        (Some(line), None) => format!("line {line}: {what}"),
        (None, _) => what.to_owned(),
    }
}
