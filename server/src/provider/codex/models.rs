//! How Codex is asked for its models: its app-server lists them.

use serde_json::Value;

use super::app_server::{Answer, Call, Client};
use crate::provider::Model;
use crate::provider::activity::{Event, TurnOver, text};
use crate::provider::cli::{self, Asked};
use crate::provider::failure::Failed;
use crate::provider::meter::Totals;

/// Most models that are asked for.
const MAX_MODELS: usize = 1000;

/// What is said to an app-server until its models are known.
pub(super) struct Asking {
    client: Client,
    version: &'static str,
    found: Vec<Model>,
}

impl Asking {
    pub(super) fn new(version: &'static str) -> Self {
        Self { client: Client::new(Totals::default()), version, found: Vec::new() }
    }

    /// Takes a part of the models.
    fn take(&mut self, part: &Value) -> Asked {
        let models = part["data"].as_array().into_iter().flatten();
        let models = models.filter(|model| model["hidden"] != true).map(|model| Model {
            id: text(model, "model").to_owned(),
            label: text(model, "displayName").to_owned(),
            context_tokens: 0,
        });
        let known = self.found.len();
        self.found.extend(models.filter(|model| !model.id.is_empty()));
        let has_grown = self.found.len() > known;
        match part["nextCursor"].as_str() {
            Some(cursor) if has_grown && self.found.len() < MAX_MODELS => {
                Asked::Next(self.client.list_models(Some(cursor)))
            }
            _ => Asked::Models(std::mem::take(&mut self.found)),
        }
    }
}

impl cli::Asking for Asking {
    fn begin(&mut self) -> String {
        self.client.initialize(self.version)
    }

    fn read(&mut self, line: &str) -> Result<Asked, Failed> {
        let mut next = String::new();
        for event in self.client.read(line) {
            match event {
                Event::Write(line) => next += &line,
                Event::Over(TurnOver::Failed(failed)) => return Err(failed),
                Event::Answer(Answer { call: Call::Initialize, outcome }) => {
                    outcome?;
                    next += &self.client.list_models(None);
                }
                Event::Answer(Answer { call: Call::Models, outcome }) => {
                    match self.take(&outcome?) {
                        Asked::Next(line) => next += &line,
                        models => return Ok(models),
                    }
                }
                Event::Answer(_) | Event::Activity(_) | Event::Over(_) => {}
            }
        }
        Ok(Asked::Next(next))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::provider::cli::Asking as _;

    #[test]
    fn models_are_listed_part_by_part_but_for_hidden_ones() {
        let mut asking = Asking::new("1.2.3");
        assert!(asking.begin().contains("\"1.2.3\""));
        let asked = asking.read(&json!({"id": 0, "result": {}}).to_string());
        let Ok(Asked::Next(line)) = asked else { panic!("{asked:?}") };
        assert!(line.contains("model/list"), "{line}");
        let model = |id: &str, hidden| json!({"model": id, "displayName": id, "hidden": hidden});
        let part = json!({"data": [model("a", false), model("b", true)], "nextCursor": "more"});
        let asked = asking.read(&json!({"id": 1, "result": part}).to_string());
        let Ok(Asked::Next(line)) = asked else { panic!("{asked:?}") };
        assert!(line.contains("\"more\""), "{line}");
        let part = json!({"data": [model("c", false)], "nextCursor": null});
        let asked = asking.read(&json!({"id": 2, "result": part}).to_string());
        let Ok(Asked::Models(models)) = asked else { panic!("{asked:?}") };
        assert_eq!(models.iter().map(|model| &*model.id).collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn a_version_without_a_list_says_so() {
        let mut asking = Asking::new("1.2.3");
        asking.begin();
        asking.read(&json!({"id": 0, "result": {}}).to_string()).unwrap();
        let error = json!({"code": -32600, "message": "unknown variant `model/list`"});
        let failed = asking.read(&json!({"id": 1, "error": error}).to_string()).unwrap_err();
        assert!(failed.message.contains("unknown variant"), "{failed:?}");
    }
}
