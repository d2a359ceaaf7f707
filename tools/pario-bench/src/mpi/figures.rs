//! Figures from the runs: speed by speed. *Best native* is the fastest of ROMIO and OMPIO, collective or independent; Pario's
//! side is its collective call, by the faster of the two MPIs, unless the figure's name says otherwise.
//!
//! Always: a value is median by median; its minimum is the other side's shortest repetition by Pario's longest, its maximum the
//! reverse.

use super::case::{MpiCallKind, MpiCase, MpiSide, OPEN_CLOSE, OVERLAP};
use crate::figures::{Figure, Figures, Goal};

/// Goals, by a figure's name without its ranks. Those against one implementation apply to four ranks.
const WANTED: [(&str, f64); 20] = [
    ("btio_write_vs_best_native", 2.0),
    ("subarray4d_write_vs_best_native", 2.0),
    ("btio_total_vs_best_native", 1.2),
    ("subarray4d_total_vs_best_native", 1.2),
    ("strided8k_write_vs_best_native", 1.5),
    ("strided8k_total_vs_best_native", 1.0),
    ("btio_total_vs_romio", 2.0),
    ("subarray4d_total_vs_romio", 2.0),
    ("strided8k_total_vs_romio", 2.0),
    ("btio_total_vs_ompio", 1.0),
    ("subarray4d_total_vs_ompio", 1.0),
    ("strided8k_total_vs_ompio", 1.0),
    ("btio_read_vs_best_native", 0.9),
    ("subarray4d_read_vs_best_native", 0.9),
    ("strided8k_read_vs_best_native", 0.9),
    ("subarray4d_total_vs_handwritten", 1.0),
    ("irregular_write_vs_romio", 10.0),
    ("contiguous_total_vs_best_native", 1.0),
    ("contiguous_independent_total_vs_best_native", 1.0),
    ("iwrite_overlap", 0.7),
];
/// Goal of every kernel on a limited store.
const LIMITED_WANTED: f64 = 5.0;
/// Time limit of opening and closing, in milliseconds.
const OPEN_CLOSE_MS_MAX: f64 = 5.0;
/// Ranks of the goals against one implementation.
const SINGLE_RANKS: u16 = 4;

/// All figures of the runs.
pub(super) fn figures(cases: &[MpiCase]) -> Figures {
    let mut groups: Vec<(&str, u16)> = Vec::new();
    for case in cases {
        let group = (case.work.kernel.as_str(), case.work.ranks);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let mut figures = Figures::default();
    for (kernel, ranks) in groups {
        let of = |case: &&MpiCase| case.work.kernel == kernel && case.work.ranks == ranks;
        let group = KernelCases { kernel, ranks, cases: cases.iter().filter(of).collect() };
        match kernel {
            OPEN_CLOSE => group.add_open_close(&mut figures),
            OVERLAP => group.add_overlap(&mut figures),
            _ => group.add_speeds(&mut figures),
        }
    }
    figures
}

/// All runs of a kernel with one number of ranks.
struct KernelCases<'a> {
    kernel: &'a str,
    ranks: u16,
    cases: Vec<&'a MpiCase>,
}

