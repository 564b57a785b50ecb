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
    assert_eq!(config.slots()["scripted"], 5);
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
