//! Chunks of one dataset: the grid, the index, and the cache of chunks with filters.
//!
//! Never: a chunk with filters is overwritten in place. Always: its bytes are in the file before the index names them.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::bytes::{index, length};

/// Bytes of chunks with filters that are kept decoded.
const CACHE_BYTES: usize = 32 << 20;

/// Coordinates of a chunk, in chunks.
pub(crate) type Coordinates = Vec<u64>;

/// Where a stored chunk lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkPlace {
    /// Position in the data file.
    pub offset: u64,
    /// Stored bytes.
    pub size: u64,
    /// Filters that were left out, a bit each.
    #[serde(default)]
    pub mask: u32,
    /// CRC32C of the stored bytes; missing where they change in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<u32>,
}

/// A line of a chunk index.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChunkRecord {
    /// Layout version of this index.
    Chunks(u32),
    /// A chunk.
    Put(Coordinates, ChunkPlace),
    /// A chunk is gone.
    Drop(Coordinates),
}

/// The chunks of a dataset that have an index.
#[derive(Debug, Default)]
pub(crate) struct ChunkMap {
    pub(crate) rows: BTreeMap<Coordinates, ChunkPlace>,
    /// End of the used part of the data file.
    end: u64,
    /// Unused parts before the end: size and position.
    free: Vec<(u64, u64)>,
}

impl ChunkMap {
    pub(crate) fn from_records(records: Vec<ChunkRecord>) -> ChunkMap {
        let mut map = ChunkMap::default();
        for record in records {
            match record {
                ChunkRecord::Chunks(_) => (),
                ChunkRecord::Put(at, place) => {
                    map.end = map.end.max(place.offset + place.size);
                    map.rows.insert(at, place);
                }
                ChunkRecord::Drop(at) => {
                    map.rows.remove(&at);
                }
            }
        }
        map
    }

    /// A part of the file for a chunk.
    pub(crate) fn allocate(&mut self, size: u64) -> u64 {
        if let Some(at) = self.free.iter().position(|(free, _)| *free >= size) {
            return self.free.swap_remove(at).1;
        }
        self.end += size;
        self.end - size
    }

    /// The part of a chunk that the index no longer names.
    pub(crate) fn freed(&mut self, place: ChunkPlace) {
        if place.size > 0 {
            self.free.push((place.size, place.offset));
        }
    }
}

/// A piece of a run inside one chunk, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Position in the chunk.
    pub(crate) inside: u64,
    /// Position in the packed elements.
    pub(crate) packed: u64,
    /// Elements.
    pub(crate) count: u64,
}

/// Cuts runs of a row-major array into pieces of chunks, in order.
pub(crate) fn cut(extent: &[u64], chunk: &[u64], runs: &[(u64, u64)]) -> BTreeMap<Coordinates, Vec<Piece>> {
    let mut pieces: BTreeMap<Coordinates, Vec<Piece>> = BTreeMap::new();
    let last = extent.len() - 1;
    let mut packed = 0;
    for (start, count) in runs {
        let (mut at, end) = (*start, start + count);
        while at < end {
            let (position, row_left) = position(extent, at);
            let in_chunk = position[last] % chunk[last];
            let taken = row_left.min(end - at).min(chunk[last] - in_chunk);
            let coordinates: Coordinates = position.iter().zip(chunk).map(|(one, size)| one / size).collect();
            let inside = position.iter().zip(chunk).fold(0, |sum, (one, size)| sum * size + one % size);
            let list = pieces.entry(coordinates).or_default();
            match list.last_mut() {
                Some(before)
                    if before.inside + before.count == inside && before.packed + before.count == packed =>
                {
                    before.count += taken;
                }
                _ => list.push(Piece { inside, packed, count: taken }),
            }
            packed += taken;
            at += taken;
        }
    }
    pieces
}

/// Coordinates of an element, and the elements from it to the end of its row.
fn position(extent: &[u64], element: u64) -> (Vec<u64>, u64) {
    let (mut rest, mut position) = (element, vec![0; extent.len()]);
    for (one, size) in position.iter_mut().zip(extent).rev() {
        *one = rest % size;
        rest /= size;
    }
    let left = extent[extent.len() - 1] - position[extent.len() - 1];
    (position, left)
}

