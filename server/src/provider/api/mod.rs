//! Bare models behind an API: the daemon holds the conversation and runs the tools.
//!
//! ```text
//!  history + prompt ─► Dialect::body ─► Server ─► Stream ─► Fold ─► Answer
//!        ▲                                                            │
//!        └───────── results ◄── TurnIo::call_tool ◄────── calls ──────┘
//! ```
//!
//! The journal is the conversation: a session has no state of its own. A dialect says how it is
//! asked and how its stream is read; everything else is the same for all. A model is asked again
//! as long as it calls tools; when the conversation has grown too long, it is made shorter for
//! the model, and stays whole in the log.

pub mod anthropic;
mod chat;
mod config;
mod http;
pub mod openai;
mod reach;
mod room;
pub mod sse;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesOrdered, StreamExt};
use serde_json::{Map, Value};

pub use self::chat::Answer;
pub use self::config::{ANTHROPIC, OPENAI};

use self::chat::{Call, CallResult, Conversation, Fitted, Message, Stop};
use self::config::Config;
use self::http::{Stream, told};
use self::room::Room;
use self::sse::Event;
use super::activity::Activity;
use super::registry::written;
use super::secret::{NoKey, Secret, Secrets};
use super::{
    Capabilities, Ended, Failure, Health, Info, Instance, Model, Objection, OutputKind, Prompt,
    Provider, Spec, TurnIo,
};
use crate::model::{FailureClass, Saved, ToolSpec, Usage};

/// How long a server may take to answer a check.
const CHECK: Duration = Duration::from_secs(15);

/// What a model is asked.
struct Ask<'a> {
    model: &'a str,
    instructions: &'a str,
    messages: &'a [Message],
    tools: &'a [&'static ToolSpec],
    max_tokens: Option<u64>,
    /// Further keys of the request, as configured.
    extra: &'a Map<String, Value>,
}

/// A piece of output.
pub struct Piece {
    kind: OutputKind,
    text: String,
}

/// How an API is spoken.
trait Dialect: Send + Sync {
    /// Where it is asked, below the base address.
    fn path(&self) -> &'static str;
    /// Headers of every request.
    fn headers(&self) -> &'static [(&'static str, &'static str)];
    /// The header that bears a key.
    fn key(&self, key: &Secret) -> (&'static str, String);
    /// What it is sent.
    fn body(&self, ask: &Ask<'_>) -> Value;
    /// Reads an answer.
    fn fold(&self) -> Box<dyn Fold>;
    /// Where it lists its models.
    fn models_path(&self) -> &'static str;
    /// The models of such a list.
    fn models(&self, page: &Value) -> Vec<Model>;
}

/// Reads an answer as it comes.
pub trait Fold: Send {
    /// Takes an event. It may hold a piece of output.
    fn event(&mut self, event: &Event, secrets: &Secrets) -> Result<Option<Piece>, Failure>;
    /// Whether the answer is whole, so that nothing more is waited for.
    fn is_over(&self) -> bool;
    /// What was used so far.
    fn usage(&self) -> Usage;
    /// The answer, once the stream has ended.
    fn answer(self: Box<Self>) -> Result<Answer, Failure>;
}

/// A model behind an API.
struct Api {
    config: Arc<Config>,
}

impl Api {
    async fn list(&self, key: Option<&Secret>, secrets: &Secrets) -> Result<Vec<Model>, Failure> {
        let Config { dialect, server, .. } = &*self.config;
        let key = key.map(|key| dialect.key(key));
        let page = server.get(dialect.models_path(), key, secrets);
        let page = tokio::time::timeout(CHECK, page).await.unwrap_or_else(|_| {
            let message = format!("the server did not answer within {} s", CHECK.as_secs());
            Err(Failure::new(FailureClass::Network, message))
        })?;
        Ok(dialect.models(&page))
    }

    /// The models, or why there are none, with what to do.
    async fn ask(&self, key: Option<&Secret>, secrets: &Secrets) -> Result<Vec<Model>, Failure> {
        match self.list(key, secrets).await {
            Ok(models) => Ok(models),
            Err(failure) => Err(match reach::problem(self.config.server.base()).await {
                None => self.config.explained(failure),
                Some(unreached) => Failure::new(FailureClass::Network, unreached),
            }),
        }
    }

    /// The models, or why there are none, as a check tells it.
    async fn ask_for_check(&self) -> Result<Vec<Model>, String> {
        let (key, secrets) = self.config.find_key().await.map_err(NoKey::told_by_check)?;
        self.ask(key.as_ref(), &secrets).await.map_err(|failure| failure.message)
    }
}

impl Provider for Api {
    fn info(&self) -> Info {
        Info {
            name: self.config.name.clone(),
            kind: self.config.kind,
            description: self.config.description(),
            capabilities: Capabilities { pulse: true, ..Capabilities::default() },
            call_limit: None,
        }
    }

    fn examine(&self, ask: bool) -> BoxFuture<'_, Health> {
        async move {
            let config = &self.config;
            let mut facts = vec![
                ("server".to_owned(), config.server.base().to_string()),
                ("key".to_owned(), config.key.to_string()),
            ];
            let mut model = config.model.clone();
            let problem = match (self.config.key.is_there().await, ask) {
                (Err(problem), _) => Some(problem),
                (Ok(()), false) => reach::problem(config.server.base()).await,
                (Ok(()), true) => match self.ask_for_check().await {
                    Ok(models) => {
                        facts.push(("models".to_owned(), models.len().to_string()));
                        if let Some(model) = model.as_mut().filter(|one| !is_listed(one, &models)) {
                            model.push_str(", which is not among those that the server lists");
                        }
                        None
                    }
                    Err(problem) => Some(problem),
                },
            };
            facts.extend(model.map(|model| ("model".to_owned(), model)));
            Health { version: String::new(), problem, facts }
        }
        .boxed()
    }

    fn models(&self) -> BoxFuture<'_, Result<Vec<Model>, Failure>> {
        async {
            let (key, secrets) = self.config.key().await?;
            self.ask(key.as_ref(), &secrets).await
        }
        .boxed()
    }

