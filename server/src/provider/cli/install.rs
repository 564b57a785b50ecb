//! Where the program of a CLI lies on the host, and what of it a sandbox is to show.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::About;

/// Folders of the user's home in which installers put programs beside those of the `PATH`.
const USUAL: &[&str] =
    &[".local/bin", ".claude/local", ".npm-global/bin", ".bun/bin", ".opencode/bin", "bin"];
/// How agents are installed that are one of many of their kind.
const KNOWN: &[(&str, &str)] = &[
    ("gemini", "npm install -g @google/gemini-cli"),
    ("opencode", "npm install -g opencode-ai"),
    ("goose", "see https://github.com/block/goose"),
    ("claude-agent-acp", "npm install -g @agentclientprotocol/claude-agent-acp"),
    ("codex-acp", "npm install -g @agentclientprotocol/codex-acp"),
];
/// Programs that version managers put in the place of others, with how they are asked for those.
const MANAGERS: &[(&str, &str)] =
    &[("mise", "mise which"), ("rtx", "rtx which"), ("volta-shim", "volta which")];
/// Bytes of a script's first line that are looked at.
const HEAD: u64 = 256;
/// Bytes of the longest description of a package that is read.
const MAX_ABOUT: u64 = 1 << 20;

/// A program that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Installed {
    /// Its file, without symbolic links on the way.
    pub(super) program: PathBuf,
    /// What runs it, if it is a script that names that by `env`.
    pub(super) interpreter: Option<PathBuf>,
    /// What a sandbox has to show beside the system.
    pub(super) binds: Vec<PathBuf>,
}

impl Installed {
    /// The command: what runs it, if anything, and the program.
    pub(super) fn argv(&self) -> Vec<String> {
        let words = self.interpreter.iter().chain([&self.program]);
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// The version of the package that it came in, by npm; none if it came otherwise.
    pub(super) fn package_version(&self) -> Option<String> {
        let folders = self.program.ancestors().skip(1);
        let inside = folders.take_while(|folder| !folder.ends_with("node_modules"));
        let about = inside.map(|folder| folder.join("package.json")).find(|file| file.is_file())?;
        let is_of_tree = about.ancestors().any(|above| above.ends_with("node_modules"));
        #[expect(clippy::disallowed_methods, reason = "a file of the host, which only is read")]
        let file = is_of_tree.then(|| std::fs::File::open(about).ok())??;
        let about: serde_json::Value = serde_json::from_reader(file.take(MAX_ABOUT)).ok()?;
        about["version"].as_str().map(str::to_owned)
    }
}

/// Finds a program: by its path, or by its name on the daemon's `PATH` and in the usual folders.
///
/// # Errors
///
/// Why there is none, and what to do.
pub(super) fn find(
    about: &About,
    configured: Option<&str>,
    shown: impl Fn(&Path) -> bool,
) -> Result<Installed, String> {
    let found = match configured {
        Some(path) if path.contains('/') => {
            let path = PathBuf::from(path);
            let problem = format!("{} is no program", path.display());
            executable(&path).ok_or(problem)?
        }
        Some(name) => {
            look(&[name], &[], || format!("there is no program {name}: {}", how(about, name)))?
        }
        None => look(about.programs, &[], || {
            format!("{} is not installed: {}", about.programs.join(" or "), about.install)
        })?,
    };
    let head = head(&found);
    let interpreter = head.as_deref().and_then(interpreter).map(|name| {
        let missing = || format!("{} needs {name}: install it", found.display());
        look(&[name], &beside(&found), missing)
    });
    let interpreter = interpreter.transpose()?;
    let parts = [
        Some(belongings(&found, head.is_some(), about.programs.first().copied())),
        interpreter.clone(),
    ];
    let binds = parts.into_iter().flatten().filter(|path| !shown(path)).collect();
    Ok(Installed { program: found, interpreter, binds })
}

/// What is wrong with a program that a variable of a section names, and what to do. `shown` says
/// what of the host its process sees.
pub(super) fn problem_of_named(
    (variable, path): (&str, &Path),
    section: &str,
    shown: impl Fn(&Path) -> bool,
) -> Option<String> {
    let named = format!("{variable} names {}", path.display());
    let Some(real) = executable(path) else {
        return Some(format!(
            "{named}, and there is no such program: install it, or take {variable} out of env in \
             [providers.{section}]"
        ));
    };
    // Of a link, what it leads to is needed as well.
    let unseen = [path, real.as_path()].into_iter().find(|path| !shown(path))?;
    Some(format!(
        "{named}, and a sandbox does not show {}: name its folder with binds in \
         [providers.{section}]",
        unseen.display()
    ))
}

/// What to do where a program lacks another one that it runs: that which a variable of its section
/// names, or that which came with it.
pub(super) fn again(program: Option<&str>, named: Option<(&str, &str)>, section: &str) -> String {
    if let Some((variable, path)) = named {
        return format!(
            "{variable} names {path}: install it, or take {variable} out of env in \
             [providers.{section}]"
        );
    }
    let name = program.and_then(|program| program.rsplit('/').next());
    match KNOWN.iter().find(|(known, _)| Some(*known) == name) {
        Some((_, install)) => format!("install it again, with what it runs: {install}"),
        None => "install what it runs".to_owned(),
    }
}

/// How a program of a kind is installed.
fn how(about: &About, name: &str) -> &'static str {
    let known = KNOWN.iter().find(|(known, _)| *known == name);
    known.map_or(about.install, |(_, install)| install)
}

