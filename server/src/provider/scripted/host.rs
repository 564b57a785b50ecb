//! What a script can call.

use std::any::TypeId;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use rhai::packages::Package;
use rhai::{
    AST, Array, CallFnOptions, Dynamic, Engine, EvalAltResult, ImmutableString, Map,
    NativeCallContext, Position, Scope,
};
use serde_json::Value;
use tokio::runtime::Handle;

use super::super::{Failure, OutputKind, Prompt, TurnIo};
use super::{Settings, bounded, conversation, explain};
use crate::memory;
use crate::model::{FailureClass, Json, ToolSpec, Usage, catalogue};

pub(super) type Error = Box<EvalAltResult>;

/// Operations between two looks at whether the turn was cancelled.
const CANCEL_INTERVAL: u64 = 128;
/// How deep values may be nested that leave a script. JSON of more than 128 levels is not read
/// back.
const MAX_DEPTH: usize = 100;

/// The turn that a script runs, as its functions reach it.
pub(super) struct Running {
    prompt: Prompt,
    io: Arc<dyn TurnIo>,
    runtime: Handle,
    settings: Settings,
    memory: Map,
    /// Bytes of JSON that the memory takes.
    remembered: usize,
    /// What it said; none once that is too much for an answer.
    said: Option<String>,
    /// Why the script ended itself.
    failure: Option<Failure>,
}

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// The answer, none if the turn was cancelled, and what is remembered afterwards.
pub(super) type Done = (Result<Option<String>, Failure>, Map);

impl Running {
    pub(super) fn new(
        prompt: Prompt,
        io: Arc<dyn TurnIo>,
        settings: Settings,
        memory: Map,
    ) -> Self {
        let entries = memory.iter().filter_map(|(key, value)| Some((key, json_of(value).ok()?)));
        let remembered = entries.map(|(key, value)| entry_size(key, &value)).sum();
        Self {
            prompt,
            io,
            runtime: Handle::current(),
            settings,
            memory,
            remembered,
            said: Some(String::new()),
            failure: None,
        }
    }

    /// Runs `fn turn(prompt)` on this thread.
    pub(super) fn run(self, engine: &Engine, ast: &AST, prompt: &str) -> Done {
        RUNNING.set(Some(self));
        bounded::reset();
        let prompt: Dynamic = prompt.to_owned().into();
        let options = CallFnOptions::new();
        let returned = engine.call_fn_with_options::<Dynamic>(
            options,
            &mut Scope::new(),
            ast,
            "turn",
            (prompt,),
        );
        // It was put there above, and nothing takes it out in between.
        let Some(running) = RUNNING.take() else {
            return (Err(Failure::permanent("the turn lost its state")), Map::new());
        };
        let returned = match returned.map_err(|error| *error) {
            Err(EvalAltResult::Exit(value, _)) => Ok(value),
            other => other,
        };
        let outcome = match returned {
            Ok(_) if bounded::oversized() => {
                Err(explain(*bounded::too_large("Length of string"), &running.settings))
            }
            Ok(value) => running.response(engine, &value).map(Some),
            Err(_) if running.failure.is_some() => {
                Err(running.failure.unwrap_or_else(|| Failure::permanent("")))
            }
            Err(_) if running.io.cancelled().is_cancelled() => Ok(None),
            Err(error) => Err(explain(error, &running.settings)),
        };
        (outcome, running.memory)
    }

    /// What the turn answers: the value that it returned, or else what it said.
    fn response(&self, engine: &Engine, value: &Dynamic) -> Result<String, Failure> {
        if value.is_unit() {
            let limit = self.settings.max_string;
            return self.said.clone().ok_or_else(|| {
                Failure::permanent(format!(
                    "a turn that returns nothing answers with what it said, and that is more than \
                     {limit} bytes: return a value"
                ))
            });
        }
        if let Some(text) = value.read_lock::<ImmutableString>() {
            return Ok(text.to_string());
        }
        let json = to_json(engine, value).map_err(|error| explain(*error, &self.settings))?;
        Ok(format!("{json:#}"))
    }

    /// What the turn can reach, and what runs it.
    pub(super) fn reach(&self) -> (Arc<dyn TurnIo>, Handle) {
        (self.io.clone(), self.runtime.clone())
    }

    fn say(&mut self, text: &str) {
        self.said =
            self.said.take().filter(|said| said.len() + text.len() <= self.settings.max_string);
        if let Some(said) = &mut self.said {
            said.push_str(text);
        }
        memory::uncounted(|| self.io.emit(OutputKind::Text, text));
    }

    fn remember(&mut self, key: &str, json: Value) -> Result<(), Error> {
        let old = self.memory.get(key).and_then(|old| json_of(old).ok());
        let freed = old.map_or(0, |old| entry_size(key, &old));
        let remembered = self.remembered - freed + entry_size(key, &json);
        // With the braces, without the last comma.
        let bytes = remembered + 1;
        if bytes > self.settings.max_memory {
            let limit = self.settings.max_memory;
            let what = format!("this makes {bytes} bytes to remember; at most {limit} are allowed");
            return Err(what.into());
        }
        // As it comes back after the session was suspended.
        self.memory.insert(key.into(), rhai::serde::to_dynamic(json)?);
        self.remembered = remembered;
        Ok(())
    }

