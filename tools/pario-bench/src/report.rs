//! A benchmark's result: as a table for people, or as one JSON object.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};

use super::figures::{FigureRow, Figures, Goal};
use super::machine::Machine;

/// Figures, the machine and the settings they were measured with.
#[derive(Debug, Serialize)]
pub(crate) struct BenchReport {
    /// What was run.
    #[serde(skip)]
    pub(crate) title: String,
    #[serde(serialize_with = "as_object")]
    pub(crate) figures: Figures,
    pub(crate) machine: Machine,
    pub(crate) settings: serde_json::Value,
}

fn as_object<S: Serializer>(figures: &Figures, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(figures.rows().iter().map(|row| (&row.name, &row.figure)))
}

impl BenchReport {
    /// One JSON object.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("figures and settings are plain data")
    }

    /// A table.
    pub(crate) fn table(&self) -> String {
        let mut text = format!("{}\n{}\n\n", self.title, self.machine.line());
        let width = self.figures.rows().iter().map(|row| row.name.len()).max().unwrap_or(0).max(6);
        let _ =
            writeln!(text, "{:width$} {:>12}  {:<23} {:<12} runs", "figure", "median", "min .. max", "goal");
        for row in self.figures.rows() {
            text.push_str(&line(row, width));
        }
        let missed: Vec<&str> =
            self.figures.rows().iter().filter(|row| misses(row)).map(|row| row.name.as_str()).collect();
        if !missed.is_empty() {
            let _ = writeln!(text, "\nbelow their goals: {}", missed.join(", "));
        }
        text
    }
}

fn misses(row: &FigureRow) -> bool {
    row.goal.is_met(row.figure.value) == Some(false)
}

fn line(row: &FigureRow, width: usize) -> String {
    let figure = &row.figure;
    let unit = if figure.unit == "ratio" { "" } else { figure.unit };
    let value = format!("{} {unit}", number(figure.value));
    let spread = format!("{} .. {}", number(figure.min), number(figure.max));
    let line = format!(
        "{:width$} {:>12}  {spread:<23} {:<12} {:<4}  {}",
        row.name,
        value.trim_end(),
        goal(row),
        figure.runs,
        row.note
    );
    format!("{}\n", line.trim_end())
}

fn goal(row: &FigureRow) -> String {
    let sign = if misses(row) { "✗" } else { "✓" };
    match row.goal {
        Goal::AtLeast(bound) => format!("{sign} ≥ {}", number(bound)),
        Goal::AtMost(bound) => format!("{sign} ≤ {}", number(bound)),
        Goal::None => String::new(),
    }
}

/// Three significant digits; thousands as integers.
fn number(value: f64) -> String {
    match value.abs() {
        size if 100.0 <= size => format!("{value:.0}"),
        size if 10.0 <= size => format!("{value:.1}"),
        size if 0.1 <= size => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Figure;
    use super::*;

    fn report() -> BenchReport {
        let mut figures = Figures::default();
        figures.add(
            "write_vs_plain",
            Figure::of(&[0.9, 0.95, 1.0], "ratio"),
            Goal::AtLeast(0.9),
            "2000 MiB/s",
        );
        figures.add("up_s", Figure::of(&[0.7], "s"), Goal::AtMost(0.5), "");
        let machine = Machine {
            cpus: 2,
            cpu_model: "CPU".into(),
            memory_bytes: 1 << 30,
            kernel: "Linux 6".into(),
            file_system: "ext4".into(),
        };
        BenchReport { title: "io".into(), figures, machine, settings: serde_json::json!({"pairs": 3}) }
    }

    #[test]
    fn json_is_one_object_with_figures_machine_and_settings() {
        let read: serde_json::Value = serde_json::from_str(&report().json()).unwrap();
        assert_eq!(read["figures"]["write_vs_plain"]["value"], 0.95);
        assert_eq!(read["figures"]["write_vs_plain"]["runs"], 3);
        assert_eq!(read["machine"]["cpus"], 2);
        assert_eq!(read["settings"]["pairs"], 3);
        assert_eq!(read.as_object().unwrap().len(), 3);
    }

    #[test]
    fn the_table_says_which_goals_are_missed() {
        let table = report().table();
        assert!(table.contains("✓ ≥ 0.90"), "{table}");
        assert!(table.contains("✗ ≤ 0.50"), "{table}");
        assert!(table.ends_with("below their goals: up_s\n"), "{table}");
    }

    #[test]
    fn numbers_keep_three_digits() {
        let cases = [(21_534.2, "21534"), (12.34, "12.3"), (0.912, "0.91"), (0.0123, "0.012")];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }
}