    fn check(&self, _: &str, model: Option<&str>) -> Result<(), Objection> {
        match model.or(self.config.model.as_deref()) {
            Some(model) if !model.trim().is_empty() => Ok(()),
            _ => Err(Objection::Model(format!(
                "no model was given, and [providers.{}] names none",
                written(&self.config.name)
            ))),
        }
    }

    fn open(&self, spec: Spec) -> BoxFuture<'_, Result<Box<dyn Instance>, Failure>> {
        async move {
            let model = spec.model.as_deref().or(self.config.model.as_deref());
            let Some(model) = model else {
                return Err(Failure::permanent("no model was given, and there is no default"));
            };
            let session = Session {
                config: self.config.clone(),
                model: model.to_owned(),
                instructions: spec.instructions,
                fitted: Fitted::default(),
            };
            Ok(Box::new(session) as Box<dyn Instance>)
        }
        .boxed()
    }
}

/// Whether a server lists a model, be it by the longer name that it stands for, with a date or a
/// tag. Servers take models that they do not list.
fn is_listed(model: &str, models: &[Model]) -> bool {
    let name = model.strip_suffix("-latest").unwrap_or(model);
    // Four digits or more, such as a year, are no part of a version.
    let dated = |rest: &str| rest.bytes().take_while(u8::is_ascii_digit).count() >= 4;
    models.iter().any(|listed| match listed.id.strip_prefix(name) {
        Some("") => true,
        Some(rest) => rest.starts_with([':', '@']) || rest.strip_prefix('-').is_some_and(dated),
        None => false,
    })
}

/// A session of a model, which has nothing of its own to keep: how the conversation fitted is found
/// out again.
struct Session {
    config: Arc<Config>,
    model: String,
    instructions: Arc<str>,
    /// How the conversation fitted last.
    fitted: Fitted,
}

impl Instance for Session {
    fn turn<'a>(
        &'a mut self,
        prompt: Prompt,
        io: Arc<dyn TurnIo>,
    ) -> BoxFuture<'a, Result<Ended, Failure>> {
        async move {
            let cancelled = io.cancelled().clone();
            tokio::select! {
                biased;
                // Whatever runs is dropped, its connection with it.
                () = cancelled.cancelled() => Ok(Ended::Cancelled),
                ended = self.run(prompt, io) => ended,
            }
        }
        .boxed()
    }

    fn suspend(self: Box<Self>) -> BoxFuture<'static, Result<Saved, Failure>> {
        std::future::ready(Ok(Saved::Unchanged)).boxed()
    }
}

impl Session {
    async fn run(&mut self, prompt: Prompt, io: Arc<dyn TurnIo>) -> Result<Ended, Failure> {
        // It is read anew, so that one that was exchanged is in force with the next turn.
        let (key, secrets) = self.config.key().await?;
        let asked = (prompt.turn, prompt.text.clone());
        let conversation = Conversation::new(io.history().await?, asked, self.fitted);
        let ended = self.converse(conversation, &prompt, (key.as_ref(), &secrets), &io).await;
        ended.map_err(|failure| self.config.explained(failure))
    }

