//! The result: as tables, as one JSON object, as a page of figures with plots.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::json;

use super::case::MpiCase;
use super::picture::pictures;
use super::{LIMIT, MpiPlan, SERVERS};
use crate::figures::{Figures, Goal};
use crate::machine::Machine;
use crate::{BenchError, BenchReport};

/// Speeds of a run.
const SPEEDS: [(&str, &str); 4] = [
    ("write_s", "write MB/s"),
    ("total_s", "total MB/s"),
    ("read_s", "read MB/s"),
    ("cold_read_s", "cold read MB/s"),
];

/// Text columns.
const WORDS: [usize; 4] = [0, 1, 3, 4];

/// All runs and their figures.
#[derive(Debug)]
pub(crate) struct MpiReport {
    report: BenchReport,
    settings: Vec<String>,
    cases: Vec<MpiCase>,
    command: String,
}

impl MpiReport {
    pub(super) fn new(
        plan: &MpiPlan,
        (figures, cases): (Figures, Vec<MpiCase>),
        (machine, settings): (Machine, Vec<String>),
    ) -> MpiReport {
        let all = json!({
            "bytes": plan.megabytes << 20, "passes": plan.passes, "rounds": plan.rounds, "ranks": plan.ranks, "kernels": plan.kernels,
            "servers": SERVERS, "limit_bytes_s": LIMIT, "how": settings,
        });
        let title = "MPI programs: the MPI library's own I/O and Pario".to_owned();
        let report = BenchReport { title, figures, machine, settings: all };
        MpiReport { report, settings, cases, command: command(plan) }
    }

    /// As text.
    pub(crate) fn table(&self) -> String {
        let head = ["kernel", "MPI", "ranks", "side", "how", "open ms"].into_iter();
        let mut rows: Vec<Vec<String>> =
            vec![head.chain(SPEEDS.map(|(_, words)| words)).map(str::to_owned).collect()];
        rows.extend(self.cases.iter().filter(|case| case.times.median("total_s").is_some()).map(cells));
        let settings = self.settings.join("\n");
        format!("{settings}\n\n{}\n{}", aligned(&rows), self.report.table())
    }

    /// As JSON.
    pub(crate) fn json(&self) -> String {
        let cases = self.cases.iter().map(|case| {
            json!({
                "kernel": case.work.kernel, "mpi": case.mpi, "ranks": case.work.ranks, "side": case.work.side.word(),
                "how": case.work.how.word(), "limited": case.work.limited, "bytes": case.times.bytes, "seconds": case.times.seconds,
            })
        });
        let mut all = serde_json::to_value(&self.report).expect("figures and settings are plain data");
        all["cases"] = json!(cases.collect::<Vec<_>>());
        serde_json::to_string_pretty(&all).expect("plain data")
    }

    /// Writes the plots and `figures.md` into a directory, made if missing.
    pub(super) fn draw(&self, dir: &Path) -> Result<(), BenchError> {
        std::fs::create_dir_all(dir).map_err(BenchError::at("making", dir))?;
        let mut names = Vec::new();
        for (name, svg) in pictures(&self.cases) {
            let path = dir.join(format!("{name}.svg"));
            std::fs::write(&path, svg).map_err(BenchError::at("writing", &path))?;
            names.push(name);
        }
        let path = dir.join("figures.md");
        std::fs::write(&path, self.page(&names)).map_err(BenchError::at("writing", &path))
    }

    /// The page of figures, in Markdown.
    fn page(&self, pictures: &[String]) -> String {
        let mut text = format!("# Figures of `pario bench mpi`\n\nMade by `{}`.\n\n", self.command);
        let _ = writeln!(text, "* {}", self.report.machine.line());
        for line in &self.settings {
            let _ = writeln!(text, "* {line}");
        }
        text.push_str("\n| figure | is | least … most | goal | |\n|---|---|---|---|---|\n");
        for row in self.report.figures.rows() {
            let goal = match row.goal {
                Goal::AtLeast(least) => format!("≥ {least}"),
                Goal::AtMost(most) => format!("≤ {most}"),
                Goal::None => String::new(),
            };
            let missed = if row.goal.is_met(row.figure.value) == Some(false) { " ✗" } else { "" };
            let figure = &row.figure;
            let _ = writeln!(
                text,
                "| `{}` | {:.2} | {:.2} … {:.2} | {goal}{missed} | {} |",
                row.name, figure.value, figure.min, figure.max, row.note
            );
        }
        text.push_str("\n| kernel | MPI | ranks | side | how | open ms |");
        for (_, words) in SPEEDS {
            let _ = write!(text, " {words} |");
        }
        text.push_str("\n|---|---|---|---|---|---|---|---|---|---|\n");
        for case in self.cases.iter().filter(|case| case.times.median("total_s").is_some()) {
            let _ = writeln!(text, "| {} |", cells(case).join(" | "));
        }
        text.push('\n');
        for name in pictures {
            let _ = writeln!(text, "![{name}]({name}.svg)");
        }
        text
    }
}

