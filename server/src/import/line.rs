//! Lines of a log of the Python Substrat.
//!
//! A line is `{"session_id":"<hex>","ts":"<ISO 8601>","event":"turn.start","data":{…}}` in ASCII,
//! without a `seq`. An entry was written to `events.pending` and synced, appended to
//! `events.jsonl` and synced, and acknowledged only then.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::{AgentId, SessionId, Timestamp};

/// One event of a log.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) at: Timestamp,
    pub(super) event: String,
    data: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Raw<'a> {
    session_id: Option<SessionId>,
    ts: Timestamp,
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

impl Line {
    /// Reads a line of a session, with or without its newline.
    pub(super) fn read(bytes: &[u8], session: SessionId) -> Option<Self> {
        let raw: Raw<'_> = serde_json::from_slice(bytes).ok()?;
        let own = raw.session_id.is_none_or(|id| id == session);
        own.then(|| Self { at: raw.ts, event: raw.event.into_owned(), data: raw.data.map(whole) })
    }

    /// Its data; none where a key is missing or of the wrong type.
    pub(super) fn data<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.data.as_ref().map_or("{}", |data| data.get())).ok()
    }
}

/// JSON without halves of surrogate pairs, which Python writes and which are no text: each becomes
/// U+FFFD.
fn whole(json: &RawValue) -> Box<RawValue> {
    let half = |at: &str, from: u32| {
        let digits = at.strip_prefix("\\u").and_then(|rest| rest.get(..4));
        let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        unit.is_some_and(|unit| (from..from + 0x400).contains(&unit))
    };
    let mut text = String::new();
    let mut rest = json.get();
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let (kept, length) = match (half(rest, 0xd800), half(rest, 0xdc00)) {
            (true, _) if rest.get(6..).is_some_and(|next| half(next, 0xdc00)) => (&rest[..12], 12),
            (false, false) => {
                let length = rest.floor_char_boundary(2);
                (&rest[..length], length)
            }
            _ => ("\\ufffd", 6),
        };
        text.push_str(kept);
        rest = &rest[length..];
    }
    if text.is_empty() {
        return json.to_owned();
    }
    text.push_str(rest);
    RawValue::from_string(text).unwrap_or_else(|_| json.to_owned())
}

/// What a log holds.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) lines: Vec<Line>,
    /// Lines that began with a torn write, which was never acknowledged.
    pub(super) mended: u64,
    /// Whether the last line was torn, and stands in no `events.pending` either.
    pub(super) torn_tail: bool,
    /// Whether `events.pending` was torn.
    pub(super) torn_pending: bool,
    /// Number of the first line that cannot be read; those before it are taken.
    pub(super) damaged: Option<usize>,
}

impl Log {
    /// Reads `events.jsonl`, and `events.pending` if there is one.
    pub(super) fn read(log: &[u8], pending: Option<&[u8]>, session: SessionId) -> Self {
        let mut found = Self::default();
        let mut last: &[u8] = &[];
        for (number, line) in (1..).zip(log.split_inclusive(|byte| *byte == b'\n')) {
            match read_or_mend(line, session) {
                Some((read, mended)) => {
                    found.lines.push(read);
                    found.mended += u64::from(mended);
                    last = line;
                }
                None if line.ends_with(b"\n") => {
                    found.damaged = Some(number);
                    return found;
                }
                None => found.torn_tail = true,
            }
        }
        let Some(pending) = pending.filter(|pending| !pending.is_empty()) else { return found };
        match Line::read(pending, session) {
            None => found.torn_pending = true,
            Some(line) => {
                found.torn_tail = false;
                if last.trim_ascii_end() != pending.trim_ascii_end() {
                    found.lines.push(line);
                }
            }
        }
        found
    }
}

/// Reads a line. A torn `events.pending` was appended without a newline, so that the entry after
/// it, which was acknowledged, stands at the end of the same line; the boolean says so.
fn read_or_mend(line: &[u8], session: SessionId) -> Option<(Line, bool)> {
    if let Some(read) = Line::read(line, session) {
        return Some((read, false));
    }
    // Within a string its quotes would be escaped.
    const START: &[u8] = br#"{"session_id":""#;
    let starts = (1..line.len().saturating_sub(START.len())).rev();
    let mut entries = starts.filter(|at| line[*at..].starts_with(START));
    entries.find_map(|at| Some((Line::read(&line[at..], session)?, true)))
}

