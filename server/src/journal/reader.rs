//! Reading: a scan of all segments, which never writes.

use super::frame::{self, HEADER, Header, RECORD, RecordHead};
use super::{Disk, DiskFile, Error, segment_path, segments};

/// How the journal ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Right after its last record.
    Clean,
    /// With a write that was never acknowledged: in this segment, from this byte on, so many
    /// bytes up to the last that is not zero.
    Torn {
        /// Number of the segment.
        segment: u64,
        /// First byte of the torn write.
        offset: u64,
        /// Bytes from there to the last that is not zero.
        bytes: u64,
    },
}

/// What a scan found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// How the journal ends.
    pub end: End,
    /// The segment that the last record stands in; none if there is none.
    pub last_segment: Option<u64>,
    /// First byte after the last record in that segment.
    pub end_offset: u64,
    /// Sequence that the next event has.
    pub next_sequence: u64,
    /// Segments with records.
    pub segments: u32,
    /// Bytes of records.
    pub bytes: u64,
    /// The segments with records: number, sequence of the first event, end of the last record.
    spans: Vec<(u64, u64, u64)>,
}

impl Scan {
    /// Reads the entries that start after a sequence once more, up to where this scan ended.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the segments have changed since.
    pub fn replay<E: From<Error>>(
        &self,
        disk: &dyn Disk,
        after: u64,
        mut each: impl FnMut(frame::Entry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (place, (number, first, end)) in self.spans.iter().enumerate() {
            if self.spans.get(place + 1).is_some_and(|(_, next, _)| *next <= after + 1) {
                continue;
            }
            let mut segment = SegmentScan::open(disk, *number)?;
            segment.size = *end;
            segment.offset = HEADER as u64;
            let take = |entry: frame::Entry<'_>| {
                if entry.sequence > after { each(entry) } else { Ok(()) }
            };
            segment.whole_records(*first, take)?;
            if segment.offset != *end {
                return Err(segment.corrupt(segment.offset, "it changed while it was read").into());
            }
        }
        Ok(())
    }
}

