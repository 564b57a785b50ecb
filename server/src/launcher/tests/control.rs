use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use proptest::prelude::*;

use super::super::control::*;

fn setup(argv: Vec<String>, env: BTreeMap<String, String>) -> Setup {
    Setup {
        argv,
        env,
        dir: "/workspace".to_owned(),
        mounts: vec![("/run/substrat/mounts/0".to_owned(), "a\nb".to_owned())],
        in_memory: vec![("/tmp".to_owned(), 256)],
        limits: "core=0".to_owned(),
        egress: false,
        terminal: Some((24, 80)),
        umask: Some(0o022),
        sandboxed: true,
    }
}

proptest! {
    #[test]
    fn lines_are_the_same_however_their_bytes_arrive(
        argv in prop::collection::vec(any::<String>(), 0..4),
        env in prop::collection::btree_map(any::<String>(), any::<String>(), 0..4),
        cuts in prop::collection::vec(1_usize..64, 0..20),
    ) {
        let sent = [setup(argv, env.clone()), setup(Vec::new(), env)];
        let bytes: Vec<u8> = sent.iter().flat_map(|line| encode(line).unwrap()).collect();
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut incoming = Incoming::default();
        let mut came: Vec<Setup> = Vec::new();
        let mut rest = bytes.as_slice();
        let mut cuts = cuts.into_iter();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(cuts.next().unwrap_or(rest.len()).min(rest.len()));
            far.write_all(piece).unwrap();
            rest = after;
            prop_assert!(incoming.receive(&near).unwrap());
            while let Some(line) = incoming.line() {
                came.push(line.unwrap());
            }
        }
        prop_assert_eq!(came, sent.to_vec());
        drop(far);
        prop_assert!(!incoming.receive(&near).unwrap());
        prop_assert!(incoming.line::<Setup>().is_none());
    }

    #[test]
    fn what_is_no_line_is_an_error_and_no_panic(soup in prop::collection::vec(any::<u8>(), 0..512)) {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(&soup).unwrap();
        far.write_all(b"\n").unwrap();
        drop(far);
        let mut incoming = Incoming::default();
        let first: Result<Option<Setup>, _> = incoming.wait(&near);
        prop_assert!(first.is_err(), "{:?}", first);
    }
}

#[test]
fn a_line_without_end_is_refused() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let writer = std::thread::spawn(move || {
        let piece = vec![b'x'; 64 << 10];
        // Ends when nobody reads any more.
        while far.write_all(&piece).is_ok() {}
    });
    let mut incoming = Incoming::default();
    let refused: std::io::Result<Option<Told>> = incoming.wait(&near);
    assert_eq!(refused.unwrap_err().to_string(), "a line without end");
    drop(near);
    writer.join().unwrap();
}

#[test]
fn descriptors_come_in_order_beside_their_line() {
    let (near, far) = UnixStream::pair().unwrap();
    let files: Vec<_> = (0..3).map(|_| tempfile::tempfile().unwrap()).collect();
    for (number, mut file) in files.iter().enumerate() {
        write!(file, "{number}").unwrap();
    }
    let fds: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    send(&far, &Told::Ready, &fds).unwrap();
    let mut incoming = Incoming::default();
    assert_eq!(incoming.wait(&near).unwrap(), Some(Told::Ready));
    let same = |fd: &std::os::fd::OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
    let sent: Vec<u64> = files.iter().map(|file| rustix::fs::fstat(file).unwrap().st_ino).collect();
    assert_eq!(incoming.fds.iter().map(same).collect::<Vec<_>>(), sent);
    for fd in &incoming.fds {
        let flags = rustix::io::fcntl_getfd(fd).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}
