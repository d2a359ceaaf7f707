//! The plot of a kernel: speeds of every side as groups of bars, one group per scenario and direction, as SVG.
//!
//! Always: the same text for the same speeds; text is escaped.

use std::fmt::Write as _;

use super::super::figures::Figures;
use super::side::KernelSide;

/// Colours of sides, distinguishable with colour blindness (Okabe and Ito).
const COLOURS: [&str; 10] = [
    "#999999", "#000000", "#56b4e9", "#e69f00", "#d55e00", "#cc79a7", "#0072b2", "#009e73", "#f0e442",
    "#7f3c8d",
];
const HEIGHT: f64 = 420.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 70.0;
const LEFT: f64 = 70.0;
const LEGEND: f64 = 150.0;
const BAR: f64 = 12.0;
const GAP: f64 = 18.0;

/// A group of bars: its name and the speed of each side.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Bars {
    pub(super) name: String,
    pub(super) speeds: Vec<(KernelSide, f64)>,
}

impl Bars {
    /// The groups of a scenario, from figures named by [`super::show::add_speeds`].
    pub(super) fn of(speeds: &Figures, prefix: &str, sides: &[KernelSide]) -> Vec<Bars> {
        let kinds = [("write", "inside write"), ("read", "read"), ("total", "open to close")];
        let group = |(kind, words): (&str, &str)| {
            let speed = |side: &KernelSide| {
                let figure = speeds.get(&format!("{prefix}{kind}_mib_s_{}", side.key()))?;
                Some((*side, figure.value))
            };
            let name = format!("{}{words}", prefix.replace('_', " "));
            Bars { name, speeds: sides.iter().filter_map(speed).collect() }
        };
        kinds.map(group).into_iter().filter(|bars| !bars.speeds.is_empty()).collect()
    }

    fn width(&self) -> f64 {
        self.speeds.iter().map(|_| BAR).sum::<f64>() + GAP
    }
}

/// An SVG document of the groups, with a logarithmic scale in MiB/s: memory is far above disks.
pub(super) fn svg(title: &str, groups: &[Bars]) -> String {
    let chart: f64 = groups.iter().map(Bars::width).sum();
    let width = LEFT + chart.max(200.0) + LEGEND;
    let values = || groups.iter().flat_map(|group| &group.speeds).map(|(_, speed)| *speed);
    let low = values().fold(f64::INFINITY, f64::min).max(0.001).log10().floor();
    let high = values().fold(0.001, f64::max).log10().ceil().max(low + 1.0);
    let place = |speed: f64| {
        let share = (speed.max(0.001).log10() - low) / (high - low);
        HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)
    };
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {HEIGHT:.0}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"14\">{}</text>\n",
        escaped(title)
    );
    let mut mark = low;
    while mark <= high {
        let (at, right) = (place(10f64.powf(mark)), LEFT + chart);
        let _ = writeln!(text, "<path d=\"M{LEFT:.1} {at:.1}H{right:.1}\" stroke=\"#dddddd\"/>");
        let speed = 10f64.powf(mark);
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{speed}</text>",
            LEFT - 6.0,
            at + 4.0
        );
        mark += 1.0;
    }
    let _ = writeln!(text, "<text x=\"8\" y=\"{:.1}\">MiB/s</text>", TOP - 6.0);
    let mut left = LEFT + GAP / 2.0;
    for group in groups {
        left = draw_group(&mut text, group, left, place);
    }
    for (number, side) in sides(groups).into_iter().enumerate() {
        let at = TOP + 18.0 * f64::from(u32::try_from(number).unwrap_or(0));
        let x = LEFT + chart + 14.0;
        let _ = writeln!(
            text,
            "<rect x=\"{x:.1}\" y=\"{at:.1}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            colour(side),
            x + 16.0,
            at + 9.0,
            side.word()
        );
    }
    text.push_str("</svg>\n");
    text
}

/// Draws a group from `left` on; returns the start of the next one.
fn draw_group(text: &mut String, group: &Bars, mut left: f64, place: impl Fn(f64) -> f64) -> f64 {
    let (name_at, bottom) = (left, HEIGHT - BOTTOM);
    for (side, speed) in &group.speeds {
        let top = place(*speed);
        let _ = writeln!(
            text,
            "<rect class=\"bar\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\">\
             <title>{}: {speed:.0} MiB/s</title></rect>",
            BAR - 2.0,
            (bottom - top).max(0.0),
            colour(*side),
            side.word()
        );
        left += BAR;
    }
    let down = bottom + 14.0;
    let _ = writeln!(
        text,
        "<text x=\"{name_at:.1}\" y=\"{down:.1}\" transform=\"rotate(20 {name_at:.1} {down:.1})\">{}</text>",
        escaped(&group.name)
    );
    left + GAP
}

fn sides(groups: &[Bars]) -> Vec<KernelSide> {
    let mut sides: Vec<KernelSide> =
        groups.iter().flat_map(|group| &group.speeds).map(|(side, _)| *side).collect();
    sides.sort_unstable();
    sides.dedup();
    sides
}

fn colour(side: KernelSide) -> &'static str {
    COLOURS[side as usize % COLOURS.len()]
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::super::figures::{Figure, Goal};
    use super::*;

    #[test]
    fn groups_have_the_sides_that_were_measured() {
        let mut figures = Figures::default();
        for (name, speed) in [("x_write_mib_s_pwrite", 10.0), ("x_write_mib_s_server_directed", 1000.0)] {
            figures.add(name, Figure::of(&[speed], "MiB/s"), Goal::None, "");
        }
        let groups =
            Bars::of(&figures, "x_", &[KernelSide::Memory, KernelSide::Pwrite, KernelSide::ServerDirected]);
        assert_eq!(groups.len(), 1, "nothing was read");
        assert_eq!(groups[0].name, "x inside write");
        assert_eq!(groups[0].speeds, [(KernelSide::Pwrite, 10.0), (KernelSide::ServerDirected, 1000.0)]);
        let text = svg("a < b", &groups);
        assert_eq!(text.matches("class=\"bar\"").count(), 2);
        assert!(text.contains("a &lt; b") && text.contains("server-directed: 1000 MiB/s"), "{text}");
        // A tenth of the scale from 10 to 1000 is empty, the other bar is full.
        assert!(text.contains("height=\"0.0\"") && text.contains("height=\"310.0\""), "{text}");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
    }
}
