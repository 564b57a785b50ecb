//! Writing: one buffer, one `pwrite`, one `fdatasync` for everything that is pending.
//!
//! Synchronous and single-threaded: [`Journal`](super::Journal) drives it from a thread, the
//! simulated world directly.

use std::sync::Arc;

use super::frame::{self, HEADER, MAX_PAYLOAD, RECORD};
use super::reader::{End, Scan};
use super::{DIR, Disk, DiskFile, Error, Options, segment_path, segments};

/// A new journal starts with a segment of this size, or smaller if all are.
const FIRST_SEGMENT: u64 = 4 << 20;
/// Bytes that are zeroed with one write.
const ZEROS: usize = 1 << 20;

/// Entries to be committed together, as the record that they will be.
#[derive(Debug, Clone)]
pub struct Pending {
    record: Vec<u8>,
    first: u64,
    events: u64,
    payload: u64,
}

impl Default for Pending {
    fn default() -> Self {
        Self { record: vec![0; RECORD], first: 0, events: 0, payload: 0 }
    }
}

impl Pending {
    /// Adds an entry of `events` events, the first of which has this sequence. Entries follow
    /// each other densely. Returns false, and adds nothing, when the record has no room for it.
    #[must_use]
    pub fn push(&mut self, sequence: u64, bytes: &[u8], events: u32) -> bool {
        if self.record.len() + frame::ENTRY + bytes.len() > MAX_PAYLOAD {
            return false;
        }
        if self.is_empty() {
            self.first = sequence;
        }
        debug_assert_eq!(sequence, self.first + self.events, "entries follow each other");
        frame::push_entry(&mut self.record, bytes, events);
        self.events += u64::from(events);
        self.payload += bytes.len() as u64;
        true
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Bytes of the record.
    pub fn bytes(&self) -> usize {
        self.record.len()
    }

    /// Bytes of the entries themselves.
    pub fn payload_bytes(&self) -> u64 {
        self.payload
    }

    /// Sequence of the last event in it.
    pub fn last(&self) -> u64 {
        self.first + self.events - 1
    }

    /// Empties it for reuse. A buffer that one large batch made is given back.
    pub fn clear(&mut self) {
        const KEPT: usize = 4 << 20;
        self.record.truncate(RECORD);
        self.record.shrink_to(KEPT);
        (self.first, self.events, self.payload) = (0, 0, 0);
    }
}

/// A segment that is being filled, or will be.
struct Segment {
    number: u64,
    file: Box<dyn DiskFile>,
    size: u64,
}

/// Appends to the journal.
pub struct Writer {
    disk: Arc<dyn Disk>,
    options: Options,
    current: Option<Segment>,
    offset: u64,
    spare: Option<Segment>,
    /// Number of the segment after those that there are.
    next_number: u64,
    next_sequence: u64,
}

/// A segment that was prepared aside, by [`Plan::prepare`].
pub struct Prepared(Segment);

/// What segment is to be prepared.
#[derive(Clone)]
pub struct Plan {
    disk: Arc<dyn Disk>,
    number: u64,
    size: u64,
}

impl Plan {
    /// Creates the segment, fills it with zeros, and makes bytes and name durable.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] leaves nothing behind.
    pub fn prepare(&self) -> Result<Prepared, Error> {
        let path = segment_path(self.number);
        let failed = || Error::io(format!("preparing {path}"));
        let file = self.disk.create(&path).map_err(failed())?;
        if let Err(error) = self.fill(&*file) {
            // The error that counts is the first one; what is left is found at the next start.
            let _ = self.disk.remove(&path);
            return Err(failed()(error));
        }
        self.disk.sync_dir(DIR).map_err(failed())?;
        Ok(Prepared(Segment { number: self.number, file, size: self.size }))
    }