fn cells(case: &MpiCase) -> Vec<String> {
    let work = &case.work;
    let how = if work.limited { format!("{}, limited", work.how.word()) } else { work.how.word().to_owned() };
    let speed = |kind: &str| case.times.speed(kind).map_or("-".to_owned(), |speed| format!("{speed:.0}"));
    let open = case.times.median("open_s").map_or("-".to_owned(), |seconds| format!("{:.1}", seconds * 1e3));
    let first = [
        work.kernel.clone(),
        case.mpi.to_owned(),
        work.ranks.to_string(),
        work.side.word().to_owned(),
        how,
        open,
    ];
    first.into_iter().chain(SPEEDS.map(|(kind, _)| speed(kind))).collect()
}

fn command(plan: &MpiPlan) -> String {
    let ranks: Vec<String> = plan.ranks.iter().map(u16::to_string).collect();
    let kernels = match plan.kernels.len() == super::NAMES.len() {
        true => String::new(),
        false => format!(" --kernels {}", plan.kernels.join(",")),
    };
    format!("pario bench mpi --size {}MiB --ranks {}{kernels}", plan.megabytes, ranks.join(","))
}

/// Rows in columns as wide as their widest cell; text left, numbers right.
fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let cell = |(column, cell): (usize, &String)| {
            let width = width(column);
            if WORDS.contains(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        };
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::case::{MpiCallKind, MpiRunSpec, MpiSide, MpiTimes};
    use super::super::figures::figures;
    use super::*;

    fn report() -> MpiReport {
        let case = |side, write: f64| {
            let seconds = ["open_s", "write_s", "total_s"].map(|kind| (kind.to_owned(), vec![write]));
            let work = MpiRunSpec {
                kernel: "btio".into(),
                side,
                how: MpiCallKind::Collective,
                ranks: 2,
                limited: false,
            };
            MpiCase {
                mpi: "romio",
                work,
                times: MpiTimes { bytes: 1e9, seconds: seconds.into_iter().collect() },
            }
        };
        let cases = vec![case(MpiSide::Native, 1.0), case(MpiSide::Pario, 1.0)];
        let plan = MpiPlan {
            dir: None,
            kernels: vec!["btio".into()],
            ranks: vec![2],
            megabytes: 64,
            passes: 1,
            rounds: 1,
            backed: false,
            limited: false,
            plots: None,
        };
        let machine = Machine::here(Path::new("/"));
        MpiReport::new(&plan, (figures(&cases), cases), (machine, vec!["as they are".into()]))
    }

    #[test]
    fn the_page_has_every_figure_run_and_plot() {
        let dir = tempfile::tempdir().unwrap();
        report().draw(dir.path()).unwrap();
        let page = std::fs::read_to_string(dir.path().join("figures.md")).unwrap();
        assert!(page.contains("Made by `pario bench mpi --size 64MiB --ranks 2 --kernels btio`"), "{page}");
        assert!(page.contains("| `btio_write_vs_best_native_2` | 1.00 | 1.00 … 1.00 | ≥ 2 ✗ |"), "{page}");
        assert!(
            page.contains("| btio | romio | 2 | pario | collective | 1000.0 | 1000 | 1000 | - | - |"),
            "{page}"
        );
        for name in ["write_2", "total_2"] {
            assert!(
                page.contains(&format!("({name}.svg)")) && dir.path().join(format!("{name}.svg")).exists()
            );
        }
        assert!(!page.contains("read_2.svg"), "nothing was read");
    }

    #[test]
    fn json_has_the_form_of_every_benchmark() {
        let read: serde_json::Value = serde_json::from_str(&report().json()).unwrap();
        assert_eq!(read["figures"]["btio_total_vs_best_native_2"]["value"], 1.0);
        assert_eq!(read["settings"]["ranks"][0], 2);
        assert_eq!(read["cases"][1]["side"], "pario");
        assert_eq!(read["cases"][1]["seconds"]["total_s"][0], 1.0);
    }
}