impl KernelCases<'_> {
    fn add_speeds(&self, figures: &mut Figures) {
        let native = |case: &MpiCase| case.work.side == MpiSide::Native && !case.work.limited;
        let pario = |how| {
            move |case: &MpiCase| {
                case.work.side == MpiSide::Pario && case.work.how == how && !case.work.limited
            }
        };
        let ours = pario(MpiCallKind::Collective);
        for kind in ["write", "total", "read", "cold_read"] {
            self.add(figures, (kind, "best_native"), native, ours);
        }
        for (io, kind) in [("romio", "write"), ("romio", "total"), ("ompio", "write"), ("ompio", "total")] {
            let collective =
                |case: &MpiCase| native(case) && case.work.how == MpiCallKind::Collective && case.mpi == io;
            self.add(figures, (kind, io), collective, ours);
        }
        self.add(figures, ("total", "handwritten"), |case| case.work.side == MpiSide::Hand, ours);
        if self.kernel == "contiguous" {
            self.add(figures, ("independent_total", "best_native"), native, pario(MpiCallKind::Independent));
        }
        let limited = |side| move |case: &MpiCase| case.work.side == side && case.work.limited;
        self.add(
            figures,
            ("limited_write", "best_native"),
            limited(MpiSide::Native),
            limited(MpiSide::Pario),
        );
    }

    /// `KERNEL_KIND_vs_THEM_RANKS`.
    fn add(
        &self,
        figures: &mut Figures,
        (kind, them): (&str, &str),
        theirs: impl Fn(&MpiCase) -> bool,
        ours: impl Fn(&MpiCase) -> bool,
    ) {
        // Limited and independent runs have the same kinds of times.
        let times = format!("{}_s", kind.trim_start_matches("limited_").trim_start_matches("independent_"));
        let (Some(theirs), Some(ours)) = (self.fastest(&times, theirs), self.fastest(&times, ours)) else {
            return;
        };
        let name = format!("{}_{kind}_vs_{them}", self.kernel);
        let note = format!("{} by {}, {} by {}", theirs.text(), theirs.by, ours.text(), ours.by);
        let figure = Figure {
            value: theirs.median / ours.median,
            unit: "ratio",
            min: theirs.shortest / ours.longest,
            max: theirs.longest / ours.shortest,
            runs: theirs.rounds.min(ours.rounds),
        };
        let goal = self.goal(&name, (kind, them));
        figures.add(format!("{name}_{}", self.ranks), figure, goal, note);
    }

    fn goal(&self, name: &str, (kind, them): (&str, &str)) -> Goal {
        if kind == "limited_write" {
            return Goal::AtLeast(LIMITED_WANTED);
        }
        let single = matches!((kind, them), ("total", "romio" | "ompio"));
        let wanted =
            WANTED.iter().find(|(wanted, _)| *wanted == name && (!single || self.ranks == SINGLE_RANKS));
        wanted.map_or(Goal::None, |(_, least)| Goal::AtLeast(*least))
    }

    /// The case with the shortest median.
    fn fastest(&self, times: &str, fits: impl Fn(&MpiCase) -> bool) -> Option<Fastest> {
        let fitting = self.cases.iter().filter(|case| fits(case));
        let seen = fitting.filter_map(|case| {
            let median = case.times.median(times)?;
            let rounds = case.times.of(times);
            let longest = rounds.iter().copied().fold(median, f64::max);
            let shortest = rounds.iter().copied().filter(|seconds| 0.0 < *seconds).fold(median, f64::min);
            let by = format!("{} {}", case.mpi, case.work.how.word());
            let speed = case.times.bytes / median / 1e6;
            Some(Fastest { median, shortest, longest, rounds: rounds.len(), by, speed })
        });
        seen.min_by(|one, other| one.median.total_cmp(&other.median))
    }

    /// By the slower of the MPIs: a program that opens many files uses one of them.
    fn add_open_close(&self, figures: &mut Figures) {
        for (side, prefix, goal) in
            [(MpiSide::Pario, "", Goal::AtMost(OPEN_CLOSE_MS_MAX)), (MpiSide::Native, "native_", Goal::None)]
        {
            let of = self.cases.iter().filter(|case| case.work.side == side);
            let milliseconds = of.map(|case| {
                let rounds = case.times.of("open_close_s").iter().map(|seconds| seconds * 1e3);
                (Figure::of(&rounds.collect::<Vec<f64>>(), "ms"), case.mpi)
            });
            let slowest = milliseconds.max_by(|one, other| one.0.value.total_cmp(&other.0.value));
            if let Some((figure, mpi)) = slowest {
                figures.add(format!("{prefix}open_close_ms_{}", self.ranks), figure, goal, mpi);
            }
        }
    }

    /// The share of writing that is hidden.
    fn add_overlap(&self, figures: &mut Figures) {
        let shares = self.cases.iter().filter_map(|case| {
            let (io, work) = (case.times.of("io_s"), case.times.of("compute_s"));
            let rounds = io.iter().zip(work).zip(case.times.of("both_s"));
            let shares: Vec<f64> = rounds.map(|((io, work), both)| (io + work - both) / io).collect();
            (!shares.is_empty()).then(|| (Figure::of(&shares, "share"), case.mpi))
        });
        if let Some((figure, mpi)) = shares.max_by(|one, other| one.0.value.total_cmp(&other.0.value)) {
            let goal = WANTED.iter().find(|(name, _)| *name == "iwrite_overlap");
            let goal = goal.map_or(Goal::None, |(_, least)| Goal::AtLeast(*least));
            figures.add(format!("iwrite_overlap_{}", self.ranks), figure, goal, mpi);
        }
    }
}

