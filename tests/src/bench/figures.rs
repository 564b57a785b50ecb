//! Figures, and how they are written.

use std::path::Path;

use serde_json::json;

/// A figure beside its limit or rival.
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    rival: String,
    rival_value: f64,
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
        (rival, rival_value): (&str, f64),
        target: Target,
    ) {
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
        let (name, rival) = (name.into(), rival.to_owned());
        let figure = Figure { name, value, unit, rival, rival_value, target, holds };
        println!("{}", figure.line());
        self.all.push(figure);
    }

    /// Writes `target/bench/results.json`.
    pub(crate) fn write(&self) {
        let figures: Vec<_> = self
            .all
            .iter()
            .map(|figure| {
                json!({
                    "name": figure.name, "value": figure.value, "unit": figure.unit,
                    "rival": figure.rival, "rival_value": figure.rival_value,
                    "ratio": figure.value / figure.rival_value,
                    "target": figure.target, "holds": figure.holds,
                })
            })
            .collect();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
        std::fs::create_dir_all(&folder).unwrap();
        let text = serde_json::to_string_pretty(&json!({ "figures": figures })).unwrap();
        std::fs::write(folder.join("results.json"), text + "\n").unwrap();
        let missed = self.all.iter().filter(|figure| !figure.holds).count();
        println!(
            "\n{} figures, {missed} short of their targets; target/bench/results.json",
            self.all.len()
        );
    }
}

impl Figure {
    fn line(&self) -> String {
        let mark = match (self.target.is_empty(), self.holds) {
            (true, _) => "    ",
            (false, true) => "ok  ",
            (false, false) => "MISS",
        };
        let (value, rival) = (short(self.value), short(self.rival_value));
        let beside = match self.rival.as_str() {
            "" => String::new(),
            name => format!("beside {rival} {name} (× {:.3})", self.value / self.rival_value),
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
