//! What fuzz targets have in common. Files of `../fixtures/providers/captures` make a good corpus.

use substrat_server::provider::api::Fold;
use substrat_server::provider::api::sse::{Event, Events};
use substrat_server::provider::lines::Lines;
use substrat_server::provider::secret::Secrets;

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

/// The events in bytes that come in pieces, of the length that the first byte says. They are those
/// of the bytes as a whole, and no longer than these are as text.
pub fn events(bytes: &[u8]) -> Vec<Event> {
    let Some((length, bytes)) = bytes.split_first() else { return Vec::new() };
    let read = |length: usize| {
        let (mut events, mut found) = (Events::default(), Vec::new());
        let read = bytes.chunks(length).try_for_each(|piece| events.push(piece, &mut found));
        (read, found)
    };
    let came = read(usize::from(*length) + 1);
    assert_eq!(came, read(bytes.len().max(1)));
    let (_, found) = came;
    let room: usize = found.iter().map(|event| event.name.len() + event.data.len()).sum();
    assert!(room <= '\u{fffd}'.len_utf8() * bytes.len(), "{room} of {}", bytes.len());
    found
}

/// Reads the answer in such events, up to what is none.
pub fn answer(bytes: &[u8], mut fold: Box<dyn Fold>) {
    let secrets = Secrets::default();
    for event in events(bytes) {
        if fold.event(&event, &secrets).is_err() {
            return;
        }
    }
    drop(fold.answer());
}
