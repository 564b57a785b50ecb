//! What the user types: edited lines from a terminal, plain lines from anything else.

use std::io::{BufRead, IsTerminal};
use std::sync::Mutex;
use std::sync::mpsc as blocking;

use rustyline::error::ReadlineError;
use rustyline::{DefaultEditor, ExternalPrinter};
use tokio::sync::mpsc;

use crate::output::{shown, write};

/// What was typed.
pub(super) enum Typed {
    /// A line.
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// No more comes.
    End,
}

/// Reads what is typed on a thread of its own, and writes around it.
pub(super) struct Console {
    typed: mpsc::UnboundedReceiver<Typed>,
    /// Asks for a line under a prompt; none when there is no terminal.
    prompts: Option<blocking::Sender<String>>,
    /// Writes above a prompt that is shown.
    printer: Option<Mutex<Box<dyn ExternalPrinter + Send>>>,
    /// Whether a prompt is shown.
    prompting: bool,
    ended: bool,
}

impl Console {
    pub(super) fn start(plain: bool) -> Self {
        let (sender, typed) = mpsc::unbounded_channel();
        let console = Self { typed, prompts: None, printer: None, prompting: false, ended: false };
        let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let editor = if terminal && !plain { DefaultEditor::new().ok() } else { None };
        let Some(mut editor) = editor else {
            std::thread::spawn(move || read_lines(&sender));
            return console;
        };
        let printer = editor.create_external_printer().ok();
        let (prompts, asked) = blocking::channel::<String>();
        std::thread::spawn(move || edit_lines(&mut editor, &asked, &sender));
        let printer = printer.map(|printer| -> Mutex<Box<dyn ExternalPrinter + Send>> {
            Mutex::new(Box::new(printer))
        });
        Self { prompts: Some(prompts), printer, ..console }
    }

    /// Whether somebody sits at a terminal.
    pub(super) fn is_terminal(&self) -> bool {
        self.prompts.is_some()
    }

    /// Asks for a line, unless that was done already.
    pub(super) fn prompt(&mut self, name: &str) {
        if let Some(prompts) = self.prompts.as_ref().filter(|_| !self.prompting) {
            // A thread that has ended has said so.
            self.prompting = prompts.send(format!("{name}> ")).is_ok();
        }
    }

    /// What is typed next; never, once no more comes.
    pub(super) async fn next(&mut self) -> Typed {
        if self.ended {
            return std::future::pending().await;
        }
        let typed = if self.prompting || self.prompts.is_none() {
            tokio::select! {
                typed = self.typed.recv() => typed,
                _ = tokio::signal::ctrl_c() => Some(Typed::Interrupt),
            }
        } else {
            // Nothing is being edited, so Ctrl-C is a signal.
            let _ = tokio::signal::ctrl_c().await;
            Some(Typed::Interrupt)
        };
        let typed = typed.unwrap_or(Typed::End);
        self.prompting = false;
        self.ended = matches!(typed, Typed::End);
        typed
    }

    /// Whether a prompt is shown: text must then come in whole lines.
    pub(super) fn is_prompting(&self) -> bool {
        self.prompting
    }

    /// Writes text; above the prompt if one is shown.
    pub(super) fn write(&self, text: &str) {
        let printer = self.printer.as_ref().filter(|_| self.prompting);
        match printer.and_then(|printer| printer.lock().ok()) {
            Some(mut printer) => {
                // A terminal that is gone is noticed where it is read.
                let _ = printer.print(shown(text).into_owned());
            }
            None => write(text),
        }
    }
}

fn read_lines(typed: &mpsc::UnboundedSender<Typed>) {
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if typed.send(Typed::Line(line)).is_err() {
            return;
        }
    }
    // Nobody may listen any more.
    let _ = typed.send(Typed::End);
}

fn edit_lines(
    editor: &mut DefaultEditor,
    asked: &blocking::Receiver<String>,
    typed: &mpsc::UnboundedSender<Typed>,
) {
    for prompt in asked {
        let read = match editor.readline(&prompt) {
            Ok(line) => {
                // A history that is full forgets its oldest line.
                let _ = editor.add_history_entry(&line);
                Typed::Line(line)
            }
            Err(ReadlineError::Interrupted) => Typed::Interrupt,
            Err(_) => Typed::End,
        };
        if typed.send(read).is_err() {
            return;
        }
    }
}