/// Number of a chunk in a grid with an open first dimension.
pub(crate) fn number(extent: &[u64], chunk: &[u64], at: &[u64]) -> u64 {
    let grid = extent.iter().zip(chunk).map(|(size, part)| size.div_ceil(*part).max(1));
    at.iter().zip(grid).fold(0, |sum, (one, size)| sum * size + one)
}

/// A chunk with its filters taken off.
#[derive(Debug)]
pub(crate) struct CachedChunk {
    pub(crate) bytes: Vec<u8>,
    pub(crate) dirty: bool,
    used: u64,
}

/// Chunks with filters that were used of late.
#[derive(Debug, Default)]
pub(crate) struct ChunkCache {
    chunks: HashMap<Coordinates, CachedChunk>,
    bytes: usize,
    clock: u64,
}

impl ChunkCache {
    pub(crate) fn get(&mut self, at: &Coordinates) -> Option<&mut CachedChunk> {
        self.clock += 1;
        let clock = self.clock;
        let chunk = self.chunks.get_mut(at)?;
        chunk.used = clock;
        Some(chunk)
    }

    pub(crate) fn insert(&mut self, at: Coordinates, bytes: Vec<u8>) {
        self.clock += 1;
        self.bytes += bytes.len();
        self.chunks.insert(at, CachedChunk { bytes, dirty: false, used: self.clock });
    }

    /// The chunk that has to go for `incoming` bytes more.
    pub(crate) fn victim(&self, incoming: u64) -> Option<Coordinates> {
        let full = self.bytes + index(incoming) > CACHE_BYTES;
        let oldest = || self.chunks.iter().min_by_key(|(_, chunk)| chunk.used).map(|(at, _)| at.clone());
        full.then(oldest).flatten()
    }

    pub(crate) fn remove(&mut self, at: &Coordinates) -> Option<CachedChunk> {
        let chunk = self.chunks.remove(at)?;
        self.bytes -= chunk.bytes.len();
        Some(chunk)
    }

    pub(crate) fn dirty(&self) -> Vec<Coordinates> {
        let mut dirty: Vec<Coordinates> =
            self.chunks.iter().filter(|(_, chunk)| chunk.dirty).map(|(at, _)| at.clone()).collect();
        dirty.sort();
        dirty
    }
}

/// Repeats one element over a buffer.
pub(crate) fn fill(buffer: &mut [u8], element: Option<&[u8]>) {
    match element {
        Some(element) if !element.is_empty() => {
            buffer.chunks_mut(element.len()).for_each(|part| part.copy_from_slice(&element[..part.len()]));
        }
        _ => buffer.fill(0),
    }
}

/// Bytes of a chunk without filters.
pub(crate) fn chunk_bytes(chunk: &[u64], element: u64) -> u64 {
    chunk.iter().product::<u64>() * element
}

/// Number of bytes as an offset into a buffer.
pub(crate) fn byte_range(start: u64, count: u64, element: u64) -> std::ops::Range<usize> {
    index(start * element)..index((start + count) * element)
}

/// Positions inside a chunk that lie outside the extent, as runs of elements.
pub(crate) fn outside(extent: &[u64], chunk: &[u64], at: &[u64]) -> Vec<(u64, u64)> {
    let last = chunk.len() - 1;
    let row = chunk[last];
    let rows: u64 = chunk[..last].iter().product();
    let mut found: Vec<(u64, u64)> = Vec::new();
    for number in 0..rows {
        let (mut rest, mut beyond) = (number, false);
        for dimension in (0..last).rev() {
            beyond |= at[dimension] * chunk[dimension] + rest % chunk[dimension] >= extent[dimension];
            rest /= chunk[dimension];
        }
        let kept = if beyond { 0 } else { extent[last].saturating_sub(at[last] * row).min(row) };
        if kept < row {
            found.push((number * row + kept, row - kept));
        }
    }
    found
}

/// Number of entries, for figures.
pub(crate) fn stored_bytes(map: &ChunkMap) -> u64 {
    map.rows.values().map(|place| place.size).sum::<u64>() + length(0)
}
