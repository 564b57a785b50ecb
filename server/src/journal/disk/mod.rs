//! The few operations that the journal, the checkpoint and the projections need of a disk.

mod os;
#[cfg(any(test, feature = "sim"))]
mod sim;

use std::io;

pub use os::OsDisk;
#[cfg(any(test, feature = "sim"))]
pub use sim::{Crash, Fault, SimDisk};

/// A folder tree on a disk. Paths are relative to its root, with `/`.
///
/// Nothing is durable before it was synced: the bytes of a file with [`DiskFile::sync`], its name
/// with [`Disk::sync_dir`].
pub trait Disk: Send + Sync {
    /// Opens a file for reading and writing.
    fn open(&self, path: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Creates an empty file, or empties the one that is there.
    fn create(&self, path: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file or folder another name in the same folder; a file in place of what had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Creates a folder; one that is there is fine.
    fn create_dir(&self, path: &str) -> io::Result<()>;
    /// Removes a folder with everything in it; one that is not there is fine.
    fn remove_dir(&self, path: &str) -> io::Result<()>;
    /// The length of a file in bytes, without opening it.
    fn size(&self, path: &str) -> io::Result<u64>;
    /// The names in a folder, in no order.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, path: &str) -> io::Result<()>;
    /// Makes the bytes of these files and the names in these folders durable.
    fn sync_many(&self, files: &[String], dirs: &[String]) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: Send + Sync {
    /// Reads at most `buf.len()` bytes at `offset`; 0 at the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `data` at `offset`.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the bytes durable (`fdatasync`: with the length, without the other metadata).
    fn sync(&self) -> io::Result<()>;
    /// The length in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Cuts off, or extends with zeros.
    fn set_size(&self, size: u64) -> io::Result<()>;
}

/// Reads a whole file.
pub(crate) fn read_all(disk: &dyn Disk, path: &str) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let mut bytes = vec![0; usize::try_from(file.size()?).unwrap_or(usize::MAX)];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
