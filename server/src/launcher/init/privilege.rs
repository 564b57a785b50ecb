//! Giving up what the sandbox was built with: a user namespace of its own, no capability in any,
//! and no system call that could get one back.

use std::collections::BTreeMap;
use std::io;

use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, Signal};
use rustix::fs::{CWD, Dir, Mode, OFlags, open, openat};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

/// The user and group that a command runs as, inside.
pub(super) const USER: u32 = 1000;

/// Closes everything but the standard streams: a folder that is left open leads out. To be called
/// before anything else is opened.
pub(super) fn close_inherited() -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listing = Dir::new(open("/proc/self/fd", flags, Mode::empty())?)?;
    let mut numbers: Vec<i32> = Vec::new();
    for entry in listing {
        let entry = entry?;
        numbers.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok()));
    }
    for number in numbers.into_iter().filter(|number| *number > 2) {
        match nix::unistd::close(number) {
            // The listing itself is closed by now.
            Ok(()) | Err(nix::errno::Errno::EBADF) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

type Step = (String, io::Error);

fn at<E: Into<io::Error>>(step: &str) -> impl FnOnce(E) -> Step {
    let step = step.to_owned();
    move |error| (step, error.into())
}

/// Leaves this process, and all that it starts, without any privilege.
pub(super) fn drop_all() -> Result<(), Step> {
    // From here on nobody inside looks into this process, which holds the daemon's socket.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(at("hiding its memory"))?;
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER).map_err(at("making a user namespace"))?;
    map_user().map_err(at("mapping its user"))?;
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The first one that the kernel does not know.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(at("bounding its capabilities")(error)),
        }
    }
    clear_ambient_capability_set().map_err(at("dropping its capabilities"))?;
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, none).map_err(at("dropping its capabilities"))?;
    set_no_new_privs(true).map_err(at("forbidding new privileges"))?;
    for filter in filters().map_err(at("making the system call filter"))? {
        let applied = seccompiler::apply_filter(&filter).map_err(io::Error::other);
        applied.map_err(at("filtering system calls"))?;
    }
    Ok(())
}

/// Keeps this thread, and those that it starts, from being told of faults that it did not make.
/// Whatever else comes from inside finds no handler, and is lost on process 1; for these the Rust
/// runtime has one, which overflows its stack when both come at once. To be called when the
/// command was started, which would inherit it.
pub(super) fn hold_faults() -> io::Result<()> {
    let faults: SigSet = [Signal::SIGSEGV, Signal::SIGBUS].into_iter().collect();
    Ok(faults.thread_block()?)
}

