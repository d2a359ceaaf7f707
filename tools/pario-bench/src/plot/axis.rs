//! Axes: from values to coordinates, and their tick marks.

/// Scale of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scale {
    /// From zero.
    Linear,
    /// Marks at powers of two.
    Log2,
    /// Marks at powers of ten.
    Log10,
}

/// An axis over some values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Axis {
    scale: Scale,
    /// Smallest and largest value, on the scale.
    low: f64,
    high: f64,
    /// Their coordinates.
    from: f64,
    to: f64,
}

/// Approximate number of marks.
const MARKS: f64 = 5.0;

impl Axis {
    /// An axis for all values, from coordinate `from` to `to`.
    pub(crate) fn over(scale: Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Axis {
        let fitting = values.filter_map(|value| scale.of(value));
        let (mut low, mut high) =
            fitting.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| (low.min(at), high.max(at)));
        if high < low {
            (low, high) = (0.0, 1.0);
        }
        match scale {
            Scale::Linear => {
                low = low.min(0.0);
                let step = step(high - low);
                high = ((high / step).ceil() * step).max(low + step);
            }
            Scale::Log2 => {}
            Scale::Log10 => (low, high) = (low.floor(), high.ceil()),
        }
        if high <= low {
            high = low + 1.0;
        }
        Axis { scale, low, high, from, to }
    }

    /// Coordinate of a value; `None` if it cannot be shown.
    pub(crate) fn position(&self, value: f64) -> Option<f64> {
        let share = (self.scale.of(value)? - self.low) / (self.high - self.low);
        Some(self.from + share * (self.to - self.from))
    }

    /// Marks with their labels.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        let step = match self.scale {
            Scale::Linear => step(self.high - self.low),
            Scale::Log2 | Scale::Log10 => ((self.high - self.low) / (2.0 * MARKS)).ceil().max(1.0),
        };
        let first = (self.low / step).ceil() * step;
        let at = |number: u32| first + f64::from(number) * step;
        let on_axis = (0..64).map(at).take_while(|at| *at <= self.high + step * 1e-9);
        on_axis.map(|at| self.scale.back(at)).map(|value| (value, name(value))).collect()
    }
}

impl Scale {
    /// A value on the scale.
    fn of(self, value: f64) -> Option<f64> {
        let on_scale = match self {
            Scale::Linear => value,
            Scale::Log2 => value.log2(),
            Scale::Log10 => value.log10(),
        };
        on_scale.is_finite().then_some(on_scale)
    }

    fn back(self, on_scale: f64) -> f64 {
        match self {
            Scale::Linear => on_scale,
            Scale::Log2 => on_scale.exp2(),
            Scale::Log10 => 10_f64.powf(on_scale),
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten that gives about [`MARKS`] marks.
fn step(range: f64) -> f64 {
    if range <= 0.0 {
        return 1.0;
    }
    let rough = range / MARKS;
    let power = 10_f64.powf(rough.log10().floor());
    let digit = rough / power;
    power
        * if digit <= 1.0 {
            1.0
        } else if digit <= 2.0 {
            2.0
        } else if digit <= 5.0 {
            5.0
        } else {
            10.0
        }
}

/// A value in few characters.
fn name(value: f64) -> String {
    let text = if 1.0 <= value.abs() { format!("{value:.1}") } else { format!("{value:.3}") };
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() || text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_ticks(scale: Scale, values: &[f64], expected: &[&str]) {
        let axis = Axis::over(scale, values.iter().copied(), 0.0, 100.0);
        let names: Vec<String> = axis.ticks().into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn marks_are_round() {
        check_ticks(Scale::Linear, &[3.0, 47.0], &["0", "10", "20", "30", "40", "50"]);
        check_ticks(Scale::Linear, &[0.9], &["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        check_ticks(Scale::Log10, &[3.0, 4700.0], &["1", "10", "100", "1000", "10000"]);
        check_ticks(Scale::Log2, &[2.0, 96.0], &["2", "4", "8", "16", "32", "64"]);
        check_ticks(Scale::Linear, &[], &["0", "0.2", "0.4", "0.6", "0.8", "1"]);
    }

    #[test]
    fn values_find_their_place() {
        let axis = Axis::over(Scale::Log10, [1.0, 100.0].into_iter(), 0.0, 100.0);
        assert_eq!(axis.position(10.0), Some(50.0));
        assert_eq!(axis.position(-1.0), None);
        let one = Axis::over(Scale::Log2, [8.0].into_iter(), 0.0, 100.0);
        assert_eq!(one.position(8.0), Some(0.0), "an axis over one value still has a length");
    }
}
