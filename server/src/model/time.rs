//! Wall-clock time as the model sees it: a number that was handed in.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::id::Text;

/// Microseconds since the Unix epoch. As text: ISO 8601 in UTC, `2026-02-26T12:00:00.123456Z`.
///
/// Never used to order events; their sequence is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The instant so many microseconds after the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// This instant, later by `by`; the last representable one if that is too far.
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is before.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The time of day in UTC, `12:00:05`.
    pub fn time_of_day(self) -> String {
        let seconds = self.0.div_euclid(1_000_000).rem_euclid(86_400);
        format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }
}

impl Timestamp {
    /// Reads the text that [`Timestamp`] prints; none for any other form.
    fn parse_own(text: &[u8]) -> Option<Self> {
        let text: &[u8; 27] = text.try_into().ok()?;
        let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'.')];
        if text[26] != b'Z' || marks.iter().any(|(at, mark)| text[*at] != *mark) {
            return None;
        }
        let number = |range: std::ops::Range<usize>| {
            text[range].iter().try_fold(0_u32, |number, digit| {
                digit.is_ascii_digit().then(|| number * 10 + u32::from(digit - b'0'))
            })
        };
        let date = chrono::NaiveDate::from_ymd_opt(
            i32::try_from(number(0..4)?).ok()?,
            number(5..7)?,
            number(8..10)?,
        )?;
        let time = date.and_hms_micro_opt(
            number(11..13)?,
            number(14..16)?,
            number(17..19)?,
            number(20..26)?,
        )?;
        Some(Self(time.and_utc().timestamp_micros()))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instant = DateTime::<Utc>::from_timestamp_micros(self.0).unwrap_or_default();
        f.write_str(&instant.to_rfc3339_opts(SecondsFormat::Micros, true))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = chrono::ParseError;

    fn from_str(text: &str) -> Result<Self, chrono::ParseError> {
        if let Some(at) = Self::parse_own(text.as_bytes()) {
            return Ok(at);
        }
        DateTime::parse_from_rfc3339(text).map(|instant| Self(instant.timestamp_micros()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text::<Self>::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_iso_8601_and_other_offsets_are_read() {
        let instant = Timestamp::from_micros(1_772_107_200_123_456);
        assert_eq!(instant.to_string(), "2026-02-26T12:00:00.123456Z");
        assert_eq!("2026-02-26T12:00:00.123456+00:00".parse(), Ok(instant));
        assert_eq!(instant.time_of_day(), "12:00:00");
        for bad in ["2026-02-30T12:00:00.123456Z", "2026-02-26T12:00:00.12345xZ", ""] {
            assert!(bad.parse::<Timestamp>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn far_futures_saturate() {
        let end = Timestamp::from_micros(i64::MAX);
        assert_eq!(end.after(Duration::MAX), end);
        assert_eq!(Timestamp::default().since(end), Duration::ZERO);
    }
}
