//! Lines that are too long, which the MCP library would pass over in silence: their sender would
//! wait. Each is replaced by one that gets an answer.

use std::convert::Infallible;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

/// Longest line, in bytes.
pub(super) const MAX_BYTES: usize = 16 << 20;
/// The method of a request that stands for a line that was too long.
pub(super) const TOO_LONG: &str = "substrat/too_long";
/// JSON that is no message: it is answered as one without an id.
const NO_MESSAGE: &[u8] = b"{}\n";
/// How much of the end of a long line is kept: the id of a request stands there or at the start.
const TAIL_BYTES: usize = 1 << 10;

/// Takes lines to their reader, until either end is gone. Never returns: what runs beside it ends.
pub(super) async fn filter(
    input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> Infallible {
    let mut input = BufReader::new(input);
    // Either end says by itself that it is gone.
    let _ = copy(&mut input, &mut output).await;
    drop(output);
    std::future::pending().await
}

async fn copy<R: AsyncRead + Unpin>(
    input: &mut BufReader<R>,
    output: &mut (impl AsyncWrite + Unpin),
) -> std::io::Result<()> {
    let mut line = Line::default();
    loop {
        let part = input.fill_buf().await?;
        if part.is_empty() {
            return output.write_all(&line.start).await;
        }
        let end = part.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(part.len(), |end| end + 1);
        line.push(&part[..length]);
        input.consume(length);
        if end.is_some() {
            output.write_all(&std::mem::take(&mut line).into_answerable()).await?;
        }
    }
}

/// A line as it comes.
#[derive(Default)]
struct Line {
    /// All of it, or as much as a line may have.
    start: Vec<u8>,
    /// The end of what does not fit there.
    tail: Vec<u8>,
}

impl Line {
    fn push(&mut self, part: &[u8]) {
        let (fits, rest) = part.split_at(part.len().min(MAX_BYTES - self.start.len()));
        self.start.extend_from_slice(fits);
        self.tail.extend_from_slice(rest);
        let old = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..old);
    }

    /// The line, or one in its place that gets an answer.
    fn into_answerable(self) -> Vec<u8> {
        if self.tail.is_empty() {
            return self.start;
        }
        let end = [&self.start[self.start.len() - TAIL_BYTES..], &self.tail].concat();
        match first_id(&self.start).or_else(|| last_id(&end)).filter(is_id) {
            Some(id) => format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "method": TOO_LONG })),
            None => return NO_MESSAGE.to_vec(),
        }
        .into_bytes()
    }
}

fn is_id(id: &Value) -> bool {
    id.is_string() || id.is_i64()
}

/// The id of a message, of which the end may be missing.
fn first_id(start: &[u8]) -> Option<Value> {
    let mut id = None;
    // What comes after the id does not matter, nor does it when there is none.
    let _ = serde_json::Deserializer::from_slice(start).deserialize_map(FindId(&mut id));
    id
}

struct FindId<'a>(&'a mut Option<Value>);

impl<'de> Visitor<'de> for FindId<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "id" => *self.0 = Some(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The id of a message that ends with it, as those of many clients do.
fn last_id(end: &[u8]) -> Option<Value> {
    const KEY: &[u8] = b",\"id\":";
    let inner = end.trim_ascii_end().strip_suffix(b"}")?;
    // No text holds this key: in one, its quotes would be escaped.
    let place = inner.windows(KEY.len()).rposition(|window| window == KEY)?;
    serde_json::from_slice(&inner[place + KEY.len()..]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answerable(line: &str) -> String {
        let mut taken = Line::default();
        for part in line.as_bytes().chunks(8 << 10) {
            taken.push(part);
        }
        String::from_utf8(taken.into_answerable()).expect("UTF-8")
    }

    #[test]
    fn a_line_that_fits_is_left_as_it_is() {
        for line in
            ["{\"id\":1}\n", "{\"id\":\"a\"}\n", "{\"id\":null}\n", "none\n", "\n", "[1.5]\n"]
        {
            assert_eq!(answerable(line), line);
        }
        let text = "x".repeat(MAX_BYTES - 10);
        assert_eq!(answerable(&format!("{{\"p\":\"{text}\"}}\n")).len(), MAX_BYTES - 1);
    }

    #[test]
    fn a_line_that_is_too_long_keeps_its_id_at_either_end() {
        let text = format!("{{\"id\":4,\"t\":\",\\\"id\\\":9{}\"}}", "x".repeat(MAX_BYTES));
        for (line, id) in [
            (format!("{{\"id\":7,\"params\":{text}}}\n"), Some(json!(7))),
            (format!("{{\"params\":{text},\"id\":7}}\r\n"), Some(json!(7))),
            (format!("{{\"params\":{text},\"id\":\"s\"}}\n"), Some(json!("s"))),
            (format!("{{\"params\":{text},\"id\":1.5}}\n"), None),
            (format!("{{\"id\":1.5,\"params\":{text}}}\n"), None),
            (format!("{{\"params\":{text}}}\n"), None),
        ] {
            let answer: Value = serde_json::from_str(&answerable(&line)).expect("JSON");
            assert_eq!(answer.get("id"), id.as_ref(), "{}", &line[line.len() - 30..]);
        }
    }
}
