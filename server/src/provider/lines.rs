//! Bytes of a program's output, cut into lines of bounded length.

/// Longest line of a program of ours, in bytes.
pub const MAX_LINE: usize = 1 << 20;
/// Longest line of another one's program, in bytes: files and images stand in them.
pub const MAX_LONG_LINE: usize = 32 << 20;
/// Room that is kept when a long line is gone.
const MAX_KEPT: usize = 1 << 20;
/// Most bytes of a bad line that are shown.
const MAX_QUOTE: usize = 80;

/// Why what was written is no line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// It goes on for too long: its beginning, and how many bytes are allowed.
    #[error("it wrote a line of more than {1} bytes: \"{0}…\"")]
    TooLong(String, usize),
    /// It is no text.
    #[error("it wrote a line that is no UTF-8: \"{0}\"")]
    NotText(String),
}

/// The beginning of what was written, for people to read.
pub fn quote(bytes: &[u8]) -> String {
    let shown = bytes[..bytes.len().min(MAX_QUOTE)].escape_ascii();
    let more = if bytes.len() > MAX_QUOTE { "…" } else { "" };
    format!("{shown}{more}")
}

/// Lines that come in piece by piece. Takes a piece only when there is no whole line left, and so
/// holds a line and a piece at most.
#[derive(Debug)]
pub struct Lines {
    max: usize,
    /// Whether bytes that are no UTF-8 are replaced rather than refused.
    lossy: bool,
    bytes: Vec<u8>,
    /// Where the next line starts.
    start: usize,
    /// Up to where no line ends.
    searched: usize,
}

impl Default for Lines {
    fn default() -> Self {
        Self { max: MAX_LINE, lossy: false, bytes: Vec::new(), start: 0, searched: 0 }
    }
}

impl Lines {
    /// For a program that was written without this daemon in mind: its lines may be long, and what
    /// is no UTF-8 in them is replaced.
    pub fn lenient() -> Self {
        Self { max: MAX_LONG_LINE, lossy: true, ..Self::default() }
    }

    /// Adds a piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        if self.bytes.len() < MAX_KEPT && self.bytes.capacity() > 2 * MAX_KEPT {
            self.bytes.shrink_to(MAX_KEPT);
        }
        self.bytes.extend_from_slice(piece);
    }

    /// Takes the next line that is not blank. None if there is no whole one.
    #[expect(clippy::should_implement_trait, reason = "more lines may follow a None")]
    pub fn next(&mut self) -> Option<Result<String, Broken>> {
        loop {
            let end = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n');
            let Some(end) = end.map(|end| self.searched + end) else {
                self.searched = self.bytes.len();
                let left = &self.bytes[self.start..];
                return (left.len() > self.max).then(|| Err(self.too_long(left)));
            };
            let line = self.read(&self.bytes[self.start..end]);
            (self.start, self.searched) = (end + 1, end + 1);
            if let Some(line) = line {
                return Some(line);
            }
        }
    }

    /// Takes what is left when nothing more comes, if it is not blank.
    pub fn last(&mut self) -> Option<Result<String, Broken>> {
        let line = self.read(&self.bytes[self.start..]);
        *self = Self { max: self.max, lossy: self.lossy, ..Self::default() };
        line
    }

    /// Whether anything is left but blanks.
    pub fn has_more(&self) -> bool {
        !self.bytes[self.start..].trim_ascii().is_empty()
    }

    fn read(&self, line: &[u8]) -> Option<Result<String, Broken>> {
        if line.len() > self.max {
            return Some(Err(self.too_long(line)));
        }
        let line = line.trim_ascii();
        (!line.is_empty()).then(|| match str::from_utf8(line) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) if self.lossy => Ok(String::from_utf8_lossy(line).into_owned()),
            Err(_) => Err(Broken::NotText(quote(line))),
        })
    }

    fn too_long(&self, line: &[u8]) -> Broken {
        Broken::TooLong(quote(&line[..line.len().min(MAX_QUOTE)]), self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_character_is_replaced_where_that_is_allowed() {
        let (mut strict, mut lenient) = (Lines::default(), Lines::lenient());
        for piece in [&b"caf\xc3"[..], b"\n\xf0\x9f", b"\xa6\x80\n"] {
            strict.push(piece);
            lenient.push(piece);
        }
        assert!(matches!(strict.next(), Some(Err(Broken::NotText(_)))));
        assert_eq!(lenient.next(), Some(Ok("caf\u{fffd}".to_owned())));
        assert_eq!(strict.next(), Some(Ok("\u{1f980}".to_owned())));
        assert_eq!(lenient.next(), Some(Ok("\u{1f980}".to_owned())));
    }

    #[test]
    fn a_long_line_ends_somewhere_and_its_room_is_given_back() {
        let (mut lines, piece) = (Lines::lenient(), vec![b'x'; 1 << 20]);
        for _ in 0..32 {
            lines.push(&piece);
            assert_eq!(lines.next(), None);
        }
        lines.push(b"\n");
        assert_eq!(lines.next().unwrap().unwrap().len(), MAX_LONG_LINE);
        lines.push(b"y\n");
        assert!(lines.bytes.capacity() <= 2 * MAX_KEPT, "{}", lines.bytes.capacity());
        assert_eq!(lines.next(), Some(Ok("y".to_owned())));
        for _ in 0..33 {
            lines.push(&piece);
        }
        assert!(matches!(lines.next(), Some(Err(Broken::TooLong(_, MAX_LONG_LINE)))));
    }
}
