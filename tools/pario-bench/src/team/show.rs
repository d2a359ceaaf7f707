//! Speeds of all sides of a scenario: a table, figures, a group of bars.

use std::fmt::Write as _;

use super::TeamBench;
use super::scenario::{TeamSamples, TeamScenario, TeamTime};
use super::side::TeamSide;
use crate::figures::{Figure, Goal, mib};
use crate::plot::{BarChart, Labels, Scale, Series};

/// Speeds of a scenario in one direction.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SpeedGroup {
    name: String,
    /// MiB a second.
    speeds: Vec<(TeamSide, f64)>,
}

impl TeamBench<'_> {
    /// Keeps the speeds of all sides: a table, figures, and bars.
    pub(super) fn keep_speeds(&mut self, scenario: &TeamScenario, samples: &TeamSamples) {
        let bytes = scenario.data_bytes();
        let mut table = format!("{}: {}\n", scenario.title, pario::core::Size(bytes).rounded());
        let _ = writeln!(
            table,
            "  {:16} {:>12}  {:<17} {:>12}  {:<17}",
            "MiB/s", "write", "min .. max", "read", "min .. max"
        );
        let sides = self.wanted(&scenario.sides);
        let mut groups = Vec::new();
        let directions = [("write", TeamTime::Write), ("read", TeamTime::Read)];
        for (word, kind) in directions {
            let name = format!("{} {word}", scenario.name).trim().to_owned();
            groups.push((kind, SpeedGroup { name, speeds: Vec::new() }));
        }
        for side in sides {
            let mut line = format!("  {:16}", side.word());
            for ((word, kind), (_, group)) in directions.iter().zip(&mut groups) {
                let times = samples.times(side, *kind);
                if times.is_empty() {
                    continue;
                }
                let speeds: Vec<f64> = times.iter().map(|seconds| mib(bytes) / seconds).collect();
                let figure = Figure::of(&speeds, "MiB/s");
                let spread = format!("{:.0} .. {:.0}", figure.min, figure.max);
                let _ = write!(line, " {:>12.0}  {spread:<17}", figure.value);
                group.speeds.push((side, figure.value));
                let prefix =
                    if scenario.name.is_empty() { String::new() } else { format!("{}_", scenario.name) };
                self.speeds.add(format!("{prefix}{word}_mib_s_{}", side.key()), figure, Goal::None, "");
            }
            let _ = writeln!(table, "{}", line.trim_end());
        }
        self.groups
            .extend(groups.into_iter().map(|(_, group)| group).filter(|group| !group.speeds.is_empty()));
        self.tables.push(table);
    }
}

/// All groups as an SVG document.
pub(super) fn svg(title: &str, groups: &[SpeedGroup]) -> String {
    let mut sides: Vec<TeamSide> =
        groups.iter().flat_map(|group| &group.speeds).map(|(side, _)| *side).collect();
    sides.sort_unstable();
    sides.dedup();
    let speed = |group: &SpeedGroup, side: TeamSide| {
        let found = group.speeds.iter().find(|(other, _)| *other == side);
        found.map_or(f64::NAN, |(_, speed)| *speed)
    };
    let series = sides.iter().map(|side| Series {
        name: side.word().to_owned(),
        values: groups.iter().map(|group| speed(group, *side)).collect(),
    });
    BarChart {
        labels: Labels { title: title.to_owned(), x: String::new(), y: "MiB/s".to_owned() },
        y: Scale::Linear,
        groups: groups.iter().map(|group| group.name.clone()).collect(),
        series: series.collect(),
    }
    .svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_for_each_measured_side() {
        let group = |name: &str, speeds: &[(TeamSide, f64)]| SpeedGroup {
            name: name.to_owned(),
            speeds: speeds.to_vec(),
        };
        let groups = [
            group("2x1MiB write", &[(TeamSide::Serial, 10.0), (TeamSide::Plain, 20.0)]),
            group("2x1MiB read", &[(TeamSide::Plain, 30.0)]),
        ];
        let text = svg("a < b", &groups);
        assert_eq!(text.matches("class=\"bar\"").count(), 3, "{text}");
        assert!(
            text.contains("team-plain") && text.contains("2x1MiB read") && text.contains("a &lt; b"),
            "{text}"
        );
    }
}
