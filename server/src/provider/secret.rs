//! Keys of backends: where they come from, and how they are kept from being told.
//!
//! The configuration names a variable, a file or a command, and never holds a key itself. A key
//! lives in memory only while a session or a check needs it; [`Secret`] shows itself to nobody,
//! and [`Secrets::hide`] takes keys out of what a backend says before that is told.

use std::cmp::Reverse;
use std::fmt;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;

use super::Failure;
use super::hiding::{HIDDEN, without};
use crate::model::{FailureClass, Json};

/// Longest key, in bytes.
const MAX_KEY: u64 = 16 << 10;
/// How long a command may take that prints a key.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the ends of a command's pipes are waited for once it has ended.
const REST: Duration = Duration::from_secs(1);
/// Most bytes of what a command complains of that are kept, and most characters that are told.
const MAX_COMPLAINT: usize = 8 << 10;
const MAX_TOLD: usize = 200;
/// What is shorter of what a command printed may be told.
const SHORTEST_PART: usize = 4;
/// What is shorter is no key that could be told from other text.
const SHORTEST: usize = 8;

/// A key. It is given to a backend with [`Secret::expose`], and shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// A key.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The key itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Keys that are not to be told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Secrets(Vec<Secret>);

impl Secrets {
    /// Adds a key. One that is too short to be told from other text is passed over.
    pub fn add(&mut self, secret: &Secret) {
        if secret.expose().len() >= SHORTEST && !self.0.contains(secret) {
            self.0.push(secret.clone());
        }
    }

    /// Adds those of another.
    pub fn add_all(&mut self, others: &Self) {
        others.0.iter().for_each(|secret| self.add(secret));
    }

    /// A text without the keys, and without what a cut left of one.
    pub fn hide(&self, text: &str) -> String {
        let hide = |text: String, secret: &Secret| without(&text, secret.expose());
        self.0.iter().fold(text.to_owned(), hide)
    }

    /// JSON without the keys, in values and in names, however they are escaped.
    pub fn hide_in(&self, json: Json) -> Json {
        if self.0.is_empty() {
            return json;
        }
        let Ok(mut value) = serde_json::from_str(json.get()) else { return Json::null() };
        if self.hide_in_value(&mut value) {
            Json::of(&value).unwrap_or_else(|_| Json::null())
        } else {
            json
        }
    }

    /// Returns whether there was one.
    fn hide_in_value(&self, value: &mut Value) -> bool {
        match value {
            Value::String(text) => {
                let hidden = self.hide(text);
                let found = hidden != *text;
                *text = hidden;
                found
            }
            Value::Array(values) => {
                let mut found = false;
                values.iter_mut().for_each(|value| found |= self.hide_in_value(value));
                found
            }
            Value::Object(fields) => {
                let mut found = false;
                let all = std::mem::take(fields).into_iter().map(|(name, mut value)| {
                    let hidden = self.hide(&name);
                    found |= self.hide_in_value(&mut value) || hidden != name;
                    (hidden, value)
                });
                *fields = all.collect();
                found
            }
            _ => false,
        }
    }
}

/// Where a key comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum KeySource {
    /// From nowhere: none is needed.
    #[default]
    None,
    /// A variable of the daemon's environment.
    Env(String),
    /// A file.
    File(PathBuf),
    /// A command that prints it.
    Command(Vec<String>),
}

/// The keys of a section that say where its key comes from; at most one of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct KeyKeys {
    /// Name of a variable of the daemon's environment.
    pub key_env: Option<String>,
    /// Absolute path of a file that holds the key and nothing else.
    pub key_file: Option<PathBuf>,
    /// Command that prints the key: program and arguments.
    pub key_command: Option<Vec<String>>,
}

