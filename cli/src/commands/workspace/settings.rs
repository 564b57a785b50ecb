//! Variables and limits as they are typed.

use std::collections::BTreeMap;

use substrat_proto::v1;

use crate::error::{Error, Kind};

/// A switch.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// Reads a variable.
pub(super) fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE fits")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Variables by their names. One that is named twice is refused: only one of the two would count.
pub(super) fn variables(
    env: Vec<(String, String)>,
    unset_env: &[String],
) -> Result<BTreeMap<String, String>, Error> {
    let mut named = BTreeMap::new();
    for (name, value) in env {
        if unset_env.contains(&name) {
            let problem = format!("the variable {name:?} is both set and removed");
            let hint = "give it with --env or with --unset-env, not with both";
            return Err(Error::new(Kind::Invalid, problem, hint));
        }
        let problem = format!("the variable {name:?} is given twice");
        if named.insert(name, value).is_some() {
            return Err(Error::new(Kind::Invalid, problem, "give it once"));
        }
    }
    Ok(named)
}

/// Limits on processes.
#[derive(clap::Args)]
pub(crate) struct Limits {
    /// Memory of all processes together, such as 512M or 2G; 0 for what is configured
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    memory: Option<u64>,
    /// Processors, such as 1.5; 0 for what is configured
    #[arg(long, value_name = "N", value_parser = millis, allow_hyphen_values = true)]
    cpus: Option<u32>,
    /// Processes and threads at once; 0 for what is configured
    #[arg(long, value_name = "N", value_parser = number, allow_hyphen_values = true)]
    processes: Option<u32>,
    /// Open files of a process; 0 for what is configured
    #[arg(long, value_name = "N", value_parser = number, allow_hyphen_values = true)]
    open_files: Option<u32>,
    /// Largest file that a process may write; 0 for what is configured
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    file_size: Option<u64>,
    /// Files below its root; 0 for what is configured
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    disk: Option<u64>,
}

impl Limits {
    pub(super) fn given(&self) -> Option<v1::WorkspaceLimits> {
        let given = v1::WorkspaceLimits {
            memory_bytes: self.memory.unwrap_or_default(),
            cpu_millis: self.cpus.unwrap_or_default(),
            processes: self.processes.unwrap_or_default(),
            open_files: self.open_files.unwrap_or_default(),
            file_size_bytes: self.file_size.unwrap_or_default(),
            disk_bytes: self.disk.unwrap_or_default(),
        };
        Some(given).filter(|given| *given != v1::WorkspaceLimits::default())
    }

    fn named(&self) -> impl Iterator<Item = &'static str> {
        let fields = [
            ("limits.memory_bytes", self.memory.is_some()),
            ("limits.cpu_millis", self.cpus.is_some()),
            ("limits.processes", self.processes.is_some()),
            ("limits.open_files", self.open_files.is_some()),
            ("limits.file_size_bytes", self.file_size.is_some()),
            ("limits.disk_bytes", self.disk.is_some()),
        ];
        fields.into_iter().filter(|(_, given)| *given).map(|(field, _)| field)
    }
}

/// The fields that an update names.
pub(super) fn mask(
    network: Option<Switch>,
    env: &[(String, String)],
    unset_env: &[String],
    limits: &Limits,
) -> Result<prost_types::FieldMask, Error> {
    let named = [("network", network.is_some()), ("env", !env.is_empty() || !unset_env.is_empty())];
    let named = named.into_iter().filter(|(_, given)| *given).map(|(field, _)| field);
    let paths: Vec<String> = named.chain(limits.named()).map(str::to_owned).collect();
    if paths.is_empty() {
        return Err(Error::invalid("nothing to change was given; --help lists what can be"));
    }
    Ok(prost_types::FieldMask { paths })
}

/// Reads a size: bytes, or with K, M, G or T so many of 1024, 1024² and so on.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        _ => return Err("a size such as 512M or 2G fits".to_owned()),
    };
    let count: f64 = digits.parse().map_err(|_| "a size such as 512M or 2G fits")?;
    let bytes = count * f64::from(1_u32 << 10).powi(shift / 10);
    if bytes < 0.0 {
        return Err("a size is not negative; one such as 512M or 2G fits".to_owned());
    }
    match (0.0..9e18).contains(&bytes) {
        // A 0 would be what is configured.
        true if bytes > 0.0 && bytes < 1.0 => Err("a size of a byte or more fits".to_owned()),
        true => Ok(bytes as u64),
        false => Err("a size of less than 8 EiB fits".to_owned()),
    }
}

/// Reads a number of things.
fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("a whole number from 0 to {} fits", u32::MAX))
}

/// Reads processors, and gives thousandths of one.
fn millis(text: &str) -> Result<u32, String> {
    let count: f64 = text.parse().map_err(|_| "a number such as 1.5 fits")?;
    let millis = (count * 1000.0).round();
    match (0.0..=4_000_000.0).contains(&count) {
        // A 0 would be what is configured.
        true if count > 0.0 && millis < 1.0 => {
            Err("less than a hundredth of a processor is too little; 0.01 fits".to_owned())
        }
        true => Ok(millis as u32),
        false => Err("a number of processors fits".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_named_once() {
        let read = |set: &[&str], unset: &[&str]| {
            let set = set.iter().map(|text| variable(text).unwrap()).collect();
            let unset: Vec<String> = unset.iter().map(|&name| name.to_owned()).collect();
            variables(set, &unset).map_err(|no| (no.kind, no.message))
        };
        assert_eq!(read(&["A=1", "B=1"], &["C"]).map(|named| named.len()), Ok(2));
        let no = |problem: &str| Err((Kind::Invalid, format!("the variable \"A\" is {problem}")));
        assert_eq!(read(&["A=1", "B=1", "A=2"], &[]), no("given twice"));
        assert_eq!(read(&["B=1", "A=1"], &["A"]), no("both set and removed"));
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        let read = |text| size(text).ok();
        assert_eq!(read("0"), Some(0));
        assert_eq!(read("4096"), Some(4096));
        assert_eq!(read("512M"), Some(512 << 20));
        assert_eq!(read("1.5g"), Some(3 << 29));
        assert_eq!(read("2TiB"), Some(2 << 40));
        for bad in ["", "x", "-1", "1X", "1e99", "inf", "nan", "9999999T"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!((millis("1.5"), millis("0.01").ok()), (Ok(1500), Some(10)));
        assert!(millis("-1").is_err() && millis("nan").is_err());
        // What is too little for the daemon is for it to refuse, but for what would be 0.
        assert_eq!((millis("0"), millis("-0"), millis("0.0005")), (Ok(0), Ok(0), Ok(1)));
        for bad in ["0.0004", "1e-9"] {
            assert!(millis(bad).is_err_and(|why| why.contains("a hundredth")), "{bad}");
        }
        assert!(size("0.4").is_err_and(|why| why.contains("a byte or more")));
        assert_eq!((read("0.0"), read("0.5K")), (Some(0), Some(512)));
        assert_eq!((number("7").ok(), number("-1").ok()), (Some(7), None));
        assert!(size("-1").is_err_and(|why| why.contains("not negative")));
    }
}
