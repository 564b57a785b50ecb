//! Configurations from all sources.
#![allow(clippy::disallowed_methods, reason = "writes the files that are read")]

use super::*;

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
        ("[providers.\"a b\"]\nkind = \"program\"", "providers.a b: its name contains white space"),
        ("[providers.program]\nslots = 0", "providers.program.slots: a number from 1 on"),
        ("[providers.program]\nattempts = \"x\"", "providers.program.attempts: invalid type"),
        ("[providers.program]\nslotz = 1", "unknown field `slotz`"),
        ("[providers.program]\nfallback = [\"x:y\"]", "there is no provider \"x\""),
        ("[providers.program]\nfallback = [\"program\"]", "cannot stand in for itself"),
        ("providers.x = 1", "name a key of it"),
    ] {
        let error = load(file, &[]).unwrap_err();
        assert!(error.contains(wanted) && error.contains("config.toml: "), "{error}");
    }
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
