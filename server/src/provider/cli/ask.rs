//! What a program says outside of sessions: its version, and its models.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::install::Installed;
use super::provider::Inner;
use super::{Listing, home};
use crate::launcher::{Ends, Exit, HOME, Launch, Launcher};
use crate::model::{FailureClass, SessionId};
use crate::provider::failure::{Failed, FailureKind};
use crate::provider::registry::written;
use crate::provider::secret::Secrets;
use crate::provider::{Failure, Model};

/// How long a CLI may take to list its models.
const LIST: Duration = Duration::from_secs(30);
/// Bytes of the longest list.
const MAX_LIST: usize = 1 << 20;
/// Most bytes of what it complains of that are read.
const MAX_WORDS: usize = 4 << 10;

/// What a program wrote until it ended.
pub(super) struct Heard {
    pub(super) exit: Exit,
    pub(super) said: String,
    complained: String,
}

/// Runs a program to its end, and reads as many bytes of its output at most.
pub(super) async fn hear(
    launcher: &Launcher,
    launch: Launch,
    most: usize,
) -> Result<Heard, String> {
    let launched = launcher.start(launch).await;
    let mut launched = launched.map_err(|error| error.to_string())?;
    let Ends::Pipes { stdin, stdout, stderr } = launched.ends else {
        return Err("it has no pipes".to_owned());
    };
    drop(stdin);
    let read = tokio::try_join!(start_of(stdout, most), start_of(stderr, MAX_WORDS));
    let (said, complained) = read.map_err(|error| error.to_string())?;
    Ok(Heard { exit: launched.process.wait().await, said, complained })
}

/// The first bytes of what comes out of a pipe. What is written beyond them breaks it.
async fn start_of(pipe: impl AsyncRead + Unpin, most: usize) -> std::io::Result<String> {
    let mut start = Vec::new();
    pipe.take(most as u64).read_to_end(&mut start).await?;
    Ok(String::from_utf8_lossy(&start).into_owned())
}

/// A home that is gone with what is asked. It is named as one of a session that nobody has, so that
/// the next daemon removes what a killed one left.
struct Home {
    folder: PathBuf,
    session: SessionId,
}

impl Home {
    fn new(folder: &Path) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let session = SessionId::from_u128(COUNT.fetch_add(1, Ordering::Relaxed).into());
        Self { folder: folder.to_owned(), session }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = home::remove(&self.folder, self.session) {
            tracing::warn!(%error, "a home in which models were listed was not removed");
        }
    }
}

impl Inner {
    /// Has the program list its models.
    pub(super) async fn models(self: Arc<Self>) -> Result<Vec<Model>, Failure> {
        let name = &self.config.name;
        let Some(listing) = self.cli.models(&self.config) else {
            return Err(Failure::permanent(format!(
                "{name} does not tell its models: name one that it knows with --model, or as model \
                 in [providers.{}]",
                written(name)
            )));
        };
        let installed = self.find()?;
        if let Some(problem) = self.lacks_key() {
            return Err(Failure::new(FailureClass::Auth, problem));
        }
        let asked = tokio::time::timeout(LIST, self.list(&installed, listing)).await;
        asked.unwrap_or_else(|_| {
            let late = format!("{name} did not list its models within {} s", LIST.as_secs());
            Err(Failure::new(FailureClass::Stalled, late))
        })
    }

    /// Asks in a sandbox with a home that is empty but for what every session's has: it sees no
    /// workspace, and reaches what it reaches with the network off.
    async fn list(
        &self,
        installed: &Installed,
        Listing { command, read }: Listing,
    ) -> Result<Vec<Model>, Failure> {
        let config = &self.config;
        let key = config.secret().await?;
        let sandboxed = self.launcher.confines().await;
        let own = Home::new(&self.folder);
        let host = home::path(&own.folder, own.session, &config.name);
        let files: Vec<_> = command.files.into_iter().chain(config.files.clone()).collect();
        let binds = self.settle_in(&host, &files, installed, sandboxed).map_err(|error| {
            let message = format!("its home {} cannot be made: {error}", host.display());
            Failure::new(FailureClass::Sandbox, message)
        })?;
        let (mut env, mut secrets) = (command.env, Secrets::default());
        let at = if sandboxed { HOME.to_owned() } else { host.to_string_lossy().into_owned() };
        env.insert("HOME".to_owned(), at);
        env.extend(config.env.clone());
        if let Some(key) = &key {
            env.insert(config.key_as.clone(), key.expose().to_owned());
            secrets.add(key);
        }
        let launch = Launch {
            argv: installed.argv().into_iter().chain(command.args).collect(),
            env,
            binds,
            endpoints: config.endpoints.clone(),
            ..Launch::default()
        };
        let heard = hear(&self.launcher, launch, MAX_LIST).await;
        let heard = heard.map_err(|problem| Failure::new(FailureClass::Sandbox, problem))?;
        let models = listed(&config.name, &heard, read);
        models.map_err(|failed| {
            let message = secrets.hide(&failed.message);
            Failed { message, ..failed }.into()
        })
    }
}

/// The models of what a program wrote.
fn listed(
    name: &str,
    heard: &Heard,
    read: impl Fn(&str) -> Vec<Model>,
) -> Result<Vec<Model>, Failed> {
    let Heard { exit, said, complained } = heard;
    if said.len() >= MAX_LIST {
        let long = format!("{name} wrote more than {MAX_LIST} bytes for a list of its models");
        return Err(Failed::new(FailureKind::Protocol, long));
    }
    let models = read(said);
    if *exit == Exit::Code(0) && !models.is_empty() {
        return Ok(models);
    }
    // Where it complains depends on the version.
    let words = [complained, said].map(|words| words.trim());
    let words = words.into_iter().find(|words| !words.is_empty()).unwrap_or_default();
    let words = &words[..words.floor_char_boundary(MAX_WORDS)];
    let kind = match words.to_lowercase().contains("authentication required") {
        true => FailureKind::Auth,
        false => FailureKind::Other,
    };
    let came = match exit {
        Exit::Code(0) => String::new(),
        exit => format!(" ({exit})"),
    };
    let words = if words.is_empty() { String::new() } else { format!(": {words}") };
    Err(Failed::of_text(format!("{name} listed no models{came}{words}"), kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came(exit: Exit, said: &str, complained: &str) -> Result<usize, (FailureKind, String)> {
        let (said, complained) = (said.to_owned(), complained.to_owned());
        let heard = Heard { exit, said, complained };
        let read = |said: &str| vec![Model::default(); said.lines().count()];
        let models = listed("cli", &heard, read).map(|models| models.len());
        models.map_err(|failed| (failed.kind, failed.message))
    }

    #[test]
    fn a_list_counts_if_its_program_ended_well() {
        assert_eq!(came(Exit::Code(0), "a\nb", "a warning"), Ok(2));
        let no = |kind, words: &str| Err((kind, format!("cli listed no models{words}")));
        assert_eq!(came(Exit::Code(0), "", ""), no(FailureKind::Other, ""));
        assert_eq!(
            came(Exit::Code(1), "a", "Error: Authentication required."),
            no(FailureKind::Auth, " (exit 1): Error: Authentication required."),
        );
        assert_eq!(
            came(Exit::Code(1), "T: connection refused", ""),
            no(FailureKind::Network, " (exit 1): T: connection refused"),
        );
        let long = came(Exit::Code(0), &"a\n".repeat(MAX_LIST / 2), "");
        assert_eq!(long.map_err(|(kind, _)| kind), Err(FailureKind::Protocol));
    }
}