impl KeyKeys {
    /// Where the key comes from; `otherwise` if none of them is given.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    pub fn source(&self, otherwise: KeySource) -> Result<KeySource, String> {
        match (&self.key_env, &self.key_file, &self.key_command) {
            (None, None, None) => Ok(otherwise),
            (Some(name), None, None) if name.is_empty() => Ok(KeySource::None),
            (Some(name), None, None) => Ok(KeySource::Env(name.clone())),
            (None, Some(path), None) if path.is_absolute() => Ok(KeySource::File(path.clone())),
            (None, Some(_), None) => Err("key_file must be an absolute path".to_owned()),
            (None, None, Some(words)) if !words.is_empty() => Ok(KeySource::Command(words.clone())),
            (None, None, Some(_)) => Err("key_command must name a program".to_owned()),
            _ => Err("give only one of key_env, key_file and key_command".to_owned()),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Env(name) => write!(f, "the variable {name} of the daemon"),
            Self::File(path) => write!(f, "the file {}", path.display()),
            // Its arguments may say more than they should.
            Self::Command(words) => {
                write!(f, "the command {}", words.first().map_or("", String::as_str))
            }
        }
    }
}

impl KeySource {
    /// Whether there is a key where it comes from, as far as can be seen without a command.
    ///
    /// # Errors
    ///
    /// What is missing, and what to do.
    pub async fn is_there(&self) -> Result<(), String> {
        match self {
            Self::Env(name) if std::env::var_os(name).is_none_or(|key| key.is_empty()) => Err(
                format!("the daemon has no variable {name}: start it with one, or name a key_file"),
            ),
            Self::File(path) if !path.exists() => {
                Err(format!("there is no file {}: put the key there", path.display()))
            }
            Self::Env(_) | Self::File(_) => {
                self.resolve().await.map(drop).map_err(NoKey::told_by_check)
            }
            Self::None | Self::Command(_) => Ok(()),
        }
    }

    /// Gets the key; none if none is needed.
    ///
    /// # Errors
    ///
    /// Where the key was looked for, and why there is none.
    pub async fn resolve(&self) -> Result<Option<Secret>, NoKey> {
        let found = match self {
            Self::None => return Ok(None),
            Self::Env(name) => std::env::var(name).map_err(|_| NoKey::from("it is not set")),
            Self::File(path) => read(path).await.map_err(NoKey::from),
            Self::Command(words) => run(words, PATIENCE).await,
        };
        let no_key = match found.as_deref().map(str::trim) {
            Ok("") => NoKey::from("it is empty"),
            Ok(key) if key.chars().any(char::is_control) => {
                NoKey::from("it holds more than one line, or bytes that no key holds")
            }
            Ok(key) => return Ok(Some(Secret::new(key))),
            Err(no_key) => no_key.clone(),
        };
        let message = format!("there is no key: {self}: {}", no_key.message);
        Err(NoKey { message, ..no_key })
    }
}

/// Why there is no key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoKey {
    /// It never shows what was found where the key was looked for.
    message: String,
    /// The last line that a command complained with. It may hold a key that the command printed
    /// another time, so it is for the eyes of who asks, and kept nowhere.
    said: Option<String>,
}

impl From<String> for NoKey {
    fn from(message: String) -> Self {
        Self { message, said: None }
    }
}

impl From<&str> for NoKey {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

impl NoKey {
    /// The failure that it is of a provider. It may be kept, so it says only where to see what a
    /// command complained with.
    pub fn into_failure(self, provider: &str) -> Failure {
        let mut message = self.message;
        if self.said.is_some() {
            let next = format!("; substratctl provider check {provider} shows what it wrote");
            message.push_str(&next);
        }
        Failure::new(FailureClass::Auth, message)
    }

