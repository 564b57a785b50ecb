//! What is written: data to stdout, everything else to stderr.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is where it is written")]

use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;

use anstyle::{AnsiColor, Style};
use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage};

use crate::args::{Color, Format, Global};
use crate::error::Error;
use crate::escape;

/// How this process writes.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    pub(crate) format: Format,
    color: bool,
}

impl Output {
    pub(crate) fn new(global: &Global) -> Self {
        let color = match global.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                std::io::stdout().is_terminal()
                    && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        };
        Self { format: global.output, color }
    }

    pub(crate) fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// Text in a style, where colours are wanted.
    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        if self.color { escape::paint(style, text) } else { text.to_owned() }
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint(Style::new().dimmed(), text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    /// One of a few colours, the same for the same number.
    pub(crate) fn colored(self, number: usize, text: &str) -> String {
        const COLORS: [AnsiColor; 6] = [
            AnsiColor::Cyan,
            AnsiColor::Green,
            AnsiColor::Yellow,
            AnsiColor::Magenta,
            AnsiColor::Blue,
            AnsiColor::BrightRed,
        ];
        self.paint(COLORS[number % COLORS.len()].on_default(), text)
    }

    /// Writes a response: as JSON, or as the table that `show` makes of it.
    pub(crate) fn response<M: Message + Name>(
        self,
        response: &M,
        show: impl FnOnce(&M),
    ) -> Result<(), Error> {
        if self.is_json() {
            json_line(&json(response, true)?);
        } else {
            show(response);
        }
        Ok(())
    }

    /// Writes an item of a stream: as one line of JSON, or as `show` makes of it.
    pub(crate) fn item<M: Message + Name>(
        self,
        item: &M,
        show: impl FnOnce(&M),
    ) -> Result<(), Error> {
        if self.is_json() {
            json_line(&json(item, false)?);
        } else {
            show(item);
        }
        Ok(())
    }
}

/// A message as canonical protobuf JSON.
pub(crate) fn json<M: Message + Name>(message: &M, pretty: bool) -> Result<String, Error> {
    static POOL: OnceLock<Option<DescriptorPool>> = OnceLock::new();
    let failed = |why: &str| Error::failed(format!("the response could not be written: {why}"));
    let pool = POOL.get_or_init(|| DescriptorPool::decode(substrat_proto::DESCRIPTORS).ok());
    let pool = pool.as_ref().ok_or_else(|| failed("the schema does not read"))?;
    let descriptor = pool
        .get_message_by_name(&M::full_name())
        .ok_or_else(|| failed("the schema does not know it"))?;
    let dynamic = DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice())
        .map_err(|error| failed(&error.to_string()))?;
    let text = if pretty {
        serde_json::to_string_pretty(&dynamic)
    } else {
        serde_json::to_string(&dynamic)
    };
    text.map_err(|error| failed(&error.to_string()))
}

/// Writes a line to stdout. A reader that went away ends the process, as it ends other tools.
pub(crate) fn line(text: &str) {
    write(&format!("{text}\n"));
}

/// Writes text to stdout; on a terminal, nothing in it is a command to that.
pub(crate) fn write(text: &str) {
    write_out(&shown(text));
}

/// Text as it is to be written to stdout.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    if is_terminal() { escape::visible(text) } else { escape::styled(text) }
}

fn json_line(text: &str) {
    let text = if is_terminal() { escape::visible_json(text) } else { text.into() };
    write_out(&format!("{text}\n"));
}

fn is_terminal() -> bool {
    static IS_TERMINAL: OnceLock<bool> = OnceLock::new();
    *IS_TERMINAL.get_or_init(|| std::io::stdout().is_terminal())
}

fn write_out(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    if written.is_err() {
        std::process::exit(0);
    }
}

/// Writes a line to stderr; on a terminal, nothing in it is a command to that.
pub(crate) fn note(text: &str) {
    let mut stderr = std::io::stderr();
    let text = if stderr.is_terminal() { escape::visible(text) } else { escape::styled(text) };
    // Nothing is left to be done about a stderr that is gone.
    let _ = writeln!(stderr, "{text}");
}

/// Says what failed as one line of JSON, for a program that reads stdout as JSON.
pub(crate) fn complain_in_json(error: &Error) {
    let Error { message, hint, reason, .. } = error;
    let exit_code = error.exit_code();
    let error = serde_json::json!({
        "error": { "message": message, "hint": hint, "reason": reason, "exitCode": exit_code },
    });
    note(&error.to_string());
}

/// Lines of a message that are shown.
const MOST_LINES: usize = 20;
/// Of a message of more, so many are shown of its end, which names the reason.
const LAST_LINES: usize = 14;

