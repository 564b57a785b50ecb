//! How Claude Code is asked for its models: it tells them when it is asked what it can do.

use serde_json::Value;

use super::protocol::{Answer, Stream};
use super::requests::{self, Control};
use crate::provider::Model;
use crate::provider::activity::{Event, TurnOver, text};
use crate::provider::cli::{self, Asked};
use crate::provider::failure::{Failed, FailureKind};
use crate::provider::meter::Totals;

/// The id of the request.
const REQUEST: &str = "substrat-models";

/// What is said to it until its models are known.
pub(super) struct Asking(Stream);

impl Default for Asking {
    fn default() -> Self {
        Self(Stream::new(Totals::default()))
    }
}

impl cli::Asking for Asking {
    fn begin(&mut self) -> String {
        requests::control(REQUEST, Control::Initialize)
    }

    fn read(&mut self, line: &str) -> Result<Asked, Failed> {
        let mut next = String::new();
        for event in self.0.read(line) {
            match event {
                Event::Write(line) => next += &line,
                Event::Over(TurnOver::Failed(failed)) => return Err(failed),
                Event::Answer(Answer::Control { request, outcome }) if request == REQUEST => {
                    let told = outcome.map_err(|no| Failed::of_text(no, FailureKind::Other))?;
                    return Ok(Asked::Models(models(&told)));
                }
                Event::Answer(_) | Event::Activity(_) | Event::Over(_) => {}
            }
        }
        Ok(Asked::Next(next))
    }
}

/// The models of what it can do.
fn models(told: &Value) -> Vec<Model> {
    let models = told["models"].as_array().into_iter().flatten().map(|model| Model {
        id: text(model, "value").to_owned(),
        label: text(model, "displayName").to_owned(),
        context_tokens: 0,
    });
    models.filter(|model| !model.id.is_empty()).collect()
}
