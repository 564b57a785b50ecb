//! Symbolic links and others in the places of mounts.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use substrat_server::launcher::Error;
use substrat_server::model::Access;
use substrat_server::workspace::SandboxPolicy;
use substrat_tests::hostile::{assert_held, python};
use substrat_tests::launch::Bench;

#[tokio::test]
async fn planted_links_lead_nowhere() {
    let bench = Bench::new(SandboxPolicy::Required);
    let outside = bench.host("outside");
    fs::write(outside.join("secret"), "the secret").unwrap();
    let script = r#"
for number, target in enumerate([OUTSIDE, "/proc/1/root" + OUTSIDE, "../" * 40 + OUTSIDE[1:], "/proc/self/root" + OUTSIDE,
                                 "/proc/1/cwd" + OUTSIDE]):
    link = f"/workspace/link{number}"
    os.symlink(target, link)
    attempt("reading through a link", lambda: read(link + "/secret"))
    attempt("writing through a link", lambda: write(link + "/new"))
    attempt("entering a link", lambda: os.chdir(link))
print("done")
"#;
    let script = format!("OUTSIDE = {:?}\n{script}", outside.to_str().unwrap());
    assert_held(&bench.run(python(bench.world(&[]), &script)).await);
    // Nor does the launcher follow them, for who is started next.
    let linked = bench.host("linked");
    for number in 0..5 {
        for at in [format!("link{number}"), format!("link{number}/below")] {
            let world = bench.world(&[(&at, &linked, Access::ReadWrite)]);
            let refused = bench.launcher.start(bench.shell(world, "true")).await;
            assert!(matches!(refused, Err(Error::Mount { .. })), "{refused:?}");
        }
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

/// Puts something in a place.
type Plant = fn(&Path);

#[tokio::test]
async fn what_is_no_folder_is_no_mount_point() {
    let bench = Bench::new(SandboxPolicy::Required);
    let linked = bench.host("linked");
    fs::create_dir_all(bench.root()).unwrap();
    let planted: [(&str, Plant); 4] = [
        ("file", |path| fs::write(path, "x").unwrap()),
        ("fifo", |path| mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap()),
        ("socket", |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
        ("link", |path| symlink("/usr", path).unwrap()),
    ];
    for (name, plant) in planted {
        plant(&bench.root().join(name));
        for at in [name.to_owned(), format!("{name}/below")] {
            let world = bench.world(&[(&at, &linked, Access::ReadOnly)]);
            match bench.launcher.start(bench.shell(world, "true")).await {
                Err(Error::Mount { path, problem, .. }) => {
                    assert_eq!(
                        (path, problem.as_str()),
                        (at, "at its place: it is no folder, or a symbolic link")
                    );
                }
                other => panic!("{at}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_link_whose_folder_became_a_symbolic_link_is_refused() {
    let bench = Bench::new(SandboxPolicy::Required);
    let (top, outside) = (bench.host("top"), bench.host("outside"));
    fs::create_dir_all(top.join("a/b")).unwrap();
    fs::create_dir(outside.join("b")).unwrap();
    let world = bench.world(&[("l", &top.join("a/b"), Access::ReadWrite)]);
    fs::remove_dir_all(top.join("a")).unwrap();
    symlink(&outside, top.join("a")).unwrap();
    let refused = bench.launcher.start(bench.shell(world, "touch l/x")).await;
    assert!(matches!(refused, Err(Error::Mount { .. })), "{refused:?}");
    assert_eq!(fs::read_dir(outside.join("b")).unwrap().count(), 0);
}
