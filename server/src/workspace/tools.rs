//! The file tools.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};

use cap_std::fs::{Dir, OpenOptions, Permissions, PermissionsExt};
use rustix::fs::OFlags;
use serde_json::{Value, json};

use super::files::{readable, sync};
use super::git_file::Guard;
use super::resolve::{Last, Place, join};
use super::{Error, Files};
use crate::model::{ListFiles, ReadFile, Tool, World, WriteFile};
use crate::model::{covers, workspace_path};

/// Most bytes of text that one read returns.
const MAX_READ: usize = 256 << 10;
/// Largest file that is read from, in bytes: lines are counted from its start.
const MAX_FILE: u64 = 256 << 20;
/// Most entries that one listing returns.
const MAX_ENTRIES: usize = 5000;
/// How deep a listing descends.
const MAX_DEPTH: usize = 32;
/// Neither waits for the other end of a FIFO nor takes a terminal.
const HARMLESS: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);

impl Files {
    /// Runs a file tool of an agent that sees this.
    pub fn run(&self, world: &World, tool: &Tool) -> Result<Value, Error> {
        match tool {
            Tool::ReadFile(args) => self.read(world, args),
            Tool::WriteFile(args) => self.write(world, args),
            Tool::ListFiles(args) => self.list(world, args),
            _ => Err(Error::NotOnFiles),
        }
    }

    fn find(&self, world: &World, path: &str, last: Last) -> Result<Place, Error> {
        let normal = workspace_path(path).map_err(|no| Error::Path(no.to_string()))?;
        self.resolve(world, &normal, last)
    }

    fn read(&self, world: &World, args: &ReadFile) -> Result<Value, Error> {
        let place = self.find(world, &args.path, Last::Followed)?;
        let file = place.open(OFlags::RDONLY | HARMLESS).map_err(Error::at(&args.path))?;
        let size = regular_size(&file, &args.path)?;
        if size > MAX_FILE {
            let what = format!("{:?}", args.path);
            return Err(Error::TooLarge { what, size, limit: MAX_FILE });
        }
        let mut lines = Lines::new(BufReader::new(file.take(MAX_FILE)), &args.path);
        for _ in 1..args.first_line {
            if lines.next()?.is_none() {
                break;
            }
        }
        let mut text = Vec::new();
        let mut count = 0;
        let mut truncated = false;
        while let Some(line) = lines.next()? {
            if args.max_lines.is_some_and(|max| count >= max) || text.len() + line.len() > MAX_READ
            {
                truncated = true;
                if text.is_empty() && count == 0 && args.max_lines != Some(0) {
                    // A single line longer than all that may be returned.
                    text.extend_from_slice(cut(line));
                    count = 1;
                }
                break;
            }
            text.extend_from_slice(line);
            count += 1;
        }
        if text.contains(&0) {
            return Err(Error::WrongKind { path: args.path.clone(), what: "no text file" });
        }
        let next_line = truncated.then(|| args.first_line.max(1) + count);
        Ok(json!({
            "text": String::from_utf8_lossy(&text),
            "lines": count,
            "size": size,
            "next_line": next_line,
        }))
    }

    fn write(&self, world: &World, args: &WriteFile) -> Result<Value, Error> {
        let last = if args.append { Last::Followed } else { Last::Meant };
        let mut place = self.find(world, &args.path, last)?;
        if !place.is_writable() {
            return Err(Error::ReadOnly { path: args.path.clone() });
        }
        if place.rest.is_empty() {
            return Err(Error::WrongKind { path: args.path.clone(), what: "a folder" });
        }
        place.refuse_git_file(&args.path)?;
        let _taken = self.take_room(world, &place, args)?;
        let at = || Error::at(&args.path);
        let guard = Guard::of(&place).map_err(at())?;
        place.make_folders().map_err(at())?;
        if args.append {
            let room = |size| self.take_size(world, &place, size);
            append(&place, guard.as_ref(), args, room)?;
        } else {
            replace(&place, guard.as_ref(), args)?;
        }
        Ok(json!({ "bytes": args.content.len() }))
    }

