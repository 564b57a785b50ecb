use std::path::PathBuf;

use super::super::bubblewrap::*;
use crate::model::Access;

fn bound(fd: i32, at: &str, access: Access) -> Bound {
    Bound { fd, at: at.to_owned(), access }
}

fn line(plan: &Plan<'_>) -> Vec<String> {
    argv(plan).into_iter().map(|word| word.into_string().unwrap()).collect()
}

#[test]
fn a_sandbox_is_this_command_line() {
    let system = [
        Part::Shown("/usr".into()),
        Part::Symlink("/bin".into(), "usr/bin".into()),
        Part::ShownAs("/run/own/passwd".into(), "/etc/passwd".into()),
    ];
    let mounts = [bound(8, "src", Access::ReadWrite), bound(9, "src/-x y\n", Access::ReadOnly)];
    let binds = [bound(10, "/home/agent/.agent", Access::ReadWrite)];
    let plan = Plan {
        system: &system,
        root: Some(bound(7, WORKSPACE, Access::ReadWrite)),
        private: &[],
        mounts: &mounts,
        binds: &binds,
        excludes: None,
        init: 11,
        network: false,
        tmp_bytes: 1 << 30,
    };
    let expected = "--unshare-user --uid 0 --gid 0 --cap-add CAP_SYS_ADMIN \
                    --cap-add CAP_SETFCAP --unshare-pid --as-pid-1 \
                    --unshare-uts --hostname sandbox --unshare-ipc --unshare-cgroup \
                    --die-with-parent --new-session --clearenv --unshare-net \
                    --ro-bind /usr /usr --symlink usr/bin /bin \
                    --ro-bind /run/own/passwd /etc/passwd --proc /proc --dev /dev \
                    --size 268435456 --tmpfs /dev/shm --size 1073741824 --tmpfs /tmp \
                    --size 1073741824 --tmpfs /home/agent --remount-ro /dev \
                    --bind-fd 7 /workspace --bind-fd 8 /run/substrat/mounts/0 \
                    --ro-bind-fd 9 /run/substrat/mounts/1 --bind-fd 10 /home/agent/.agent \
                    --ro-bind-fd 11 /run/substrat/init --remount-ro / --chdir / -- \
                    /run/substrat/init init";
    assert_eq!(line(&plan).join(" "), expected);
    let online = line(&Plan { network: true, ..plan });
    assert!(!online.contains(&"--unshare-net".to_owned()));
}

#[test]
fn an_empty_workspace_is_in_memory_and_no_size_is_no_limit_nowhere() {
    let plan = Plan {
        system: &[],
        root: None,
        private: &[],
        mounts: &[],
        binds: &[],
        excludes: None,
        init: 3,
        network: false,
        tmp_bytes: 0,
    };
    let line = line(&plan).join(" ");
    assert!(line.contains("--size 4096 --tmpfs /workspace"), "{line}");
    assert!(!line.contains("--size 0"), "{line}");
    let usual = InMemory { workspace: true, home: true };
    let files = files_in_memory(1 << 20, usual, &[]);
    assert_eq!(files.last(), Some(&(WORKSPACE.to_owned(), 256)));
    assert_eq!(files.len(), 4);
    let binds = [bound(9, HOME, Access::ReadWrite)];
    let line = self::line(&Plan { binds: &binds, ..plan }).join(" ");
    assert!(!line.contains("--tmpfs /home/agent"), "{line}");
    let files = files_in_memory(1 << 20, InMemory { home: false, ..usual }, &[]);
    assert!(files.iter().all(|(at, _)| at != HOME));
}

#[test]
fn what_a_workspace_names_never_stands_on_the_command_line() {
    // Only numbers of descriptors do, so nothing there is taken for an option.
    let mounts = [bound(8, "--bind / /workspace/x", Access::ReadOnly)];
    let plan = Plan {
        system: &[Part::Shown(PathBuf::from("/usr"))],
        root: None,
        private: &[],
        mounts: &mounts,
        binds: &[],
        excludes: None,
        init: 3,
        network: true,
        tmp_bytes: 1 << 20,
    };
    assert!(!line(&plan).iter().any(|word| word.contains("/workspace/x")));
}
