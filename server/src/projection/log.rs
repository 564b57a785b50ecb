//! Reading event logs by sequence.

use std::io;

use super::{events_path, transcript_path};
use crate::journal::{Disk, DiskFile};
use crate::model::{Entry, SessionId};

/// A log and the sequences that it spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The session; none for the daemon's own log.
    pub session: Option<SessionId>,
    /// Sequence of its first event.
    pub first: u64,
    /// Sequence of its last event.
    pub last: u64,
}

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// The events of several logs from sequence `from` on and below `end`, in order, with their lines.
///
/// Lines that never were events are passed over: a log that someone wrote into still serves. One
/// that has the number of an event and is none any more is an error: leaving it out would be a lie.
pub fn read_merged(
    disk: &dyn Disk,
    spans: &[Span],
    from: u64,
    end: u64,
) -> io::Result<Vec<(Entry, Vec<u8>)>> {
    let mut found = Vec::new();
    for span in spans.iter().filter(|span| span.last >= from && span.first < end) {
        read_log(disk, span.session, from, end, &mut found)?;
    }
    found.sort_by_key(|(entry, _): &(Entry, Vec<u8>)| entry.seq);
    Ok(found)
}

/// Hands out the events of a session's log from sequence `from` on, in the order in which they
/// stand there, until told to stop. Lines that are no events are passed over.
pub fn scan(
    disk: &dyn Disk,
    session: SessionId,
    from: u64,
    each: &mut dyn FnMut(Entry) -> bool,
) -> io::Result<()> {
    let Some(log) = Log::open(disk, Some(session))? else { return Ok(()) };
    log.lines(log.find(from)?, |line| {
        if sequence_of(line).is_some_and(|sequence| sequence < from) {
            return true;
        }
        Entry::decode(line).map_or(true, &mut *each)
    })
}

/// The last `count` events of a log, in order.
pub fn read_tail(disk: &dyn Disk, session: SessionId, count: usize) -> io::Result<Vec<Entry>> {
    let Some(log) = Log::open(disk, Some(session))? else { return Ok(Vec::new()) };
    let mut wanted = CHUNK as u64;
    loop {
        let start = log.size.saturating_sub(wanted);
        let mut entries = Vec::new();
        let start = if start == 0 { 0 } else { log.line_after(start)?.unwrap_or(log.size) };
        log.lines(start, |line| {
            entries.extend(Entry::decode(line));
            true
        })?;
        if entries.len() >= count || start == 0 {
            return Ok(entries.split_off(entries.len().saturating_sub(count)));
        }
        wanted *= 4;
    }
}

/// The events of a session's log below sequence `end`, in order: the last ones, as far as about
/// `bytes` of lines reach back, and at least one if there is any.
pub fn read_before(
    disk: &dyn Disk,
    session: SessionId,
    end: u64,
    bytes: usize,
) -> io::Result<Vec<Entry>> {
    let Some(log) = Log::open(disk, Some(session))? else { return Ok(Vec::new()) };
    let mut stop = log.find(end)?;
    log.lines(stop, |line| {
        let below = sequence_of(line).is_none_or(|sequence| sequence < end);
        stop += if below { line.len() as u64 } else { 0 };
        below
    })?;
    let mut wanted = bytes.max(1) as u64;
    loop {
        let start = stop.saturating_sub(wanted);
        // A line that begins right there counts, too.
        let start = if start == 0 { 0 } else { log.line_after(start - 1)?.unwrap_or(stop) };
        let mut entries = Vec::new();
        let mut at = start;
        log.lines(start, |line| {
            at += line.len() as u64;
            if at <= stop {
                entries.extend(Entry::decode(line));
            }
            at < stop
        })?;
        if !entries.is_empty() || start == 0 {
            return Ok(entries);
        }
        wanted *= 4;
    }
}