    fn forget(&mut self, key: &str) {
        let old = self.memory.remove(key).and_then(|old| json_of(&old).ok());
        self.remembered -= old.map_or(0, |old| entry_size(key, &old));
    }
}

/// Reports what the running turn used.
pub(super) fn report_usage(usage: Usage) -> Result<(), Error> {
    with(|running| memory::uncounted(|| running.io.report_usage(usage)))
}

pub(super) fn with<T>(f: impl FnOnce(&mut Running) -> T) -> Result<T, Error> {
    RUNNING.with_borrow_mut(|running| match running {
        Some(running) => Ok(f(running)),
        // Reached when the optimizer calls a function of ours at compile time.
        None => Err("only possible while a turn runs".into()),
    })
}

fn ended() -> Error {
    Box::new(EvalAltResult::ErrorTerminated(Dynamic::UNIT, Position::NONE))
}

/// The engine that all scripts share.
pub(super) fn engine(settings: &Settings) -> Engine {
    let mut engine = Engine::new_raw();
    rhai::packages::StandardPackage::new().register_into_engine(&mut engine);
    engine
        .set_strict_variables(true)
        .set_max_operations(settings.max_operations)
        .set_max_string_size(settings.max_string)
        .set_max_array_size(settings.max_elements)
        .set_max_map_size(settings.max_elements)
        .set_max_variables(256)
        .set_max_functions(256)
        .set_max_modules(0)
        .set_max_call_levels(48)
        .set_max_expr_depths(64, 48)
        // What is curried into a function pointer counts against no limit.
        .disable_symbol("curry")
        .set_optimization_level(rhai::OptimizationLevel::Simple);
    let (max_heap, max_string) = (settings.max_heap, settings.max_string);
    let most = max_heap.cast_signed();
    engine.on_progress(move |operations| {
        if memory::held() > most && is_running() {
            let what = format!("Too much memory: a turn may hold at most {max_heap} bytes");
            return Some(what.into());
        }
        if bounded::oversized() && is_running() {
            return Some(format!("Length of string too large: at most {max_string} bytes").into());
        }
        if operations % CANCEL_INTERVAL != 0 {
            return None;
        }
        let cancelled = with(|running| running.io.cancelled().is_cancelled()).unwrap_or(false);
        cancelled.then_some(Dynamic::UNIT)
    });
    bounded::register(&mut engine, settings);
    engine.on_print(think);
    engine.on_debug(|text, _, position| think(&format!("{position:?}: {text}")));
    register_output(&mut engine, settings.max_string);
    register_memory(&mut engine);
    super::usage::register(&mut engine);
    conversation::register(&mut engine);
    for tool in catalogue() {
        register_tool(&mut engine, tool);
    }
    engine
}

/// Whether a turn runs on this thread; not so when a script is compiled.
fn is_running() -> bool {
    RUNNING.with_borrow(Option::is_some)
}

fn think(text: &str) {
    // Outside of a turn there is nobody to think for.
    let _ = with(|running| {
        memory::uncounted(|| running.io.emit(OutputKind::Thinking, text));
    });
}

fn register_output(engine: &mut Engine, max_string: usize) {
    engine.register_fn("say", move |text: Dynamic| -> Result<(), Error> {
        let text = bounded::text(&text, max_string)
            .ok_or_else(|| bounded::too_large("Length of string"))?;
        with(|running| running.say(&text))
    });
    engine.register_fn("sleep_ms", |milliseconds: i64| {
        sleep(Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0)))
    });
    // In place of those of the language, which cannot be interrupted.
    engine.register_fn("sleep", |seconds: i64| {
        sleep(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    });
    engine.register_fn("sleep", |seconds: f64| {
        sleep(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
    });
    engine.register_fn("fail", |kind: &str, text: &str| -> Result<(), Error> {
        let class = match kind {
            "transient" => FailureClass::Transient,
            "permanent" => FailureClass::Permanent,
            "overflow" => FailureClass::Overflow,
            "budget" => FailureClass::Budget,
            "sandbox" => FailureClass::Sandbox,
            "provider-gone" => FailureClass::ProviderGone,
            _ => {
                return Err(format!(
                    "no kind of failure {kind:?}; there are: transient, permanent, overflow, \
                     budget, sandbox, provider-gone"
                )
                .into());
            }
        };
        let message = text.to_owned();
        with(|running| {
            running.failure = Some(Failure { class, message, retry_after: None });
        })?;
        Err(ended())
    });
}

fn sleep(time: Duration) -> Result<(), Error> {
    let (io, runtime) = with(|running| (running.io.clone(), running.runtime.clone()))?;
    let slept = runtime.block_on(async {
        tokio::select! {
            () = tokio::time::sleep(time) => true,
            () = io.cancelled().cancelled() => false,
        }
    });
    if slept { Ok(()) } else { Err(ended()) }
}

fn register_memory(engine: &mut Engine) {
    type Context<'a> = NativeCallContext<'a>;
    engine.register_fn(
        "remember",
        |cx: Context<'_>, key: &str, value: Dynamic| -> Result<(), Error> {
            let value = to_json(cx.engine(), &value)?;
            with(|running| running.remember(key, value))?
        },
    );
    engine.register_fn("recall", |key: &str| -> Result<Dynamic, Error> {
        with(|running| running.memory.get(key).cloned().unwrap_or(Dynamic::UNIT))
    });
    engine.register_fn("forget", |key: &str| -> Result<(), Error> {
        with(|running| running.forget(key))
    });
    engine.register_fn("agent_name", || with(|running| running.prompt.agent.to_string()));
    engine.register_fn("messages", || -> Result<Array, Error> {
        with(|running| running.prompt.messages.iter().map(message).collect())
    });
}

