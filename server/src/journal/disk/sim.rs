//! A disk that behaves as badly as a kernel and a drive may, and no worse.
//!
//! Bytes and names live in a cache until they are synced. A power failure loses, keeps or tears
//! every write and every change of a name that was not; the death of the process alone loses
//! nothing. Every operation that changes something is counted, so that a test can crash at each.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskFile};

/// What dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The process: the cache stays.
    Process,
    /// The power: what was not synced may be lost, kept or torn.
    Power,
}

/// What goes wrong at an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The machine stops: this operation and all later ones fail.
    Stop,
    /// This operation fails with EIO; a sync drops the cached writes of its file.
    Eio,
}

/// The unit in which a drive writes.
const SECTOR: usize = 512;

#[derive(Default, Clone)]
struct Inode {
    durable: Vec<u8>,
    cached: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write { offset: usize, data: Vec<u8> },
    Size(usize),
}

#[derive(Default, Clone)]
struct Dir {
    durable: BTreeMap<String, Node>,
    cached: BTreeMap<String, Node>,
    /// Each is a set of names and what they mean from then on, all or nothing.
    pending: Vec<Vec<(String, Option<Node>)>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    File(usize),
    Dir(usize),
}

#[derive(Default, Clone)]
struct Sim {
    inodes: Vec<Inode>,
    dirs: Vec<Dir>,
    operations: u64,
    faults: BTreeMap<u64, Fault>,
    stopped: bool,
    capacity: Option<u64>,
    random: u64,
}

/// A simulated disk; clones share it.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<Sim>>);

impl SimDisk {
    /// An empty disk whose crashes follow from `seed`.
    pub fn new(seed: u64) -> Self {
        let sim = Sim {
            dirs: vec![Dir::default()],
            random: seed ^ 0x9e37_79b9_7f4a_7c15,
            ..Sim::default()
        };
        Self(Arc::new(Mutex::new(sim)))
    }

    fn sim(&self) -> MutexGuard<'_, Sim> {
        // A test that panicked while it held the lock has failed already.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy that goes its own way from now on.
    pub fn fork(&self) -> Self {
        Self(Arc::new(Mutex::new(self.sim().clone())))
    }

    /// Changing operations so far.
    pub fn operations(&self) -> u64 {
        self.sim().operations
    }

    /// Lets something go wrong at the operation with this number.
    pub fn set_fault(&self, operation: u64, fault: Fault) {
        self.sim().faults.insert(operation, fault);
    }

    /// Whether a [`Fault::Stop`] was met.
    pub fn is_stopped(&self) -> bool {
        self.sim().stopped
    }

    /// Limits the bytes in all files together; none for no limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.sim().capacity = bytes;
    }

    /// Bytes in all files together.
    pub fn used(&self) -> u64 {
        self.sim().used()
    }

    /// Crashes, and comes back without faults. Open files must not be used any more.
    pub fn crash(&self, crash: Crash) {
        let sim = &mut *self.sim();
        sim.stopped = false;
        sim.faults.clear();
        if crash == Crash::Process {
            return;
        }
        for at in 0..sim.inodes.len() {
            let changes = std::mem::take(&mut sim.inodes[at].pending);
            for change in changes {
                let survived = sim.what_survives(change);
                sim.inodes[at].apply_durable(&survived);
            }
            sim.inodes[at].cached = sim.inodes[at].durable.clone();
        }
        for at in 0..sim.dirs.len() {
            let changes = std::mem::take(&mut sim.dirs[at].pending);
            for change in changes {
                if sim.draw(2) == 0 {
                    apply_names(&mut sim.dirs[at].durable, &change);
                }
            }
            sim.dirs[at].cached = sim.dirs[at].durable.clone();
        }
    }

    /// Flips a bit of a file, in the cache and on the disk.
    pub fn flip_bit(&self, path: &str, bit: u64) -> io::Result<()> {
        let sim = &mut *self.sim();
        let inode = sim.file(path)?;
        let inode = &mut sim.inodes[inode];
        let (byte, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        for bytes in [&mut inode.cached, &mut inode.durable] {
            if let Some(byte) = bytes.get_mut(byte) {
                *byte ^= mask;
            }
        }
        Ok(())
    }

    /// Every file with its bytes, as a process sees them now.
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let sim = self.sim();
        let files = sim.files();
        files.into_iter().map(|(path, at)| (path, sim.inodes[at].cached.clone())).collect()
    }
}

