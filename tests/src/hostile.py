import ctypes, errno, fcntl, os, signal, socket, stat, struct, sys, time

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

# Numbers of system calls: for x86-64, and for all machines that came later.
X86 = os.uname().machine == "x86_64"
NUMBERS = {
    "ptrace": (101, 117), "syslog": (103, 116), "unshare": (272, 97), "setns": (308, 268),
    "clone": (56, 220), "clone3": (435, 435), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "bpf": (321, 280),
    "perf_event_open": (298, 241), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "userfaultfd": (323, 282), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "fanotify_init": (300, 262), "sethostname": (170, 161),
    "setdomainname": (171, 162), "vhangup": (153, 58), "lookup_dcookie": (212, 18),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "process_vm_readv": (310, 270), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "renameat2": (316, 276), "fchmodat2": (452, 452), "capset": (126, 91),
    "memfd_create": (319, 279), "shmget": (29, 194), "shmat": (30, 196),
}


def call(name, *args):
    number = NUMBERS[name][0 if X86 else 1] if isinstance(name, str) else name
    args = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    result = libc.syscall(ctypes.c_long(number), *args)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def attempt(what, how, only=None):
    """Says whether something failed, and with the only error that it may fail with."""
    try:
        result = how()
    except OSError as error:
        name = errno.errorcode.get(error.errno, error.errno)
        if only is None or error.errno == only:
            print("refused:", what, name)
        else:
            print("ESCAPED:", what, "was let through to fail with", name)
    else:
        print("ESCAPED:", what, repr(result)[:200])


def read(path):
    with open(path, "rb") as file:
        return file.read(64)


def write(path, text=b"x"):
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(file, text)
    return path


def say(*words):
    print(*words, flush=True)