/// Data of `agent.created`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Created {
    pub(super) agent_id: AgentId,
    #[serde(default)]
    pub(super) name: String,
    pub(super) parent_session_id: Option<SessionId>,
    #[serde(default)]
    pub(super) instructions: String,
    /// Scope and name.
    pub(super) workspace: Option<(AgentId, String)>,
    pub(super) metadata: Option<BTreeMap<String, Value>>,
}

/// Text of a value that ought to be text.
pub(super) fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Labels, as texts.
pub(super) fn labels(values: Option<BTreeMap<String, Value>>) -> BTreeMap<String, String> {
    values.unwrap_or_default().into_iter().map(|(key, value)| (key, text(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId::from_u128(7);

    fn entry(prompt: &str) -> Vec<u8> {
        format!(
            "{{\"session_id\":\"{SESSION}\",\"ts\":\"2026-03-01T10:00:00.123456+00:00\",\
             \"event\":\"turn.start\",\"data\":{{\"prompt\":\"{prompt}\"}}}}\n"
        )
        .into_bytes()
    }

    fn prompts(log: &Log) -> Vec<String> {
        let data = |line: &Line| line.data::<BTreeMap<String, String>>().unwrap();
        log.lines.iter().map(|line| data(line)["prompt"].clone()).collect()
    }

    #[test]
    fn a_whole_pending_entry_is_taken_once_wherever_the_daemon_died() {
        let (first, second) = (entry("first"), entry("second"));
        for kept in 0..=second.len() {
            let log = [&first[..], &second[..kept]].concat();
            let found = Log::read(&log, Some(&second), SESSION);
            assert_eq!(prompts(&found), ["first", "second"], "{kept} bytes were appended");
            assert!(!found.torn_tail && found.damaged.is_none());
        }
    }

    #[test]
    fn a_torn_pending_entry_is_dropped_and_said() {
        let (first, second) = (entry("first"), entry("second"));
        for kept in 1..second.len() - 1 {
            let found = Log::read(&first, Some(&second[..kept]), SESSION);
            assert_eq!(prompts(&found), ["first"]);
            assert!(found.torn_pending);
        }
        assert!(!Log::read(&first, Some(b""), SESSION).torn_pending);
    }

    #[test]
    fn an_entry_glued_to_a_torn_one_is_not_lost() {
        let (torn, next) = (entry("torn {\\\"session_id\\\":\\\""), entry("acknowledged"));
        for cut in 1..torn.len() - 1 {
            let log = [&entry("first")[..], &torn[..cut], &next[..], &entry("last")[..]].concat();
            let found = Log::read(&log, None, SESSION);
            assert_eq!(prompts(&found), ["first", "acknowledged", "last"], "cut at {cut}");
            assert_eq!((found.mended, found.damaged), (1, None));
        }
    }

    #[test]
    fn halves_of_surrogate_pairs_are_replaced_and_whole_ones_kept() {
        for (escaped, text) in [
            ("\\ud83d\\ude00", "\u{1f600}"),
            ("a\\ud83d", "a\u{fffd}"),
            ("\\ude00b", "\u{fffd}b"),
            ("\\ud83d\\ud83d\\ude00", "\u{fffd}\u{1f600}"),
            ("\\\\ud83d", "\\ud83d"),
            ("gr\\u00fc\\n\\\"", "gr\u{fc}\n\""),
        ] {
            let found = Log::read(&entry(escaped), None, SESSION);
            assert_eq!(prompts(&found), [text], "{escaped}");
        }
    }

    #[test]
    fn a_torn_end_is_no_damage_and_a_bad_line_before_it_is() {
        let torn = [&entry("first")[..], &entry("second")[..20]].concat();
        let found = Log::read(&torn, None, SESSION);
        assert!(found.torn_tail && found.damaged.is_none());
        let bad = [&entry("first")[..], b"\0\0\0\n", &entry("third")[..]].concat();
        let found = Log::read(&bad, None, SESSION);
        assert_eq!((prompts(&found).len(), found.damaged), (1, Some(2)));
        let foreign = Log::read(&entry("first"), None, SessionId::from_u128(8));
        assert_eq!(foreign.damaged, Some(1));
    }
}