/// Makes the owner of the sandbox the user inside.
fn map_user() -> io::Result<()> {
    let map = format!("{USER} 0 1\n");
    for (file, text) in [("setgroups", "deny"), ("uid_map", &map), ("gid_map", &map)] {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(CWD, format!("/proc/self/{file}"), flags, Mode::empty());
        match file {
            Ok(file) => _ = rustix::io::write(file, text.as_bytes())?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// System calls that fail with EPERM: what makes or enters namespaces, changes mounts, loads code
/// into the kernel, changes the machine, or has been a way out of sandboxes before.
const FORBIDDEN: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// What gives a file the set-user-ID or set-group-ID bit, and which argument is its mode. The user
/// of the sandbox is one of the host's: such a file in a linked folder lends its rights to others.
const MODES: &[(i64, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_mknodat, 2),
];
/// What makes a file: which arguments are its flags, if it has some, and its mode.
const MAKERS: &[(i64, Option<u8>, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, Some(1), 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, None, 1),
    (libc::SYS_openat, Some(2), 3),
];
/// The bit of O_TMPFILE that is not O_DIRECTORY.
const TMPFILE: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;
/// Since Linux 6.6, on all machines.
const FCHMODAT2: i64 = 452;
/// Families of sockets that there are. Others are not held by a network namespace, such as the one
/// to the host of a virtual machine, or are of no use here.
const FAMILIES: &[i32] = &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

fn filters() -> io::Result<[BpfProgram; 4]> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        FORBIDDEN.iter().map(|call| (*call, Vec::new())).collect();
    for (call, argument) in MODES {
        let bits = [libc::S_ISUID, libc::S_ISGID].map(|bit| {
            let masked = SeccompCmpOp::MaskedEq(u64::from(bit));
            let width = SeccompCmpArgLen::Dword;
            rule(vec![SeccompCondition::new(*argument, width, masked, u64::from(bit))])
        });
        rules.insert(*call, bits.into_iter().collect::<io::Result<_>>()?);
    }
    // The same for what makes a file; the mode is looked at only where one is made.
    for (call, flags, mode) in MAKERS {
        let mut makes = Vec::new();
        for bit in [libc::S_ISUID, libc::S_ISGID] {
            let bits = |argument, bits: u64| {
                let masked = SeccompCmpOp::MaskedEq(bits);
                SeccompCondition::new(argument, SeccompCmpArgLen::Dword, masked, bits)
            };
            match flags {
                None => makes.push(rule(vec![bits(*mode, u64::from(bit))])?),
                Some(flags) => {
                    for flag in [libc::O_CREAT, TMPFILE] {
                        let flag = bits(*flags, u64::from(flag.unsigned_abs()));
                        makes.push(rule(vec![bits(*mode, u64::from(bit)), flag])?);
                    }
                }
            }
        }
        rules.insert(*call, makes);
    }
    // A new namespace of any kind; the flags of clone3 lie in memory.
    let namespaces = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let asks_for = |flag: i32| {
        let flag = u64::from(flag.unsigned_abs());
        let masked = SeccompCmpOp::MaskedEq(flag);
        rule(vec![SeccompCondition::new(0, SeccompCmpArgLen::Qword, masked, flag)])
    };
    let clone: io::Result<Vec<_>> = namespaces.into_iter().map(asks_for).collect();
    rules.insert(libc::SYS_clone, clone?);
    // Typing into a terminal that somebody else reads.
    let typing = [libc::TIOCSTI, libc::TIOCLINUX].map(|request| {
        let equal = SeccompCmpOp::Eq;
        rule(vec![SeccompCondition::new(1, SeccompCmpArgLen::Dword, equal, request)])
    });
    rules.insert(libc::SYS_ioctl, typing.into_iter().collect::<io::Result<_>>()?);
    // A kernel without clone3 is one that C libraries know how to do with.
    // Nor one without openat2, whose mode lies in memory.
    let calls = [libc::SYS_clone3, libc::SYS_openat2];
    let unknown = calls.map(|call| (call, Vec::new())).into();
    let not_one_of = FAMILIES.iter().map(|family| {
        let family = u64::from(family.unsigned_abs());
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)
    });
    let sockets = vec![rule(not_one_of.collect())?];
    let sockets =
        BTreeMap::from([(libc::SYS_socket, sockets.clone()), (libc::SYS_socketpair, sockets)]);
    Ok([
        program(rules, libc::EPERM)?,
        program(unknown, libc::ENOSYS)?,
        program(sockets, libc::EAFNOSUPPORT)?,
        no_other_numbers(),
    ])
}

/// Refuses the second set of numbers for the calls of x86-64, which kernels may have (x32): the
/// other filters know the first one only.
fn no_other_numbers() -> BpfProgram {
    const OTHER: u32 = 0x4000_0000;
    let instruction = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let refuse = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    vec![
        // The number is the first field of what a filter sees.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, OTHER),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, refuse),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

fn program(rules: BTreeMap<i64, Vec<SeccompRule>>, error: i32) -> io::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let refuse = SeccompAction::Errno(error.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch);
    filter.and_then(BpfProgram::try_from).map_err(io::Error::other)
}

type Condition = Result<SeccompCondition, seccompiler::BackendError>;

/// A rule that holds when all of these do.
fn rule(conditions: Vec<Condition>) -> io::Result<SeccompRule> {
    let conditions = conditions.into_iter().collect::<Result<_, _>>();
    conditions.and_then(SeccompRule::new).map_err(io::Error::other)
}
