//! The page that lists the attempts.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The tests in a source: the names of functions that follow an attribute.
fn tests_in(text: &str) -> impl Iterator<Item = String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let marked = |pair: &[&str]| pair[0] == "#[test]" || pair[0].starts_with("#[tokio::test");
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
    // Of git, those that are about an agent.
    let hostile = "../../server/src/workspace/git/tests/hostile.rs";
    let hostile = fs::read_to_string(tests.join(hostile)).unwrap();
    let harmless = ["what_other_programs_keep_beside_a_worktree_stands_against_nothing"];
    there.extend(tests_in(&hostile).filter(|test| !harmless.contains(&test.as_str())));
    let git = fs::read_to_string(tests.join("git.rs")).unwrap();
    let about_agents = [
        "a_pipe_that_an_agent_left_for_git_does_not_hold_a_deletion_up",
        "git_of_the_daemon_writes_only_where_it_is_to",
        "git_of_a_daemon_that_was_killed_is_ended",
    ];
    there.extend(tests_in(&git).filter(|test| about_agents.contains(&test.as_str())));
    let exits = fs::read_to_string(tests.join("exits.rs")).unwrap();
    let about_the_disk = [
        "a_limit_that_a_file_tool_met_is_told_as_well",
        "commands_that_end_before_they_are_looked_at_do_not_fill_the_disk",
        "what_is_written_through_a_link_counts_where_it_lies",
    ];
    there.extend(tests_in(&exits).filter(|test| about_the_disk.contains(&test.as_str())));
    let hidden = tests.join("../../server/src/workspace/tests/hidden.rs");
    there.extend(tests_in(&fs::read_to_string(hidden).unwrap()));
    let page = fs::read_to_string(tests.join("../../docs/security.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let last = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next().map(str::trim));
    let named: BTreeSet<String> = last
        .flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert_eq!(named, there);
}
