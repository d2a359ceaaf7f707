//! Figures and plot from samples.
//!
//! Always: a ratio is speed by speed, run by run; the figures of a single scenario have the published names.

use std::path::Path;

use pario::Placement;
use pario::core::Size;
use serde_json::{Value, json};

use super::super::figures::{Figure, Figures, Goal, mib};
use super::super::plot::{BarChart, Labels, LineChart, Scale, Series};
use super::SlidingPlan;
use super::scenario::{SlidingSample, SlidingSamples, SlidingScenario};
use super::side::SlidingSide;

/// Results, by scenario.
#[derive(Debug)]
pub(super) struct SlidingResults {
    scenes: Vec<ScenarioResult>,
    /// Whether goals apply.
    is_promised: bool,
    is_far: bool,
    /// Title of the plot.
    headline: String,
}

/// One scenario.
#[derive(Debug)]
struct ScenarioResult {
    processes: u64,
    bytes: Size,
    moved_bytes: u64,
    file_bytes: u64,
    samples: SlidingSamples,
}

impl SlidingResults {
    pub(super) fn new(plan: &SlidingPlan) -> SlidingResults {
        let place = match plan.hosts {
            1 => "one node".to_owned(),
            hosts => format!("{hosts} hosts, {} Mbit/s", plan.link_bits_s / 1_000_000),
        };
        let headline = format!("Sliding windows of two pages of {}: {place}", plan.page);
        SlidingResults {
            scenes: Vec::new(),
            is_promised: plan.is_promised(),
            is_far: 1 < plan.hosts,
            headline,
        }
    }

    pub(super) fn add(&mut self, scene: &SlidingScenario, takes: &SlidingSamples) {
        self.scenes.push(ScenarioResult {
            processes: scene.pattern.processes,
            bytes: scene.bytes,
            moved_bytes: scene.pattern.moved_bytes(),
            file_bytes: scene.pattern.file_bytes(),
            samples: takes.clone(),
        });
    }

    /// Whether blocks may be placed elsewhere than at their homes.
    pub(super) fn has_free_placement(&self) -> bool {
        self.scenes.iter().any(|found| found.samples.contains_key(&SlidingSide::CacheFirstTouch))
    }

