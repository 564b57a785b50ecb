//! What a program says outside of sessions: its version, and its models.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::install::Installed;
use super::provider::Inner;
use super::{Asked, Asking, Listing, Telling, VERSION, home};
use crate::launcher::{Ends, Exit, HOME, Launch, Launched, Launcher};
use crate::model::{FailureClass, SessionId};
use crate::provider::failure::{Failed, FailureKind, missing_program};
use crate::provider::lines::Lines;
use crate::provider::secret::{Secret, Secrets};
use crate::provider::{Failure, Model};

/// How long a CLI may take to list its models. Those that bring an interpreter take long to start
/// from a cold disk.
const LIST: Duration = Duration::from_secs(60);
/// Bytes of the longest list, with all that is said around it.
const MAX_LIST: usize = 8 << 20;
/// What is said of one that writes more.
const TOO_LONG: &str = "it wrote more than 8 MiB";
/// Bytes of the longest name of a model that is told.
const MAX_NAME: usize = 256;
/// Bytes that are read at a time.
const PIECE: usize = 16 << 10;
/// How long one that closed its output may take to end.
const END: Duration = Duration::from_secs(1);
/// What is said of one that does not.
const MUTE: &str = "it closed its output and did not end";
/// Most bytes of what it complains of that are read.
const MAX_WORDS: usize = 4 << 10;

/// What a program wrote until it ended.
pub(super) struct Heard {
    pub(super) exit: Exit,
    pub(super) said: String,
    pub(super) complained: String,
}

/// Why a program was not heard to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unheard {
    /// It could not be run.
    #[error("{0}")]
    NotRun(String),
    /// It took longer than it may, and was ended.
    #[error("it did not end within {} s", .0.as_secs())]
    Late(Duration),
}

impl From<Unheard> for Failure {
    fn from(unheard: Unheard) -> Self {
        let class = match unheard {
            Unheard::NotRun(_) => FailureClass::Sandbox,
            Unheard::Late(_) => FailureClass::Stalled,
        };
        Self::new(class, unheard.to_string())
    }
}

/// Runs a program to its end, and reads as many bytes of its output at most.
pub(super) async fn hear(
    launcher: &Launcher,
    launch: Launch,
    most: usize,
    patience: Duration,
) -> Result<Heard, Unheard> {
    let launched = launcher.start(launch).await;
    let Launched { mut process, ends, .. } =
        launched.map_err(|error| Unheard::NotRun(error.to_string()))?;
    let Ends::Pipes { stdin, stdout, stderr } = ends else {
        return Err(Unheard::NotRun("it has no pipes".to_owned()));
    };
    drop(stdin);
    let heard = async {
        let read = tokio::try_join!(start_of(stdout, most), start_of(stderr, MAX_WORDS));
        let (said, complained) = read.map_err(|error| Unheard::NotRun(error.to_string()))?;
        Ok(Heard { exit: process.wait().await, said, complained })
    };
    match timeout(patience, heard).await {
        Ok(heard) => heard,
        Err(_) => {
            process.kill().await;
            Err(Unheard::Late(patience))
        }
    }
}

/// The first bytes of what comes out of a pipe. What is written beyond them breaks it.
async fn start_of(pipe: impl AsyncRead + Unpin, most: usize) -> std::io::Result<String> {
    let mut start = Vec::new();
    pipe.take(most as u64).read_to_end(&mut start).await?;
    Ok(String::from_utf8_lossy(&start).into_owned())
}

/// Asks a program for its models, and ends it.
async fn ask(launched: Launched, mut asking: Box<dyn Asking>) -> Result<Vec<Model>, Failed> {
    let Launched { mut process, ends, .. } = launched;
    let Ends::Pipes { stdin, stdout, mut stderr } = ends else {
        return Err(Failed::new(FailureKind::Other, "it has no pipes"));
    };
    let mut words = Vec::new();
    let told = {
        let talk = timeout(LIST, talk(&mut *asking, stdin, stdout));
        tokio::pin!(talk);
        tokio::select! {
            told = &mut talk => told,
            () = listen(&mut stderr, &mut words) => talk.await,
        }
    };
    let late = |_| {
        let late = format!("it did not answer within {} s", LIST.as_secs());
        Err(Failed::new(FailureKind::Stalled, late))
    };
    let Some(models) = told.unwrap_or_else(late).transpose() else {
        // Its last words may be on their way.
        let _ = timeout(END, listen(&mut stderr, &mut words)).await;
        let words = String::from_utf8_lossy(&words);
        let Ok(exit) = timeout(END, process.wait()).await else {
            process.kill().await;
            let told = [MUTE, words.trim()].into_iter().filter(|part| !part.is_empty());
            let told = told.collect::<Vec<_>>().join(": ");
            return Err(Failed::of_text(told, FailureKind::Protocol));
        };
        return Err(complaint(exit, &words, FailureKind::Killed));
    };
    process.kill().await;
    models
}

