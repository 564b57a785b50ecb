//! What a parser remembers of a turn to keep what `activity` promises. Bounded, whatever a backend
//! writes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::OutputKind;
use super::activity::{Activity, Event, RequestId, TurnOver, carried};
use super::lines::quote;

/// Longest provisional piece, in bytes; a longer one is finished and another begun.
const MAX_PIECE: usize = 4 << 20;
/// Most tool calls that are open at once. More are not told.
const MAX_OPEN: usize = 256;
/// Most questions that are open at once.
const MAX_QUESTIONS: usize = 64;
/// Longest line that asks, in bytes: what it says is kept until it is answered.
const MAX_QUESTION: usize = 1 << 20;
/// Longest name of a call or a question, in bytes.
pub(super) const MAX_ID: usize = 1 << 10;

/// A turn as far as it is known. `A` is what a backend answers outside of turns, `Q` what is
/// remembered of a question.
#[derive(Debug)]
pub(super) struct Progress<A, Q> {
    out: Vec<Event<A>>,
    /// The provisional piece.
    piece: Option<(OutputKind, String)>,
    /// The last finished piece of the answer.
    said: Option<String>,
    /// Calls that started and did not end.
    tools: BTreeSet<String>,
    /// Whether a turn was over while a call ran.
    left_tools: bool,
    questions: BTreeMap<RequestId, Q>,
    /// Whether a line that is no message was told.
    strayed: bool,
    /// Length of the line that is read.
    line: usize,
}

impl<A, Q> Default for Progress<A, Q> {
    fn default() -> Self {
        Self {
            out: Vec::new(),
            piece: None,
            said: None,
            tools: BTreeSet::new(),
            left_tools: false,
            questions: BTreeMap::new(),
            strayed: false,
            line: 0,
        }
    }
}

impl<A, Q> Progress<A, Q> {
    /// What happened since the last time.
    pub(super) fn take(&mut self) -> Vec<Event<A>> {
        std::mem::take(&mut self.out)
    }

    /// A line is read.
    pub(super) fn begin(&mut self, line: &str) {
        self.line = line.len();
    }

    /// Something happened.
    pub(super) fn push(&mut self, event: impl Into<Event<A>>) {
        self.out.push(event.into());
    }

    /// Something that says no more than that the backend lives.
    pub(super) fn alive(&mut self) {
        self.push(Activity::Alive);
    }

    /// A line that is no message. The first of a turn is told; none shows that the backend lives.
    pub(super) fn stray(&mut self, line: &str) {
        if !std::mem::replace(&mut self.strayed, true) {
            let notice = format!("it wrote a line that is no message: {}", quote(line.as_bytes()));
            self.push(Activity::Notice(notice));
        }
    }

    /// A provisional piece of output.
    pub(super) fn delta(&mut self, kind: OutputKind, text: &str) {
        if text.is_empty() {
            return self.alive();
        }
        let fits = |(open, so_far): &(OutputKind, String)| {
            *open == kind && so_far.len() + text.len() <= MAX_PIECE
        };
        if !self.piece.as_ref().is_none_or(fits) {
            self.finish();
        }
        self.piece.get_or_insert_with(|| (kind, String::new())).1.push_str(text);
        self.push(Activity::Delta { kind, text: text.to_owned() });
    }

    /// A finished piece, in place of the provisional one.
    pub(super) fn text(&mut self, kind: OutputKind, text: String) {
        if text.is_empty() {
            return self.void();
        }
        self.piece = None;
        if kind == OutputKind::Text {
            self.said = Some(text.clone());
        }
        self.push(Activity::Text { kind, text });
    }

    /// Whether a piece of the answer is finished.
    pub(super) fn has_said(&self) -> bool {
        self.said.is_some()
    }

    /// The provisional piece is finished as it is.
    pub(super) fn finish(&mut self) {
        if let Some((kind, text)) = self.piece.take() {
            self.text(kind, text);
        }
    }

    /// The provisional piece.
    pub(super) fn provisional(&self) -> &str {
        self.piece.as_ref().map_or("", |(_, text)| text)
    }

    /// The provisional piece is void.
    pub(super) fn void(&mut self) {
        if self.piece.take().is_some() {
            self.push(Activity::Void);
        }
    }

    /// A tool starts.
    pub(super) fn start(&mut self, id: &str, tool: &str, input: &Value) {
        let room = self.tools.len() < MAX_OPEN && id.len() <= MAX_ID;
        if self.tools.contains(id) || !room {
            return self.alive();
        }
        self.finish();
        self.tools.insert(id.to_owned());
        let (id, tool) = (id.to_owned(), tool.to_owned());
        self.push(Activity::ToolStarted { id, tool, input: carried(input) });
    }

    /// Whether a tool call started and did not end.
    pub(super) fn is_running(&self, id: &str) -> bool {
        self.tools.contains(id)
    }

    /// Whether a turn was over while a tool ran: what it began may go on in the process.
    pub(super) fn left_tools(&self) -> bool {
        self.left_tools
    }

    /// A tool ended.
    pub(super) fn end(&mut self, id: &str, ok: bool, output: String) {
        if !self.tools.remove(id) {
            return self.alive();
        }
        self.finish();
        self.push(Activity::ToolEnded { id: id.to_owned(), ok, output });
    }

    /// Whether a question of this name could be asked.
    pub(super) fn can_ask(&self, request: &RequestId) -> bool {
        let is_short = match request {
            RequestId::Text(text) => text.len() <= MAX_ID,
            RequestId::Number(_) => true,
        };
        let has_room = self.questions.len() < MAX_QUESTIONS && self.line <= MAX_QUESTION;
        is_short && has_room && !self.questions.contains_key(request)
    }

    /// The backend asks. What is remembered of the question is given back with its answer.
    pub(super) fn ask(&mut self, request: &RequestId, question: Q, told: Activity) {
        self.questions.insert(request.clone(), question);
        self.push(told);
    }

    /// What was remembered of a question that is answered now. None if it is not open.
    pub(super) fn answer(&mut self, request: &RequestId) -> Option<Q> {
        self.questions.remove(request)
    }

    /// The questions that are open.
    pub(super) fn open_questions(&self) -> Vec<RequestId> {
        self.questions.keys().cloned().collect()
    }

    /// A question needs no answer any more.
    pub(super) fn withdraw(&mut self, request: &RequestId) {
        match self.questions.remove(request) {
            Some(_) => self.push(Activity::Withdrawn { request: request.clone() }),
            None => self.alive(),
        }
    }

    /// The turn is done, with the answer that the backend gives or else the last that it said.
    pub(super) fn complete(&mut self, response: Option<String>) {
        self.finish();
        let said = self.said.take();
        self.over(TurnOver::Completed { response: response.or(said).unwrap_or_default() });
    }

    /// The turn is over: what is open is closed. What a turn that failed said provisionally is void.
    pub(super) fn over(&mut self, over: TurnOver) {
        match over {
            TurnOver::Failed(_) => self.void(),
            TurnOver::Cancelled | TurnOver::Completed { .. } => self.finish(),
        }
        for request in self.open_questions() {
            self.withdraw(&request);
        }
        self.left_tools |= !self.tools.is_empty();
        for id in std::mem::take(&mut self.tools) {
            let output = "the turn was over before it ended".to_owned();
            self.push(Activity::ToolEnded { id, ok: false, output });
        }
        self.out.push(Event::Over(over));
        (self.said, self.strayed) = (None, false);
    }
}
