//! The conversation of a session, as a script sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use rhai::{Array, Dynamic, Engine, Map, NativeCallContext};

use super::super::history::{History, Item};
use super::bounded;
use super::host::{Error, value_of, with};
use crate::memory;
use crate::model::CallId;

pub(super) fn register(engine: &mut Engine) {
    engine.register_fn("history", |cx: NativeCallContext<'_>| -> Result<Array, Error> {
        let history = read()?;
        let shown = show(&history)?;
        memory::uncounted(|| drop(history));
        let shown = Dynamic::from_array(shown);
        bounded::check(cx.engine(), &shown)
            .map_err(|_| "the conversation is larger than a value of a script may be")?;
        Ok(shown.cast())
    });
    engine.register_fn("history_cut", || -> Result<i64, Error> {
        let history = read()?;
        let cut = i64::try_from(history.cut).unwrap_or(i64::MAX);
        memory::uncounted(|| drop(history));
        Ok(cut)
    });
}

fn read() -> Result<History, Error> {
    let (io, runtime) = with(|running| running.reach())?;
    // What is read is not the script's; what it is shown of it is.
    let read = memory::uncounted(|| runtime.block_on(io.history()));
    read.map_err(|failure| failure.message.into())
}

fn show(history: &History) -> Result<Array, Error> {
    let mut shown = Array::new();
    for turn in &history.turns {
        let id: Dynamic = turn.id.to_string().into();
        let mut tools: BTreeMap<CallId, Arc<str>> = BTreeMap::new();
        for item in &turn.items {
            let mut map = Map::new();
            map.insert("turn".into(), id.clone());
            match item {
                Item::User(text) => fill(&mut map, "user", [("text", text.to_string().into())]),
                Item::Assistant(text) => {
                    fill(&mut map, "assistant", [("text", text.to_string().into())]);
                }
                Item::Call { id, tool, args } => {
                    tools.insert(*id, tool.clone());
                    let tool = tool.to_string().into();
                    let call = id.to_string().into();
                    let values = [("call", call), ("tool", tool), ("args", value_of(args)?)];
                    fill(&mut map, "assistant", values);
                }
                Item::Result { id, outcome } => {
                    let tool =
                        tools.remove(id).map_or(Dynamic::UNIT, |tool| tool.to_string().into());
                    let end = match outcome {
                        Ok(value) => ("result", value_of(value)?),
                        Err(error) => ("error", error.clone().into()),
                    };
                    fill(&mut map, "tool", [("call", id.to_string().into()), ("tool", tool), end]);
                }
            }
            shown.push(map.into());
        }
    }
    Ok(shown)
}

fn fill<const N: usize>(map: &mut Map, role: &str, values: [(&str, Dynamic); N]) {
    map.insert("role".into(), role.to_owned().into());
    map.extend(values.map(|(key, value)| (key.into(), value)));
}