    /// What a check tells, which nobody keeps.
    pub fn told_by_check(self) -> String {
        let said = self.said.map(|line| format!("; its standard error ends with: {line}"));
        self.message + said.as_deref().unwrap_or_default()
    }
}

async fn read(path: &Path) -> Result<String, String> {
    let path = path.to_owned();
    let read = move || {
        #[expect(clippy::disallowed_methods, reason = "reads the key's file as configured")]
        let file = std::fs::File::open(path)?;
        let mut bytes = Vec::new();
        file.take(MAX_KEY + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    let read = tokio::task::spawn_blocking(read).await;
    let read = read.unwrap_or_else(|panic| Err(io::Error::other(panic)));
    text(read.map_err(|error| error.to_string())?)
}

fn text(bytes: Vec<u8>) -> Result<String, String> {
    if bytes.len() as u64 > MAX_KEY {
        return Err(format!("it is longer than {MAX_KEY} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "it is no text".to_owned())
}

/// Runs a command of the configuration, which is the daemon's owner's and no agent's.
async fn run(words: &[String], patience: Duration) -> Result<String, NoKey> {
    let [program, args @ ..] = words else { return Err("it names no program".into()) };
    #[expect(clippy::disallowed_methods, reason = "the owner's own command, in no agent's name")]
    let mut command = tokio::process::Command::new(program);
    command.args(args).process_group(0).kill_on_drop(true);
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    let mut child = crate::launcher::spawn(&mut command).map_err(|error| error.to_string())?;
    let group = Group::of(&child).map_err(|error| error.to_string())?;
    let pipes = child.stdout.take().zip(child.stderr.take());
    let (stdout, stderr) = pipes.ok_or("it has no output")?;
    let (mut printed, mut complaint) = (Vec::new(), Complaint::default());
    let is_over = {
        // Both are read at once, so that the command does not wait for room in a pipe.
        let reading = async {
            tokio::join!(gather(stdout, &mut printed), complaint.read(stderr));
        };
        tokio::time::timeout(patience, group.over(reading)).await.is_ok()
    };
    // Before the child is waited for, since its number may be another's then.
    drop(group);
    if !is_over {
        let message = format!("it did not end within {} s", patience.as_secs());
        let said = complaint.told(&String::from_utf8_lossy(&printed));
        return Err(NoKey { message, said });
    }
    let status = child.wait().await.map_err(|error| error.to_string())?;
    let printed = text(printed)?;
    if status.success() {
        return Ok(printed);
    }
    Err(NoKey { message: format!("it failed: {status}"), said: complaint.told(&printed) })
}

/// Reads a pipe to its end, or until it held more than a key may. Who leaves it before has what was
/// read.
async fn gather(mut pipe: impl AsyncRead + Unpin, bytes: &mut Vec<u8>) {
    let mut piece = [0; 1 << 10];
    while bytes.len() as u64 <= MAX_KEY
        && let Ok(count) = pipe.read(&mut piece).await
        && count > 0
    {
        bytes.extend_from_slice(&piece[..count]);
    }
}

/// The process group of a child, with what that leaves behind. It ends when this is dropped, which
/// must be before the child is waited for.
struct Group {
    leader: Pid,
    child: OwnedFd,
}

/// Returns when a process has ended. It is not waited for, so that its number stays its own.
async fn end_of(process: OwnedFd) {
    let wait = move || poll(&mut [PollFd::new(&process, PollFlags::IN)], None);
    // That fails for no process that there is, or was.
    let _ = tokio::task::spawn_blocking(wait).await;
}

impl Group {
    /// The group of a child that was started in its own.
    fn of(child: &Child) -> io::Result<Self> {
        let leader = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let leader = leader.ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { leader, child: pidfd_open(leader, PidfdFlags::empty())? })
    }

    /// Returns when the child has ended and its pipes are read. What it left may keep those open,
    /// which is waited for a while only.
    async fn over(&self, reading: impl Future<Output = ()>) {
        let Ok(child) = self.child.try_clone() else { return };
        let (mut end, mut reading) = (std::pin::pin!(end_of(child)), std::pin::pin!(reading));
        tokio::select! {
            () = end.as_mut() => {
                let _ = tokio::time::timeout(REST, reading.as_mut()).await;
            }
            () = reading.as_mut() => end.as_mut().await,
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = kill_process_group(self.leader, Signal::KILL);
    }
}

/// The end of what a command writes to its standard error.
#[derive(Debug, Default)]
struct Complaint {
    bytes: Vec<u8>,
    /// Whether there was more before it.
    is_cut: bool,
}

impl Complaint {
    /// Reads a pipe to its end. Who leaves it before can go on with it.
    async fn read(&mut self, mut pipe: impl AsyncRead + Unpin) {
        let mut piece = [0; 1 << 10];
        while let Ok(count) = pipe.read(&mut piece).await
            && count > 0
        {
            self.bytes.extend_from_slice(&piece[..count]);
            let excess = self.bytes.len().saturating_sub(MAX_COMPLAINT);
            self.bytes.drain(..excess);
            self.is_cut |= excess > 0;
        }
    }

    /// Its last line, without what the command printed, since that may be the key.
    fn told(&self, printed: &str) -> Option<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        let clean = |line: &str| {
            let line: String = line.chars().filter(|c| !c.is_control()).collect();
            line.trim().to_owned()
        };
        // Where the beginning of a line is gone, that of a key in it may be.
        let lines = text.split(['\n', '\r']).skip(usize::from(self.is_cut)).map(clean);
        let line = lines.filter(|line| !line.is_empty()).last()?;
        let is_part = |c: char| c.is_alphanumeric() || "-_.+/=".contains(c);
        let parts = printed.lines().map(str::trim).chain(printed.split_whitespace());
        let parts = parts.chain(printed.split(|c: char| !is_part(c)));
        let mut parts: Vec<&str> = parts.filter(|part| part.len() >= SHORTEST_PART).collect();
        // One may be the beginning of another.
        parts.sort_unstable_by_key(|part| Reverse(part.len()));
        let line = parts.into_iter().fold(line, |line, part| line.replace(part, HIDDEN));
        let told: String = line.chars().take(MAX_TOLD).collect();
        let more = if told.len() < line.len() { "…" } else { "" };
        Some(format!("{told}{more}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<KeySource, String> {
        toml::from_str::<KeyKeys>(text).expect("keys").source(KeySource::None)
    }

    fn shell(script: &str) -> KeySource {
        KeySource::Command(["sh", "-c", script].map(str::to_owned).into())
    }

    #[test]
    fn a_key_comes_from_one_place() {
        assert_eq!(of(""), Ok(KeySource::None));
        assert_eq!(of("key_env = \"A\""), Ok(KeySource::Env("A".into())));
        assert_eq!(of("key_env = \"\""), Ok(KeySource::None));
        assert!(of("key_env = \"A\"\nkey_file = \"/a\"").is_err());
        assert!(of("key_file = \"a\"").is_err());
        assert!(of("key_command = []").is_err());
    }

    #[tokio::test]
    async fn keys_are_read_from_files_and_commands_and_shown_nowhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        #[expect(clippy::disallowed_methods, reason = "makes the key's file")]
        std::fs::write(&path, "sk-12345678\n").expect("a file");
        let key = KeySource::File(path).resolve().await.expect("a key").expect("a key");
        assert_eq!(key.expose(), "sk-12345678");
        assert_eq!(format!("{key:?}"), "Secret");
        let words = ["sh", "-c", "echo sk-12345678; echo sk-12345678 >&2"];
        let source = KeySource::Command(words.map(str::to_owned).into());
        assert_eq!(source.resolve().await.expect("a key"), Some(key.clone()));
        assert_eq!(source.to_string(), "the command sh");
        let mut secrets = Secrets::default();
        secrets.add(&key);
        secrets.add(&Secret::new("short"));
        assert_eq!(secrets.hide("a sk-12345678 is short"), "a [hidden] is short");
        let json = |text: &str| serde_json::from_str::<Json>(text).expect("JSON");
        let told =
            json(r#"{"a": ["\u0073k-12345678", 1.50], "sk-12345678": {"sk-123456789": null}}"#);
        let wanted = r#"{"[hidden]":{"[hidden]9":null},"a":["[hidden]",1.5]}"#;
        assert_eq!(secrets.hide_in(told).get(), wanted);
        // What holds none stays as it is, to the last byte.
        let other = json(r#"{"b": 1.50, "a": ["sk-1234"]}"#);
        assert_eq!(secrets.hide_in(other.clone()).get(), other.get());
    }

    #[tokio::test]
    async fn a_key_that_is_not_there_says_where_it_was_looked_for() {
        let failing = ["sh", "-c", "echo sk-secret-thing; exit 3"];
        for (source, wanted) in [
            (KeySource::Env("SUBSTRAT_NO_SUCH_KEY".into()), "SUBSTRAT_NO_SUCH_KEY"),
            (KeySource::File("/nowhere/key".into()), "/nowhere/key"),
            (KeySource::File("/dev/zero".into()), "longer than"),
            (KeySource::Command(failing.map(str::to_owned).into()), "exit status: 3"),
            (KeySource::Command(vec!["/nowhere/command".into()]), "/nowhere/command"),
        ] {
            let told = source.resolve().await.expect_err("no key").told_by_check();
            assert!(told.contains(wanted), "{told}");
            assert!(!told.contains("sk-secret"), "{told}");
        }
    }

    #[tokio::test]
    async fn a_check_says_why_a_command_failed_without_what_it_printed() {
        let long = "x".repeat(MAX_TOLD);
        for (script, status, words) in [
            ("echo trying >&2; echo vault: not logged in >&2; exit 2", 2, "vault: not logged in"),
            (
                "echo sk-secret-thing; printf 'denied:\\a sk-secret-thing\\r\\n \\n' >&2; exit 3",
                3,
                "denied: [hidden]",
            ),
            (
                r#"echo '{"key": "sk-secret-thing"}'; echo no sk-secret-thing. here >&2; exit 3"#,
                3,
                "no [hidden]. here",
            ),
            ("head -c 300 /dev/zero | tr '\\0' x >&2; exit 1", 1, &format!("{long}…")),
            // Nobody knows what the beginning of this line was.
            ("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1", 1, ""),
            ("exit 1", 1, ""),
        ] {
            let no_key = shell(script).resolve().await.expect_err("no key");
            let before = if words.is_empty() { "" } else { "; its standard error ends with: " };
            let message =
                format!("there is no key: the command sh: it failed: exit status: {status}");
            assert_eq!(no_key.clone().told_by_check(), format!("{message}{before}{words}"));
            let next = match words {
                "" => "",
                _ => "; substratctl provider check it shows what it wrote",
            };
            assert_eq!(no_key.into_failure("it").message, format!("{message}{next}"));
        }
        let chatty = shell("head -c 100000 /dev/zero >&2; echo sk-12345678");
        let key = chatty.resolve().await.expect("a key").expect("a key");
        assert_eq!(key.expose(), "sk-12345678");
    }

    #[tokio::test]
    async fn a_key_that_was_exchanged_is_in_no_failure() {
        let folder = tempfile::tempdir().expect("a folder");
        let mark = folder.path().join("expired").display().to_string();
        let source = shell(&format!(
            "if [ -e '{mark}' ]; then echo token sk-12345678 has expired >&2; exit 1; fi
             : > '{mark}'; echo sk-12345678"
        ));
        assert_eq!(source.resolve().await.expect("a key"), Some(Secret::new("sk-12345678")));
        let no_key = source.resolve().await.expect_err("no key");
        let failure = no_key.clone().into_failure("it");
        assert_eq!(failure.class, FailureClass::Auth);
        assert!(!failure.message.contains("sk-12345678"), "{failure}");
        assert!(failure.message.contains("substratctl provider check it"), "{failure}");
        assert!(no_key.told_by_check().ends_with("token sk-12345678 has expired"));
    }

    #[tokio::test]
    async fn what_a_command_leaves_behind_ends_with_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("left");
        let script = format!("sleep 300 & echo $! > '{}'; echo sk-12345678", path.display());
        let key = shell(&script).resolve().await.expect("a key");
        assert_eq!(key, Some(Secret::new("sk-12345678")));
        let left = read(&path).await.expect("a number").trim().parse().expect("a number");
        // Where it cannot be opened, it is gone already.
        if let Ok(left) = pidfd_open(Pid::from_raw(left).expect("a pid"), PidfdFlags::empty()) {
            let ended = tokio::time::timeout(PATIENCE, end_of(left)).await;
            assert!(ended.is_ok(), "it lives on");
        }
    }

    #[tokio::test]
    async fn what_a_command_wrote_that_does_not_end_is_there_for_a_check() {
        let words = ["sh", "-c", "echo it is locked >&2; sleep 300"].map(str::to_owned);
        let mut patience = Duration::from_millis(100);
        // Nobody knows how long it takes to write that.
        let no_key = loop {
            let no_key = run(&words, patience).await.expect_err("no key");
            if no_key.said.is_some() || patience > PATIENCE {
                break no_key;
            }
            patience *= 4;
        };
        assert!(no_key.message.starts_with("it did not end within"), "{no_key:?}");
        assert_eq!(no_key.said.as_deref(), Some("it is locked"));
    }
}
