//! Figures and tables from samples.
//!
//! Always: a ratio is speed by speed, per repetition; the figure without a suffix is the published one, `…_warm` or `…_cold`
//! its counterpart.

use std::fmt::Write as _;

use super::super::figures::{Figure, Figures, Goal, mib};
use super::scenario::{KernelSample, KernelSamples, KernelScenario, ScenarioDirections};
use super::side::KernelSide;
use super::workers::KernelPass;

/// Pass of a repetition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Warmth {
    Cold,
    Warm,
}

/// Time of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TimeKind {
    /// Writing, open to close.
    Total,
    /// Inside write calls.
    Write,
    /// Reading, open to close.
    Read,
}

/// A figure that compares two sides.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Ratio {
    pub(super) name: &'static str,
    pub(super) side: KernelSide,
    pub(super) yardstick: KernelSide,
    pub(super) what: TimeKind,
    pub(super) warmth: Warmth,
    pub(super) goal: Goal,
    /// Whether its name gets the scenario's prefix.
    is_prefixed: bool,
}

impl Ratio {
    /// A comparison of server-directed with a baseline.
    pub(super) const fn new(name: &'static str, yardstick: KernelSide, what: TimeKind) -> Ratio {
        let (side, warmth) = (KernelSide::ServerDirected, Warmth::Cold);
        Ratio { name, side, yardstick, what, warmth, goal: Goal::None, is_prefixed: true }
    }

    /// Without the scenario's prefix.
    pub(super) const fn bare(self) -> Ratio {
        Ratio { is_prefixed: false, ..self }
    }

    /// Compares `side`.
    pub(super) const fn of(self, side: KernelSide) -> Ratio {
        Ratio { side, ..self }
    }

    /// The warm pass is the published one.
    pub(super) const fn warm(self) -> Ratio {
        Ratio { warmth: Warmth::Warm, ..self }
    }

    /// With a goal.
    pub(super) const fn at_least(self, goal: f64) -> Ratio {
        Ratio { goal: Goal::AtLeast(goal), ..self }
    }

    /// Without a goal.
    pub(super) const fn without_goal(self) -> Ratio {
        Ratio { goal: Goal::None, ..self }
    }

    /// As text.
    fn note(&self, warmth: Warmth) -> String {
        let what = match self.what {
            TimeKind::Total => "written, open to close",
            TimeKind::Write => "time inside write calls",
            TimeKind::Read => "read, open to close",
        };
        let warmth = match warmth {
            Warmth::Cold => "fresh processes",
            Warmth::Warm => "warm",
        };
        format!("{} against {}: {what}; {warmth}", self.side.word(), self.yardstick.word())
    }
}

impl Warmth {
    fn other(self) -> Warmth {
        match self {
            Warmth::Cold => Warmth::Warm,
            Warmth::Warm => Warmth::Cold,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Warmth::Cold => "cold",
            Warmth::Warm => "warm",
        }
    }
}

impl KernelSample {
    /// The time, or `None` if not measured.
    fn seconds(&self, what: TimeKind, warmth: Warmth) -> Option<f64> {
        let pass = |passes: &[KernelPass; 2]| passes[warmth as usize].clone();
        let seconds = match what {
            TimeKind::Total => pass(&self.write).total_s,
            TimeKind::Write => pass(&self.write).calls_s,
            TimeKind::Read => pass(&self.read).total_s,
        };
        (0.0 < seconds).then_some(seconds)
    }
}

/// Times of a side, per repetition; `None` if any is missing.
fn seconds(takes: &KernelSamples, side: KernelSide, what: TimeKind, warmth: Warmth) -> Option<Vec<f64>> {
    let times: Option<Vec<f64>> = takes.of(side).iter().map(|take| take.seconds(what, warmth)).collect();
    times.filter(|times| !times.is_empty())
}

