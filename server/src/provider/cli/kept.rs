//! What a session keeps for its next process, with the kind of agent that can go on with it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::refusals::Refusals;
use crate::model::Blob;

/// The key of the kind, beside those of the dialogue.
const KIND: &str = "kind";
/// Keys of the session that a dialogue goes on with.
const SESSIONS: [&str; 2] = ["session_id", "thread_id"];
/// The key of how often a conversation was refused that was given up.
const REFUSALS: &str = "refusals";

/// What is saved of a conversation that was given up: nothing to go on with.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenUp {
    refusals: Refusals,
}

/// What a dialogue of a kind kept, as it is saved.
pub(super) fn write(kept: &Value, kind: &str) -> Option<Blob> {
    let mut kept = kept.clone();
    kept.as_object_mut()?.insert(KIND.to_owned(), kind.into());
    serde_json::to_vec(&kept).ok().map(Blob::from)
}

/// What was saved for a dialogue of a kind; none if another kind left it, or nobody of these. What
/// names a session and no kind is of a time at which none was named.
pub(super) fn read(saved: &Blob, kind: &str) -> Option<Value> {
    let mut kept: Value = serde_json::from_slice(saved.as_slice()).ok()?;
    if kept.get(REFUSALS).is_some() {
        return None;
    }
    let of = kept.as_object_mut()?.remove(KIND);
    let is_own = match of {
        Some(of) => of == kind,
        None => SESSIONS.iter().any(|key| kept[*key].is_string()),
    };
    is_own.then_some(kept)
}

/// Whether a command-line agent left this. It knows nothing of turns that others ran since.
pub(crate) fn is_of_agent(saved: &Blob) -> bool {
    let kept = serde_json::from_slice::<Value>(saved.as_slice()).unwrap_or_default();
    let named = kept[KIND].is_string() && SESSIONS.iter().any(|key| kept[*key].is_string());
    named || serde_json::from_value::<GivenUp>(kept).is_ok()
}

/// What is saved of a conversation that was given up, with how often it was refused.
pub(super) fn given_up(refusals: Refusals) -> Blob {
    let kept = serde_json::to_vec(&GivenUp { refusals });
    kept.map_or_else(|_| nothing(), Blob::from)
}

/// How often the conversation was refused that was given up, if one was.
pub(super) fn refusals(saved: &Blob) -> Refusals {
    let kept = serde_json::from_slice::<Value>(saved.as_slice()).unwrap_or_default();
    serde_json::from_value(kept[REFUSALS].clone()).unwrap_or_default()
}

/// Stands for what is not to be gone on with.
pub(crate) fn nothing() -> Blob {
    Blob::from(b"null".to_vec())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_kept_is_for_the_kind_that_kept_it() {
        let kept = json!({"session_id": "s"});
        let saved = write(&kept, "a").unwrap();
        assert_eq!(read(&saved, "a"), Some(kept.clone()));
        assert_eq!(read(&saved, "b"), None);
        assert!(is_of_agent(&saved));
        let given_up = Refusals { overflows: 2, others: 0 };
        let blob = super::given_up(given_up);
        assert_eq!((read(&blob, "a"), is_of_agent(&blob)), (None, true));
        assert_eq!((refusals(&blob), refusals(&saved)), (given_up, Refusals::default()));
        let old = Blob::from(kept.to_string().into_bytes());
        assert_eq!(read(&old, "b"), Some(kept));
        let of_script =
            [json!({"count": 3}), json!({"kind": "x"}), json!({"refusals": 2}), json!([])];
        let of_script = of_script.map(|kept| Blob::from(kept.to_string().into_bytes()));
        for other in of_script.into_iter().chain([nothing(), Blob::from(b"no JSON".to_vec())]) {
            assert_eq!((read(&other, "a"), is_of_agent(&other)), (None, false));
        }
    }
}
