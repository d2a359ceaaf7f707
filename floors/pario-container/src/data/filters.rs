//! Filters of chunks: deflate, shuffle, fletcher32, as HDF5 stores them.
//!
//! Always: decoding what was encoded gives the same bytes; a checksum that does not match is an error.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

use crate::bytes::{index, length};
use crate::header::FilterSpec;

/// HDF5's number of deflate (gzip).
pub const DEFLATE: i32 = 1;
/// HDF5's number of the byte shuffle.
pub const SHUFFLE: i32 = 2;
/// HDF5's number of the checksum.
pub const FLETCHER32: i32 = 3;

/// Why a filter failed.
pub(crate) type FilterFault = String;

/// The filters of a dataset, in the order of writing.
#[derive(Clone, Debug)]
pub struct Pipeline<'a> {
    /// The filters.
    pub filters: &'a [FilterSpec],
    /// Stored size of one element.
    pub element: u64,
}

impl Pipeline<'_> {
    /// Whether all filters are built in.
    pub fn is_known(filters: &[FilterSpec]) -> bool {
        filters.iter().all(|filter| [DEFLATE, SHUFFLE, FLETCHER32].contains(&filter.number))
    }

    /// The stored form of a chunk, and the mask of optional filters that were left out.
    pub(crate) fn encode(&self, raw: &[u8]) -> Result<(Vec<u8>, u32), FilterFault> {
        let (mut bytes, mut mask) = (raw.to_vec(), 0);
        for (position, filter) in self.filters.iter().enumerate() {
            match self.encode_one(filter, &bytes) {
                Ok(encoded) => bytes = encoded,
                Err(_) if filter.optional => mask |= 1 << position,
                Err(fault) => return Err(fault),
            }
        }
        Ok((bytes, mask))
    }

    fn encode_one(&self, filter: &FilterSpec, bytes: &[u8]) -> Result<Vec<u8>, FilterFault> {
        match filter.number {
            DEFLATE => {
                let level = filter.parameters.first().copied().unwrap_or(6).min(9);
                let mut encoder =
                    ZlibEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::new(level));
                let done = encoder.write_all(bytes).and_then(|()| encoder.finish());
                let encoded = done.map_err(|error| format!("deflate: {error}"))?;
                // As in HDF5: an optional filter that gains nothing is left out.
                if filter.optional && encoded.len() >= bytes.len() {
                    return Err("deflate: nothing gained".into());
                }
                Ok(encoded)
            }
            SHUFFLE => Ok(shuffle(bytes, index(self.element))),
            FLETCHER32 => {
                let mut summed = bytes.to_vec();
                summed.extend(fletcher32(bytes).to_le_bytes());
                Ok(summed)
            }
            number => Err(format!("filter {number} is not built in")),
        }
    }

    /// The chunk of a stored form. `size` is its size without filters.
    pub(crate) fn decode(&self, stored: Vec<u8>, mask: u32, size: u64) -> Result<Vec<u8>, FilterFault> {
        let mut bytes = stored;
        for (position, filter) in self.filters.iter().enumerate().rev() {
            if mask & (1 << position) == 0 {
                bytes = self.decode_one(filter, bytes, size)?;
            }
        }
        if length(bytes.len()) != size {
            return Err(format!("{} bytes after the filters, {size} expected", bytes.len()));
        }
        Ok(bytes)
    }

    fn decode_one(&self, filter: &FilterSpec, mut bytes: Vec<u8>, size: u64) -> Result<Vec<u8>, FilterFault> {
        match filter.number {
            DEFLATE => {
                // A checksum inside the compressed bytes adds a few; damaged bytes must not grow without bound.
                let most = size + 64;
                let mut decoded = Vec::with_capacity(index(size));
                let done = ZlibDecoder::new(&bytes[..]).take(most).read_to_end(&mut decoded);
                done.map_err(|error| format!("inflate: {error}"))?;
                Ok(decoded)
            }
            SHUFFLE => Ok(unshuffle(&bytes, index(self.element))),
            FLETCHER32 => {
                let at = bytes.len().checked_sub(4).ok_or("shorter than its checksum")?;
                let sum = bytes.split_off(at);
                if fletcher32(&bytes).to_le_bytes()[..] != sum[..] {
                    return Err("the fletcher32 checksum does not match".into());
                }
                Ok(bytes)
            }
            number => Err(format!("filter {number} is not built in")),
        }
    }
}

fn shuffle(bytes: &[u8], element: usize) -> Vec<u8> {
    if element <= 1 {
        return bytes.to_vec();
    }
    let count = bytes.len() / element;
    let mut shuffled = vec![0; bytes.len()];
    for (position, whole) in bytes.chunks_exact(element).enumerate() {
        for (plane, byte) in whole.iter().enumerate() {
            shuffled[plane * count + position] = *byte;
        }
    }
    let rest = count * element;
    shuffled[rest..].copy_from_slice(&bytes[rest..]);
    shuffled
}

fn unshuffle(bytes: &[u8], element: usize) -> Vec<u8> {
    if element <= 1 {
        return bytes.to_vec();
    }
    let count = bytes.len() / element;
    let mut plain = vec![0; bytes.len()];
    for (position, whole) in plain.chunks_exact_mut(element).enumerate() {
        for (plane, byte) in whole.iter_mut().enumerate() {
            *byte = bytes[plane * count + position];
        }
    }
    let rest = count * element;
    plain[rest..].copy_from_slice(&bytes[rest..]);
    plain
}

/// The checksum of HDF5: over 16-bit words, most significant byte first, a last odd byte as the upper half of a word.
fn fletcher32(bytes: &[u8]) -> u32 {
    let (mut low, mut high) = (0u32, 0u32);
    for block in bytes.chunks(720) {
        for pair in block.chunks(2) {
            low += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |byte| u32::from(*byte));
            high += low;
        }
        low = (low & 0xffff) + (low >> 16);
        high = (high & 0xffff) + (high >> 16);
    }
    low = (low & 0xffff) + (low >> 16);
    high = (high & 0xffff) + (high >> 16);
    high << 16 | low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(number: i32, optional: bool) -> FilterSpec {
        FilterSpec { number, optional, parameters: vec![4] }
    }

    #[test]
    fn decoding_gives_back_what_was_encoded() {
        let all = [filter(SHUFFLE, false), filter(DEFLATE, true), filter(FLETCHER32, false)];
        for size in [0_u64, 1, 7, 8, 64, 4096, 4099] {
            let raw: Vec<u8> = (0..size).map(|n| (n / 5 % 251).to_le_bytes()[0]).collect();
            let pipeline = Pipeline { filters: &all, element: 8 };
            let (stored, mask) = pipeline.encode(&raw).unwrap();
            assert_eq!(pipeline.decode(stored, mask, size).unwrap(), raw, "{size} bytes");
        }
    }

    #[test]
    fn a_damaged_chunk_is_recognised() {
        let all = [filter(FLETCHER32, false)];
        let pipeline = Pipeline { filters: &all, element: 4 };
        let (mut stored, mask) = pipeline.encode(&[1, 2, 3, 4]).unwrap();
        stored[2] ^= 1;
        assert!(pipeline.decode(stored, mask, 4).unwrap_err().contains("does not match"));
    }

    #[test]
    fn an_optional_filter_that_gains_nothing_is_left_out() {
        let all = [filter(DEFLATE, true)];
        let pipeline = Pipeline { filters: &all, element: 1 };
        assert_eq!(pipeline.encode(&[1, 2, 3]).unwrap(), (vec![1, 2, 3], 1));
    }
}
