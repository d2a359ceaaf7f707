//! Variable-length numbers: seven bits a byte, lowest first; signed ones zigzag; series as multiples of their common divisor above their
//! minimum.
//!
//! Never: allocates by an encoded count before that many bytes were received.

use pario_core::codec::{Malformed, Reader, Writer};

use crate::residue::gcd;

/// Appends an unsigned number.
pub(crate) fn put(writer: &mut Writer, number: u64) {
    // Most are small, and go without memory of their own.
    if number < 0x80 {
        return writer.raw(&[low_bits(number)]);
    }
    let mut bytes = Vec::with_capacity(10);
    push(&mut bytes, number);
    writer.raw(&bytes);
}

#[inline]
fn push(bytes: &mut Vec<u8>, mut number: u64) {
    while 0x80 <= number {
        bytes.push(low_bits(number) | 0x80);
        number >>= 7;
    }
    bytes.push(low_bits(number));
}

/// Appends a signed number: 0, -1, 1, -2, … become 0, 1, 2, 3, …
pub(crate) fn put_signed(writer: &mut Writer, number: i64) {
    put(writer, ((number << 1) ^ (number >> 63)).cast_unsigned());
}

/// Appends a series: minimum, unit, then each value's number of units above the minimum.
pub(crate) fn put_series(writer: &mut Writer, series: &[i64]) {
    let least = series.iter().copied().min().unwrap_or(0);
    let unit = unit_of(series, least);
    put_signed(writer, least);
    put(writer, unit);
    let mut bytes = Vec::with_capacity(series.len());
    if unit == 1 {
        series.iter().for_each(|number| push(&mut bytes, above(*number, least)));
    } else {
        series.iter().for_each(|number| push(&mut bytes, above(*number, least) / unit));
    }
    writer.raw(&bytes);
}

/// What divides all distances from the least.
fn unit_of(series: &[i64], least: i64) -> u64 {
    let mut unit = 0;
    for number in series {
        unit = gcd(above(*number, least), unit);
        if unit == 1 {
            break;
        }
    }
    unit.max(1)
}

/// Decodes an unsigned number.
pub(crate) fn get(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let mut rest = reader.rest();
    let number = pull(&mut rest)?;
    reader.raw(reader.remaining() - rest.len())?;
    Ok(number)
}

/// The same from the front of bytes.
#[inline]
fn pull(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first().ok_or(Malformed("too short"))?;
        *rest = behind;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && 1 < bits {
            break;
        }
        number |= bits << shift;
        if *byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Malformed("number beyond 64 bits"))
}

/// Decodes an unsigned number below 2^63.
pub(crate) fn get_positive(reader: &mut Reader<'_>) -> Result<i64, Malformed> {
    i64::try_from(get(reader)?).map_err(|_| Malformed("number beyond 63 bits"))
}

/// Decodes a signed number.
pub(crate) fn get_signed(reader: &mut Reader<'_>) -> Result<i64, Malformed> {
    let number = get(reader)?;
    Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
}

/// Decodes a count of items with at least one byte each.
pub(crate) fn get_count(reader: &mut Reader<'_>) -> Result<usize, Malformed> {
    let count = usize::try_from(get(reader)?).map_err(|_| Malformed("count beyond memory"))?;
    if reader.remaining() < count { Err(Malformed("list longer than its bytes")) } else { Ok(count) }
}

/// Decodes a series of `count` numbers.
pub(crate) fn get_series(reader: &mut Reader<'_>, count: usize) -> Result<Vec<i64>, Malformed> {
    let least = get_signed(reader)?;
    let unit = get(reader)?;
    if reader.remaining() < count {
        return Err(Malformed("list longer than its bytes"));
    }
    let mut rest = reader.rest();
    let mut series = Vec::with_capacity(count);
    for _ in 0..count {
        let above = pull(&mut rest)?.checked_mul(unit).ok_or(Malformed("number beyond 64 bits"))?;
        series.push(least.checked_add_unsigned(above).ok_or(Malformed("number beyond 63 bits"))?);
    }
    reader.raw(reader.remaining() - rest.len())?;
    Ok(series)
}

fn above(number: i64, least: i64) -> u64 {
    number.abs_diff(least)
}

fn low_bits(number: u64) -> u8 {
    number.to_le_bytes()[0] & 0x7f
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::default();
        write(&mut writer);
        writer.into_bytes()
    }

    #[test]
    fn bytes_are_pinned() {
        assert_eq!(bytes(|w| put(w, 0)), [0]);
        assert_eq!(bytes(|w| put(w, 300)), [0xac, 0x02]);
        assert_eq!(bytes(|w| put_signed(w, -3)), [5]);
        assert_eq!(bytes(|w| put_series(w, &[100, 40, 60])), [80, 20, 3, 0, 1]);
        assert_eq!(bytes(|w| put(w, u64::MAX)).len(), 10);
    }

    #[test]
    fn lies_are_refused() {
        assert!(get(&mut Reader::new(&[0xff; 10])).is_err());
        assert!(get(&mut Reader::new(&[0xff; 9])).is_err());
        assert!(get_count(&mut Reader::new(&[200, 1, 0])).is_err());
        assert!(get_series(&mut Reader::new(&[0, 1, 0]), 2).is_err());
    }

    proptest! {
        #[test]
        fn series_survive(series in prop::collection::vec(any::<i64>(), 0..20), small in 0u32..64) {
            let series: Vec<i64> = series.iter().map(|number| number >> small).collect();
            let bytes = bytes(|w| put_series(w, &series));
            prop_assert_eq!(get_series(&mut Reader::new(&bytes), series.len()), Ok(series));
        }
    }
}
