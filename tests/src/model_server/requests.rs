//! What was asked of the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::conversation::Api;
use super::serve::Shared;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its place among all requests, from 0.
    pub number: usize,
    pub method: String,
    /// With the query.
    pub path: String,
    /// By names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Null if it is not JSON.
    pub body: Value,
    /// None if the path is of no API.
    pub api: Option<Api>,
    /// The agent asks for itself, such as for a title.
    pub aside: bool,
    /// The user's last text.
    pub user: String,
    /// Names of the tools that are offered.
    pub tools: Vec<String>,
    pub end: End,
}

/// How far the answer to a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Being answered.
    Open,
    /// All of the answer was given out, whether it was whole or not.
    Answered,
    /// The client went away before.
    Dropped,
}

/// Notes how an answer ends, at the latest when it is dropped.
pub(super) struct Ending {
    pub(super) shared: Arc<Shared>,
    pub(super) number: usize,
}

impl Ending {
    pub(super) fn answered(&self) {
        self.shared.end(self.number, End::Answered);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.shared.end(self.number, End::Dropped);
    }
}