impl Sim {
    /// A number below `bound`.
    fn draw(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound.max(1)
    }

    /// Counts a changing operation and lets it go wrong if it is to.
    fn operation(&mut self) -> io::Result<()> {
        if self.stopped {
            return Err(io::Error::other("the machine stopped"));
        }
        self.operations += 1;
        match self.faults.get(&self.operations) {
            Some(Fault::Stop) => {
                self.stopped = true;
                Err(io::Error::other("the machine stopped"))
            }
            Some(Fault::Eio) => Err(io::Error::other("EIO")),
            None => Ok(()),
        }
    }

    /// Like [`Self::operation`], for one that may have happened although the machine stopped.
    fn maybe(&mut self) -> io::Result<bool> {
        let before = self.stopped;
        match self.operation() {
            Ok(()) => Ok(true),
            Err(_) if self.stopped && !before && self.draw(2) == 0 => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn finish(happened: bool) -> io::Result<()> {
        if happened { Ok(()) } else { Err(io::Error::other("the machine stopped")) }
    }

    /// Every file that has a name, and its inode.
    fn files(&self) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        let mut stack = vec![(String::new(), 0)];
        while let Some((prefix, dir)) = stack.pop() {
            for (name, node) in &self.dirs[dir].cached {
                match node {
                    Node::Dir(dir) => stack.push((format!("{prefix}{name}/"), *dir)),
                    Node::File(inode) => found.push((format!("{prefix}{name}"), *inode)),
                }
            }
        }
        found
    }

    fn used(&self) -> u64 {
        self.files().iter().map(|(_, at)| self.inodes[*at].cached.len() as u64).sum()
    }

    fn grow(&self, by: usize) -> io::Result<()> {
        match self.capacity {
            Some(capacity) if by > 0 && self.used() + by as u64 > capacity => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }

    fn what_survives(&mut self, change: Change) -> Vec<Change> {
        let Change::Write { offset, data } = change else {
            return if self.draw(2) == 0 { vec![change] } else { vec![] };
        };
        match self.draw(4) {
            0 => vec![],
            1 => vec![Change::Write { offset, data }],
            2 => {
                let kept = self.draw(data.len() as u64 + 1) as usize;
                vec![Change::Write { offset, data: data[..kept].to_vec() }]
            }
            _ => {
                let mut kept = Vec::new();
                for (number, sector) in data.chunks(SECTOR).enumerate() {
                    if self.draw(2) == 0 {
                        let offset = offset + number * SECTOR;
                        kept.push(Change::Write { offset, data: sector.to_vec() });
                    }
                }
                kept
            }
        }
    }

    fn node(&self, path: &str) -> Option<Node> {
        let mut node = Node::Dir(0);
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let Node::Dir(dir) = node else { return None };
            node = *self.dirs[dir].cached.get(part)?;
        }
        Some(node)
    }

    fn file(&self, path: &str) -> io::Result<usize> {
        match self.node(path) {
            Some(Node::File(inode)) => Ok(inode),
            Some(Node::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn dir(&self, path: &str) -> io::Result<usize> {
        match self.node(path) {
            Some(Node::Dir(dir)) => Ok(dir),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The folder of a path, and the last name in it.
    fn place<'a>(&self, path: &'a str) -> io::Result<(usize, &'a str)> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.dir(dir)?, name))
    }

    fn change_names(&mut self, dir: usize, names: Vec<(String, Option<Node>)>) {
        apply_names(&mut self.dirs[dir].cached, &names);
        self.dirs[dir].pending.push(names);
    }

    fn sync_file(&mut self, inode: usize) -> io::Result<()> {
        if let Err(error) = self.operation() {
            if !self.stopped {
                // The kernel drops the dirty pages of a file whose write-back failed.
                let inode = &mut self.inodes[inode];
                inode.pending.clear();
                inode.cached = inode.durable.clone();
            }
            return Err(error);
        }
        let inode = &mut self.inodes[inode];
        let changes = std::mem::take(&mut inode.pending);
        inode.apply_durable(&changes);
        Ok(())
    }

    fn sync_names(&mut self, dir: usize) -> io::Result<()> {
        self.operation()?;
        let dir = &mut self.dirs[dir];
        for change in std::mem::take(&mut dir.pending) {
            apply_names(&mut dir.durable, &change);
        }
        Ok(())
    }
}

impl Inode {
    fn apply_durable(&mut self, changes: &[Change]) {
        for change in changes {
            change.apply(&mut self.durable);
        }
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write { offset, data } => {
                let end = offset + data.len();
                if bytes.len() < end && !data.is_empty() {
                    bytes.resize(end, 0);
                }
                if !data.is_empty() {
                    bytes[*offset..end].copy_from_slice(data);
                }
            }
            Self::Size(size) => bytes.resize(*size, 0),
        }
    }
}

fn apply_names(names: &mut BTreeMap<String, Node>, change: &[(String, Option<Node>)]) {
    for (name, node) in change {
        match node {
            Some(node) => names.insert(name.clone(), *node),
            None => names.remove(name),
        };
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        let inode = self.sim().file(path)?;
        Ok(Box::new(SimFile { disk: self.clone(), inode }))
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        let sim = &mut *self.sim();
        let happened = sim.maybe()?;
        let inode = match sim.file(path) {
            Ok(inode) => {
                sim.inodes[inode].cached.clear();
                sim.inodes[inode].pending.push(Change::Size(0));
                inode
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (dir, name) = sim.place(path)?;
                let inode = sim.inodes.len();
                sim.inodes.push(Inode::default());
                sim.change_names(dir, vec![(name.to_owned(), Some(Node::File(inode)))]);
                inode
            }
            Err(error) => return Err(error),
        };
        Sim::finish(happened)?;
        Ok(Box::new(SimFile { disk: self.clone(), inode }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let sim = &mut *self.sim();
        let happened = sim.maybe()?;
        let node = sim.node(from).ok_or(io::ErrorKind::NotFound)?;
        let ((dir, old), (other, new)) = (sim.place(from)?, sim.place(to)?);
        if dir != other {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        sim.change_names(dir, vec![(old.to_owned(), None), (new.to_owned(), Some(node))]);
        Sim::finish(happened)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let sim = &mut *self.sim();
        let happened = sim.maybe()?;
        sim.file(path)?;
        let (dir, name) = sim.place(path)?;
        sim.change_names(dir, vec![(name.to_owned(), None)]);
        Sim::finish(happened)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        let sim = &mut *self.sim();
        if sim.dir(path).is_ok() {
            return Ok(());
        }
        let happened = sim.maybe()?;
        let (dir, name) = sim.place(path)?;
        let new = sim.dirs.len();
        sim.dirs.push(Dir::default());
        sim.change_names(dir, vec![(name.to_owned(), Some(Node::Dir(new)))]);
        Sim::finish(happened)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        let sim = &mut *self.sim();
        if sim.dir(path).is_err() {
            return Ok(());
        }
        let happened = sim.maybe()?;
        let (dir, name) = sim.place(path)?;
        sim.change_names(dir, vec![(name.to_owned(), None)]);
        Sim::finish(happened)
    }

    fn size(&self, path: &str) -> io::Result<u64> {
        let sim = self.sim();
        let inode = sim.file(path)?;
        Ok(sim.inodes[inode].cached.len() as u64)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let sim = self.sim();
        let dir = sim.dir(path)?;
        Ok(sim.dirs[dir].cached.keys().cloned().collect())
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let sim = &mut *self.sim();
        let dir = sim.dir(path)?;
        sim.sync_names(dir)
    }

    fn sync_many(&self, files: &[String], dirs: &[String]) -> io::Result<()> {
        let sim = &mut *self.sim();
        for path in files {
            if let Ok(inode) = sim.file(path) {
                sim.sync_file(inode)?;
            }
        }
        for path in dirs {
            if let Ok(dir) = sim.dir(path) {
                sim.sync_names(dir)?;
            }
        }
        Ok(())
    }
}

struct SimFile {
    disk: SimDisk,
    inode: usize,
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let sim = self.disk.sim();
        let bytes = &sim.inodes[self.inode].cached;
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let read = rest.len().min(buf.len());
        buf[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let sim = &mut *self.disk.sim();
        let happened = sim.maybe()?;
        let end = offset as usize + data.len();
        sim.grow(end.saturating_sub(sim.inodes[self.inode].cached.len()))?;
        let change = Change::Write { offset: offset as usize, data: data.to_vec() };
        let inode = &mut sim.inodes[self.inode];
        change.apply(&mut inode.cached);
        inode.pending.push(change);
        Sim::finish(happened)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sim().sync_file(self.inode)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.sim().inodes[self.inode].cached.len() as u64)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        let sim = &mut *self.disk.sim();
        let happened = sim.maybe()?;
        let inode = self.inode;
        sim.grow((size as usize).saturating_sub(sim.inodes[inode].cached.len()))?;
        sim.inodes[inode].cached.resize(size as usize, 0);
        sim.inodes[inode].pending.push(Change::Size(size as usize));
        Sim::finish(happened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(disk: &SimDisk, path: &str, data: &[u8]) -> Box<dyn DiskFile> {
        let file = disk.create(path).unwrap();
        file.write_at(data, 0).unwrap();
        file
    }

    #[test]
    fn synced_bytes_and_names_survive_a_power_failure_and_nothing_else_must() {
        let mut outcomes = [0; 2];
        for seed in 0..64 {
            let disk = SimDisk::new(seed);
            write(&disk, "kept", b"kept").sync().unwrap();
            disk.sync_dir("").unwrap();
            write(&disk, "loose", b"loose");
            disk.crash(Crash::Power);
            let contents = disk.contents();
            assert_eq!(contents.get("kept").map(Vec::as_slice), Some(&b"kept"[..]));
            outcomes[usize::from(contents.contains_key("loose"))] += 1;
        }
        assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
    }

    #[test]
    fn the_death_of_the_process_loses_nothing() {
        let disk = SimDisk::new(1);
        write(&disk, "loose", b"loose");
        disk.crash(Crash::Process);
        assert_eq!(disk.contents()["loose"], b"loose");
    }

    #[test]
    fn a_failed_sync_drops_the_cached_writes() {
        let disk = SimDisk::new(1);
        let file = write(&disk, "f", b"first");
        file.sync().unwrap();
        file.write_at(b"second", 0).unwrap();
        disk.set_fault(disk.operations() + 1, Fault::Eio);
        assert!(file.sync().is_err());
        assert!(file.sync().is_ok(), "the next sync succeeds, and must not be believed");
        assert_eq!(disk.contents()["f"], b"first");
    }

    #[test]
    fn a_full_disk_takes_no_more_bytes() {
        let disk = SimDisk::new(1);
        disk.set_capacity(Some(8));
        let file = write(&disk, "f", b"12345678");
        let error = file.write_at(b"9", 8).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        file.write_at(b"8", 0).unwrap();
    }
}
