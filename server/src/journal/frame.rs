//! The bytes of a segment; mirrors `docs/journal-format.md`.
//!
//! ```text
//! segment = header record* zeros
//! header  = magic[8] version:u32 reserved:u32 first_sequence:u64 crc32:u32 reserved:u32
//! record  = length:u32 type:u8 sequence:u64 crc32:u32 payload[length]
//! payload = entry+                        (type 1)
//! entry   = length:u32 events:u32 bytes[length]
//! ```
//!
//! All numbers are little-endian. A record is what one `pwrite` and one `fdatasync` made durable:
//! a group commit, one entry for each command in it. Its sequence is that of its first event; the
//! next record's follows its last. A length of zero ends a segment.
//!
//! A record is a whole group because the sectors of one unsynced write reach a disk in any order:
//! records within a group could not tell a torn write from damage. Between groups lies an
//! `fdatasync`, so a valid record after an invalid one proves damage.

/// Format version that is written.
pub const VERSION: u32 = 1;
/// Bytes of a segment header.
pub const HEADER: usize = 32;
/// Bytes of a record before its payload.
pub const RECORD: usize = 17;
/// Bytes of an entry before its own.
pub const ENTRY: usize = 8;
/// Largest payload that a reader accepts.
pub const MAX_PAYLOAD: usize = 1 << 30;

const MAGIC: [u8; 8] = *b"SUBSTRAT";
const TYPE_GROUP: u8 = 1;

/// The header of a segment.
pub fn encode_header(first_sequence: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&first_sequence.to_le_bytes());
    let crc = crc32fast::hash(&header[..24]);
    header[24..28].copy_from_slice(&crc.to_le_bytes());
    header
}

/// What the first bytes of a segment say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// Nothing was written yet.
    Empty,
    /// A header of this version and first sequence.
    Valid {
        /// Format version.
        version: u32,
        /// Sequence of the first event.
        first_sequence: u64,
    },
    /// Neither.
    Invalid,
}

/// Reads the header of a segment.
pub fn decode_header(bytes: &[u8; HEADER]) -> Header {
    if bytes.iter().all(|byte| *byte == 0) {
        return Header::Empty;
    }
    if bytes[..8] != MAGIC || crc32fast::hash(&bytes[..24]) != u32_at(bytes, 24) {
        return Header::Invalid;
    }
    Header::Valid { version: u32_at(bytes, 8), first_sequence: u64_at(bytes, 16) }
}

/// Appends an entry to a payload.
pub fn push_entry(payload: &mut Vec<u8>, bytes: &[u8], events: u32) {
    // An entry is smaller than `MAX_PAYLOAD`, which fits: `Pending::push` refuses larger ones.
    payload.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    payload.extend_from_slice(&events.to_le_bytes());
    payload.extend_from_slice(bytes);
}

/// Fills in the first [`RECORD`] bytes of a record whose payload is the rest.
pub fn seal(record: &mut [u8], sequence: u64) {
    let length = (record.len() - RECORD) as u32;
    record[..4].copy_from_slice(&length.to_le_bytes());
    record[4] = TYPE_GROUP;
    record[5..13].copy_from_slice(&sequence.to_le_bytes());
    let crc = record_crc(&record[..13], &record[RECORD..]);
    record[13..RECORD].copy_from_slice(&crc.to_le_bytes());
}

fn record_crc(head: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(payload);
    hasher.finalize()
}

/// The first bytes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHead {
    /// Bytes of payload; 0 ends the segment.
    pub length: usize,
    /// Sequence of its first event.
    pub sequence: u64,
    head: [u8; 13],
    crc: u32,
}

impl RecordHead {
    /// Reads the first bytes of a record.
    pub fn decode(bytes: &[u8; RECORD]) -> Self {
        let mut head = [0; 13];
        head.copy_from_slice(&bytes[..13]);
        Self {
            length: u32_at(bytes, 0) as usize,
            sequence: u64_at(bytes, 5),
            head,
            crc: u32_at(bytes, 13),
        }
    }

    /// Whether all of it is zero, as after the end of a segment.
    pub fn is_zero(&self) -> bool {
        self.head == [0; 13] && self.crc == 0
    }

    /// Whether it can be a record at all, before its payload is looked at.
    pub fn is_plausible(&self) -> bool {
        self.head[4] == TYPE_GROUP && (ENTRY..=MAX_PAYLOAD).contains(&self.length)
    }

    /// Whether this is its payload.
    pub fn matches(&self, payload: &[u8]) -> bool {
        payload.len() == self.length && record_crc(&self.head, payload) == self.crc
    }
}

/// One entry of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Sequence of its first event.
    pub sequence: u64,
    /// How many events it holds.
    pub events: u32,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// The entries of a payload; none if the payload is not made of entries.
pub fn entries(sequence: u64, mut payload: &[u8]) -> Option<Vec<Entry<'_>>> {
    let mut entries = Vec::new();
    let mut next = sequence;
    while !payload.is_empty() {
        let (head, rest) = payload.split_at_checked(ENTRY)?;
        let (bytes, rest) = rest.split_at_checked(u32_at(head, 0) as usize)?;
        let events = u32_at(head, 4);
        entries.push(Entry { sequence: next, events, bytes });
        next = next.checked_add(events.into())?;
        payload = rest;
    }
    (next > sequence).then_some(entries)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sequence: u64, entries: &[(&[u8], u32)]) -> Vec<u8> {
        let mut record = vec![0; RECORD];
        for (bytes, events) in entries {
            push_entry(&mut record, bytes, *events);
        }
        seal(&mut record, sequence);
        record
    }

    #[test]
    fn a_record_reads_back_and_any_flipped_bit_shows() {
        let bytes = record(7, &[(b"one", 2), (b"three", 1)]);
        let read = |bytes: &[u8]| {
            let head = RecordHead::decode(bytes[..RECORD].try_into().unwrap());
            let whole = head.is_plausible() && head.matches(&bytes[RECORD..]);
            whole.then_some(head.sequence)
        };
        assert_eq!(read(&bytes), Some(7));
        let entries = entries(7, &bytes[RECORD..]).unwrap();
        assert_eq!(entries[0], Entry { sequence: 7, events: 2, bytes: b"one" });
        assert_eq!(entries[1], Entry { sequence: 9, events: 1, bytes: b"three" });
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn a_header_reads_back_and_any_flipped_bit_that_counts_shows() {
        let header = encode_header(42);
        let valid = Header::Valid { version: VERSION, first_sequence: 42 };
        assert_eq!(decode_header(&header), valid);
        assert_eq!(decode_header(&[0; HEADER]), Header::Empty);
        for bit in 0..28 * 8 {
            let mut damaged = header;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_header(&damaged), Header::Invalid, "bit {bit}");
        }
    }

    #[test]
    fn payloads_that_are_no_entries_are_refused() {
        assert_eq!(entries(1, b"short"), None);
        assert_eq!(entries(1, &[9, 0, 0, 0, 1, 0, 0, 0, 1]), None);
        assert_eq!(entries(1, &[0, 0, 0, 0, 0, 0, 0, 0]), None, "no event");
    }
}
