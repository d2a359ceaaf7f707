//! Bytes in JSON: a string of hexadecimal digits.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes that are written as hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hex(pub Vec<u8>);

const DIGITS: &[u8; 16] = b"0123456789abcdef";

impl Hex {
    /// The digits.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.0.len() * 2);
        for byte in &self.0 {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        text
    }

    /// Bytes of a text of digits.
    pub fn parse(text: &str) -> Option<Hex> {
        let digits = text.as_bytes();
        if !digits.len().is_multiple_of(2) {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
        digits
            .chunks(2)
            .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
            .collect::<Option<_>>()
            .map(Hex)
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hex, D::Error> {
        let text = String::deserialize(deserializer)?;
        Hex::parse(&text)
            .ok_or_else(|| serde::de::Error::custom("an even number of hexadecimal digits is needed"))
    }
}

/// A length as an index; platforms have 64-bit pointers.
pub(crate) fn index(value: u64) -> usize {
    usize::try_from(value).expect("usize has 64 bits")
}

/// An index as a length.
pub(crate) fn length(value: usize) -> u64 {
    u64::try_from(value).expect("usize has at most 64 bits")
}
