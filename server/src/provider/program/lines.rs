//! Bytes of a program's output, cut into lines of bounded length.

/// Longest line, in bytes.
pub(super) const MAX_LINE: usize = 1 << 20;
/// Most bytes of a bad line that are shown.
const MAX_QUOTE: usize = 80;

/// Why what was written is no line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broken {
    /// It goes on for too long.
    #[error("it wrote a line of more than {MAX_LINE} bytes: \"{0}…\"")]
    TooLong(String),
    /// It is no text.
    #[error("it wrote a line that is no UTF-8: \"{0}\"")]
    NotText(String),
}

/// The beginning of what was written, for people to read.
pub(super) fn quote(bytes: &[u8]) -> String {
    let shown = bytes[..bytes.len().min(MAX_QUOTE)].escape_ascii();
    let more = if bytes.len() > MAX_QUOTE { "…" } else { "" };
    format!("{shown}{more}")
}

/// Lines that come in piece by piece. Takes a piece only when there is no whole line left, and so
/// holds a line and a piece at most.
#[derive(Debug, Default)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    /// Where the next line starts.
    start: usize,
    /// Up to where no line ends.
    searched: usize,
}

impl Lines {
    /// Adds a piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.bytes.extend_from_slice(piece);
    }

    /// Takes the next line that is not blank. None if there is no whole one.
    pub(super) fn next(&mut self) -> Option<Result<String, Broken>> {
        loop {
            let end = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n');
            let Some(end) = end.map(|end| self.searched + end) else {
                self.searched = self.bytes.len();
                let left = &self.bytes[self.start..];
                return (left.len() > MAX_LINE).then(|| Err(Broken::TooLong(first(left))));
            };
            let line = read(&self.bytes[self.start..end]);
            (self.start, self.searched) = (end + 1, end + 1);
            if let Some(line) = line {
                return Some(line);
            }
        }
    }

    /// Takes what is left when nothing more comes, if it is not blank.
    pub(super) fn last(&mut self) -> Option<Result<String, Broken>> {
        let line = read(&self.bytes[self.start..]);
        *self = Self::default();
        line
    }

    /// Whether anything is left but blanks.
    pub(super) fn has_more(&self) -> bool {
        !self.bytes[self.start..].trim_ascii().is_empty()
    }
}

/// Few enough bytes to be quoted.
fn first(bytes: &[u8]) -> String {
    quote(&bytes[..bytes.len().min(MAX_QUOTE)])
}

fn read(line: &[u8]) -> Option<Result<String, Broken>> {
    if line.len() > MAX_LINE {
        return Some(Err(Broken::TooLong(first(line))));
    }
    let line = line.trim_ascii();
    (!line.is_empty()).then(|| match str::from_utf8(line) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(Broken::NotText(quote(line))),
    })
}
