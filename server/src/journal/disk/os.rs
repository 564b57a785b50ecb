//! The real disk: the only user of `std::fs` beside the daemon's own start.
#![allow(clippy::disallowed_methods, reason = "this is where files are touched")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{Disk, DiskFile};

/// From how many files on a sync of the whole filesystem is cheaper than one by one.
const MANY: usize = 64;

/// A folder tree on the disk of the machine. Files are created 0600 and folders 0700.
#[derive(Debug, Clone)]
pub struct OsDisk {
    root: PathBuf,
}

impl OsDisk {
    /// The tree below `root`, which exists.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

impl Disk for OsDisk {
    fn open(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path(path))?;
        Ok(Box::new(OsFile(file)))
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        Ok(Box::new(OsFile(options.open(self.path(path))?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.path(path))
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(self.path(path)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        match fs::remove_dir_all(self.path(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn size(&self, path: &str) -> io::Result<u64> {
        Ok(fs::metadata(self.path(path))?.len())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.path(path))? {
            // Names that are not UTF-8 are not ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        sync_path(&self.path(path))
    }

    fn sync_many(&self, files: &[String], dirs: &[String]) -> io::Result<()> {
        if files.len() + dirs.len() > MANY {
            return Ok(rustix::fs::syncfs(File::open(&self.root)?)?);
        }
        for path in files {
            match File::open(self.path(path)) {
                Ok(file) => file.sync_data()?,
                // Removed in the meantime: nothing is left to be durable.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        for path in dirs {
            match sync_path(&self.path(path)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        Ok(())
    }
}

fn sync_path(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

struct OsFile(File);

impl DiskFile for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let disk = OsDisk::new(home.path());
        disk.create_dir("a").unwrap();
        disk.create_dir("a").unwrap();
        disk.create("a/f").unwrap().write_at(b"x", 0).unwrap();
        let mode = |path| fs::metadata(home.path().join(path)).unwrap().permissions().mode();
        assert_eq!(mode("a") & 0o777, 0o700);
        assert_eq!(mode("a/f") & 0o777, 0o600);
        disk.sync_many(&["a/f".into(), "a/gone".into()], &["a".into(), "gone".into()]).unwrap();
        disk.remove_dir("a").unwrap();
        disk.remove_dir("a").unwrap();
    }
}