    /// Placements of the cache, side by side.
    fn placements(&self) -> Vec<&'static str> {
        let played = |way: &SlidingSide| self.scenes.iter().any(|found| found.samples.contains_key(way));
        SlidingSide::ALL
            .into_iter()
            .filter(played)
            .filter_map(SlidingSide::placement)
            .map(Placement::word)
            .collect()
    }

    pub(super) fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        for found in &self.scenes {
            let suffix = if self.scenes.len() < 2 { String::new() } else { found.suffix() };
            self.ratios(&mut figures, found, &suffix);
            for (way, takes) in &found.samples {
                let speeds: Vec<f64> =
                    takes.iter().map(|take| mib(found.moved_bytes) / take.seconds).collect();
                let name = format!("mib_s_{}{suffix}", way.key());
                let note = "read and written by all processes, open to close";
                figures.add(name, Figure::of(&speeds, "MiB/s"), Goal::None, note);
            }
            found.below(&mut figures, &suffix);
        }
        figures
    }

    fn ratios(&self, figures: &mut Figures, found: &ScenarioResult, suffix: &str) {
        let node = if self.is_far { "" } else { "_node" };
        let sides = [
            (SlidingSide::CacheLastWriter, ""),
            (SlidingSide::CacheHome, "_home"),
            (SlidingSide::CacheFirstTouch, "_first_touch"),
        ];
        for (way, word) in sides {
            for rival in [SlidingSide::RangeLocks, SlidingSide::Unlocked] {
                let Some(ratio) = found.ratio(way, rival) else { continue };
                let goal = match (rival, self.is_far) {
                    _ if !self.is_promised || way != SlidingSide::CacheLastWriter => Goal::None,
                    (SlidingSide::RangeLocks, true) => Goal::AtLeast(5.0),
                    (SlidingSide::Unlocked, true) => Goal::AtLeast(1.0),
                    (SlidingSide::RangeLocks, false) => Goal::AtLeast(0.8),
                    _ => Goal::None,
                };
                let name = format!("cache_vs_{}{node}{word}{suffix}", rival.key());
                figures.add(name, ratio, goal, format!("{} against {}", way.word(), rival.word()));
            }
        }
    }

    /// The speeds of all sides: as lines over the varied parameter, as bars without one.
    pub(super) fn svg(&self) -> String {
        let labels =
            |x: &str| Labels { title: self.headline.clone(), x: x.to_owned(), y: "MiB/s".to_owned() };
        let ways: Vec<SlidingSide> = SlidingSide::ALL
            .into_iter()
            .filter(|way| self.scenes.iter().any(|found| found.samples.contains_key(way)))
            .collect();
        if self.scenes.len() < 2 {
            let speed = |way: &SlidingSide| {
                self.scenes.first().and_then(|found| found.speed(*way)).unwrap_or(f64::NAN)
            };
            let bar = |way: &SlidingSide| Series { name: way.word().to_owned(), values: vec![speed(way)] };
            let series = ways.iter().map(bar).collect();
            return BarChart { labels: labels(""), y: Scale::Linear, groups: vec![String::new()], series }
                .svg();
        }
        let by_processes = self.scenes.iter().any(|found| found.processes != self.scenes[0].processes);
        let sizes: Vec<Size> = distinct(self.scenes.iter().map(|found| found.bytes));
        let series = |way: &SlidingSide, bytes: Option<Size>| {
            let of = self.scenes.iter().filter(|found| bytes.is_none_or(|bytes| bytes == found.bytes));
            let values =
                of.filter_map(|found| Some((found.position(by_processes), found.speed(*way)?))).collect();
            let name = match bytes.filter(|_| 1 < sizes.len()) {
                Some(bytes) => format!("{} {bytes}", way.word()),
                None => way.word().to_owned(),
            };
            Series { name, values }
        };
        let series = if by_processes {
            ways.iter().flat_map(|way| sizes.iter().map(|bytes| series(way, Some(*bytes)))).collect()
        } else {
            ways.iter().map(|way| series(way, None)).collect()
        };
        let mut marks: Vec<(f64, String)> = self
            .scenes
            .iter()
            .map(|found| (found.position(by_processes), found.mark(by_processes)))
            .collect();
        marks.dedup();
        let x = if by_processes { "processes" } else { "bytes of the file" };
        LineChart { labels: labels(x), x: Scale::Log2, y: Scale::Linear, marks, series }.svg()
    }

    /// Settings of the figures.
    pub(super) fn settings(&self, plan: &SlidingPlan, dir: Option<&Path>) -> Value {
        json!({
            "processes": plan.processes,
            "bytes": plan.bytes.iter().map(|bytes| bytes.0).collect::<Vec<_>>(),
            "page_bytes": plan.page.0,
            "rounds": plan.rounds,
            "pairs": plan.pairs,
            "hosts": plan.hosts,
            "link_bits_per_s": (1 < plan.hosts).then_some(plan.link_bits_s),
            "cache_bytes": plan.cache.0,
            "below": if 1 < plan.hosts { "a plain file of another host, over FUSE and TCP" } else { "a plain file" },
            "placements": self.placements(),
            "moved_bytes": self.scenes.iter().map(|found| found.moved_bytes).collect::<Vec<_>>(),
            "dir": dir,
        })
    }
}

impl ScenarioResult {
    fn suffix(&self) -> String {
        format!("_p{}_{}", self.processes, self.bytes)
    }

    fn seconds(&self, way: SlidingSide) -> Option<Vec<f64>> {
        Some(self.samples.get(&way)?.iter().map(|take| take.seconds).collect())
    }

    fn ratio(&self, way: SlidingSide, rival: SlidingSide) -> Option<Figure> {
        let (own, theirs) = (self.seconds(way)?, self.seconds(rival)?);
        let ratios: Vec<f64> = theirs.iter().zip(&own).map(|(theirs, own)| theirs / own).collect();
        Some(Figure::of(&ratios, "ratio"))
    }

    fn speed(&self, way: SlidingSide) -> Option<f64> {
        Some(mib(self.moved_bytes) / Figure::of(&self.seconds(way)?, "s").value)
    }

    /// Reads and writes of the underlying file per byte.
    fn below(&self, figures: &mut Figures, suffix: &str) {
        for (way, takes) in &self.samples {
            if !way.is_cached() {
                continue;
            }
            for (word, count) in
                [("read", "cache_plain_read_bytes"), ("written", "cache_plain_written_bytes")]
            {
                #[expect(clippy::cast_precision_loss, reason = "a figure")]
                let share = |take: &SlidingSample| {
                    take.counts.get(count).copied().unwrap_or(0) as f64 / self.file_bytes as f64
                };
                let shares: Vec<f64> = takes.iter().map(share).collect();
                let name = format!("{}_file_{word}{suffix}", way.key());
                let note = format!("times that the file below was {word}, before close");
                figures.add(name, Figure::of(&shares, ""), Goal::None, note);
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a place in a plot")]
    fn position(&self, by_processes: bool) -> f64 {
        if by_processes { self.processes as f64 } else { self.bytes.0 as f64 }
    }

    fn mark(&self, by_processes: bool) -> String {
        if by_processes { self.processes.to_string() } else { self.bytes.to_string() }
    }
}

fn distinct(sizes: impl Iterator<Item = Size>) -> Vec<Size> {
    let mut sizes: Vec<Size> = sizes.collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}
