//! Plots as SVG, without dependencies: line charts and bar charts, with linear or logarithmic axes.
//!
//! The crate `plotters` would not make this shorter: it has no grouped bars and no legend beside the axes, so that both would
//! still be drawn here.
//!
//! Never: draws what it cannot scale (a value that is not finite, or not above zero on a logarithmic axis, is left out).
//! Always: the same text for the same chart, so that plots can be compared; text is escaped.

mod axis;
mod draw;

pub(crate) use axis::Scale;

use axis::Axis;
use draw::Canvas;

/// Width of a plot.
const WIDTH: f64 = 760.0;
/// Height of a plot.
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 62.0;

/// Labels of a chart.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Labels {
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: String,
}

/// A named row of values.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Series<T> {
    pub(crate) name: String,
    pub(crate) values: Vec<T>,
}

/// Lines through points.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LineChart {
    pub(crate) labels: Labels,
    pub(crate) x: Scale,
    pub(crate) y: Scale,
    /// Marks on the x axis with labels; chosen by the chart if empty.
    pub(crate) marks: Vec<(f64, String)>,
    pub(crate) series: Vec<Series<(f64, f64)>>,
}

/// Groups of bars, one bar per series in each.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct BarChart {
    pub(crate) labels: Labels,
    pub(crate) y: Scale,
    pub(crate) groups: Vec<String>,
    /// One value per group; NaN has no bar.
    pub(crate) series: Vec<Series<f64>>,
}

impl LineChart {
    /// As an SVG document.
    pub(crate) fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.values.iter());
        let marked = self.marks.iter().map(|(x, _)| *x);
        let x = Axis::over(self.x, points().map(|point| point.0).chain(marked), LEFT, WIDTH - RIGHT);
        let y = Axis::over(self.y, points().map(|point| point.1), HEIGHT - BOTTOM, TOP);
        let mut canvas = Canvas::new(&self.labels);
        let marks = if self.marks.is_empty() { x.ticks() } else { self.marks.clone() };
        canvas.x_marks(
            marks.iter().filter_map(|(at, text)| x.position(*at).map(|place| (place, text.as_str()))),
        );
        canvas
            .y_marks(y.ticks().iter().filter_map(|(at, text)| y.position(*at).map(|at| (at, text.as_str()))));
        for (number, series) in self.series.iter().enumerate() {
            let places =
                series.values.iter().filter_map(|point| Some((x.position(point.0)?, y.position(point.1)?)));
            canvas.line(number, &places.collect::<Vec<_>>());
        }
        canvas.legend(self.series.iter().map(|series| series.name.as_str()));
        canvas.finish()
    }
}

impl BarChart {
    /// As an SVG document.
    pub(crate) fn svg(&self) -> String {
        let values = self.series.iter().flat_map(|series| series.values.iter().copied());
        let y = Axis::over(self.y, values, HEIGHT - BOTTOM, TOP);
        let mut canvas = Canvas::new(&self.labels);
        let group_width = (WIDTH - LEFT - RIGHT) / count(self.groups.len().max(1));
        let middle = |group: usize| LEFT + (count(group) + 0.5) * group_width;
        canvas.x_marks(self.groups.iter().enumerate().map(|(at, name)| (middle(at), name.as_str())));
        canvas
            .y_marks(y.ticks().iter().filter_map(|(at, text)| y.position(*at).map(|at| (at, text.as_str()))));
        let bar_width = group_width * 0.8 / count(self.series.len().max(1));
        for (number, series) in self.series.iter().enumerate() {
            for (group, value) in series.values.iter().enumerate().take(self.groups.len()) {
                let Some(top) = y.position(*value) else { continue };
                let left = middle(group) - group_width * 0.4 + count(number) * bar_width;
                canvas.bar(number, left, bar_width, top);
            }
        }
        canvas.legend(self.series.iter().map(|series| series.name.as_str()));
        canvas.finish()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few bars")]
fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Labels {
        Labels { title: "a < b & c".into(), x: "x".into(), y: "seconds".into() }
    }

    fn lines(y: Scale, values: Vec<(f64, f64)>) -> LineChart {
        let series = vec![Series { name: "mlf".into(), values }];
        LineChart { labels: labels(), x: Scale::Log2, y, marks: vec![(8.0, "8 KiB".into())], series }
    }

    #[test]
    fn a_line_goes_through_every_point_and_text_is_escaped() {
        let svg = lines(Scale::Log10, vec![(8.0, 10.0), (16.0, 100.0), (32.0, 1000.0)]).svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(svg.contains("a &lt; b &amp; c") && !svg.contains("a < b"), "{svg}");
        // Both axes are logarithmic, so that the middle point is in the middle.
        assert!(svg.contains("points=\"76.0,398.0 343.0,221.0 610.0,44.0\""), "{svg}");
        assert!(svg.contains(">8 KiB<") && svg.contains(">mlf<"), "{svg}");
    }

    #[test]
    fn values_that_cannot_be_drawn_are_left_out() {
        let svg = lines(Scale::Log10, vec![(8.0, 0.0), (8.0, f64::NAN), (8.0, 10.0), (16.0, 100.0)]).svg();
        assert_eq!(svg.matches("<circle").count(), 2, "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let empty = lines(Scale::Linear, Vec::new()).svg();
        assert!(empty.ends_with("</svg>\n") && !empty.contains("NaN"), "{empty}");
    }

    #[test]
    fn bars_stand_in_groups_and_grow_with_their_value() {
        let series = |name: &str, values: Vec<f64>| Series { name: name.into(), values };
        let chart = BarChart {
            labels: labels(),
            y: Scale::Linear,
            groups: vec!["one".into(), "two".into()],
            series: vec![series("fifo", vec![100.0, 50.0]), series("mlf", vec![25.0, f64::NAN])],
        };
        let svg = chart.svg();
        let heights: Vec<&str> = svg
            .split("class=\"bar\"")
            .skip(1)
            .filter_map(|bar| bar.split("height=\"").nth(1)?.split('"').next())
            .collect();
        assert_eq!(heights, ["354.0", "177.0", "88.5"], "{svg}");
    }
}