/// Speaks with a program until its models are known. None if its output ended before.
async fn talk(
    asking: &mut dyn Asking,
    mut stdin: impl AsyncWrite + Unpin,
    mut stdout: impl AsyncRead + Unpin,
) -> Result<Option<Vec<Model>>, Failed> {
    let protocol = |problem: String| Failed::new(FailureKind::Protocol, problem);
    let (mut lines, mut piece, mut taken) = (Lines::lenient(), vec![0; PIECE], 0);
    // One that does not listen any more ends its output, too.
    let _ = stdin.write_all(asking.begin().as_bytes()).await;
    loop {
        while let Some(line) = lines.next() {
            let line = line.map_err(|broken| protocol(broken.to_string()))?;
            match asking.read(&line)? {
                Asked::Next(next) => drop(stdin.write_all(next.as_bytes()).await),
                Asked::Models(models) => return Ok(Some(models)),
            }
        }
        match stdout.read(&mut piece).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(count) => {
                taken += count;
                if taken > MAX_LIST {
                    return Err(protocol(TOO_LONG.to_owned()));
                }
                lines.push(&piece[..count]);
            }
        }
    }
}

/// Reads what is complained of to its end, and keeps the first of it.
async fn listen(pipe: &mut (impl AsyncRead + Unpin), words: &mut Vec<u8>) {
    let mut piece = vec![0; MAX_WORDS];
    while let Ok(count @ 1..) = pipe.read(&mut piece).await {
        let room = MAX_WORDS - words.len();
        words.extend_from_slice(&piece[..count.min(room)]);
    }
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
        let installed = self.find()?;
        if let Some(problem) = self.lacks_key() {
            return Err(Failure::new(FailureClass::Auth, problem));
        }
        let key = self.config.secret().await?;
        match self.list(&installed, key.as_ref()).await {
            Ok(models) if models.is_empty() => {
                Err(Failure::permanent(format!("{name} offers no choice of models")))
            }
            Ok(models) => Ok(models),
            Err(failure) => {
                let words = failure.message.as_str();
                let message = [&format!("{name} listed no models"), words];
                let message = message.into_iter().filter(|part| !part.is_empty());
                Err(Failure { message: message.collect::<Vec<_>>().join(": "), ..failure })
            }
        }
    }

    /// Why a program of a kind that stands for many does not do what its kind does: it opens no
    /// session in an empty home. None if it does. Nothing is seen of it without starting one.
    pub(super) async fn misfits(
        &self,
        installed: &Installed,
        key: Option<&Secret>,
    ) -> Option<String> {
        if !self.cli.about().programs.is_empty() {
            return None;
        }
        let failure = self.list(installed, key).await.err()?;
        let words = if failure.message.is_empty() { "it ended" } else { &failure.message };
        let name = &self.config.name;
        let kind = self.cli.about().kind;
        let page = match failure.class {
            FailureClass::Killed => format!("; docs/{kind}.md says how it is started"),
            _ => String::new(),
        };
        Some(format!("{name} opens no session: {words}{page}"))
    }

    /// Asks in a sandbox with a home that is empty but for what every session's has: it sees no
    /// workspace, and reaches what it reaches with the network off.
    async fn list(
        &self,
        installed: &Installed,
        key: Option<&Secret>,
    ) -> Result<Vec<Model>, Failure> {
        let config = &self.config;
        let sandboxed = self.launcher.confines().await;
        let own = Home::new(&self.folder);
        let host = home::path(&own.folder, own.session, &config.name);
        let at = if sandboxed { HOME.to_owned() } else { host.to_string_lossy().into_owned() };
        let Listing { command, telling } = self.cli.models(config, &at, VERSION);
        let files: Vec<_> = command.files.into_iter().chain(config.files.clone()).collect();
        let binds = self.settle_in(&host, &files, installed, sandboxed).map_err(|error| {
            let message = format!("its home {} cannot be made: {error}", host.display());
            Failure::new(FailureClass::Sandbox, message)
        })?;
        let (mut env, mut secrets) = (command.env, Secrets::default());
        env.insert("HOME".to_owned(), at);
        env.extend(config.env.clone());
        if let Some(key) = key {
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
        let models = match telling {
            Telling::Written(read) => {
                listed(&hear(&self.launcher, launch, MAX_LIST, LIST).await?, read)
            }
            Telling::Asked(asking) => {
                let launched = self.launcher.start(launch).await;
                let launched = launched.map_err(|error| Unheard::NotRun(error.to_string()))?;
                ask(launched, asking).await
            }
        };
        match models {
            // A name may hold whatever the program was given.
            Ok(models) => Ok(models
                .into_iter()
                .filter(|model| model.id.len() <= MAX_NAME && model.label.len() <= MAX_NAME)
                .map(|model| Model {
                    id: secrets.hide(&model.id),
                    label: secrets.hide(&model.label),
                    ..model
                })
                .collect()),
            Err(mut failed) => {
                failed.message = secrets.hide(&failed.message);
                if missing_program(&failed.message).is_some() {
                    failed.kind = FailureKind::Missing;
                }
                Err(self.advised(failed).into())
            }
        }
    }
}