    fn list(&self, world: &World, args: &ListFiles) -> Result<Value, Error> {
        let normal = workspace_path(&args.path).map_err(|no| Error::Path(no.to_string()))?;
        let mut found = BTreeMap::new();
        let place = self.resolve(world, &normal, Last::Followed)?;
        // What is seen there hangs on where it really is.
        let real = place.seen_at();
        let depth = if args.recursive { MAX_DEPTH } else { 1 };
        let within = |mount: &&String| **mount != real && covers(&real, mount);
        let mounts: Vec<&String> = world.mounts.keys().filter(within).collect();
        if place.rest.is_empty() {
            let walked =
                readable(&place.dir).and_then(|dir| walk(world, &dir, &real, depth, &mut found));
            walked.map_err(Error::at(&args.path))?;
        } else if place.is_there() {
            return Err(Error::WrongKind { path: args.path.clone(), what: "no folder" });
        } else if mounts.is_empty() {
            // Else it is a folder that exists only because links are mounted in it.
            return Err(Error::NotFound { path: args.path.clone() });
        }
        for mount in mounts {
            self.list_link(world, mount, &real, depth, &mut found)?;
        }
        let truncated = found.len() > MAX_ENTRIES;
        let entries = found.into_iter().take(MAX_ENTRIES).map(|(path, mut entry)| {
            let below = path[real.len()..].trim_start_matches('/');
            entry["path"] = join(&normal, below).into();
            entry
        });
        let entries: Vec<Value> = entries.collect();
        Ok(json!({ "entries": entries, "truncated": truncated }))
    }

