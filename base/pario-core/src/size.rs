//! Sizes with units as people write them: `64KiB`, `1.5 GiB`, `10MB`, `4096`.
//!
//! Always: [`Size`] parses its own output to the same number.

use std::fmt;
use std::str::FromStr;

/// A number of bytes that reads and prints with a unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Size(pub u64);

/// A text that is not a size.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{text}' is not a size: write a number with an optional unit, such as 4096, 64KiB, 8MiB, 1.5GiB or 10MB"
)]
pub struct SizeError {
    /// The text given.
    pub text: String,
}

const UNITS: [(&str, u64); 14] = [
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
    ("", 1),
];

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        parse(text).ok_or_else(|| SizeError { text: text.to_owned() }).map(Size)
    }
}

fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, "0"));
    let whole = whole.parse::<u64>().ok()?.checked_mul(*factor)?;
    if fraction.is_empty() || 9 < fraction.len() {
        return None;
    }
    let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(*factor) / scale;
    whole.checked_add(u64::try_from(part).ok()?)
}

impl fmt::Display for Size {
    /// Exact: the largest binary unit that divides it. For people reading a table, [`Size::rounded`] is shorter.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        for (factor, name) in units {
            if factor <= self.0 && self.0.is_multiple_of(factor) {
                return write!(f, "{}{name}", self.0 / factor);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl Size {
    /// Three significant digits with a unit: `312 GiB`, `1.25 MiB`, `17 B`.
    #[must_use]
    pub fn rounded(self) -> String {
        let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        for (factor, name) in units {
            if factor <= self.0 {
                #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
                let value = self.0 as f64 / factor as f64;
                let places = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
                return format!("{value:.places$} {name}");
            }
        }
        format!("{} B", self.0)
    }
}

impl serde::Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Size {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"64KiB\" or a number of bytes")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }

            fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes).map(Size).map_err(|_| E::custom(format!("{bytes} is negative")))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(text.parse::<Size>().ok().map(|s| s.0), expected, "{text}");
    }

    #[test]
    fn reads_what_people_write() {
        check("4096", Some(4096));
        check("64KiB", Some(65536));
        check("64k", Some(65536));
        check("64 KiB", Some(65536));
        check("1.5GiB", Some(3 << 29));
        check("10MB", Some(10_000_000));
        check("1_000", Some(1000));
    }

    #[test]
    fn refuses_what_is_no_size() {
        for text in ["", "KiB", "-1", "1.", "1.2.3", "12xb", "99999999999TiB", "0x10"] {
            check(text, None);
        }
    }

    #[test]
    fn prints_exactly_and_rounded() {
        assert_eq!(Size(65536).to_string(), "64KiB");
        assert_eq!(Size(65537).to_string(), "65537B");
        assert_eq!(Size(335_007_449_088).rounded(), "312 GiB");
        assert_eq!(Size(1_310_720).rounded(), "1.25 MiB");
        for bytes in [0, 1, 1024, 1025, 1 << 40] {
            assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }
    }
}