    fn fill(&self, file: &dyn DiskFile) -> std::io::Result<()> {
        let zeros = vec![0; ZEROS.min(self.size as usize)];
        let mut offset = 0;
        while offset < self.size {
            let length = (self.size - offset).min(zeros.len() as u64);
            file.write_at(&zeros[..length as usize], offset)?;
            // One sync for all of it would queue so much that commits wait behind it.
            file.sync()?;
            offset += length;
        }
        Ok(())
    }
}

impl Writer {
    /// Goes on after a scan that ended clean, or was repaired. Unused segments are removed.
    pub fn open(disk: Arc<dyn Disk>, options: Options, scan: &Scan) -> Result<Self, Error> {
        debug_assert_eq!(scan.end, End::Clean);
        let mut next_number = 1;
        for number in segments(&*disk)? {
            if scan.last_segment.is_none_or(|last| number > last) {
                let path = segment_path(number);
                disk.remove(&path).map_err(Error::io(format!("removing {path}")))?;
            } else {
                next_number = number + 1;
            }
        }
        let current = match scan.last_segment {
            None => None,
            Some(number) => {
                let path = segment_path(number);
                let file = disk.open(&path).map_err(Error::io(format!("opening {path}")))?;
                let size = file.size().map_err(Error::io(format!("reading {path}")))?;
                Some(Segment { number, file, size })
            }
        };
        Ok(Self {
            disk,
            options,
            offset: scan.end_offset.max(HEADER as u64),
            current,
            spare: None,
            next_number,
            next_sequence: scan.next_sequence,
        })
    }

    /// The sequence that the next event must have.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Number of the segment that is being filled; 0 before the first.
    pub fn segment(&self) -> u64 {
        self.current.as_ref().map_or(0, |segment| segment.number)
    }

    /// Bytes that can be committed without another segment.
    pub fn room(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.size.saturating_sub(self.offset))
    }

    /// What segment should be prepared now, so that it is there before it is needed.
    pub fn plan(&self) -> Option<Plan> {
        self.spare.is_none().then(|| self.plan_for(0))
    }

    fn plan_for(&self, bytes: u64) -> Plan {
        let largest = self.options.segment_bytes.max((HEADER + RECORD) as u64);
        let size = match &self.current {
            None => FIRST_SEGMENT.min(largest),
            Some(current) => current.size.saturating_mul(2).min(largest),
        };
        let size = size.max(bytes + HEADER as u64);
        // One that is too small is made anew: a segment that is passed over would be a gap.
        let number = self.spare.as_ref().map_or(self.next_number, |spare| spare.number);
        Plan { disk: self.disk.clone(), number, size }
    }

    /// Takes a segment that was prepared, in place of one that was too small.
    pub fn adopt(&mut self, prepared: Prepared) {
        self.next_number = prepared.0.number + 1;
        self.spare = Some(prepared.0);
    }

    /// What has to be prepared before this can be committed; none if there is room.
    pub fn needs(&self, pending: &Pending) -> Option<Plan> {
        let bytes = pending.bytes() as u64;
        let fits = |segment: &Option<Segment>, from: u64| {
            segment.as_ref().is_some_and(|segment| from + bytes <= segment.size)
        };
        if fits(&self.current, self.offset) || fits(&self.spare, HEADER as u64) {
            return None;
        }
        Some(self.plan_for(bytes))
    }

    /// Writes a record and makes it durable. What [`Writer::needs`] asks for was prepared.
    ///
    /// # Errors
    ///
    /// Every error is final: nothing may be acknowledged by this process any more.
    pub fn commit(&mut self, pending: &mut Pending) -> Result<(), Error> {
        if pending.is_empty() {
            return Ok(());
        }
        debug_assert_eq!(pending.first, self.next_sequence, "records follow each other");
        let bytes = pending.bytes() as u64;
        if self.current.as_ref().is_none_or(|current| self.offset + bytes > current.size) {
            self.rotate()?;
        }
        let Some(current) = &self.current else { return Err(Error::Full) };
        frame::seal(&mut pending.record, pending.first);
        let path = || format!("committing to {}", segment_path(current.number));
        current.file.write_at(&pending.record, self.offset).map_err(fatal(path))?;
        current.file.sync().map_err(fatal(path))?;
        self.offset += bytes;
        self.next_sequence = pending.last() + 1;
        Ok(())
    }

    /// Starts to fill the spare segment.
    fn rotate(&mut self) -> Result<(), Error> {
        let Some(spare) = self.spare.take() else { return Err(Error::Full) };
        let path = || format!("starting {}", segment_path(spare.number));
        let header = frame::encode_header(self.next_sequence);
        spare.file.write_at(&header, 0).map_err(fatal(path))?;
        spare.file.sync().map_err(fatal(path))?;
        self.offset = HEADER as u64;
        self.current = Some(spare);
        Ok(())
    }
}

/// Within prepared space no error is about space.
fn fatal(what: impl Fn() -> String) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::Io { what: what(), error: Arc::new(error) }
}