/// Says what failed, why, and what to do next.
pub(crate) fn complain(error: &Error, verbose: bool) {
    let mut lines = told(&error.message).into_iter();
    note(&format!("error: {}", lines.next().as_deref().unwrap_or("something failed")));
    lines.for_each(|line| note(format!("  {line}").trim_end()));
    if !error.hint.is_empty() {
        note(&format!("hint: {}", error.hint));
    }
    if verbose && !error.reason.is_empty() {
        note(&format!("reason: {} (docs/errors/{0}.md)", error.reason));
    }
}

/// The lines of a message that are shown: all, or the first and the last ones of many.
fn told(message: &str) -> Vec<Cow<'_, str>> {
    let mut lines: Vec<Cow<'_, str>> = message.lines().map(Cow::Borrowed).collect();
    if lines.len() > MOST_LINES {
        // One line says how many are left out.
        let left_out = MOST_LINES - LAST_LINES - 1..lines.len() - LAST_LINES;
        let more = format!("… {} left out …", count(left_out.len() as u64, "line"));
        lines.splice(left_out, [Cow::Owned(more)]);
    }
    lines
}

/// Rows under headings, cut to the width of the terminal.
pub(crate) struct Table {
    headings: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: &'static [&'static str]) -> Self {
        Self { headings, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.headings.len());
        self.rows.push(cells);
    }

    /// Writes the table, or a line that says that there is nothing.
    pub(crate) fn print(&self, output: Output, nothing: &str) {
        if self.rows.is_empty() {
            return note(nothing);
        }
        let mut widths: Vec<usize> = self.headings.iter().map(|text| text.len()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        if let Some(most) = terminal_width() {
            fit(&mut widths, most);
        }
        let mut text = output.bold(&render(self.headings.iter().copied(), &widths));
        for row in &self.rows {
            text.push('\n');
            text.push_str(&render(row.iter().map(String::as_str), &widths));
        }
        line(&text);
    }
}

/// Makes columns narrower, the widest first, until all fit beside each other.
fn fit(widths: &mut [usize], most: usize) {
    const LEAST: usize = 8;
    const GAP: usize = 2;
    loop {
        let total = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let widest = widths.iter_mut().max_by_key(|width| **width);
        match widest {
            Some(widest) if total > most && *widest > LEAST => *widest -= 1,
            _ => return,
        }
    }
}

fn render<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
    let cells: Vec<String> = cells
        .zip(widths)
        .map(|(cell, width)| {
            let shown = |c| if escape::is_unseen(c) { ' ' } else { c };
            let cell: String = cell.chars().map(shown).collect();
            let length = cell.chars().count();
            if length > *width {
                let cut: String = cell.chars().take(width.saturating_sub(1)).collect();
                format!("{cut}…")
            } else {
                format!("{cell}{}", " ".repeat(width - length))
            }
        })
        .collect();
    cells.join("  ").trim_end().to_owned()
}

/// Columns of the terminal that stdout is; none if it is none.
pub(crate) fn terminal_width() -> Option<usize> {
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok())??;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// A number of things, such as "1 turn" or "2 turns".
pub(crate) fn count(number: impl Into<u64>, thing: &str) -> String {
    let number = number.into();
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{ending}")
}

/// The start of an id, as tables show it.
pub(crate) fn short_id(id: &str) -> String {
    id.chars().take(8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_cut_to_the_terminal() {
        let mut widths = [4, 60, 8];
        fit(&mut widths, 40);
        assert_eq!(widths, [4, 24, 8]);
        let row = render(["abcd", &"x".repeat(60), "é"].into_iter(), &widths);
        assert_eq!(row.chars().count(), 4 + 2 + 24 + 2 + 1);
        assert!(row.contains("x…  é"));
    }

    #[test]
    fn of_a_long_message_the_start_and_the_end_are_told() {
        let message = |count: usize| {
            let lines: Vec<String> = (1..=count).map(|line| format!("line {line}")).collect();
            lines.join("\n")
        };
        assert_eq!(told(""), [""; 0]);
        assert_eq!(told("one\n\ntwo\r\n"), ["one", "", "two"]);
        assert_eq!(told(&message(20)).join("\n"), message(20));
        let (many, more) = (message(40), told(&message(21)).len());
        let many = told(&many);
        assert_eq!((many.len(), more), (20, 20));
        assert_eq!(many[4..7], ["line 5", "… 21 lines left out …", "line 27"]);
        assert_eq!(many[19], "line 40");
    }

    #[test]
    fn json_is_canonical() {
        let agent = substrat_proto::v1::Agent {
            name: "a".into(),
            state: substrat_proto::v1::AgentState::Busy.into(),
            last_sequence: 7,
            ..Default::default()
        };
        assert_eq!(
            json(&agent, false).unwrap(),
            r#"{"name":"a","state":"AGENT_STATE_BUSY","lastSequence":"7"}"#
        );
    }
}
