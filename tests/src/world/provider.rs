//! A provider whose agents do what a seed says: talk, spawn, ask, wait, fail, crash.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use substrat_server::model::{Blob, FailureClass, Json, Saved, Usage};
use substrat_server::provider::{
    Capabilities, Ended, Failure, Health, Info, Instance, Objection, OutputKind, Prompt, Provider,
    Spec, TurnIo,
};

use super::PROVIDER;

/// The answer to a prompt, so that who reads the log can tell whether it is the right one.
pub(super) fn answer_to(prompt: &str) -> String {
    let sum = prompt.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("answer {sum:016x}")
}

#[derive(Clone)]
pub(super) struct Seeded(Arc<Mutex<StdRng>>);

impl Seeded {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    fn draw(&self, bound: u64) -> u64 {
        self.0.lock().expect("nobody panicked with the seed").random_range(0..bound)
    }
}

impl Provider for Seeded {
    fn info(&self) -> Info {
        Info {
            name: PROVIDER.into(),
            kind: PROVIDER,
            description: "does what a seed says".into(),
            capabilities: Capabilities::default(),
            call_limit: Some(Duration::from_secs(20)),
        }
    }

    fn examine(&self, _: bool) -> BoxFuture<'_, Health> {
        std::future::ready(Health::default()).boxed()
    }
    fn check(&self, _: &str, _: Option<&str>) -> Result<(), Objection> {
        Ok(())
    }

    fn open(&self, spec: Spec) -> BoxFuture<'_, Result<Box<dyn Instance>, Failure>> {
        async move {
            tokio::time::sleep(Duration::from_millis(self.draw(5))).await;
            if self.draw(40) == 0 {
                return Err(failure(FailureClass::Transient, "not now"));
            }
            let saved = spec.saved.map_or(0, |blob| blob.size());
            Ok(Box::new(Live { seeded: self.clone(), turns: saved }) as Box<dyn Instance>)
        }
        .boxed()
    }
}

fn failure(class: FailureClass, text: &str) -> Failure {
    Failure { class, message: text.into(), retry_after: None }
}

struct Live {
    seeded: Seeded,
    /// Turns of the session, kept over a suspension as so many bytes.
    turns: u64,
}

impl Instance for Live {
    fn turn<'a>(
        &'a mut self,
        prompt: Prompt,
        io: Arc<dyn TurnIo>,
    ) -> BoxFuture<'a, Result<Ended, Failure>> {
        async move {
            let cancelled = io.cancelled().clone();
            tokio::select! {
                biased;
                () = cancelled.cancelled() => Ok(Ended::Cancelled),
                ended = self.work(&prompt, &*io) => ended,
            }
        }
        .boxed()
    }

    fn suspend(self: Box<Self>) -> BoxFuture<'static, Result<Saved, Failure>> {
        async move {
            tokio::time::sleep(Duration::from_millis(self.seeded.draw(10))).await;
            match self.seeded.draw(10) {
                0 => Err(failure(FailureClass::Permanent, "cannot say what to resume from")),
                1..5 => Ok(Saved::Unchanged),
                _ => Ok(self.saved()),
            }
        }
        .boxed()
    }
}

impl Live {
    fn saved(&self) -> Saved {
        Saved::State(Blob::from(vec![7; self.turns as usize]))
    }

    async fn work(&mut self, prompt: &Prompt, io: &dyn TurnIo) -> Result<Ended, Failure> {
        self.turns += 1;
        let input_tokens = prompt.text.len() as u64;
        io.report_usage(Usage { input_tokens, turns: 3, ..Usage::default() });
        for _ in 0..self.seeded.draw(4) {
            tokio::time::sleep(Duration::from_millis(self.seeded.draw(60))).await;
            self.step(prompt, io).await;
        }
        tokio::time::sleep(Duration::from_millis(self.seeded.draw(30))).await;
        match self.seeded.draw(30) {
            0 => Err(failure(FailureClass::Transient, "busy")),
            1 => Err(failure(FailureClass::Permanent, "broken")),
            3 | 4 => Err(failure(FailureClass::Overflow, "too long")),
            // Without the hook that would print it: the runner reports it.
            2 => std::panic::resume_unwind(Box::new("the provider crashed")),
            other => {
                let saved = if other % 2 == 0 { self.saved() } else { Saved::Unchanged };
                Ok(Ended::Completed { response: answer_to(&prompt.text), saved })
            }
        }
    }

    /// Something about time, or about another agent.
    fn govern(&self, other: &str) -> (&'static str, Value) {
        let named = json!({ "agent_name": other });
        match self.seeded.draw(9) {
            0 => ("remind_me", json!({ "reason": "later", "after": self.seeded.draw(3) })),
            1 => {
                let every = self.seeded.draw(2) * 3600;
                ("remind_me", json!({ "reason": "again", "after": 1, "every": every }))
            }
            2 => ("subscribe", json!({ "agent_name": other, "transition": "*->terminated" })),
            3..5 => {
                let once = json!({ "agent_name": other, "transition": "*->idle", "once": true });
                ("subscribe", once)
            }
            5 => ("poke", named),
            6 => ("set_agent_metadata", json!({ "agent_name": other, "key": "k", "value": "v" })),
            7 => ("gate", named),
            _ => ("ungate", named),
        }
    }

    async fn step(&self, prompt: &Prompt, io: &dyn TurnIo) {
        let child = format!("c{}", self.seeded.draw(3));
        let other = match self.seeded.draw(5) {
            0 => "parent".to_owned(),
            1 => "USER".to_owned(),
            2 => format!("a{}", self.seeded.draw(20)),
            _ => child.clone(),
        };
        let (tool, args) = match self.seeded.draw(14) {
            0..2 => {
                ("spawn_agent", json!({"name": child, "instructions": "x", "provider": PROVIDER}))
            }
            2..4 => ("send_message", json!({"recipient": other, "text": "asked"})),
            4 => ("send_message", json!({"recipient": other, "text": "in time?", "timeout": 1})),
            5 => ("send_message", json!({"recipient": other, "text": "told", "sync": false})),
            6 => ("broadcast", json!({"text": "to all"})),
            7 => ("check_inbox", Value::Null),
            8 if self.seeded.draw(3) == 0 => ("complete", json!({"result": "done"})),
            8 => ("list_children", Value::Null),
            9..13 => self.govern(&other),
            _ => return io.emit(OutputKind::Text, &format!("{} thinks", prompt.agent)),
        };
        let args = Json::of(&args).expect("JSON");
        // A refusal is as good as a result here.
        let _ = io.call_tool(tool, args).await;
    }
}