/// The models of what a program wrote.
fn listed(heard: &Heard, read: impl Fn(&str) -> Vec<Model>) -> Result<Vec<Model>, Failed> {
    let Heard { exit, said, complained } = heard;
    if said.len() >= MAX_LIST {
        return Err(Failed::new(FailureKind::Protocol, TOO_LONG));
    }
    let models = read(said);
    if *exit == Exit::Code(0) && !models.is_empty() {
        return Ok(models);
    }
    // Where it complains depends on the version.
    let words = if complained.trim().is_empty() { said } else { complained };
    let otherwise = match exit {
        Exit::Code(0) => FailureKind::Other,
        _ => FailureKind::Killed,
    };
    Err(complaint(*exit, words, otherwise))
}

/// What a program that ended complained of, in its words. Empty if it ended well and says nothing.
/// Of the kind that is given if they say nothing of that.
pub(super) fn complaint(exit: Exit, words: &str, otherwise: FailureKind) -> Failed {
    let words = words.trim();
    let words = &words[..words.floor_char_boundary(MAX_WORDS)];
    let kind = match words.to_lowercase().contains("authentication required") {
        true => FailureKind::Auth,
        false => otherwise,
    };
    let message = match (exit, words) {
        (Exit::Code(0), words) => words.to_owned(),
        (exit, "") => exit.to_string(),
        (exit, words) => format!("{exit}: {words}"),
    };
    Failed::of_text(message, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came(exit: Exit, said: &str, complained: &str) -> Result<usize, (FailureKind, String)> {
        let (said, complained) = (said.to_owned(), complained.to_owned());
        let heard = Heard { exit, said, complained };
        let read = |said: &str| vec![Model::default(); said.lines().count()];
        let models = listed(&heard, read).map(|models| models.len());
        models.map_err(|failed| (failed.kind, failed.message))
    }

    #[test]
    fn a_list_counts_if_its_program_ended_well() {
        assert_eq!(came(Exit::Code(0), "a\nb", "a warning"), Ok(2));
        let no = |kind, words: &str| Err((kind, words.to_owned()));
        assert_eq!(came(Exit::Code(0), "", ""), no(FailureKind::Other, ""));
        assert_eq!(
            came(Exit::Code(1), "a", "Error: Authentication required."),
            no(FailureKind::Auth, "exit 1: Error: Authentication required."),
        );
        assert_eq!(
            came(Exit::Code(1), "T: connection refused", ""),
            no(FailureKind::Network, "exit 1: T: connection refused"),
        );
        // What ended badly was not asked: its models are not what is wrong.
        assert_eq!(came(Exit::Code(1), "", "boom"), no(FailureKind::Killed, "exit 1: boom"));
        assert_eq!(came(Exit::Code(0), "", "boom"), no(FailureKind::Other, "boom"));
        let long = came(Exit::Code(0), &"a\n".repeat(MAX_LIST / 2), "");
        assert_eq!(long.map_err(|(kind, _)| kind), Err(FailureKind::Protocol));
    }

    /// Asks twice, and takes the second line for a model.
    #[derive(Default)]
    struct Twice(usize);

    impl Asking for Twice {
        fn begin(&mut self) -> String {
            "first\n".to_owned()
        }

        fn read(&mut self, line: &str) -> Result<Asked, Failed> {
            self.0 += 1;
            match (self.0, line) {
                (_, "no") => Err(Failed::new(FailureKind::Auth, "no")),
                (1, _) => Ok(Asked::Next("second\n".to_owned())),
                _ => Ok(Asked::Models(vec![Model { id: line.to_owned(), ..Model::default() }])),
            }
        }
    }

    /// What comes of what a program writes, and what it was told.
    async fn told(output: &[u8]) -> (Result<Option<Vec<Model>>, FailureKind>, String) {
        let (near, mut far) = tokio::io::duplex(1 << 10);
        let told = talk(&mut Twice::default(), near, output).await;
        let mut heard = String::new();
        far.read_to_string(&mut heard).await.unwrap();
        (told.map_err(|failed| failed.kind), heard)
    }

    #[tokio::test]
    async fn a_program_is_asked_until_its_models_are_known() {
        let (models, heard) = told(b"hello\n\nmodel\nmore").await;
        assert_eq!(models.unwrap().unwrap()[0].id, "model");
        assert_eq!(heard, "first\nsecond\n");
        assert_eq!(told(b"hello\n").await.0, Ok(None), "its output ended");
        assert_eq!(told(b"").await.0, Ok(None));
        assert_eq!(told(b"no\n").await.0, Err(FailureKind::Auth));
        let endless = vec![b'x'; MAX_LIST + 1];
        assert_eq!(told(&endless).await.0, Err(FailureKind::Protocol));
    }

    #[tokio::test]
    async fn of_what_a_program_complains_of_the_first_is_kept_and_all_is_read() {
        let (mut words, complaints) = (Vec::new(), vec![b'x'; 3 * MAX_WORDS]);
        let mut pipe = &complaints[..];
        listen(&mut pipe, &mut words).await;
        assert_eq!((words.len(), pipe.len()), (MAX_WORDS, 0));
    }
}