/// Adds the ratios if both sides were run.
pub(super) fn add_ratios(figures: &mut Figures, takes: &KernelSamples, ratios: &[Ratio], prefix: &str) {
    for ratio in ratios {
        let prefix = if ratio.is_prefixed { prefix } else { "" };
        for (warmth, is_promised) in [(ratio.warmth, true), (ratio.warmth.other(), false)] {
            let of = |side| seconds(takes, side, ratio.what, warmth);
            let Some((yardstick, pario)) = of(ratio.yardstick).zip(of(ratio.side)) else { continue };
            let ratios: Vec<f64> =
                yardstick.iter().zip(&pario).map(|(yardstick, pario)| yardstick / pario).collect();
            let (name, goal) = if is_promised {
                (format!("{prefix}{}", ratio.name), ratio.goal)
            } else {
                (format!("{prefix}{}_{}", ratio.name, warmth.word()), Goal::None)
            };
            figures.add(name, Figure::of(&ratios, "ratio"), goal, ratio.note(warmth));
        }
    }
}

/// Adds the speed of every side: `PREFIXwrite_mib_s_SIDE`, `…_cold`.
pub(super) fn add_speeds(
    figures: &mut Figures,
    takes: &KernelSamples,
    scene: &KernelScenario<'_>,
    prefix: &str,
) {
    let kinds = [("write", TimeKind::Write), ("read", TimeKind::Read), ("total", TimeKind::Total)];
    for side in takes.sides() {
        for (kind, what) in kinds {
            for warmth in [Warmth::Cold, Warmth::Warm] {
                let Some(times) = seconds(takes, side, what, warmth) else { continue };
                let speeds: Vec<f64> = times.iter().map(|time| mib(scene.data_bytes()) / time).collect();
                let suffix = if warmth == Warmth::Warm { "_warm" } else { "" };
                let name = format!("{prefix}{kind}_mib_s_{}{suffix}", side.key());
                figures.add(name, Figure::of(&speeds, "MiB/s"), Goal::None, "");
            }
        }
    }
}

/// Adds bytes and messages of server-directed and client-directed: `list_bytes_after_set_view`, `messages_per_collective`.
pub(super) fn add_counts(figures: &mut Figures, takes: &KernelSamples, ranks: u64, prefix: &str) {
    let goal = if prefix.is_empty() { Goal::AtMost(0.0) } else { Goal::None };
    let passes = || {
        let sides = [KernelSide::ServerDirected, KernelSide::ClientDirected];
        sides.into_iter().flat_map(|side| takes.of(side)).flat_map(|take| take.write.iter().chain(&take.read))
    };
    let lists: Vec<f64> =
        passes().filter_map(|pass| pass.counts.get("list_bytes")).map(|bytes| number(*bytes)).collect();
    if !lists.is_empty() {
        let note = "bytes of offset lists, client- and server-directed";
        figures.add(format!("{prefix}list_bytes_after_set_view"), Figure::of(&lists, "B"), goal, note);
    }
    let messages: Vec<f64> = steady_messages(takes, 1).iter().map(|each| each * number(ranks)).collect();
    if !messages.is_empty() {
        let note =
            "sent by all ranks inside a server-directed write call, in the second half of the steps; warm";
        figures.add(
            format!("{prefix}messages_per_collective"),
            Figure::of(&messages, "messages"),
            goal,
            note,
        );
    }
}

/// Messages of one rank inside a server-directed write call, in the second half of the steps and warm, divided by `by`; per repetition.
pub(super) fn steady_messages(takes: &KernelSamples, by: u64) -> Vec<f64> {
    let steady = |take: &KernelSample| {
        let pass = &take.write[1];
        // Both are sums over ranks.
        let (messages, steps) = (pass.count("steady_messages"), pass.count("steady_steps"));
        (0 < steps).then(|| number(messages) / number(steps * by))
    };
    takes.of(KernelSide::ServerDirected).iter().filter_map(steady).collect()
}

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
pub(super) fn number(count: u64) -> f64 {
    count as f64
}

