//! How an agent is asked for its models: it tells them when a session is opened.

use super::protocol::{Answer, Client};
use super::reading;
use super::requests::Open;
use crate::provider::activity::{Event, TurnOver};
use crate::provider::cli::{self, Asked};
use crate::provider::failure::Failed;
use crate::provider::meter::Totals;

/// What is said to an agent until it has a session.
pub(super) struct Asking {
    client: Client,
    /// How it is authenticated, by its name for that.
    auth: Option<String>,
    /// Where the session works.
    cwd: String,
    version: &'static str,
}

impl Asking {
    pub(super) fn new(auth: Option<String>, cwd: String, version: &'static str) -> Self {
        Self { client: Client::new(Totals::default()), auth, cwd, version }
    }

    fn open(&mut self) -> String {
        self.client.open(Open::New, &self.cwd, &[])
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
                Event::Answer(Answer::Ready(ready)) => {
                    ready?;
                    next += &match self.auth.clone() {
                        Some(method) => self.client.authenticate(&method)?,
                        None => self.open(),
                    };
                }
                Event::Answer(Answer::Authenticated(done)) => {
                    done?;
                    next += &self.open();
                }
                Event::Answer(Answer::Opened(opened)) => {
                    return Ok(Asked::Models(reading::models(&opened?)));
                }
                Event::Answer(Answer::Done(..)) | Event::Activity(_) | Event::Over(_) => {}
            }
        }
        Ok(Asked::Next(next))
    }
}
