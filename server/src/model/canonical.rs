//! Canonical JSON, and the hash of it.
//!
//! The text that Python writes with `json.dumps(value, sort_keys=True, separators=(",", ":"),
//! ensure_ascii=True)`, byte for byte, so that a hash can be checked with a few lines of it: keys
//! in the order of their code points, no white space, everything beyond printable ASCII escaped,
//! integers of any size as they are, other numbers as the shortest text that reads back.
//! `docs/execution-records.md` has the rules.

use std::ops::Range;

use sha2::{Digest, Sha256};

/// Deepest nesting that is read.
const MAX_DEPTH: usize = 512;

/// Text that has no canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotJson {
    /// Not UTF-8.
    #[error("not UTF-8 from byte {at} on")]
    Utf8 {
        /// The first byte that is not.
        at: usize,
    },
    /// Not JSON.
    #[error("not JSON: {wanted} is wanted at byte {at}")]
    Syntax {
        /// Where.
        at: usize,
        /// What should stand there.
        wanted: &'static str,
    },
    /// Nested too deeply.
    #[error("nested more than {MAX_DEPTH} levels deep at byte {at}")]
    Depth {
        /// Where.
        at: usize,
    },
}

/// The canonical form of JSON. `NaN`, `Infinity` and `-Infinity` are taken and kept as Python
/// does; of a repeated key the last value counts.
///
/// # Errors
///
/// Says what is no JSON, and where.
pub fn canonical(json: &[u8]) -> Result<String, NotJson> {
    let text =
        std::str::from_utf8(json).map_err(|error| NotJson::Utf8 { at: error.valid_up_to() })?;
    let mut reader = Reader { text, at: 0, out: String::with_capacity(text.len()) };
    reader.value(0)?;
    reader.skip_space();
    if reader.at < text.len() {
        return Err(reader.wants("the end"));
    }
    Ok(reader.out)
}

/// `sha256:` and the 64 lower-case hex digits of the SHA-256 of text.
pub fn sha256(text: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut hash = String::with_capacity(71);
    hash.push_str("sha256:");
    for byte in Sha256::digest(text.as_bytes()) {
        hash.push(char::from(HEX[usize::from(byte >> 4)]));
        hash.push(char::from(HEX[usize::from(byte & 15)]));
    }
    hash
}

/// Appends text as a canonical string.
pub(super) fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    while !rest.is_empty() {
        let plain = plain_run(rest.as_bytes());
        out.push_str(&rest[..plain]);
        rest = &rest[plain..];
        let mut chars = rest.chars();
        if let Some(next) = chars.next() {
            write_escaped(out, u32::from(next));
            rest = chars.as_str();
        }
    }
    out.push('"');
}

/// How many bytes from the start stand for themselves in a canonical string.
fn plain_run(bytes: &[u8]) -> usize {
    let odd = |byte: &u8| !matches!(byte, b' '..=b'~') || matches!(byte, b'"' | b'\\');
    bytes.iter().position(odd).unwrap_or(bytes.len())
}

/// Appends a code point, which may be a lone surrogate.
fn write_escaped(out: &mut String, code: u32) {
    match code {
        0x08 => out.push_str("\\b"),
        0x09 => out.push_str("\\t"),
        0x0a => out.push_str("\\n"),
        0x0c => out.push_str("\\f"),
        0x0d => out.push_str("\\r"),
        0x22 => out.push_str("\\\""),
        0x5c => out.push_str("\\\\"),
        0x20..=0x7e => out.extend(char::from_u32(code)),
        0..=0xffff => write_unit(out, code),
        _ => {
            write_unit(out, 0xd800 + ((code - 0x1_0000) >> 10));
            write_unit(out, 0xdc00 + ((code - 0x1_0000) & 0x3ff));
        }
    }
}

fn write_unit(out: &mut String, unit: u32) {
    out.push_str("\\u");
    for shift in [12, 8, 4, 0] {
        out.extend(char::from_digit((unit >> shift) & 15, 16));
    }
}

/// Appends a code point in UTF-8 that is generalized to surrogates: its bytes are in the order of
/// the code points.
fn push_code(key: &mut Vec<u8>, code: u32) {
    match char::from_u32(code) {
        Some(char) => key.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        None => key.extend([
            0xe0 | (code >> 12) as u8,
            0x80 | ((code >> 6) & 0x3f) as u8,
            0x80 | (code & 0x3f) as u8,
        ]),
    }
}

/// A float as Python's `repr` writes it.
fn write_float(out: &mut String, value: f64) {
    if value.is_infinite() {
        return out.push_str(if value < 0.0 { "-Infinity" } else { "Infinity" });
    }
    // The shortest digits that read back, such as "-1.5e300".
    let shortest = format!("{:e}", value.abs());
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = mantissa.replace('.', "");
    if value.is_sign_negative() {
        out.push('-');
    }
    match exponent {
        -4..0 => {
            out.push_str("0.");
            out.extend(std::iter::repeat_n('0', (-exponent - 1) as usize));
            out.push_str(&digits);
        }
        0..16 => {
            let whole = exponent as usize + 1;
            out.push_str(&digits[..whole.min(digits.len())]);
            out.extend(std::iter::repeat_n('0', whole.saturating_sub(digits.len())));
            out.push('.');
            out.push_str(digits.get(whole..).filter(|rest| !rest.is_empty()).unwrap_or("0"));
        }
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            out.push_str(&format!("{mantissa}e{sign}{:02}", exponent.abs()));
        }
    }
}

/// Reads JSON and writes its canonical form in one go.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    out: String,
}