struct Fastest {
    median: f64,
    shortest: f64,
    longest: f64,
    rounds: usize,
    by: String,
    speed: f64,
}

impl Fastest {
    fn text(&self) -> String {
        format!("{:.0} MB/s", self.speed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::{MpiRunSpec, MpiTimes};
    use super::*;

    fn case(mpi: &'static str, side: MpiSide, how: MpiCallKind, write: f64) -> MpiCase {
        let kinds = [("write_s", 1.0), ("total_s", 2.0), ("read_s", 1.0)];
        let seconds =
            kinds.map(|(kind, factor)| (kind.to_owned(), vec![2.0 * factor * write, factor * write]));
        let times = MpiTimes { bytes: 1e9, seconds: seconds.into_iter().collect() };
        MpiCase {
            mpi,
            work: MpiRunSpec { kernel: "btio".into(), side, how, ranks: 4, limited: false },
            times,
        }
    }

    fn limited(mut case: MpiCase) -> MpiCase {
        case.work.limited = true;
        case
    }

    #[test]
    fn the_best_of_the_others_is_the_measure() {
        let cases = vec![
            case("romio", MpiSide::Native, MpiCallKind::Collective, 4.0),
            case("romio", MpiSide::Native, MpiCallKind::Independent, 1.0),
            case("ompio", MpiSide::Native, MpiCallKind::Collective, 2.0),
            case("romio", MpiSide::Pario, MpiCallKind::Collective, 0.5),
            case("ompio", MpiSide::Pario, MpiCallKind::Independent, 0.1),
            limited(case("romio", MpiSide::Native, MpiCallKind::Collective, 2.0)),
            limited(case("romio", MpiSide::Pario, MpiCallKind::Collective, 0.25)),
        ];
        let figures = figures(&cases);
        let value = |name: &str| figures.get(name).unwrap().value;
        assert_eq!(value("btio_write_vs_best_native_4"), 2.0);
        assert_eq!(value("btio_total_vs_romio_4"), 8.0);
        assert_eq!(value("btio_total_vs_ompio_4"), 4.0);
        assert_eq!(value("btio_limited_write_vs_best_native_4"), 8.0);
        let spread = figures.get("btio_write_vs_best_native_4").unwrap();
        assert_eq!((spread.min, spread.max, spread.runs), (1.0, 4.0, 2));
        let goal = |name: &str| figures.rows().iter().find(|row| row.name == name).unwrap().goal;
        assert_eq!(goal("btio_total_vs_best_native_4"), Goal::AtLeast(1.2));
        assert_eq!(goal("btio_total_vs_romio_4"), Goal::AtLeast(2.0));
        assert_eq!(goal("btio_limited_write_vs_best_native_4"), Goal::AtLeast(5.0));
        assert!(
            figures.get("btio_cold_read_vs_best_native_4").is_none(),
            "the page cache could not be emptied"
        );
    }

    #[test]
    fn hidden_writing_is_what_the_whole_does_not_grow_by() {
        let seconds = [("io_s", vec![1.0]), ("compute_s", vec![2.0]), ("both_s", vec![2.25])];
        let seconds = seconds.map(|(kind, rounds)| (kind.to_owned(), rounds)).into_iter().collect();
        let mut one = case("romio", MpiSide::Pario, MpiCallKind::Nonblocking, 1.0);
        one.work.kernel = OVERLAP.into();
        one.times = MpiTimes { bytes: 1e9, seconds };
        assert_eq!(figures(&[one]).get("iwrite_overlap_4").unwrap().value, 0.75);
    }

    #[test]
    fn opening_is_judged_by_the_slower_mpi() {
        let of = |mpi, side, seconds: f64| {
            let mut case = case(mpi, side, MpiCallKind::Collective, 1.0);
            case.work.kernel = OPEN_CLOSE.into();
            case.times.seconds = [("open_close_s".to_owned(), vec![seconds; 3])].into_iter().collect();
            case
        };
        let cases = [
            of("romio", MpiSide::Pario, 0.002),
            of("ompio", MpiSide::Pario, 0.004),
            of("romio", MpiSide::Native, 0.5),
        ];
        let figures = figures(&cases);
        assert_eq!(figures.get("open_close_ms_4").unwrap().value, 4.0);
        assert_eq!(figures.get("native_open_close_ms_4").unwrap().value, 500.0);
    }
}
