//! Server-sent events: what a model's API streams.
//!
//! Written for bytes that come in any pieces from a server that may be broken: a line has a
//! bound, and so has the data of an event.

/// Most bytes of a line, and of the data of an event.
pub const MAX_EVENT: usize = 16 << 20;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// Its type; empty where none is given.
    pub name: String,
    /// Its data; lines of it are joined by line feeds.
    pub data: String,
}

/// What is wrong with a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {MAX_EVENT} bytes")]
pub struct TooLong;

/// Splits bytes into events.
#[derive(Debug, Default)]
pub struct Events {
    /// What came of a line that has not ended.
    line: Vec<u8>,
    /// Whether the last byte was a carriage return, which a line feed may follow.
    after_return: bool,
    event: Event,
    has_data: bool,
}

impl Events {
    /// Takes bytes as they come, and adds the events that they complete to `found`. Comments and
    /// fields that have no meaning here are passed over.
    ///
    /// # Errors
    ///
    /// [`TooLong`]; then the stream is of no more use.
    pub fn push(&mut self, mut bytes: &[u8], found: &mut Vec<Event>) -> Result<(), TooLong> {
        if bytes.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.after_return) && bytes[0] == b'\n' {
            bytes = &bytes[1..];
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.keep(&bytes[..end])?;
            let is_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if is_return {
                match bytes.first() {
                    Some(b'\n') => bytes = &bytes[1..],
                    Some(_) => {}
                    None => self.after_return = true,
                }
            }
            let line = std::mem::take(&mut self.line);
            self.line_ended(&String::from_utf8_lossy(&line), found)?;
        }
        self.keep(bytes)
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.line.len() + bytes.len() > MAX_EVENT {
            return Err(TooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn line_ended(&mut self, line: &str, found: &mut Vec<Event>) -> Result<(), TooLong> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.has_data) {
                found.push(event);
            }
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if self.event.data.len() + value.len() >= MAX_EVENT {
                    return Err(TooLong);
                }
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<Event> {
        let (mut parser, mut found) = (Events::default(), Vec::new());
        for piece in pieces {
            parser.push(piece, &mut found).expect("short lines");
        }
        found
    }

    fn event(name: &str, data: &str) -> Event {
        Event { name: name.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn events_end_with_an_empty_line_and_comments_are_none() {
        let stream = b": busy\n\nevent: a\ndata: {\"x\":1}\n\nid: 3\ndata:two\ndata: lines\r\n\r\ndata: [DONE]";
        assert_eq!(events(&[stream]), [event("a", "{\"x\":1}"), event("", "two\nlines")]);
    }

    #[test]
    fn a_line_has_a_bound() {
        let mut parser = Events::default();
        let piece = vec![b'x'; MAX_EVENT];
        assert_eq!(parser.push(&piece, &mut Vec::new()), Ok(()));
        assert_eq!(parser.push(b"x", &mut Vec::new()), Err(TooLong));
    }

    proptest! {
        #[test]
        fn any_split_of_a_stream_gives_the_same_events(
            lines in proptest::collection::vec("(data: ?|event: |: |)[a-zé ]{0,6}(\n|\r|\r\n)", 0..24),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let stream = lines.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|two| &stream[two[0]..two[1]]).collect();
            prop_assert_eq!(events(&pieces), events(&[&stream]));
        }

        #[test]
        fn any_bytes_give_events_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            events(&[&bytes]);
        }
    }
}