/// Reads every record in order and hands its entries to `each`. Segments wholly at or below
/// `after` are passed over; entries that start at or below it are not handed out.
///
/// A journal may start at any sequence that is at most `after + 1`, since older segments go with
/// a checkpoint.
///
/// # Errors
///
/// [`Error::Corrupt`] where acknowledged data is damaged or missing.
pub fn scan<E: From<Error>>(
    disk: &dyn Disk,
    after: u64,
    mut each: impl FnMut(frame::Entry<'_>) -> Result<(), E>,
) -> Result<Scan, E> {
    let numbers = used_segments(disk)?;
    let mut scan = Scan {
        end: End::Clean,
        last_segment: None,
        end_offset: 0,
        next_sequence: after + 1,
        segments: 0,
        bytes: 0,
        spans: Vec::new(),
    };
    let mut expected = None;
    for (place, number) in numbers.iter().enumerate() {
        let is_last = place + 1 == numbers.len();
        let mut segment = SegmentScan::open(disk, *number)?;
        let first = match segment.header(is_last)? {
            Some(first) => first,
            None => {
                scan.end = segment.torn(0)?;
                break;
            }
        };
        let start = *expected.get_or_insert(first);
        if first != start || (place == 0 && first > after + 1) {
            let wanted = if place == 0 { after + 1 } else { start };
            let problem = format!("it starts at event {first}, but event {wanted} is missing");
            return Err(segment.corrupt(0, problem).into());
        }
        let (next, end) = segment.records(first, is_last, |entry| {
            if entry.sequence > after { each(entry) } else { Ok(()) }
        })?;
        expected = Some(next);
        scan.end = end;
        scan.last_segment = Some(*number);
        scan.end_offset = segment.offset;
        scan.next_sequence = next;
        scan.segments += 1;
        scan.bytes += segment.offset - HEADER as u64;
        scan.spans.push((*number, first, segment.offset));
    }
    let missing = numbers.is_empty() && after > 0;
    if missing || scan.next_sequence <= after {
        // The checkpoint is newer than what the journal holds: its tail went missing.
        let file = scan.last_segment.map_or_else(|| super::DIR.to_owned(), segment_path);
        let problem = format!("it ends before event {after}, which a checkpoint holds");
        return Err(Error::Corrupt { file, offset: scan.end_offset, problem }.into());
    }
    Ok(scan)
}

/// The segments up to the last that is not all zeros, without gaps.
fn used_segments(disk: &dyn Disk) -> Result<Vec<u64>, Error> {
    let mut numbers = segments(disk)?;
    while let Some(last) = numbers.last() {
        let segment = SegmentScan::open(disk, *last)?;
        if segment.nonzero_from(0)?.is_some() {
            break;
        }
        numbers.pop();
    }
    for pair in numbers.windows(2) {
        if pair[0] + 1 != pair[1] {
            let file = segment_path(pair[0] + 1);
            return Err(Error::Corrupt { file, offset: 0, problem: "it is missing".into() });
        }
    }
    Ok(numbers)
}

/// Sequence of the first event that the journal holds; none if it holds none.
///
/// # Errors
///
/// [`Error::Corrupt`] where the first segment's header is damaged.
pub fn first_sequence(disk: &dyn Disk) -> Result<Option<u64>, Error> {
    let numbers = segments(disk)?;
    match numbers.first() {
        Some(first) => SegmentScan::open(disk, *first)?.header(numbers.len() == 1),
        None => Ok(None),
    }
}

/// Sequence of the first event of a segment; none if it was not begun.
pub(super) fn first_of_segment(disk: &dyn Disk, number: u64) -> Result<Option<u64>, Error> {
    let mut segment = SegmentScan::open(disk, number)?;
    segment.header(true)
}

struct SegmentScan {
    number: u64,
    file: Box<dyn DiskFile>,
    size: u64,
    offset: u64,
    buffer: Buffer,
}

impl SegmentScan {
    fn open(disk: &dyn Disk, number: u64) -> Result<Self, Error> {
        let path = segment_path(number);
        let file = disk.open(&path).map_err(Error::io(format!("opening {path}")))?;
        let size = file.size().map_err(Error::io(format!("reading {path}")))?;
        Ok(Self { number, file, size, offset: 0, buffer: Buffer::default() })
    }

    fn corrupt(&self, offset: u64, problem: impl Into<String>) -> Error {
        Error::Corrupt { file: segment_path(self.number), offset, problem: problem.into() }
    }

    /// The first sequence; none if the header was torn in the last segment.
    fn header(&mut self, is_last: bool) -> Result<Option<u64>, Error> {
        let mut bytes = [0; HEADER];
        let read = self.read(0, HEADER)?;
        bytes[..read.len()].copy_from_slice(read);
        self.offset = HEADER as u64;
        match frame::decode_header(&bytes) {
            Header::Valid { version: frame::VERSION, first_sequence } => Ok(Some(first_sequence)),
            Header::Valid { version, .. } => {
                Err(Error::Version { file: segment_path(self.number), version })
            }
            // A header is synced before the first record goes in.
            Header::Empty | Header::Invalid if is_last && !self.has_record_after(0, 0)? => Ok(None),
            Header::Empty | Header::Invalid => Err(self.corrupt(0, "its header is damaged")),
        }
    }

    /// Reads records from the offset on, up to the end or the first that is invalid.
    fn records<E: From<Error>>(
        &mut self,
        first: u64,
        is_last: bool,
        each: impl FnMut(frame::Entry<'_>) -> Result<(), E>,
    ) -> Result<(u64, End), E> {
        let next = self.whole_records(first, each)?;
        let end = match self.nonzero_from(self.offset)? {
            None => End::Clean,
            Some(_) if is_last && !self.has_record_after(self.offset, next)? => {
                self.torn(self.offset)?
            }
            Some(_) => {
                let problem = format!("event {next} should stand here, and later data does");
                return Err(self.corrupt(self.offset, problem).into());
            }
        };
        Ok((next, end))
    }

    /// Reads records from the offset on, up to the first that is none. Returns the sequence that
    /// the one after must have.
    fn whole_records<E: From<Error>>(
        &mut self,
        mut next: u64,
        mut each: impl FnMut(frame::Entry<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        loop {
            let Some(head) = self.head(self.offset)? else { return Ok(next) };
            let start = self.offset + RECORD as u64;
            let fits = head.is_plausible() && start + head.length as u64 <= self.size;
            let entries = if fits && head.sequence == next {
                let payload = self.read(start, head.length)?;
                if head.matches(payload) { frame::entries(next, payload) } else { None }
            } else {
                None
            };
            let Some(entries) = entries else { return Ok(next) };
            for entry in entries {
                next = entry.sequence + u64::from(entry.events);
                each(entry)?;
            }
            self.offset = start + head.length as u64;
        }
    }

    /// The head of the record at an offset; none if not even that fits.
    fn head(&mut self, offset: u64) -> Result<Option<RecordHead>, Error> {
        let bytes = self.read(offset, RECORD)?;
        Ok(<&[u8; RECORD]>::try_from(bytes).ok().map(RecordHead::decode))
    }

    fn torn(&self, offset: u64) -> Result<End, Error> {
        let end = self.nonzero_end(offset)?.unwrap_or(offset);
        Ok(End::Torn { segment: self.number, offset, bytes: end - offset })
    }

    /// The first byte at or after an offset that is not zero.
    fn nonzero_from(&self, mut offset: u64) -> Result<Option<u64>, Error> {
        let (mut chunk, zeros) = (vec![0; CHUNK], vec![0; CHUNK]);
        loop {
            match self.read_raw(&mut chunk, offset)? {
                0 => return Ok(None),
                // Comparing whole chunks is what makes it fast.
                read if chunk[..read] == zeros[..read] => offset += read as u64,
                read => {
                    if let Some(at) = chunk[..read].iter().position(|byte| *byte != 0) {
                        return Ok(Some(offset + at as u64));
                    }
                    offset += read as u64;
                }
            }
        }
    }

    /// One past the last byte at or after an offset that is not zero.
    fn nonzero_end(&self, mut offset: u64) -> Result<Option<u64>, Error> {
        let mut chunk = vec![0; CHUNK];
        let mut end = None;
        loop {
            match self.read_raw(&mut chunk, offset)? {
                0 => return Ok(end),
                read => {
                    if let Some(at) = chunk[..read].iter().rposition(|byte| *byte != 0) {
                        end = Some(offset + at as u64 + 1);
                    }
                    offset += read as u64;
                }
            }
        }
    }

    /// Whether a valid record of a sequence above `sequence` stands after an offset: proof that
    /// what stands at the offset had been durable, since a record is only written once all before
    /// it are.
    fn has_record_after(&mut self, offset: u64, sequence: u64) -> Result<bool, Error> {
        let mut at = match self.nonzero_from(offset + 1)? {
            Some(at) => at.saturating_sub(RECORD as u64).max(offset + 1),
            None => return Ok(false),
        };
        while at + (RECORD + frame::ENTRY) as u64 <= self.size {
            let Some(head) = self.head(at)? else { break };
            let start = at + RECORD as u64;
            let plausible = head.is_plausible()
                && head.sequence > sequence
                && start + head.length as u64 <= self.size;
            if plausible {
                let payload = self.read(start, head.length)?;
                if head.matches(payload) && frame::entries(head.sequence, payload).is_some() {
                    return Ok(true);
                }
            }
            if head.is_zero() {
                // Nothing starts within zeros that reach beyond a whole head.
                match self.nonzero_from(at)? {
                    Some(next) => at = next.saturating_sub(RECORD as u64).max(at + 1),
                    None => break,
                }
            } else {
                at += 1;
            }
        }
        Ok(false)
    }

    fn read(&mut self, offset: u64, length: usize) -> Result<&[u8], Error> {
        self.buffer.read(&*self.file, self.number, offset, length)
    }

    fn read_raw(&self, chunk: &mut [u8], offset: u64) -> Result<usize, Error> {
        read(&*self.file, self.number, chunk, offset)
    }
}

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// A window on a file that moves forward.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    start: u64,
}

impl Buffer {
    /// `length` bytes at an offset, or fewer at the end of the file.
    fn read(
        &mut self,
        file: &dyn DiskFile,
        number: u64,
        offset: u64,
        length: usize,
    ) -> Result<&[u8], Error> {
        let end = self.start + self.bytes.len() as u64;
        if offset < self.start || offset + length as u64 > end {
            // Only what is wanted beyond a chunk is kept, so memory is bounded by the largest record.
            self.bytes.resize(length.max(CHUNK), 0);
            self.start = offset;
            let mut filled = 0;
            while filled < self.bytes.len() {
                match read(file, number, &mut self.bytes[filled..], offset + filled as u64)? {
                    0 => break,
                    read => filled += read,
                }
            }
            self.bytes.truncate(filled);
        }
        let from = (offset - self.start) as usize;
        let to = (from + length).min(self.bytes.len());
        Ok(self.bytes.get(from..to).unwrap_or_default())
    }
}

fn read(file: &dyn DiskFile, number: u64, chunk: &mut [u8], offset: u64) -> Result<usize, Error> {
    file.read_at(chunk, offset).map_err(Error::io(format!("reading {}", segment_path(number))))
}
