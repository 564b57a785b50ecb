//! What a session keeps for its next process, with the kind of agent that can go on with it.

use serde_json::Value;

use super::refusals::Refusals;
use crate::model::Blob;

/// The key of the kind, beside those of the dialogue.
const KIND: &str = "kind";
/// The key of how often a conversation was refused that was given up.
const REFUSALS: &str = "refusals";

/// What a dialogue of a kind kept, as it is saved.
pub(super) fn write(kept: &Value, kind: &str) -> Option<Blob> {
    let mut kept = kept.clone();
    kept.as_object_mut()?.insert(KIND.to_owned(), kind.into());
    serde_json::to_vec(&kept).ok().map(Blob::from)
}

/// What was saved for a dialogue of a kind; none if another kind left it, or nobody of these. What
/// names no kind is of a time at which none was named.
pub(super) fn read(saved: &Blob, kind: &str) -> Option<Value> {
    let mut kept: Value = serde_json::from_slice(saved.as_slice()).ok()?;
    if kept.get(REFUSALS).is_some() {
        return None;
    }
    let of = kept.as_object_mut()?.remove(KIND);
    of.is_none_or(|of| of == kind).then_some(kept)
}

/// Whether a command-line agent left this. It knows nothing of turns that others ran since.
pub(in crate::provider) fn is_of_agent(saved: &Blob) -> bool {
    let kept = serde_json::from_slice::<Value>(saved.as_slice());
    kept.is_ok_and(|kept| kept.get(KIND).is_some_and(Value::is_string))
}

/// What is saved of a conversation that was given up: how often it was refused, and nothing to go
/// on with.
pub(super) fn given_up(refusals: Refusals) -> Blob {
    let kept = serde_json::json!({ REFUSALS: refusals });
    Blob::from(kept.to_string().into_bytes())
}

/// How often the conversation was refused that was given up, if one was.
pub(super) fn refusals(saved: &Blob) -> Refusals {
    let kept = serde_json::from_slice::<Value>(saved.as_slice()).unwrap_or_default();
    serde_json::from_value(kept[REFUSALS].clone()).unwrap_or_default()
}

/// Stands for what is not to be gone on with.
pub(in crate::provider) fn nothing() -> Blob {
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
        assert_eq!((read(&blob, "a"), is_of_agent(&blob)), (None, false));
        assert_eq!((refusals(&blob), refusals(&saved)), (given_up, Refusals::default()));
        let old = Blob::from(kept.to_string().into_bytes());
        assert_eq!(read(&old, "b"), Some(kept));
        for other in [nothing(), Blob::from(b"no JSON".to_vec()), Blob::from(b"[]".to_vec())] {
            assert_eq!((read(&other, "a"), is_of_agent(&other)), (None, false));
        }
    }
}
