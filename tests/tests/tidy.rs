//! What the tree of this project holds to, beyond what a compiler or a linter sees.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and reads the sources from outside"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use substrat_server::service::Reason;

/// Longest source file, in lines.
const MAX_LINES: usize = 600;

/// The rooms of the server, and which others each may import. `docs/ARCHITECTURE.md` has the
/// same table; `daemon` does the wiring and imports them all.
const ROOMS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("journal", &[]),
    ("projection", &["model", "journal"]),
    ("provider", &["model", "launcher"]),
    ("workspace", &["model"]),
    ("launcher", &["model", "workspace"]),
    ("engine", &["model", "journal", "provider", "workspace", "launcher"]),
    ("recovery", &["model", "journal", "projection"]),
    ("import", &["model", "journal", "projection"]),
    // The last four are what it shows: kinds of output, what recovery found, roots on the host,
    // limits in force.
    ("service", &["model", "engine", "provider", "recovery", "workspace", "launcher"]),
    (
        "daemon",
        &[
            "model",
            "journal",
            "projection",
            "provider",
            "workspace",
            "launcher",
            "engine",
            "recovery",
            "import",
            "service",
        ],
    ),
];

/// What only some of the rooms may use, of what is not in the server.
const OUTSIDE: &[(&str, &[&str])] = &[
    ("tonic", &["service", "daemon"]),
    ("substrat_proto", &["service", "daemon"]),
    ("rhai", &["provider"]),
    ("cap_std", &["workspace"]),
    (
        "tokio",
        &[
            "journal",
            "projection",
            "provider",
            "launcher",
            "engine",
            "recovery",
            "service",
            "daemon",
        ],
    ),
];

/// Crates, and which others of this project each may use.
const CRATES: &[(&str, &[&str])] = &[
    ("proto", &[]),
    ("cli", &["substrat_proto"]),
    ("server", &["substrat_proto"]),
    ("tests", &["substrat_proto", "substrat_server"]),
];

/// The only source that may hold what the compiler cannot check: the allocator.
const UNSAFE: &str = "server/src/memory.rs";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// The sources below a folder, by their path from the root.
fn sources(folder: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                // What fuzzing builds lies beside its sources.
                folders.extend((!path.ends_with("target")).then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).expect("below the root");
                let text = fs::read_to_string(&path).expect("a source");
                found.insert(name.to_str().expect("UTF-8").to_owned(), text);
            }
        }
    }
    assert!(!found.is_empty(), "no sources in {folder}");
    found
}

/// The sources of every crate.
fn all_sources() -> BTreeMap<String, String> {
    CRATES.iter().flat_map(|(name, _)| sources(name)).collect()
}

/// The code of a line, without what a comment says.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// The words that follow a prefix in the code of a source, such as rooms after `crate::`.
fn words_after<'a>(text: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let words = text.lines().flat_map(|line| {
        let code = code(line);
        code.match_indices(prefix).map(move |(at, _)| {
            let rest = &code[at + prefix.len()..];
            &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())]
        })
    });
    words.filter(|word| !word.is_empty()).collect()
}

/// Whether the code of a source speaks of a crate.
fn uses(text: &str, name: &str) -> bool {
    let path = format!("{name}::");
    let starts = |code: &str| {
        code.match_indices(&path).any(|(at, _)| {
            !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
        })
    };
    text.lines().any(|line| starts(code(line)))
}

fn none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn rooms_import_only_what_the_table_lets_them() {
    let rooms: BTreeSet<&str> = ROOMS.iter().map(|(room, _)| *room).collect();
    let mut found = Vec::new();
    for (room, may) in ROOMS {
        for (path, text) in sources(&format!("server/src/{room}")) {
            if path.ends_with("/tests.rs") || path.contains("/tests/") {
                continue; // A test looks at its room from wherever it can be seen.
            }
            for other in words_after(&text, "crate::") {
                if other != *room && rooms.contains(other) && !may.contains(&other) {
                    found.push(format!("{path} imports {other}"));
                }
            }
            assert!(!text.contains("use crate::{"), "{path}: name each room in a line of its own");
            let top = format!("server/src/{room}/mod.rs");
            assert!(path != top || !text.contains("use super::"), "{path} imports its siblings");
        }
    }
    none("imports that the table of rooms does not have", &found);
}