/// Looks for a program by its names, in other folders last. What a version manager has in its place
/// is passed over: which program it stands for is the manager's to say, and it is not in a sandbox.
fn look(
    names: &[&str],
    others: &[PathBuf],
    missing: impl FnOnce() -> String,
) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::home_dir().unwrap_or_default();
    let usual = USUAL.iter().map(|folder| home.join(folder)).chain(others.iter().cloned());
    let folders: Vec<PathBuf> = std::env::split_paths(&path).chain(usual).collect();
    let mut shim = None;
    for place in names.iter().flat_map(|name| folders.iter().map(move |at| at.join(name))) {
        let Some(real) = executable(&place).filter(|_| place.is_absolute()) else { continue };
        match manager(&place, &real) {
            Some(which) if shim.is_none() => shim = Some((place, which)),
            Some(_) => {}
            None => return Ok(real),
        }
    }
    let Some((place, which)) = shim else { return Err(missing()) };
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    Err(format!(
        "{} only stands for the program, which a sandbox does not find through it: name what          \"{which} {name}\" prints with program in config.toml, or put its folder on the PATH",
        place.display()
    ))
}

/// How the version manager is asked for a program that has itself in its place there.
fn manager(place: &Path, real: &Path) -> Option<String> {
    let is_real =
        |(program, _): &&(&str, &str)| real.ends_with(program) && !place.ends_with(program);
    if let Some((_, which)) = MANAGERS.iter().find(is_real) {
        return Some((*which).to_owned());
    }
    let folder = place.parent().filter(|folder| folder.ends_with("shims"))?;
    let of = folder.parent()?.file_name()?.to_string_lossy();
    Some(format!("{} which", of.trim_start_matches('.')))
}

/// Where what runs the programs of a tree of packages lies: npm puts `lib/node_modules` beside `bin`.
fn beside(program: &Path) -> Vec<PathBuf> {
    let trees = program.ancestors().filter(|above| above.ends_with("lib/node_modules"));
    trees.filter_map(|tree| Some(tree.parent()?.parent()?.join("bin"))).collect()
}

/// The file of a program, if it is one.
fn executable(path: &Path) -> Option<PathBuf> {
    let real = path.canonicalize().ok()?;
    let found = real.metadata().ok()?;
    (found.is_file() && found.permissions().mode() & 0o111 != 0).then_some(real)
}

/// The first line of a script; none for anything else.
fn head(program: &Path) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "a program of the host, which only is read")]
    let file = std::fs::File::open(program).ok()?;
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).trim().to_owned())
}

/// What runs a script that leaves it to `env` to find that: `/usr/bin/env -S node --flag`.
fn interpreter(head: &str) -> Option<&str> {
    let mut words = head.split_whitespace();
    let program = words.next()?;
    let name = words.find(|word| !word.starts_with('-'))?;
    (program.ends_with("/env") && name != "sh" && name != "bash").then_some(name)
}

