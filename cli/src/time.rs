//! Times and sizes for people.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Local};
use prost_types::Timestamp;

/// How long ago, such as `3m`; a dash for never.
pub(crate) fn ago(at: Option<&Timestamp>) -> String {
    let Some(at) = at.and_then(|at| SystemTime::try_from(*at).ok()) else { return "-".into() };
    #[expect(clippy::disallowed_methods, reason = "shows times to a person")]
    let now = SystemTime::now();
    short(now.duration_since(at).unwrap_or_default())
}

/// A duration in its largest unit, such as `3m`.
pub(crate) fn short(time: Duration) -> String {
    match time.as_secs() {
        0 => "now".into(),
        seconds @ 1..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// The local time of day.
pub(crate) fn clock(at: Option<&Timestamp>) -> String {
    let at = at.and_then(|at| SystemTime::try_from(*at).ok());
    at.map_or_else(String::new, |at| DateTime::<Local>::from(at).format("%H:%M:%S").to_string())
}

/// Local date and time.
pub(crate) fn date(at: Option<&Timestamp>) -> String {
    let at = at.and_then(|at| SystemTime::try_from(*at).ok());
    at.map_or_else(
        || "-".into(),
        |at| DateTime::<Local>::from(at).format("%Y-%m-%d %H:%M:%S").to_string(),
    )
}

/// A number of bytes, such as `1.5 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{:.1} KiB", count as f64 / 1024.0),
        _ => format!("{:.1} MiB", count as f64 / 1_048_576.0),
    }
}
