//! What holds which limit, and what a hit is called.

use std::collections::BTreeSet;

use super::*;

const ALL: Limits = Limits {
    memory: Some(4 << 30),
    cpu_millis: Some(1500),
    processes: Some(512),
    open_files: Some(1024),
    file_size: Some(1 << 30),
    disk: Some(10 << 30),
};

fn means(controllers: &[Controller], count: ProcessCount) -> Means {
    let controllers: BTreeSet<Controller> = controllers.iter().copied().collect();
    Means::of((!controllers.is_empty()).then_some((Version::V2, controllers)), count)
}

#[test]
fn what_is_in_force_says_how() {
    let all = means(&Controller::ALL, ProcessCount::Nobody);
    assert_eq!(
        in_force(&ALL, &all),
        [
            "memory 4 GiB (cgroup v2)",
            "cpu 1.5 processors (cgroup v2)",
            "processes 512 (cgroup v2)",
            "open files 1024 (RLIMIT_NOFILE, each process)",
            "file size 1 GiB (RLIMIT_FSIZE, each process)",
            "disk 10 GiB (counted every second or less often)",
        ]
    );
    let none = means(&[], ProcessCount::Sandbox);
    assert_eq!(
        in_force(&ALL, &none)[..3],
        [
            "memory 4 GiB (watched every 100 ms)",
            "cpu 2 processors (processor affinity)",
            "processes 512 (RLIMIT_NPROC)",
        ]
    );
    let root = means(&[], ProcessCount::Nobody);
    assert_eq!(in_force(&ALL, &root)[2], "processes 512 (watched every 100 ms)");
    assert_eq!(
        in_force(&Limits::default(), &all),
        [
            "memory none",
            "cpu none",
            "processes none",
            "open files none",
            "file size none",
            "disk none"
        ]
    );
}

#[test]
fn sizes_are_written_as_people_do() {
    let cases = [
        (0, "0 bytes"),
        (1000, "1000 bytes"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (64 << 20, "64 MiB"),
        (4 << 30, "4 GiB"),
        (u64::MAX, "15.9 EiB"),
    ];
    for (size, text) in cases {
        assert_eq!(bytes(size), text);
    }
}

#[test]
fn a_death_is_explained_by_the_limit_that_caused_it() {
    let hit = |kind| Hit { kind, ends: true, detail: String::new() };
    let refused = |kind| Hit { ends: false, ..hit(kind) };
    let kind = |signal, hits: &[Hit]| explain(signal, hits, &ALL).map(|hit| hit.kind);
    assert_eq!(kind(Some(25), &[]), Some(LimitKind::FileSize));
    assert_eq!(kind(Some(9), &[]), None);
    assert_eq!(kind(Some(9), &[refused(LimitKind::Memory)]), None);
    let both = [refused(LimitKind::Processes), hit(LimitKind::Memory)];
    assert_eq!(kind(Some(9), &both), Some(LimitKind::Memory));
    assert_eq!(kind(Some(9), &[hit(LimitKind::Memory)]), Some(LimitKind::Memory));
    assert_eq!(kind(Some(9), &[hit(LimitKind::Disk)]), Some(LimitKind::Disk));
    assert_eq!(kind(Some(15), &[hit(LimitKind::Memory)]), None);
    assert_eq!(kind(None, &[hit(LimitKind::Memory)]), None);
}

#[test]
fn a_process_sets_on_itself_what_no_cgroup_holds() {
    let cpus = [0, 1, 2, 3];
    let text = |controllers: &[Controller], count| {
        Rlimits::of(&ALL, &means(controllers, count), &cpus, 3).to_string()
    };
    let rest = "core=0,nofile=1024,fsize=1073741824";
    assert_eq!(text(&Controller::ALL, ProcessCount::Sandbox), rest);
    assert_eq!(
        text(&[], ProcessCount::Sandbox),
        format!("{rest},nproc=512,data=4294967296,cpus=0+3")
    );
    // Of root, or of all that a user runs, it would bind nobody or too many.
    let watched = format!("{rest},data=4294967296,cpus=0+3");
    assert_eq!(text(&[], ProcessCount::Nobody), watched);
    assert_eq!(text(&[], ProcessCount::User), watched);
    let nothing = Rlimits::of(&Limits::default(), &means(&[], ProcessCount::User), &cpus, 3);
    assert_eq!(nothing.to_string(), "core=0");
}