/// The file or folder with what belongs to a program: of a script in a tree of packages, the tree;
/// of a program in one, its package; of a script below a folder of its name, its folder. Of any
/// other nothing but itself: what lies beside it may be anything of the user's.
fn belongings(program: &Path, is_script: bool, name: Option<&str>) -> PathBuf {
    let trees = program.ancestors().filter(|above| above.ends_with("node_modules"));
    if let Some(tree) = trees.last() {
        if is_script {
            return tree.to_owned();
        }
        let package = program.ancestors().find(|above| above.join("package.json").is_file());
        return package.unwrap_or(program).to_owned();
    }
    let folder = program.parent().filter(|folder| {
        is_script && name.is_some_and(|name| folder.iter().any(|part| part == name))
    });
    folder.unwrap_or(program).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_version_manager_has_in_a_programs_place_is_known() {
        let asked = |place: &str, real: &str| manager(Path::new(place), Path::new(real));
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(asked("/h/.local/share/mise/shims/claude", "/usr/bin/mise"), some("mise which"));
        assert_eq!(asked("/h/.volta/bin/codex", "/h/.volta/bin/volta-shim"), some("volta which"));
        let pyenv = "/h/.pyenv/shims/goose";
        assert_eq!(asked(pyenv, pyenv), some("pyenv which"));
        assert_eq!(asked("/usr/bin/mise", "/usr/bin/mise"), None);
        let npm = "/n/lib/node_modules/@anthropic-ai/claude-code/cli.js";
        assert_eq!(asked("/n/bin/claude", npm), None);
        assert_eq!(beside(Path::new(npm)), [PathBuf::from("/n/bin")]);
    }

    #[test]
    fn the_line_of_a_script_names_what_runs_it() {
        assert_eq!(interpreter("/usr/bin/env node"), Some("node"));
        assert_eq!(interpreter("/usr/bin/env -S node --no-warnings=DEP0040"), Some("node"));
        assert_eq!(interpreter("/usr/bin/env bash"), None);
        assert_eq!(interpreter("/bin/sh"), None);
        assert_eq!(interpreter(""), None);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "makes programs to be found")]
    fn a_program_is_found_with_what_belongs_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let make = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let about = About {
            kind: "x",
            description: "",
            programs: &["substrat-no-such-program"],
            install: "get it",
            key: "",
            logins: &[],
            endpoints: &[],
        };
        let find_at = |path: &str| find(&about, Some(path), |_| false).unwrap();
        let elf = make("node_modules/@a/b-linux/bin/b", "\u{7f}ELF");
        make("package.json", r#"{"version": "9"}"#);
        make("node_modules/@a/b-linux/package.json", r#"{"version": "1.2.3"}"#);
        let version = |path: &str| find_at(path).package_version();
        assert_eq!(version(&elf).as_deref(), Some("1.2.3"));
        assert_eq!(version(&make("node_modules/.bin/x", "#!/bin/sh\n")), None);
        assert_eq!(find_at(&elf).binds, [root.join("node_modules/@a/b-linux")]);
        let lone = make("versions/2.1/claude", "\u{7f}ELF");
        assert_eq!(find_at(&lone).binds, [root.join("versions/2.1/claude")]);
        let own = make("substrat-no-such-program/versions/1/run", "#!/bin/sh\n");
        let found = find_at(&own);
        let folder = root.join("substrat-no-such-program/versions/1");
        assert_eq!((found.binds, found.interpreter), (vec![folder], None));
        let script = make("bin/run", "#!/bin/sh\n");
        assert_eq!(find_at(&script).binds, [root.join("bin/run")], "and nothing beside it");
        assert_eq!(version(&script), None);
        let missing = find(&about, None, |_| false).unwrap_err();
        assert!(missing.contains("is not installed: get it"), "{missing}");
        assert!(find(&about, Some("/nowhere/x"), |_| false).is_err());
        assert_eq!(how(&about, "gemini"), "npm install -g @google/gemini-cli");
        assert_eq!(how(&about, "other"), "get it");
        std::fs::set_permissions(&elf, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(find(&about, Some(&elf), |_| false).is_err());
    }

    #[test]
    fn what_a_program_lacks_is_installed_where_it_came_from() {
        let adapter = Some("/usr/bin/codex-acp");
        let told = again(adapter, None, "x");
        let install = "npm install -g @agentclientprotocol/codex-acp";
        assert_eq!(told, format!("install it again, with what it runs: {install}"));
        assert_eq!(again(Some("mine"), None, "x"), "install what it runs");
        let told = again(adapter, Some(("CODEX_PATH", "/nowhere/codex")), "x");
        assert!(told.starts_with("CODEX_PATH names /nowhere/codex: install it, or"), "{told}");
        assert!(told.ends_with("take CODEX_PATH out of env in [providers.x]"), "{told}");
    }

    #[test]
    fn a_program_that_a_variable_names_is_there_and_is_seen() {
        let (real, folder) = (std::env::current_exe().unwrap(), tempfile::tempdir().unwrap());
        let (real, link) = (real.canonicalize().unwrap(), folder.path().join("link"));
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let problem = |path: &Path, shown: &[&Path]| {
            problem_of_named(("X_PATH", path), "x", |path| shown.contains(&path))
        };
        assert_eq!(problem(&real, &[&real]), None);
        assert_eq!(problem(&link, &[&link, &real]), None);
        let unseen = |path: &Path| {
            Some(format!(
                "X_PATH names {}, and a sandbox does not show {}: name its folder with binds in \
                 [providers.x]",
                path.display(),
                real.display()
            ))
        };
        assert_eq!(problem(&real, &[]), unseen(&real));
        assert_eq!(problem(&link, &[&link]), unseen(&link));
        let told = problem(Path::new("/nowhere/x"), &[]).unwrap();
        assert!(told.starts_with("X_PATH names /nowhere/x, and there is no such"), "{told}");
        assert!(told.ends_with("take X_PATH out of env in [providers.x]"), "{told}");
    }
}
