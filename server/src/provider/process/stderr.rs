//! The end of what a program writes to its standard error.

/// Most bytes that are kept.
const MAX_KEPT: usize = 16 << 10;
/// Most bytes of the last words that a failure quotes, and most lines.
const MAX_WORDS: usize = 1 << 10;
const MAX_LINES: usize = 5;

/// The end of what was written since it was last taken.
#[derive(Debug, Default)]
pub(super) struct Tail {
    bytes: Vec<u8>,
    written: u64,
}

impl Tail {
    /// Adds a piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.written += piece.len() as u64;
        let piece = &piece[piece.len().saturating_sub(MAX_KEPT)..];
        let excess = (self.bytes.len() + piece.len()).saturating_sub(MAX_KEPT);
        self.bytes.drain(..excess);
        self.bytes.extend_from_slice(piece);
    }

    /// Takes what there is, and how many bytes were written. None if nothing was.
    pub(super) fn take(&mut self) -> Option<(String, u64)> {
        let Self { bytes, written } = std::mem::take(self);
        (written > 0).then(|| (text(&bytes), written))
    }

    /// All that is kept.
    pub(super) fn kept(&self) -> String {
        text(&self.bytes)
    }

    /// The last lines.
    pub(super) fn last_words(&self) -> String {
        let text = text(&self.bytes);
        let text = text.trim_end();
        let text = &text[text.ceil_char_boundary(text.len().saturating_sub(MAX_WORDS))..];
        let from = text.rmatch_indices('\n').nth(MAX_LINES - 1).map_or(0, |(at, _)| at + 1);
        text[from..].to_owned()
    }
}

/// Text of bytes that may start within a character.
fn text(bytes: &[u8]) -> String {
    let start = bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    String::from_utf8_lossy(&bytes[start..]).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_end_of_stderr_is_kept_however_it_is_cut(
            bytes in proptest::collection::vec(any::<u8>(), 0..(3 * MAX_KEPT)),
            length in 1_usize..20_000,
        ) {
            let (mut whole, mut cut) = (Tail::default(), Tail::default());
            whole.push(&bytes);
            bytes.chunks(length).for_each(|piece| cut.push(piece));
            prop_assert_eq!(whole.last_words(), cut.last_words());
            prop_assert!(whole.last_words().len() <= 1024);
            prop_assert_eq!(whole.kept(), cut.kept());
            let kept = whole.take();
            prop_assert_eq!(&kept, &cut.take());
            prop_assert_eq!(kept.map(|(_, written)| written as usize).unwrap_or(0), bytes.len());
            prop_assert_eq!(whole.take(), None);
        }
    }
}
