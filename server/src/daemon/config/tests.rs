//! Configurations from all sources.
#![allow(clippy::disallowed_methods, reason = "writes the files that are read")]

use super::*;

/// Blocks of TOML in the pages that are for other programs: the page, and how the block begins.
const FOREIGN: &[(&str, &str)] = &[("docs/mcp.md", "[mcp_servers.substrat]")];

/// The text of each page, by its path from the root of the project.
fn pages() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut pages, mut folders) = (vec![root.join("README.md")], vec![root.join("docs")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    let page = |path: PathBuf| {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read_to_string(&path).unwrap())
    };
    pages.into_iter().map(page).collect()
}

/// The blocks of TOML in a page, with the line in which each begins.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().map(str::trim).zip(1..);
    while let Some((line, number)) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let inside = lines.by_ref().map(|(line, _)| line).take_while(|line| *line != "```");
        let text: Vec<&str> = inside.collect();
        if language.to_lowercase().contains("toml") {
            blocks.push((number, text.join("\n")));
        }
    }
    blocks
}

#[test]
fn every_example_of_the_pages_can_be_loaded() {
    let (mut loaded, mut foreign) = (0, Vec::new());
    for (page, text) in pages() {
        for (line, block) in blocks(&text) {
            let known = |(of, start): &&(&str, &str)| page == *of && block.starts_with(start);
            if let Some(known) = FOREIGN.iter().find(known) {
                foreign.push(*known);
                continue;
            }
            if let Err(error) = load(&block, &[], &[]) {
                panic!("{page}, line {line}: {error}");
            }
            loaded += 1;
        }
    }
    assert_eq!(foreign, FOREIGN);
    assert!(loaded > 10, "only {loaded} examples were found");
}

fn load(file: &str, environment: &[(&str, &str)], flags: &[&str]) -> Result<Config, String> {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("config.toml"), file).unwrap();
    let environment =
        environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    Config::load(home.path(), environment, &flags).map_err(|error| error.to_string())
}

#[test]
fn later_sources_win_and_are_named() {
    let file = "resume = \"all\"\n[slots]\ndefault = 2\nscripted = 3\n";
    let environment = [("SUBSTRAT_SLOTS_SCRIPTED", "5"), ("SUBSTRAT_HOME", "/x")];
    let config = load(file, &environment, &["resume=none"]).unwrap();
    assert_eq!(config.number("slots.scripted"), 5);
    let shown = config.show();
    let source = |key: &str| {
        let value = shown.values.iter().find(|value| value.key == key).unwrap();
        (value.value.clone(), value.source.clone())
    };
    assert_eq!(source("resume"), ("\"none\"".to_owned(), "--set".to_owned()));
    assert_eq!(source("slots.scripted").1, "SUBSTRAT_SLOTS_SCRIPTED");
    assert!(source("slots.default").1.ends_with("config.toml"));
    assert_eq!(source("drain_seconds"), ("30".to_owned(), "default".to_owned()));
}

#[test]
fn endpoints_are_read_from_any_source() {
    let endpoints = |file, environment: &[(&str, &str)]| -> Vec<String> {
        let config = load(file, environment, &[]).unwrap();
        config.endpoints().iter().map(ToString::to_string).collect()
    };
    assert!(endpoints("", &[]).is_empty());
    let file = "[sandbox]\nendpoints = [\"https://a.example\", \"http://127.0.0.1:11434\"]";
    assert_eq!(endpoints(file, &[]), ["a.example:443", "127.0.0.1:11434"]);
    let variable = ("SUBSTRAT_SANDBOX_ENDPOINTS", "[\"https://*.b.example\"]");
    assert_eq!(endpoints(file, &[variable]), ["*.b.example:443"]);
}