    /// Adds what a listing of `path` shows of a link below it: the folders that lead to it, and
    /// with enough depth what is in it.
    fn list_link(
        &self,
        world: &World,
        mount: &str,
        path: &str,
        depth: usize,
        found: &mut BTreeMap<String, Value>,
    ) -> Result<(), Error> {
        let rest = mount.strip_prefix(path).unwrap_or(mount).trim_start_matches('/');
        let mut at = path.to_owned();
        let mut deep = 0;
        for part in rest.split('/') {
            at = join(&at, part);
            deep += 1;
            if deep > depth {
                return Ok(());
            }
            let kind = if at == mount { "link" } else { "dir" };
            found.insert(at.clone(), json!({ "path": at, "kind": kind }));
        }
        if depth > deep {
            match self.resolve(world, mount, Last::Followed) {
                Ok(place) => {
                    let walked = readable(&place.dir)
                        .and_then(|dir| walk(world, &dir, mount, depth - deep, found));
                    walked.map_err(Error::at(mount))?;
                }
                // What was linked is gone: the rest is there all the same.
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Adds to the end of a file, which is made if it is not there.
fn append(
    place: &Place,
    guard: Option<&Guard>,
    args: &WriteFile,
    room: impl Fn(u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let at = || Error::at(&args.path);
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | HARMLESS;
    let mut file = place.open(flags).map_err(at())?;
    regular_size(&file, &args.path)?;
    let metadata = file.metadata().map_err(at())?;
    if guard.is_some_and(|guard| guard.is_file(&metadata)) {
        return Err(Error::GitFile { path: args.path.clone() });
    }
    room(metadata.len().saturating_add(args.content.len() as u64))?;
    // What the daemon writes is nobody's to run with another's rights.
    let mode = metadata.permissions().mode();
    if mode & 0o6000 != 0 {
        file.set_permissions(Permissions::from_mode(mode & 0o777)).map_err(at())?;
    }
    file.write_all(args.content.as_bytes()).map_err(at())?;
    file.sync_data().map_err(at())
}

/// Writes a new file beside the old one and puts it in its place, so that a reader sees one of
/// the two, and a crash leaves one of them. A symbolic link at the path is replaced, not followed.
fn replace(place: &Place, guard: Option<&Guard>, args: &WriteFile) -> Result<(), Error> {
    let at = || Error::at(&args.path);
    let name = place.name().map_err(at())?.unwrap_or(".");
    let dir = readable(&place.dir).map_err(at())?;
    // Whoever moves folders meanwhile may have led here.
    if guard.is_some_and(|guard| guard.is_named(&dir, name).unwrap_or(true)) {
        return Err(Error::GitFile { path: args.path.clone() });
    }
    let old = dir.symlink_metadata(name).ok();
    if old.as_ref().is_some_and(|metadata| metadata.is_dir()) {
        return Err(Error::WrongKind { path: args.path.clone(), what: "a folder" });
    }
    let mode =
        old.filter(|metadata| metadata.is_file()).map(|old| old.permissions().mode() & 0o777);
    // Of its own for each write, so that writers at once do not meet.
    let temporary = format!(".{:016x}.substrat-tmp", rand::random::<u64>());
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let mut file = dir.open_with(&temporary, &options).map_err(at())?;
    let written = file.write_all(args.content.as_bytes()).and_then(|()| {
        if let Some(mode) = mode {
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        file.sync_data()
    });
    let result = written.and_then(|()| dir.rename(&temporary, &dir, name));
    if result.is_err() {
        // The error that counts is the first one.
        let _ = dir.remove_file(&temporary);
    }
    result.and_then(|()| sync(dir)).map_err(at())
}

/// The size of a regular file; anything else is refused.
fn regular_size(file: &cap_std::fs::File, path: &str) -> Result<u64, Error> {
    let metadata = file.metadata().map_err(Error::at(path))?;
    if metadata.is_dir() {
        return Err(Error::WrongKind { path: path.to_owned(), what: "a folder" });
    }
    if !metadata.is_file() {
        return Err(Error::WrongKind { path: path.to_owned(), what: "no regular file" });
    }
    Ok(metadata.len())
}

/// Adds what lies in a folder. What is hidden by a mount is left out.
fn walk(
    world: &World,
    dir: &Dir,
    path: &str,
    depth: usize,
    found: &mut BTreeMap<String, Value>,
) -> std::io::Result<()> {
    for entry in dir.entries()? {
        if found.len() > MAX_ENTRIES {
            return Ok(());
        }
        let entry = entry?;
        // A name that is not UTF-8 cannot be said to a model.
        let Ok(name) = entry.file_name().into_string() else { continue };
        let at = join(path, &name);
        if world.mounts.contains_key(&at) {
            continue;
        }
        let kind = entry.file_type()?;
        let value = if kind.is_dir() {
            json!({ "path": at, "kind": "dir" })
        } else if kind.is_file() {
            let size = entry.metadata().map_or(0, |metadata| metadata.len());
            json!({ "path": at, "kind": "file", "size": size })
        } else if kind.is_symlink() {
            json!({ "path": at, "kind": "symlink" })
        } else {
            json!({ "path": at, "kind": "other" })
        };
        if kind.is_dir() && depth > 1 {
            // A folder that cannot be read is listed, and what is in it is not.
            if let Ok(inner) = entry.open_dir() {
                walk(world, &inner, &at, depth - 1, found)?;
            }
        }
        found.insert(at, value);
    }
    Ok(())
}

/// As much of a line as one read returns, in whole characters.
fn cut(line: &[u8]) -> &[u8] {
    let is_start = |at: &usize| line.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
    let end = (MAX_READ - 3..=MAX_READ).rev().find(is_start).unwrap_or(MAX_READ);
    &line[..end.min(line.len())]
}

/// Lines with their newlines, each bounded.
struct Lines<'a, R> {
    reader: R,
    line: Vec<u8>,
    path: &'a str,
}

impl<'a, R: BufRead> Lines<'a, R> {
    fn new(reader: R, path: &'a str) -> Self {
        Self { reader, line: Vec::new(), path }
    }

    fn next(&mut self) -> Result<Option<&[u8]>, Error> {
        self.line.clear();
        let limit = MAX_READ as u64 + 1;
        let read = (&mut self.reader)
            .take(limit)
            .read_until(b'\n', &mut self.line)
            .map_err(Error::at(self.path))?;
        if read as u64 == limit && self.line.last() != Some(&b'\n') {
            // The rest of a line that is too long is passed over.
            let mut rest = Vec::new();
            while (&mut self.reader)
                .take(limit)
                .read_until(b'\n', &mut rest)
                .map_err(Error::at(self.path))? as u64
                == limit
                && rest.last() != Some(&b'\n')
            {
                rest.clear();
            }
        }
        Ok((read > 0).then_some(&self.line[..]))
    }
}