/// A key, comparable by code points, and where its member stands in the output.
type Member = (Vec<u8>, Range<usize>);

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn wants(&self, wanted: &'static str) -> NotJson {
        NotJson::Syntax { at: self.at, wanted }
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Passes over a byte, if it is this one.
    fn skip(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn word(&mut self, word: &'static str) -> bool {
        let there = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        if there {
            self.at += word.len();
            self.out.push_str(word);
        }
        there
    }

    fn value(&mut self, depth: usize) -> Result<(), NotJson> {
        if depth > MAX_DEPTH {
            return Err(NotJson::Depth { at: self.at });
        }
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string(None),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                let words = ["true", "false", "null", "NaN", "Infinity"];
                let known = words.into_iter().any(|word| self.word(word));
                if known { Ok(()) } else { Err(self.wants("a value")) }
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), NotJson> {
        self.at += 1;
        self.out.push('[');
        self.skip_space();
        if !self.skip(b']') {
            loop {
                self.value(depth + 1)?;
                self.skip_space();
                if self.skip(b']') {
                    break;
                }
                if !self.skip(b',') {
                    return Err(self.wants("\",\" or \"]\""));
                }
                self.out.push(',');
            }
        }
        self.out.push(']');
        Ok(())
    }

    fn object(&mut self, depth: usize) -> Result<(), NotJson> {
        self.at += 1;
        self.out.push('{');
        let start = self.out.len();
        let mut members: Vec<Member> = Vec::new();
        self.skip_space();
        if !self.skip(b'}') {
            loop {
                let from = self.out.len();
                let mut key = Vec::new();
                self.skip_space();
                self.string(Some(&mut key))?;
                self.skip_space();
                if !self.skip(b':') {
                    return Err(self.wants("\":\""));
                }
                self.out.push(':');
                self.value(depth + 1)?;
                members.push((key, from..self.out.len()));
                self.skip_space();
                if self.skip(b'}') {
                    break;
                }
                if !self.skip(b',') {
                    return Err(self.wants("\",\" or \"}\""));
                }
                self.out.push(',');
            }
        }
        if !members.is_sorted_by(|one, other| one.0 < other.0) {
            self.sort_members(start, members);
        }
        self.out.push('}');
        Ok(())
    }

    /// Puts the members of an object, written from `start` on, in the order of their keys.
    fn sort_members(&mut self, start: usize, mut members: Vec<Member>) {
        members.reverse();
        members.sort_by(|one, other| one.0.cmp(&other.0));
        // The sort is stable: the first of equal keys is the one that was read last.
        members.dedup_by(|one, other| one.0 == other.0);
        let members: Vec<&str> =
            members.iter().map(|(_, range)| &self.out[range.clone()]).collect();
        let sorted = members.join(",");
        self.out.truncate(start);
        self.out.push_str(&sorted);
    }

    /// Reads a string; the decoded text goes to `key`, too.
    fn string(&mut self, mut key: Option<&mut Vec<u8>>) -> Result<(), NotJson> {
        if !self.skip(b'"') {
            return Err(self.wants("a string"));
        }
        self.out.push('"');
        loop {
            let rest = &self.text[self.at..];
            let plain = &rest[..plain_run(rest.as_bytes())];
            self.out.push_str(plain);
            self.at += plain.len();
            if let Some(key) = &mut key {
                key.extend_from_slice(plain.as_bytes());
            }
            let code = match self.text[self.at..].chars().next() {
                Some('"') => break,
                Some('\\') => self.escape()?,
                Some(char) if char >= ' ' => {
                    self.at += char.len_utf8();
                    u32::from(char)
                }
                _ => return Err(self.wants("the rest of a string")),
            };
            write_escaped(&mut self.out, code);
            if let Some(key) = &mut key {
                push_code(key, code);
            }
        }
        self.at += 1;
        self.out.push('"');
        Ok(())
    }

    fn escape(&mut self) -> Result<u32, NotJson> {
        self.at += 1;
        let code = match self.peek() {
            Some(b'"') => 0x22,
            Some(b'\\') => 0x5c,
            Some(b'/') => 0x2f,
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => 0x0a,
            Some(b'r') => 0x0d,
            Some(b't') => 0x09,
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.wants("an escape")),
        };
        self.at += 1;
        Ok(code)
    }

    /// `\uXXXX`, or two of them that are a surrogate pair. A surrogate without its other half is a
    /// code point of its own.
    fn unicode_escape(&mut self) -> Result<u32, NotJson> {
        let unit = self.unit(self.at).ok_or_else(|| self.wants("u and four hex digits"))?;
        self.at += 5;
        if (0xd800..0xdc00).contains(&unit)
            && self.peek() == Some(b'\\')
            && let Some(low @ 0xdc00..=0xdfff) = self.unit(self.at + 1)
        {
            self.at += 6;
            return Ok(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00));
        }
        Ok(unit)
    }

    fn unit(&self, at: usize) -> Option<u32> {
        let hex = self.text.as_bytes().get(at..at + 5)?.strip_prefix(b"u")?;
        hex.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
    }

    fn digits(&mut self) -> Result<(), NotJson> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.wants("a digit"));
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), NotJson> {
        let start = self.at;
        if self.skip(b'-') && self.peek() == Some(b'I') {
            self.out.push('-');
            return if self.word("Infinity") { Ok(()) } else { Err(self.wants("a number")) };
        }
        if !self.skip(b'0') {
            self.digits()?;
        }
        let whole = self.at;
        if self.skip(b'.') {
            self.digits()?;
        }
        if self.skip(b'e') || self.skip(b'E') {
            let _ = self.skip(b'+') || self.skip(b'-');
            self.digits()?;
        }
        let text = &self.text[start..self.at];
        match text {
            "-0" => self.out.push('0'),
            integer if self.at == whole => self.out.push_str(integer),
            float => {
                let value: f64 = float.parse().map_err(|_| self.wants("a number"))?;
                write_float(&mut self.out, value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
