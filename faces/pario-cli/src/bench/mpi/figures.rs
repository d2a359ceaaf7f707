//! What follows from the runs: speed against speed. *Best native* is the fastest of ROMIO and OMPIO, collective or independent; Pario's
//! side is its collective call, by the faster of the two MPIs.

use super::{Case, LIMIT, Side, Times};

/// One number, and how large it is to be.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) wanted: Option<f64>,
}

/// Least values, by the end of a figure's name without its ranks.
const WANTED: [(&str, f64); 19] = [
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
    ("_limited_write_vs_best_native", 5.0),
];

type Time = fn(&Times) -> f64;

/// All figures that the runs allow.
pub(super) fn figures(cases: &[Case]) -> Vec<Figure> {
    let mut groups: Vec<(&str, u16)> = Vec::new();
    for case in cases {
        if !groups.contains(&(case.kernel.as_str(), case.ranks)) {
            groups.push((case.kernel.as_str(), case.ranks));
        }
    }
    let mut figures = Vec::new();
    for (kernel, ranks) in groups {
        let of: Vec<&Case> =
            cases.iter().filter(|case| case.kernel == kernel && case.ranks == ranks).collect();
        let ours = |time: Time, limited: bool| {
            best(&of, time, |case| {
                case.side == Side::Pario && case.how == "collective" && case.limited == limited
            })
        };
        let mut add = |name: &str, theirs: Option<f64>, own: Option<f64>| {
            if let (Some(theirs), Some(own)) = (theirs, own) {
                figures.push(figure(&format!("{kernel}_{name}"), ranks, theirs / own));
            }
        };
        let (write, total, read): (Time, Time, Time) = (|t| t.write, |t| t.total, |t| t.read);
        let native = |case: &Case| case.side == Side::Native;
        add("write_vs_best_native", best(&of, write, native), ours(write, false));
        add("total_vs_best_native", best(&of, total, native), ours(total, false));
        add("read_vs_best_native", best(&of, read, native), ours(read, false));
        for io in ["romio", "ompio"] {
            let collective = |case: &Case| native(case) && case.how == "collective" && case.mpi == io;
            add(&format!("write_vs_{io}"), best(&of, write, collective), ours(write, false));
            add(&format!("total_vs_{io}"), best(&of, total, collective), ours(total, false));
        }
        add("total_vs_handwritten", best(&of, total, |case| case.side == Side::Hand), ours(total, false));
        // A store of that speed makes whoever writes straight into it wait for all of it.
        let bytes = of.first().map_or(0.0, |case| case.times.bytes);
        let slow = best(&of, write, native).map(|seconds| seconds.max(bytes / LIMIT));
        add("limited_write_vs_best_native", slow, ours(write, true));
    }
    let open =
        cases.iter().filter(|case| case.side == Side::Pario && case.ranks == 2).map(|case| case.times.open);
    if let Some(open) = open.reduce(f64::min) {
        figures.push(Figure { name: "open_ms".into(), value: open * 1e3, wanted: None });
    }
    figures
}

/// The shortest time of the cases that fit.
fn best(cases: &[&Case], time: Time, fits: impl Fn(&Case) -> bool) -> Option<f64> {
    let times = cases.iter().filter(|case| fits(case)).map(|case| time(&case.times));
    times.filter(|time| 0.0 < *time).reduce(f64::min)
}

fn figure(name: &str, ranks: u16, value: f64) -> Figure {
    let wanted = WANTED.iter().find(|(end, _)| name.ends_with(end)).map(|(_, wanted)| *wanted);
    Figure { name: format!("{name}_{ranks}"), value, wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(mpi: &'static str, side: Side, how: &'static str, write: f64) -> Case {
        let times = Times { bytes: 1e9, open: 0.002, write, total: 2.0 * write, read: write };
        Case { mpi, kernel: "btio".into(), side, how, ranks: 2, limited: false, times }
    }

    #[test]
    fn the_best_of_the_others_is_the_measure() {
        let mut cases = vec![
            case("romio", Side::Native, "collective", 4.0),
            case("romio", Side::Native, "independent", 1.0),
            case("ompio", Side::Native, "collective", 2.0),
            case("romio", Side::Pario, "collective", 0.5),
            case("ompio", Side::Pario, "independent", 0.1),
        ];
        cases.push(Case { limited: true, ..case("romio", Side::Pario, "collective", 0.2) });
        let figures = figures(&cases);
        let value = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap().value;
        assert_eq!(value("btio_write_vs_best_native_2"), 2.0);
        assert_eq!(value("btio_total_vs_romio_2"), 8.0);
        assert_eq!(value("btio_total_vs_ompio_2"), 4.0);
        // A gigabyte needs two seconds at 500 MB/s.
        assert_eq!(value("btio_limited_write_vs_best_native_2"), 10.0);
        assert_eq!(value("open_ms"), 2.0);
        let wanted =
            figures.iter().find(|figure| figure.name == "btio_total_vs_best_native_2").unwrap().wanted;
        assert_eq!(wanted, Some(1.2));
    }
}
