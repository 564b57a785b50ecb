//! The page that lists the attempts.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The tests in a source: the names of functions that follow an attribute.
fn tests_in(text: &str) -> impl Iterator<Item = String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let marked = |pair: &[&str]| matches!(pair[0], "#[test]" | "#[tokio::test]");
    let names = lines.windows(2).filter(|pair| marked(pair)).map(|pair| {
        let rest = pair[1].split_once("fn ").expect("a function").1;
        rest.split_once('(').expect("its name").0.to_owned()
    });
    names.collect::<Vec<_>>().into_iter()
}

#[test]
fn every_test_of_the_suite_is_on_the_page() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut there: BTreeSet<String> = BTreeSet::new();
    for source in fs::read_dir(tests.join("escape")).unwrap() {
        there.extend(tests_in(&fs::read_to_string(source.unwrap().path()).unwrap()));
    }
    for name in ["escape.rs", "mounts.rs"] {
        there.extend(tests_in(&fs::read_to_string(tests.join(name)).unwrap()));
    }
    let page = fs::read_to_string(tests.join("../../docs/security.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let last = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next().map(str::trim));
    let named: BTreeSet<String> = last
        .flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert_eq!(named, there);
}