/// The table of a scenario: the speed of every side, cold and warm.
pub(super) fn table(scene: &KernelScenario<'_>, takes: &KernelSamples) -> String {
    let mut text = format!("{}\n", scene.title);
    let both = scene.directions == ScenarioDirections::Both;
    let head = |text: &str, is_there: bool| if is_there { format!("{text:^20}") } else { String::new() };
    let _ = writeln!(
        text,
        "{:18}{}{}{}{:>10}{:>11}",
        "",
        head("write MiB/s", true),
        head("read MiB/s", both),
        head("to close MiB/s", true),
        "messages",
        "metadata B"
    );
    let pair =
        |is_there: bool| if is_there { format!("{:>10}{:>10}", "cold", "warm") } else { String::new() };
    let _ = writeln!(text, "{:18}{}{}{}", "method", pair(true), pair(both), pair(true));
    for side in takes.sides() {
        let speeds = |what: TimeKind| {
            let speed = |warmth| match seconds(takes, side, what, warmth) {
                Some(times) => format!("{:10.0}", mib(scene.data_bytes()) / Figure::of(&times, "s").value),
                None => format!("{:>10}", "-"),
            };
            format!("{}{}", speed(Warmth::Cold), speed(Warmth::Warm))
        };
        let reads = if both { speeds(TimeKind::Read) } else { String::new() };
        let (messages, metadata) = sent(takes.of(side));
        let _ = writeln!(
            text,
            "{:18}{}{reads}{}{messages:>10}{metadata:>11}",
            side.word(),
            speeds(TimeKind::Write),
            speeds(TimeKind::Total),
        );
    }
    text
}

/// Messages and bytes of views and lists in the last repetition's first writing pass.
fn sent(takes: &[KernelSample]) -> (u64, u64) {
    let Some(take) = takes.last() else { return (0, 0) };
    let pass = &take.write[0];
    (pass.count("messages"), pass.count("view_bytes") + pass.count("list_bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(yardstick_s: &[f64], pario_s: &[f64]) -> KernelSamples {
        let mut takes = KernelSamples::default();
        let pass = |total_s: f64| KernelPass { total_s, calls_s: total_s / 2.0, ..KernelPass::default() };
        for (yardstick, pario) in yardstick_s.iter().zip(pario_s) {
            let take =
                |time: f64| KernelSample { write: [pass(time), pass(time / 2.0)], ..KernelSample::default() };
            takes.push(KernelSide::Pwrite, take(*yardstick));
            takes.push(KernelSide::ServerDirected, take(*pario));
        }
        takes
    }

    #[test]
    fn ratios_are_taken_round_by_round_and_told_by_warmth() {
        let mut figures = Figures::default();
        let takes = takes(&[4.0, 6.0, 8.0], &[2.0, 2.0, 2.0]);
        let ratio = Ratio::new("total_vs_pwrite", KernelSide::Pwrite, TimeKind::Total).at_least(3.0);
        add_ratios(
            &mut figures,
            &takes,
            &[ratio, Ratio::new("total_vs_two_phase", KernelSide::TwoPhase, TimeKind::Total)],
            "",
        );
        assert_eq!(figures.get("total_vs_pwrite").unwrap().value, 3.0);
        assert_eq!(figures.get("total_vs_pwrite_warm").unwrap().value, 3.0);
        assert_eq!(
            figures.rows()[0].note,
            "server-directed against pwrite: written, open to close; fresh processes"
        );
        assert_eq!(figures.rows()[0].goal, Goal::AtLeast(3.0));
        assert_eq!(figures.rows()[1].goal, Goal::None);
        assert_eq!(figures.rows().len(), 2, "a side that was not played has no figure");
    }

    #[test]
    fn what_was_not_taken_has_no_figure() {
        let mut figures = Figures::default();
        let takes = takes(&[1.0], &[1.0]);
        add_ratios(
            &mut figures,
            &takes,
            &[Ratio::new("read_vs_pread", KernelSide::Pwrite, TimeKind::Read)],
            "",
        );
        add_counts(&mut figures, &takes, 2, "");
        assert!(figures.rows().is_empty());
    }

    #[test]
    fn messages_are_counted_per_collective_over_all_ranks() {
        let mut takes = KernelSamples::default();
        // Two ranks, eight steps each, of which four are steady; one message each in every one of them.
        let counts = [("steady_messages", 8), ("steady_steps", 8), ("list_bytes", 16)];
        let counts = counts.map(|(name, count)| (name.to_owned(), count)).into();
        let pass = KernelPass { counts, ..KernelPass::default() };
        takes.push(
            KernelSide::ServerDirected,
            KernelSample { write: [KernelPass::default(), pass], ..KernelSample::default() },
        );
        let mut figures = Figures::default();
        add_counts(&mut figures, &takes, 2, "");
        assert_eq!(figures.get("messages_per_collective").unwrap().value, 2.0);
        assert_eq!(figures.get("list_bytes_after_set_view").unwrap().value, 16.0);
    }
}