fn message(message: &crate::model::Message) -> Dynamic {
    let mut map = Map::new();
    map.insert("id".into(), message.id.to_string().into());
    map.insert("from".into(), message.sender_name.to_string().into());
    map.insert("kind".into(), message.kind.as_str().into());
    map.insert("text".into(), message.text.to_string().into());
    let reply_to = message.reply_to.map(|id| id.to_string());
    map.insert("reply_to".into(), reply_to.map_or(Dynamic::UNIT, Dynamic::from));
    map.into()
}

/// A tool becomes a function that takes its required arguments in order, then optional ones in
/// order or as a map.
fn register_tool(engine: &mut Engine, tool: &'static ToolSpec) {
    let required = tool.schema.get("required").and_then(Value::as_array).map_or(0, Vec::len);
    let any = TypeId::of::<Dynamic>();
    for count in required..=tool.parameters.len().max(required + 1) {
        let types = vec![any; count];
        engine.register_raw_fn(tool.name, types, move |context: NativeCallContext<'_>, args| {
            // The first argument may be the caller's variable itself.
            let args: Vec<Dynamic> = args.iter().map(|arg| (**arg).clone()).collect();
            call(context.engine(), tool, args, required)
        });
    }
}

fn call(
    engine: &Engine,
    tool: &ToolSpec,
    mut args: Vec<Dynamic>,
    required: usize,
) -> Result<Dynamic, Error> {
    let options = match args.last() {
        Some(last) if args.len() > required && last.is_map() => args.pop(),
        _ => None,
    };
    let mut values = serde_json::Map::new();
    for (name, value) in tool.parameters.iter().zip(&args) {
        values.insert((*name).to_owned(), to_json(engine, value)?);
    }
    if let Some(Value::Object(options)) =
        options.as_ref().map(|options| to_json(engine, options)).transpose()?
    {
        values.extend(options);
    }
    if args.len() > tool.parameters.len() {
        return Err(format!("{} takes at most {}", tool.name, tool.parameters.len()).into());
    }
    let (io, runtime) = with(|running| (running.io.clone(), running.runtime.clone()))?;
    // What goes out and what comes back is not the script's.
    let answer = memory::uncounted(|| {
        let args = Json::of(&values).map_err(|error| error.to_string())?;
        runtime.block_on(io.call_tool(tool.name, args))
    });
    let result = match &answer {
        _ if io.cancelled().is_cancelled() => Err(ended()),
        Ok(json) => value_of(json),
        Err(error) => Err(error.as_str().into()),
    };
    memory::uncounted(|| drop(answer));
    result
}

pub(super) fn value_of(json: &Json) -> Result<Dynamic, Error> {
    let value: Value = serde_json::from_str(json.get()).map_err(|error| error.to_string())?;
    rhai::serde::to_dynamic(value)
}

fn to_json(engine: &Engine, value: &Dynamic) -> Result<Value, Error> {
    bounded::check(engine, value)?;
    json_of(value)
}

fn json_of(value: &Dynamic) -> Result<Value, Error> {
    if is_deeper(value, MAX_DEPTH) {
        return Err(format!("it is nested more than {MAX_DEPTH} levels deep").into());
    }
    serde_json::to_value(value).map_err(|error| error.to_string().into())
}

fn is_deeper(value: &Dynamic, levels: usize) -> bool {
    let deeper = |inner: &Dynamic| levels == 0 || is_deeper(inner, levels - 1);
    if let Some(array) = value.read_lock::<Array>() {
        return array.iter().any(deeper);
    }
    value.read_lock::<Map>().is_some_and(|map| map.values().any(deeper))
}

/// Bytes that an entry takes in the JSON of an object, with what separates it.
fn entry_size(key: &str, value: &Value) -> usize {
    Value::from(key).to_string().len() + value.to_string().len() + 2
}
