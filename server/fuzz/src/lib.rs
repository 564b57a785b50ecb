//! What fuzz targets have in common. Files of `../fixtures/providers/captures` make a good corpus.

use substrat_server::provider::lines::Lines;

/// Hands over the lines in bytes that come in pieces, of the length that the first byte says.
pub fn lines(bytes: &[u8], mut take: impl FnMut(&str)) {
    let Some((length, bytes)) = bytes.split_first() else { return };
    let mut lines = Lines::lenient();
    for piece in bytes.chunks(usize::from(*length) + 1) {
        lines.push(piece);
        while let Some(Ok(line)) = lines.next() {
            take(&line);
        }
    }
    if let Some(Ok(line)) = lines.last() {
        take(&line);
    }
}