#[test]
fn every_room_is_in_the_table() {
    let folders = fs::read_dir(root().join("server/src")).expect("the server");
    let folders: BTreeSet<String> = folders
        .map(|entry| entry.expect("an entry"))
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().expect("UTF-8"))
        .collect();
    let rooms: BTreeSet<String> = ROOMS.iter().map(|(room, _)| (*room).to_owned()).collect();
    assert_eq!(folders, rooms);
}

#[test]
fn what_lies_outside_stays_in_its_rooms() {
    let mut found = Vec::new();
    for (room, _) in ROOMS {
        for (path, text) in sources(&format!("server/src/{room}")) {
            for (name, may) in OUTSIDE {
                if !may.contains(room) && uses(&text, name) {
                    found.push(format!("{path} uses {name}"));
                }
            }
        }
    }
    none("uses of crates outside of their rooms", &found);
}

#[test]
fn the_model_does_nothing_but_think() {
    let mut found = Vec::new();
    let banned = ["std::fs", "std::net", "std::thread", "std::process", "std::env", "rustix::"];
    for (path, text) in sources("server/src/model") {
        for line in text.lines() {
            if banned.iter().any(|name| code(line).contains(name)) || code(line).contains("async ")
            {
                found.push(format!("{path}: {}", line.trim()));
            }
        }
    }
    none("the model reaches outside", &found);
}

#[test]
fn crates_use_only_what_lies_below_them() {
    let crates = ["substrat_proto", "substrat_server", "substrat_cli", "substrat_tests"];
    let mut found = Vec::new();
    for (name, may) in CRATES {
        let own = format!("substrat_{name}");
        for (path, text) in sources(&format!("{name}/src")) {
            for other in crates.iter().filter(|other| **other != own && !may.contains(other)) {
                if uses(&text, other) {
                    found.push(format!("{path} uses {other}"));
                }
            }
        }
    }
    none("crates that know too much", &found);
}

#[test]
fn no_source_is_too_long_to_read() {
    let long = all_sources().into_iter().filter_map(|(path, text)| {
        let lines = text.lines().count();
        (lines > MAX_LINES).then(|| format!("{path} has {lines} lines; {MAX_LINES} are allowed"))
    });
    none("sources that should be split", &long.collect::<Vec<_>>());
}

#[test]
fn nothing_is_left_undone_and_only_the_allocator_is_unsafe() {
    // Put together here, so that this source does not hold them.
    let macros = ["todo", "unimplemented", "dbg"].map(|name| format!("{name}!("));
    let keyword = ["un", "safe"].concat();
    let mut found = Vec::new();
    for (path, text) in all_sources() {
        let may_be_unsafe = path == UNSAFE;
        for (number, line) in (1..).zip(text.lines()) {
            let code = code(line);
            let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            let is_unsafe = !may_be_unsafe && words.any(|word| word == keyword);
            if macros.iter().any(|name| code.contains(name)) || is_unsafe {
                found.push(format!("{path}:{number}: {}", line.trim()));
            }
        }
    }
    none("code that must not stay", &found);
}

#[test]
fn every_crate_keeps_to_the_lints_and_documents_what_it_shows() {
    let manifest = |path: &str| -> String {
        fs::read_to_string(root().join(path).join("Cargo.toml")).expect("a manifest")
    };
    let workspace = manifest("");
    for lint in ["missing_docs", "unsafe_code", "unwrap_used", "expect_used", "too_many_lines"] {
        assert!(workspace.contains(lint), "the workspace has no lint {lint}");
    }
    for (name, _) in CRATES {
        let text = manifest(name);
        assert!(text.contains("[lints]\nworkspace = true"), "{name} has lints of its own");
    }
    let silenced =
        ["cli/src", "server/src"].into_iter().flat_map(sources).filter_map(|(path, text)| {
            let silences = |line: &str| line.contains("allow(missing_docs");
            text.lines().any(silences).then_some(path)
        });
    none("sources that need not be documented", &silenced.collect::<Vec<_>>());
}

