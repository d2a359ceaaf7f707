//! Figures: results of a benchmark, each from several runs.
//!
//! Always: `min <= value <= max`; the value is the median; a ratio is speed by speed, above 1 is faster than the baseline.

use serde::Serialize;

/// One figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Figure {
    /// The median.
    pub(crate) value: f64,
    /// Its unit.
    pub(crate) unit: &'static str,
    /// Smallest run.
    pub(crate) min: f64,
    /// Largest run.
    pub(crate) max: f64,
    /// Number of runs.
    pub(crate) runs: usize,
}

/// Target of a figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Goal {
    /// More is better.
    AtLeast(f64),
    /// Less is better.
    AtMost(f64),
    /// Only reported.
    None,
}

/// A figure with its name, its goal and a note for the table.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FigureRow {
    pub(crate) name: String,
    pub(crate) figure: Figure,
    pub(crate) goal: Goal,
    pub(crate) note: String,
}

/// Figures in the order of measurement.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Figures {
    rows: Vec<FigureRow>,
}

impl Figure {
    /// From at least one run.
    pub(crate) fn of(runs: &[f64], unit: &'static str) -> Figure {
        assert!(!runs.is_empty(), "a figure rests on runs");
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        Figure {
            value: median(&sorted),
            unit,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            runs: sorted.len(),
        }
    }
}

/// The middle value, or the mean of the two in the middle.
fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
}

impl Goal {
    /// Whether a value reaches the goal; `None` without a goal.
    pub(crate) fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Goal::AtLeast(bound) => Some(bound <= value),
            Goal::AtMost(bound) => Some(value <= bound),
            Goal::None => None,
        }
    }
}

impl Figures {
    /// Adds a figure.
    pub(crate) fn add(
        &mut self,
        name: impl Into<String>,
        figure: Figure,
        goal: Goal,
        note: impl Into<String>,
    ) {
        let name = name.into();
        assert!(self.get(&name).is_none(), "two figures are called {name}");
        self.rows.push(FigureRow { name, figure, goal, note: note.into() });
    }

    /// A figure by its name.
    pub(crate) fn get(&self, name: &str) -> Option<&Figure> {
        self.rows.iter().find(|row| row.name == name).map(|row| &row.figure)
    }

    /// All, in order.
    pub(crate) fn rows(&self) -> &[FigureRow] {
        &self.rows
    }
}

/// Times of the two sides of a comparison, pair by pair.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Versus {
    yardstick_s: Vec<f64>,
    pario_s: Vec<f64>,
}

impl Versus {
    /// Adds a pair.
    pub(crate) fn pair(&mut self, yardstick_s: f64, pario_s: f64) {
        self.yardstick_s.push(yardstick_s);
        self.pario_s.push(pario_s);
    }

    /// Speed of Pario by speed of the baseline.
    pub(crate) fn ratio(&self) -> Figure {
        let pairs = self.yardstick_s.iter().zip(&self.pario_s);
        let ratios: Vec<f64> = pairs.map(|(yardstick, pario)| yardstick / pario).collect();
        Figure::of(&ratios, "ratio")
    }

    /// Both speeds as text.
    pub(crate) fn speeds(&self, bytes: u64) -> String {
        let speed = |seconds: &[f64]| mib(bytes) / Figure::of(seconds, "s").value;
        format!("{:.0} MiB/s, plain {:.0}", speed(&self.pario_s), speed(&self.yardstick_s))
    }
}

/// Bytes in MiB.
#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Operations a second.
#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
pub(crate) fn per_second(operations: u64, seconds: f64) -> f64 {
    operations as f64 / seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_the_median() {
        let odd = Figure::of(&[3.0, 1.0, 2.0], "s");
        assert_eq!((odd.value, odd.min, odd.max, odd.runs), (2.0, 1.0, 3.0, 3));
        assert_eq!(Figure::of(&[4.0, 1.0, 2.0, 3.0], "s").value, 2.5);
    }

    #[test]
    fn a_ratio_is_the_median_over_pairs_of_speed_against_speed() {
        let mut versus = Versus::default();
        for (plain, pario) in [(1.0, 2.0), (1.0, 1.0), (3.0, 1.0)] {
            versus.pair(plain, pario);
        }
        let ratio = versus.ratio();
        assert_eq!((ratio.value, ratio.min, ratio.max), (1.0, 0.5, 3.0));
        assert_eq!(versus.speeds(10 << 20), "10 MiB/s, plain 10");
    }

    #[test]
    fn goals_have_a_direction() {
        assert_eq!(Goal::AtLeast(0.9).is_met(0.91), Some(true));
        assert_eq!(Goal::AtLeast(0.9).is_met(0.89), Some(false));
        assert_eq!(Goal::AtMost(50.0).is_met(51.0), Some(false));
        assert_eq!(Goal::None.is_met(1.0), None);
    }

    #[test]
    fn a_figure_has_the_form_that_all_benchmarks_share() {
        let figure = Figure { value: 0.91, unit: "ratio", min: 0.9, max: 1.0, runs: 9 };
        let text = serde_json::to_string(&figure).unwrap();
        assert_eq!(text, r#"{"value":0.91,"unit":"ratio","min":0.9,"max":1.0,"runs":9}"#);
    }
}