    async fn converse(
        &mut self,
        mut conversation: Conversation,
        prompt: &Prompt,
        (key, secrets): (Option<&Secret>, &Secrets),
        io: &Arc<dyn TurnIo>,
    ) -> Result<Ended, Failure> {
        let (mut said, mut is_noticed) = (String::new(), false);
        for _ in 0..self.config.max_steps {
            let answer = self.ask_fitting(&mut conversation, prompt, key, secrets, io);
            let Answer { reply, stop, .. } = answer.await?;
            self.fitted = conversation.fitted();
            if !is_noticed && let Some(notice) = conversation.notice() {
                io.tell(Activity::Notice(notice));
                is_noticed = true;
            }
            said.push_str(&reply.text);
            // What comes in several answers is not longer than what comes in one.
            Room::default().take(said.len())?;
            match stop {
                Stop::Refused => {
                    let message = format!("the model refused: {}", told(&said));
                    return Err(Failure::permanent(message));
                }
                // Nobody knows what its end would have been, that of a call above all.
                Stop::Length => return Err(self.config.cut_off()),
                Stop::Done if reply.calls.is_empty() => {
                    return Ok(Ended::Completed { response: said, saved: Saved::Unchanged });
                }
                _ => {}
            }
            if !reply.calls.is_empty() {
                // What was said before a call is no part of the answer.
                io.tell(Activity::Text { kind: OutputKind::Text, text: std::mem::take(&mut said) });
            }
            let results = call_all(&reply.calls, io).await;
            let calls_nothing = reply.calls.is_empty();
            conversation.messages.push(Message::Assistant(reply));
            if !calls_nothing {
                conversation.messages.push(Message::Results(results));
            }
        }
        let steps = self.config.max_steps;
        Err(Failure::permanent(format!(
            "the model was asked {steps} times in one turn; max_steps of its provider allows no more"
        )))
    }

    /// Asks the model, with a shorter conversation if this one does not fit.
    async fn ask_fitting(
        &self,
        conversation: &mut Conversation,
        prompt: &Prompt,
        key: Option<&Secret>,
        secrets: &Secrets,
        io: &Arc<dyn TurnIo>,
    ) -> Result<Answer, Failure> {
        loop {
            let asked = self.ask(&conversation.messages, prompt, key, secrets, io).await;
            let asked = asked.and_then(|answer| match answer.stop {
                // What came of the answer is not all of it.
                Stop::Overflow => {
                    let message = "the conversation has grown longer than the model takes";
                    Err(Failure::new(FailureClass::Overflow, message))
                }
                _ => Ok(answer),
            });
            match asked {
                Err(failure)
                    if failure.class == FailureClass::Overflow && conversation.compact() =>
                {
                    tracing::info!(agent = %prompt.agent, "a conversation was made shorter");
                    io.tell(Activity::Void);
                }
                asked => return asked,
            }
        }
    }

    async fn ask(
        &self,
        messages: &[Message],
        prompt: &Prompt,
        key: Option<&Secret>,
        secrets: &Secrets,
        io: &Arc<dyn TurnIo>,
    ) -> Result<Answer, Failure> {
        let Config { dialect, server, max_tokens, extra, .. } = &*self.config;
        let body = dialect.body(&Ask {
            model: &self.model,
            instructions: &self.instructions,
            messages,
            tools: &prompt.tools,
            max_tokens: *max_tokens,
            extra,
        });
        let response = server
            .post(dialect.path(), body.to_string().into_bytes(), key.map(|key| dialect.key(key)))
            .await?;
        let mut stream = Stream::of(response, secrets).await?;
        let mut reading = Reading { session: self, io, fold: Some(dialect.fold()) };
        while let Some(fold) = reading.fold.as_mut().filter(|fold| !fold.is_over())
            && let Some(came) = stream.next().await?
        {
            io.alive();
            if let Some(event) = came
                && let Some(piece) = fold.event(&event, secrets)?
            {
                io.emit(piece.kind, &piece.text);
            }
        }
        reading.done()
    }

    fn report(&self, mut usage: Usage, cost: Option<u64>, io: &Arc<dyn TurnIo>) {
        usage.cost_micro_usd = cost.unwrap_or_else(|| self.config.cost(&self.model, usage));
        if !usage.is_zero() {
            io.report_usage(usage);
        }
    }
}

/// An answer that is read. What it used is booked also where nobody waits for its end any more.
struct Reading<'a> {
    session: &'a Session,
    io: &'a Arc<dyn TurnIo>,
    /// None once it is booked.
    fold: Option<Box<dyn Fold>>,
}

impl Reading<'_> {
    fn done(mut self) -> Result<Answer, Failure> {
        let Some(fold) = self.fold.take() else {
            return Err(Failure::permanent("the answer was read before"));
        };
        let used = fold.usage();
        let answer = fold.answer();
        let cost = answer.as_ref().ok().and_then(|answer| answer.cost);
        self.session.report(used, cost, self.io);
        answer
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Some(fold) = self.fold.take() {
            self.session.report(fold.usage(), None, self.io);
        }
    }
}

/// Makes calls at once. Their results are in the order of the calls.
async fn call_all(calls: &[Call], io: &Arc<dyn TurnIo>) -> Vec<CallResult> {
    let calls = calls.iter().map(|call| async {
        let outcome = match call.parsed() {
            Ok(args) => io.call_tool(&call.tool, args).await,
            Err(problem) => Err(problem),
        };
        let outcome = outcome.map(|value| value.get().to_owned());
        CallResult { id: call.id.clone(), outcome }
    });
    calls.collect::<FuturesOrdered<_>>().collect().await
}