/// Pages that the sources speak of by name.
fn pages_in_sources() -> BTreeSet<String> {
    let sources = ["cli/src", "server/src", "proto/src"].into_iter().flat_map(sources);
    let texts: Vec<String> = sources.map(|(_, text)| text).collect();
    let named = texts.iter().flat_map(|text| {
        text.match_indices("docs/errors/").map(|(at, prefix)| {
            let rest = &text[at + prefix.len()..];
            let end = rest.find(|c: char| !c.is_ascii_uppercase() && c != '_');
            rest[..end.unwrap_or(rest.len())].to_owned()
        })
    });
    named.filter(|page| !page.is_empty()).collect()
}

#[test]
fn every_reason_has_a_page_and_every_page_a_reason() {
    let folder = root().join("docs/errors");
    let read = |page: &str| fs::read_to_string(folder.join(format!("{page}.md"))).expect("a page");
    let pages = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let pages: BTreeSet<String> = pages
        .map(|entry| entry.expect("a page").file_name().into_string().expect("UTF-8"))
        .map(|name| name.strip_suffix(".md").unwrap_or(&name).to_owned())
        .filter(|page| page != "README")
        .collect();
    let mut wanted: BTreeSet<String> =
        Reason::ALL.iter().map(|reason| reason.as_str().to_owned()).collect();
    wanted.extend(pages_in_sources());
    let missing: Vec<&String> = wanted.difference(&pages).collect();
    assert!(missing.is_empty(), "no pages: {missing:?}");
    // What keeps a daemon from starting has a page and no reason: there is nobody to tell it.
    let starts = |page: &String| !read(page).contains("the daemon does not start");
    let idle: Vec<&String> = pages.difference(&wanted).filter(|page| starts(page)).collect();
    assert!(idle.is_empty(), "pages without a reason: {idle:?}");
    let index = read("README");
    let unlisted: Vec<&String> =
        pages.iter().filter(|page| !index.contains(&format!("[{page}]({page}.md)"))).collect();
    assert!(unlisted.is_empty(), "pages that the index does not have: {unlisted:?}");
}

/// The contract of providers: what it is made of, where that stands, and what comes before each
/// name in it.
const CONTRACT: &[(&str, &str, &str)] = &[
    ("Cli", "server/src/provider/cli/mod.rs", "    fn "),
    ("Dialogue", "server/src/provider/cli/mod.rs", "    fn "),
    ("Provider", "server/src/provider/mod.rs", "    fn "),
    ("Instance", "server/src/provider/mod.rs", "    fn "),
    ("TurnIo", "server/src/provider/mod.rs", "    fn "),
    ("Capabilities", "server/src/provider/mod.rs", "    pub "),
];

/// The names in a trait or struct, by what comes before each.
fn names_in<'a>(text: &'a str, name: &str, before: &str) -> BTreeSet<&'a str> {
    let begins = |line: &str| {
        let heads = [format!("trait {name}"), format!("struct {name}")];
        let ends = |rest: &str| rest.starts_with(|c: char| !c.is_alphanumeric());
        heads.iter().any(|head| line.split_once(&**head).is_some_and(|(_, rest)| ends(rest)))
    };
    let body = text.lines().skip_while(|line| !begins(line)).take_while(|line| *line != "}");
    let rest = body.filter_map(|line| line.strip_prefix(before));
    let word = |rest: &'a str| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next();
    rest.filter_map(word).collect()
}

/// The names in the first column of the table of a page that begins so.
fn names_told<'a>(page: &'a str, name: &str) -> BTreeSet<&'a str> {
    let head = format!("| of `{name}` |");
    let rows = page.lines().skip_while(|line| !line.starts_with(&head)).skip(2);
    let first = rows.map_while(|line| line.strip_prefix('|')?.split('|').next());
    first.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn the_page_on_providers_has_all_of_the_contract() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("a text");
    let page = read("docs/adding-a-provider.md");
    for (name, path, before) in CONTRACT {
        let source = read(path);
        let names = names_in(&source, name, before);
        assert!(names.len() > 1, "{path} has no {name}");
        assert_eq!(names_told(&page, name), names, "the table of {name} in adding-a-provider.md");
    }
}