/// Whole lines of a transcript from a byte on, at most about `limit` bytes (but at least a line),
/// and the byte after them.
pub fn read_transcript(
    disk: &dyn Disk,
    session: SessionId,
    from: u64,
    limit: usize,
) -> io::Result<(String, u64)> {
    let file = match disk.open(&transcript_path(session)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    let mut chunk = vec![0; limit.max(1)];
    loop {
        let read = file.read_at(&mut chunk, from + text.len() as u64)?;
        text.extend_from_slice(&chunk[..read]);
        let end = text.iter().rposition(|byte| *byte == b'\n');
        if end.is_some() || read == 0 {
            text.truncate(end.map_or(0, |end| end + 1));
            let next = from + text.len() as u64;
            return Ok((String::from_utf8_lossy(&text).into_owned(), next));
        }
    }
}

fn read_log(
    disk: &dyn Disk,
    session: Option<SessionId>,
    from: u64,
    end: u64,
    found: &mut Vec<(Entry, Vec<u8>)>,
) -> io::Result<()> {
    let Some(log) = Log::open(disk, session)? else { return Ok(()) };
    let mut damaged = None;
    log.lines(log.find(from)?, |line| {
        match sequence_of(line) {
            Some(sequence) if sequence >= end => return false,
            Some(sequence) if sequence >= from => match Entry::decode(line) {
                Ok(entry) => found.push((entry, line.to_vec())),
                Err(error) => {
                    let problem = format!("event {sequence} in {}: {error}", events_path(session));
                    damaged = Some(problem);
                }
            },
            _ => {}
        }
        damaged.is_none()
    })?;
    damaged.map_or(Ok(()), |problem| Err(io::Error::new(io::ErrorKind::InvalidData, problem)))
}

/// The sequence of a line, without reading the rest of it.
fn sequence_of(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(br#"{"seq":"#)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

struct Log {
    file: Box<dyn DiskFile>,
    size: u64,
}

impl Log {
    fn open(disk: &dyn Disk, session: Option<SessionId>) -> io::Result<Option<Self>> {
        match disk.open(&events_path(session)) {
            Ok(file) => Ok(Some(Self { size: file.size()?, file })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A line start at or before the first line with a sequence of at least `from`, near it.
    fn find(&self, from: u64) -> io::Result<u64> {
        let (mut low, mut high) = (0, self.size);
        while high - low > CHUNK as u64 {
            let middle = low + (high - low) / 2;
            match self.line_after(middle)? {
                Some(start) if start < high => match self.sequence_at(start)? {
                    Some(sequence) if sequence < from => low = start,
                    _ => high = middle,
                },
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// The start of the first line that begins after an offset.
    fn line_after(&self, mut offset: u64) -> io::Result<Option<u64>> {
        let mut chunk = vec![0; 4096];
        loop {
            match self.file.read_at(&mut chunk, offset)? {
                0 => return Ok(None),
                read => {
                    if let Some(at) = chunk[..read].iter().position(|byte| *byte == b'\n') {
                        return Ok(Some(offset + at as u64 + 1));
                    }
                    offset += read as u64;
                }
            }
        }
    }

    fn sequence_at(&self, offset: u64) -> io::Result<Option<u64>> {
        let mut head = [0; 32];
        let read = self.file.read_at(&mut head, offset)?;
        Ok(sequence_of(&head[..read]))
    }

    /// Hands out whole lines from an offset on until told to stop.
    fn lines(&self, mut offset: u64, mut each: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
        let mut buffer: Vec<u8> = Vec::new();
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = self.file.read_at(&mut chunk, offset)?;
            if read == 0 {
                return Ok(());
            }
            offset += read as u64;
            buffer.extend_from_slice(&chunk[..read]);
            let mut start = 0;
            while let Some(length) = buffer[start..].iter().position(|byte| *byte == b'\n') {
                if !each(&buffer[start..=start + length]) {
                    return Ok(());
                }
                start += length + 1;
            }
            buffer.drain(..start);
        }
    }
}

/// The first sequence above `last` in the lines of a log from an offset on.
pub(super) fn sequence_after(
    disk: &dyn Disk,
    session: Option<SessionId>,
    offset: u64,
    last: u64,
) -> io::Result<Option<u64>> {
    let Some(log) = Log::open(disk, session)? else { return Ok(None) };
    let mut found = None;
    log.lines(offset, |line| {
        let entry = Entry::decode(line).ok();
        let later = entry.filter(|entry| entry.session == session && entry.seq > last);
        found = later.map(|entry| entry.seq);
        found.is_none()
    })?;
    Ok(found)
}

/// Hands out every whole line of a log, with the offset where it starts. Returns the offset after
/// the last whole line.
pub(super) fn each_line(
    disk: &dyn Disk,
    session: Option<SessionId>,
    mut each: impl FnMut(&[u8]) -> bool,
) -> io::Result<u64> {
    let Some(log) = Log::open(disk, session)? else { return Ok(0) };
    let mut end = 0;
    log.lines(0, |line| {
        let go_on = each(line);
        end += if go_on { line.len() as u64 } else { 0 };
        go_on
    })?;
    Ok(end)
}
