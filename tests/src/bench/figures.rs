//! Figures, and how they are written.

use std::path::Path;

use serde_json::json;

/// A figure beside its limit or rival.
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    rival: Option<(String, f64)>,
    target: String,
    holds: bool,
}

/// All figures of a run.
#[derive(Default)]
pub(crate) struct Figures {
    all: Vec<Figure>,
}

/// What a figure must keep to.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// This many times the rival at the most.
    AtMostTimes(f64),
    /// This many times the rival at the least.
    AtLeastTimes(f64),
    None,
}

impl Figures {
    /// Adds a figure and prints its line.
    pub(crate) fn add(
        &mut self,
        name: impl Into<String>,
        (value, unit): (f64, &'static str),
        rival: Option<(&str, f64)>,
        target: Target,
    ) {
        let rival_value = rival.map_or(f64::NAN, |(_, value)| value);
        let (holds, target) = match target {
            Target::AtMost(most) => (value <= most, format!("≤ {}", short(most))),
            Target::AtLeast(least) => (value >= least, format!("≥ {}", short(least))),
            Target::AtMostTimes(times) => {
                (value <= times * rival_value, format!("≤ {times} × that"))
            }
            Target::AtLeastTimes(times) => {
                (value >= times * rival_value, format!("≥ {times} × that"))
            }
            Target::None => (true, String::new()),
        };
        let rival = rival.map(|(name, value)| (name.to_owned(), value));
        let figure = Figure { name: name.into(), value, unit, rival, target, holds };
        println!("{}", figure.line());
        self.all.push(figure);
    }

    /// Writes `target/bench/results.json`; figures of an earlier run that this one did not measure
    /// stay. Returns whether all keep to their targets.
    pub(crate) fn write(&self) -> bool {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("results.json");
        let before = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let before: serde_json::Value = before.unwrap_or_default();
        let mut figures = before["figures"].as_array().cloned().unwrap_or_default();
        figures.retain(|old| self.all.iter().all(|new| old["name"] != *new.name));
        figures.extend(self.all.iter().map(Figure::json));
        let text = serde_json::to_string_pretty(&json!({ "figures": figures })).unwrap();
        std::fs::write(path, text + "\n").unwrap();
        let missed = self.all.iter().filter(|figure| !figure.holds).count();
        println!(
            "\n{} figures, {missed} short of their targets; target/bench/results.json",
            self.all.len()
        );
        missed == 0
    }
}

impl Figure {
    /// How many times the rival it is; none beside nothing.
    fn ratio(&self) -> Option<f64> {
        let rival = self.rival.as_ref().map(|(_, value)| *value).filter(|value| *value > 0.0);
        rival.map(|rival| self.value / rival)
    }

    fn json(&self) -> serde_json::Value {
        let rival = self.rival.as_ref();
        json!({
            "name": self.name, "value": self.value, "unit": self.unit,
            "rival": rival.map(|(name, _)| name), "rival_value": rival.map(|(_, value)| value),
            "ratio": self.ratio(),
            "target": self.target, "holds": self.holds,
        })
    }

    fn line(&self) -> String {
        let mark = match (self.target.is_empty(), self.holds) {
            (true, _) => "    ",
            (false, true) => "ok  ",
            (false, false) => "MISS",
        };
        let value = short(self.value);
        let beside = match &self.rival {
            None => String::new(),
            Some((name, rival)) => {
                let times = self.ratio().map(|ratio| format!(" (× {ratio:.3})"));
                format!("beside {} {name}{}", short(*rival), times.unwrap_or_default())
            }
        };
        format!(
            "{mark} {:<58} {value:>10} {:<5} {:<12} {beside}",
            self.name, self.unit, self.target
        )
    }
}

fn short(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.2}"),
        10.0..1000.0 => format!("{value:.1}"),
        _ => {
            let digits = format!("{value:.0}");
            let groups: Vec<&str> = digits
                .as_bytes()
                .rchunks(3)
                .rev()
                .map(|group| std::str::from_utf8(group).unwrap())
                .collect();
            groups.join(",")
        }
    }
}

/// The value below which this share of the samples lies.
pub(crate) fn percentile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[((samples.len() - 1) as f64 * share) as usize]
}
