//! SVG elements of a chart.

use std::fmt::Write as _;

use super::{BOTTOM, HEIGHT, LEFT, Labels, RIGHT, TOP, WIDTH, count};

/// Colours of series, distinguishable with colour blindness (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#000000"];

/// An SVG document being built.
#[derive(Debug)]
pub(crate) struct Canvas {
    text: String,
}

impl Canvas {
    /// Title, labels and a frame.
    pub(crate) fn new(labels: &Labels) -> Canvas {
        let mut canvas = Canvas { text: String::new() };
        canvas.push(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">"
        ));
        canvas.push("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>");
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let (x_middle, y_middle) = (f64::midpoint(LEFT, right), f64::midpoint(TOP, bottom));
        canvas.words(x_middle, TOP - 18.0, "text-anchor=\"middle\" font-size=\"15\"", &labels.title);
        canvas.words(x_middle, HEIGHT - 14.0, "text-anchor=\"middle\"", &labels.x);
        let turned = format!("text-anchor=\"middle\" transform=\"rotate(-90 18 {y_middle:.1})\"");
        canvas.words(18.0, y_middle, &turned, &labels.y);
        canvas.push(&format!(
            "<path d=\"M{LEFT:.1} {TOP:.1}V{bottom:.1}H{right:.1}\" fill=\"none\" stroke=\"black\"/>"
        ));
        canvas
    }

    /// Marks below the chart.
    pub(crate) fn x_marks<'a>(&mut self, marks: impl Iterator<Item = (f64, &'a str)>) {
        for (place, name) in marks {
            self.words(place, HEIGHT - BOTTOM + 18.0, "text-anchor=\"middle\"", name);
        }
    }

    /// Marks beside it, with a line across.
    pub(crate) fn y_marks<'a>(&mut self, marks: impl Iterator<Item = (f64, &'a str)>) {
        for (place, name) in marks {
            let right = WIDTH - RIGHT;
            self.push(&format!("<path d=\"M{LEFT:.1} {place:.1}H{right:.1}\" stroke=\"#dddddd\"/>"));
            self.words(LEFT - 8.0, place + 4.0, "text-anchor=\"end\"", name);
        }
    }

    /// A line with its points.
    pub(crate) fn line(&mut self, series: usize, places: &[(f64, f64)]) {
        let colour = colour(series);
        let points: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        self.push(&format!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        ));
        for (x, y) in places {
            self.push(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"));
        }
    }

    /// A bar from the bottom up to `top`.
    pub(crate) fn bar(&mut self, series: usize, left: f64, width: f64, top: f64) {
        let height = (HEIGHT - BOTTOM - top).max(0.0);
        let colour = colour(series);
        self.push(&format!(
            "<rect class=\"bar\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{colour}\"/>"
        ));
    }

    /// The legend.
    pub(crate) fn legend<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        for (number, name) in names.enumerate() {
            let (x, y) = (WIDTH - RIGHT + 14.0, TOP + 10.0 + 20.0 * count(number));
            let colour = colour(number);
            self.push(&format!(
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>",
                y - 10.0
            ));
            self.words(x + 18.0, y, "", name);
        }
    }

    /// The whole document.
    pub(crate) fn finish(mut self) -> String {
        self.push("</svg>");
        self.text
    }

    fn words(&mut self, x: f64, y: f64, attributes: &str, words: &str) {
        let space = if attributes.is_empty() { "" } else { " " };
        self.push(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\"{space}{attributes}>{}</text>", escaped(words)));
    }

    fn push(&mut self, element: &str) {
        let _ = writeln!(self.text, "{element}");
    }
}

fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
