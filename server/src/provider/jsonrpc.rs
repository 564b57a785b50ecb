//! JSON-RPC over lines, as ACP and the app-server of Codex speak it: both sides ask, each with ids
//! of its own.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::activity::RequestId;
use super::lines::quote;
use super::progress::MAX_ID;

/// The method is none that is known.
pub const METHOD_NOT_FOUND: i64 = -32601;

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// The other side asks.
    Request {
        /// Names the request among those of the other side.
        id: RequestId,
        /// What is asked.
        method: String,
        /// With what.
        params: Value,
    },
    /// The other side tells.
    Notification {
        /// What is told.
        method: String,
        /// With what.
        params: Value,
    },
    /// The other side answers.
    Response {
        /// Names the request among those of this side.
        id: RequestId,
        /// The answer.
        result: Result<Value, Error>,
    },
}

/// Why a request was not answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Error {
    /// Its number.
    pub code: i64,
    /// In words.
    pub message: String,
    /// More.
    pub data: Value,
}

/// Reads a line. None if it is no message.
pub fn read(line: &str) -> Option<Message> {
    let Ok(Value::Object(mut message)) = serde_json::from_str(line) else { return None };
    let id = match message.remove("id") {
        Some(Value::Null) | None => None,
        // It would be answered with as much.
        Some(Value::String(id)) if id.len() > MAX_ID => return None,
        Some(id) => Some(serde_json::from_value(id).ok()?),
    };
    let mut take = |key: &str| message.remove(key);
    match (take("method"), id) {
        (Some(Value::String(method)), Some(id)) => {
            Some(Message::Request { id, method, params: take("params").unwrap_or_default() })
        }
        (Some(Value::String(method)), None) => {
            Some(Message::Notification { method, params: take("params").unwrap_or_default() })
        }
        (None, Some(id)) => {
            let result = match take("error") {
                Some(Value::Object(mut error)) => Err(Error {
                    code: error.get("code").and_then(Value::as_i64).unwrap_or_default(),
                    message: match error.remove("message") {
                        Some(Value::String(message)) => message,
                        _ => String::new(),
                    },
                    data: error.remove("data").unwrap_or_default(),
                }),
                _ => Ok(take("result")?),
            };
            Some(Message::Response { id, result })
        }
        _ => None,
    }
}

/// The requests of this side that are not answered yet, and the lines of this side. `T` is what is
/// remembered of a request.
#[derive(Debug)]
pub struct Calls<T> {
    /// Whether messages say which version they are of.
    versioned: bool,
    next: i64,
    open: BTreeMap<i64, T>,
}

impl<T> Calls<T> {
    /// No requests.
    pub fn new(versioned: bool) -> Self {
        Self { versioned, next: 0, open: BTreeMap::new() }
    }

    /// The line of a request.
    pub fn call(&mut self, what: T, method: &str, params: &Value) -> String {
        let id = self.next;
        self.next += 1;
        self.open.insert(id, what);
        self.line(json!({"id": id, "method": method, "params": params}))
    }

    /// A request with an id of someone else's choice, which a test found in a capture.
    #[cfg(test)]
    pub fn expect(&mut self, id: i64, what: T) {
        self.open.insert(id, what);
    }

    /// What was remembered of a request that is answered now.
    pub fn take(&mut self, id: &RequestId) -> Option<T> {
        match id {
            RequestId::Number(id) => self.open.remove(id),
            RequestId::Text(_) => None,
        }
    }

    /// What is remembered of the requests that are open, oldest first.
    pub fn open(&self) -> impl Iterator<Item = &T> {
        self.open.values()
    }

    /// The line of a notification.
    pub fn notification(&self, method: &str, params: Option<&Value>) -> String {
        self.line(match params {
            Some(params) => json!({"method": method, "params": params}),
            None => json!({"method": method}),
        })
    }

    /// The line of an answer.
    pub fn answer(&self, id: &RequestId, result: &Value) -> String {
        self.line(json!({"id": id, "result": result}))
    }

    /// The line of a refusal.
    pub fn refuse(&self, id: &RequestId, code: i64, message: &str) -> String {
        self.line(json!({"id": id, "error": {"code": code, "message": message}}))
    }

    /// The line of a refusal of what nobody here can do.
    pub fn unsupported(&self, id: &RequestId, method: &str) -> String {
        let refused = format!("{} is not supported", quote(method.as_bytes()));
        self.refuse(id, METHOD_NOT_FOUND, &refused)
    }

    fn line(&self, mut message: Value) -> String {
        if self.versioned {
            message["jsonrpc"] = json!("2.0");
        }
        format!("{message}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_both_sides_are_kept_apart() {
        let mut calls = Calls::new(true);
        let line = calls.call("mine", "ask", &json!({}));
        assert_eq!(
            serde_json::from_str::<Value>(&line).unwrap(),
            json!({"jsonrpc": "2.0", "id": 0, "method": "ask", "params": {}}),
        );
        let theirs = read(r#"{"params":[1],"id":0,"method":"ask"}"#);
        let id = RequestId::Number(0);
        assert!(matches!(theirs, Some(Message::Request { id: theirs, .. }) if theirs == id));
        assert_eq!(calls.take(&RequestId::Text("0".to_owned())), None);
        assert_eq!(calls.take(&id), Some("mine"));
        assert_eq!(calls.take(&id), None);
        assert!(!Calls::<()>::new(false).refuse(&id, 1, "no").contains("jsonrpc"));
    }

    #[test]
    fn what_is_answered_is_not_as_long_as_what_was_asked() {
        let id = "x".repeat(2 << 10);
        assert_eq!(read(&json!({"id": id, "method": "m"}).to_string()), None);
        let refusal = Calls::<()>::new(true).unsupported(&RequestId::Number(0), &id);
        assert!(refusal.len() < 300, "{refusal}");
    }

    #[test]
    fn messages_are_told_by_what_they_hold() {
        let error = r#"{"error":{"code":-32600,"message":"no"},"id":10}"#;
        let Some(Message::Response { id, result: Err(error) }) = read(error) else { panic!() };
        assert_eq!((id, error.code), (RequestId::Number(10), -32600));
        assert!(matches!(read(r#"{"method":"m"}"#), Some(Message::Notification { .. })));
        assert!(matches!(read(r#"{"id":"x","result":null}"#), Some(Message::Response { .. })));
        for line in ["", "1", "[]", "{}", r#"{"id":1.5,"method":"m"}"#, r#"{"id":1}"#, "{\"id\":"] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