#[test]
fn what_does_not_fit_is_said() {
    let error = load("slot = 3", &[], &[]).unwrap_err();
    assert!(error.contains("unknown key \"slot\""), "{error}");
    let error = load("[slots]\ndefault = 0", &[], &[]).unwrap_err();
    assert!(error.contains("from 1 to"), "{error}");
    let error = load("resume = \"some\"", &[], &[]).unwrap_err();
    assert!(error.contains("roots, all, none"), "{error}");
    let error = load("sandbox.endpoints = \"https://a.example\"", &[], &[]).unwrap_err();
    assert!(error.contains("such as [\"https://api.example.com\"]"), "{error}");
    let error = load("sandbox.endpoints = [\"a.example\"]", &[], &[]).unwrap_err();
    assert!(error.contains("\"a.example\": it has no port"), "{error}");
    let error = load("", &[("SUBSTRAT_RESUMEE", "x")], &[]).unwrap_err();
    assert!(error.contains("SUBSTRAT_RESUMEE"), "{error}");
    let error = load("resume = \"all\"\n[slots\n", &[], &[]).unwrap_err();
    assert!(error.contains("config.toml: line 2, column 7: "), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn sections_on_providers_are_read_and_checked() {
    let load = |file, flags: &[&str]| load(file, &[], flags);
    let config =
        load("[providers.scripted]\nslots = 3", &["providers.runner.kind=program"]).unwrap();
    let shown = config.show();
    let row = |key: &str| {
        let value = shown.values.iter().find(|value| value.key == key).unwrap();
        (value.value.clone(), value.source.ends_with("config.toml"))
    };
    assert_eq!(row("providers.scripted.slots"), ("3".to_owned(), true));
    assert_eq!(row("providers.runner.kind"), ("\"program\"".to_owned(), false));
    for (file, wanted) in [
        ("[providers.x]", "providers.x.kind: it names no kind; one of these fits: "),
        ("[providers.x]\nkind = \"y\"", "providers.x.kind: there is no kind \"y\""),
        (
            "[providers.\"a b\"]\nkind = \"program\"",
            "providers.\"a b\": its name contains white space",
        ),
        ("[providers.program]\nslots = 0", "providers.program.slots: a number from 1 on"),
        ("[providers.program]\nattempts = \"x\"", "providers.program.attempts: invalid type"),
        ("[providers.program]\nslotz = 1", "unknown field `slotz`"),
        ("[providers.claude-code]\ncommand = 1", "; every command-line agent may have program, "),
        ("[providers.claude-code]\ncommand = 1", "; every section may have kind, slots, "),
        ("[providers.program]\nfallback = [\"x:y\"]", "there is no provider \"x\""),
        ("[providers.program]\nfallback = [\"program\"]", "cannot stand in for itself"),
        ("providers.x = 1", "name a key of it"),
    ] {
        let error = load(file, &[]).unwrap_err();
        assert!(error.contains(wanted) && error.contains("config.toml: "), "{error}");
    }
}

#[test]
fn a_key_with_dots_is_one_key() {
    let price = |file| {
        let shown = load(file, &[], &[]).unwrap().show();
        let is_price = |value: &&v1::ConfigValue| value.key == "providers.openrouter.prices";
        shown.values.iter().find(is_price).unwrap().value.clone()
    };
    let inline =
        price("[providers.openrouter]\nprices = { \"vendor/model-4.1\" = { input = 3.0 } }");
    assert!(inline.contains("\"vendor/model-4.1\" = "), "{inline}");
    let section = "[providers.openrouter.prices.\"vendor/model-4.1\"]\ninput = 3.0";
    assert_eq!(price(section), inline);
    let dotted = "providers.openrouter.prices.\"vendor/model-4.1\".input = 3.0";
    assert_eq!(price(dotted), inline);

    let file = "[providers.gemini.files]\n\".gemini/settings.json\" = \"{}\"\n\
                [providers.gemini.env]\n\"a.b\" = \"c\"\n\
                [providers.\"my.vllm\"]\nkind = \"openai\"\n\
                base_url = \"http://127.0.0.1:8000/v1\"";
    let flags = ["providers.\"my.vllm\".model=m", "providers.gemini.files.\".x.json\"=y"];
    let shown = load(file, &[], &flags).unwrap().show();
    let row = |key: &str| {
        let value = shown.values.iter().find(|value| value.key == key).unwrap();
        (value.value.clone(), value.source.ends_with("config.toml"))
    };
    let (files, _) = row("providers.gemini.files");
    assert!(files.contains("\".gemini/settings.json\" = "), "{files}");
    assert!(files.contains("\".x.json\" = "), "{files}");
    assert_eq!(row("providers.gemini.env"), ("{ \"a.b\" = … }".to_owned(), true));
    assert_eq!(row("providers.\"my.vllm\".kind"), ("\"openai\"".to_owned(), true));
    assert_eq!(row("providers.\"my.vllm\".model"), ("\"m\"".to_owned(), false));
}

#[test]
fn a_key_with_dots_is_named_in_quotes() {
    for (file, wanted) in [
        ("[providers.\"my.vllm\"]", "providers.\"my.vllm\".kind: it names no kind"),
        ("[providers.\".x\"]\nkind = \"program\"", "providers.\".x\": its name starts with"),
        ("providers.\"a.b\" = 1", "providers.\"a.b\": name a key of it"),
        (
            "[providers.openrouter.prices.\"vendor/model-4.1\"]\ninput = \"x\"",
            "providers.openrouter.prices.\"vendor/model-4.1\".input: invalid type",
        ),
        ("[providers.gemini.files]\n\"a.b\" = 1", "providers.gemini.files.\"a.b\": invalid type"),
        ("[providers.gemini]\nargs = [\"a\", 1]", "providers.gemini.args[1]: invalid type"),
        ("\"providers.x.kind\" = \"program\"", "unknown key \"providers.x.kind\"; in quotes"),
    ] {
        let error = load(file, &[], &[]).unwrap_err();
        assert!(error.contains(&format!("config.toml: {wanted}")), "{error}");
    }
}

#[test]
fn what_is_wrong_in_a_section_is_laid_to_whoever_said_it() {
    let file = "[providers.openrouter.prices]\nb = { input = 1.0 }\n[providers.my]\nslots = 1";
    for (flag, wanted) in [
        ("providers.openrouter.prices.a.input=x", "--set: providers.openrouter.prices.a.input: "),
        ("providers.openrouter.prices.b.input=x", "--set: providers.openrouter.prices.b.input: "),
        ("providers.openrouter.prices.b.x.y=x", "--set: providers.openrouter.prices.b.x: "),
        ("providers.my.slots.x=1", "--set: providers.my.slots.x: slots has no keys"),
        ("providers.my=1", "--set: providers.my: name a key of it"),
        ("providers.my2.slots=1", "--set: providers.my2.kind: it names no kind"),
    ] {
        let flags = ["providers.my.kind=program", flag];
        let error = load(file, &[], &flags).unwrap_err();
        assert!(error.starts_with(wanted), "{error}");
    }
    let error = load(file, &[], &["providers.other.kind=program"]).unwrap_err();
    assert!(error.contains("config.toml: providers.my.kind: "), "{error}");
}

#[test]
fn a_reload_tells_what_is_in_force_and_what_is_not_yet() {
    let before = load("[slots]\ndefault = 2", &[], &[]).unwrap();
    let file = "[slots]\ndefault = 3\n[journal]\nsegment_mib = 2\n[providers.program]\nslots = 1";
    let after = load(file, &[], &[]).unwrap();
    let (live, later) = before.differences(&after);
    assert_eq!((live, later), (vec!["slots.default".into()], vec!["journal.segment_mib".into()]));
    let mixed = before.with_live(after.clone());
    assert_eq!(mixed.number("slots.default"), 3);
    assert_ne!(mixed.number("journal.segment_mib"), 2);
    assert_eq!(mixed.sections, after.sections);
}
