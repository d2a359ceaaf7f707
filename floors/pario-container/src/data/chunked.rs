//! Reading and writing of chunked datasets.

use super::chunks::{self, ChunkPlace, ChunkRecord, Coordinates, Piece, byte_range, chunk_bytes};
use super::filters::Pipeline;
use super::segments::{self, FileSegment};
use crate::bytes::{index, length};
use crate::error::{Result, TreeError};
use crate::header::{DataLayout, Dataset};
use crate::tree::Tree;

/// Facts of a chunked dataset.
pub(super) struct ChunkGrid {
    pub(super) extent: Vec<u64>,
    pub(super) chunk: Vec<u64>,
    pub(super) element: u64,
}

impl ChunkGrid {
    pub(super) fn of(dataset: &Dataset) -> ChunkGrid {
        let chunk = match &dataset.layout {
            DataLayout::Ordered { chunk } | DataLayout::Indexed { chunk } => chunk.clone(),
            DataLayout::Contiguous => Vec::new(),
        };
        ChunkGrid { extent: dataset.space.extent().to_vec(), chunk, element: dataset.element.size }
    }

    pub(super) fn bytes(&self) -> u64 {
        chunk_bytes(&self.chunk, self.element)
    }

    fn cut(&self, runs: &[(u64, u64)]) -> std::collections::BTreeMap<Coordinates, Vec<Piece>> {
        chunks::cut(&self.extent, &self.chunk, runs)
    }

    /// Pieces of a chunk that begins at `base` of the data file.
    fn segments(&self, base: u64, pieces: &[Piece]) -> Vec<FileSegment> {
        let segment = |piece: &Piece| FileSegment {
            offset: base + piece.inside * self.element,
            at: index(piece.packed * self.element),
            size: index(piece.count * self.element),
        };
        pieces.iter().map(segment).collect()
    }

    fn copy_out(&self, chunk: &[u8], pieces: &[Piece], buffer: &mut [u8]) {
        for piece in pieces {
            let from = byte_range(piece.inside, piece.count, self.element);
            buffer[byte_range(piece.packed, piece.count, self.element)].copy_from_slice(&chunk[from]);
        }
    }

    fn copy_in(&self, chunk: &mut [u8], pieces: &[Piece], buffer: &[u8]) {
        for piece in pieces {
            let to = byte_range(piece.inside, piece.count, self.element);
            chunk[to].copy_from_slice(&buffer[byte_range(piece.packed, piece.count, self.element)]);
        }
    }

    fn covers(&self, pieces: &[Piece]) -> bool {
        pieces.len() == 1 && pieces[0].count == self.chunk.iter().product::<u64>()
    }
}

impl Tree {
    pub(super) fn read_ordered(&mut self, id: u64, runs: &[(u64, u64)], buffer: &mut [u8]) -> Result<()> {
        let grid = ChunkGrid::of(self.dataset(id)?);
        let file = self.data(id)?.file.clone();
        for (at, pieces) in grid.cut(runs) {
            let base = chunks::number(&grid.extent, &grid.chunk, &at) * grid.bytes();
            segments::read(&*file, &grid.segments(base, &pieces), buffer)?;
        }
        Ok(())
    }

    pub(super) fn write_ordered(&mut self, id: u64, runs: &[(u64, u64)], buffer: &[u8]) -> Result<()> {
        let grid = ChunkGrid::of(self.dataset(id)?);
        let file = self.data(id)?.file.clone();
        for (at, pieces) in grid.cut(runs) {
            let base = chunks::number(&grid.extent, &grid.chunk, &at) * grid.bytes();
            segments::write(&*file, &grid.segments(base, &pieces), buffer)?;
        }
        Ok(())
    }

    pub(super) fn read_indexed(&mut self, id: u64, runs: &[(u64, u64)], buffer: &mut [u8]) -> Result<()> {
        let dataset = self.dataset(id)?;
        let (grid, filtered) = (ChunkGrid::of(dataset), !dataset.filters.is_empty());
        for (at, pieces) in grid.cut(runs) {
            if filtered {
                self.cached(id, &at, false)?;
                let chunk = self.data(id)?.cache.get(&at).expect("cached above");
                grid.copy_out(&chunk.bytes, &pieces, buffer);
                continue;
            }
            match self.data(id)?.map.rows.get(&at).copied() {
                Some(place) => {
                    let file = self.data(id)?.file.clone();
                    segments::read(&*file, &grid.segments(place.offset, &pieces), buffer)?;
                }
                None => {
                    let value = self.dataset(id)?.fill.clone().map(|fill| fill.0);
                    for piece in &pieces {
                        let part = byte_range(piece.packed, piece.count, grid.element);
                        chunks::fill(&mut buffer[part], value.as_deref());
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn write_indexed(&mut self, id: u64, runs: &[(u64, u64)], buffer: &[u8]) -> Result<()> {
        let dataset = self.dataset(id)?;
        let (grid, filtered) = (ChunkGrid::of(dataset), !dataset.filters.is_empty());
        for (at, pieces) in grid.cut(runs) {
            if filtered {
                self.cached(id, &at, grid.covers(&pieces))?;
                let chunk = self.data(id)?.cache.get(&at).expect("cached above");
                grid.copy_in(&mut chunk.bytes, &pieces, buffer);
                chunk.dirty = true;
                continue;
            }
            match self.data(id)?.map.rows.get(&at).copied() {
                Some(place) => {
                    let file = self.data(id)?.file.clone();
                    segments::write(&*file, &grid.segments(place.offset, &pieces), buffer)?;
                }
                None => {
                    let mut bytes = self.empty_chunk(id, &grid)?;
                    grid.copy_in(&mut bytes, &pieces, buffer);
                    self.store_chunk(id, &at, (&bytes, 0, None))?;
                }
            }
        }
        Ok(())
    }

    fn empty_chunk(&self, id: u64, grid: &ChunkGrid) -> Result<Vec<u8>> {
        let mut bytes = vec![0; index(grid.bytes())];
        chunks::fill(&mut bytes, self.dataset(id)?.fill.as_ref().map(|fill| &fill.0[..]));
        Ok(bytes)
    }

    /// Brings a chunk with filters into the cache; its old contents do not matter if all of it is `replaced`.
    pub(super) fn cached(&mut self, id: u64, at: &Coordinates, replaced: bool) -> Result<()> {
        if self.data(id)?.cache.get(at).is_some() {
            return Ok(());
        }
        let grid = ChunkGrid::of(self.dataset(id)?);
        while let Some(victim) = self.data(id)?.cache.victim(grid.bytes()) {
            self.store_cached(id, &victim)?;
            self.data(id)?.cache.remove(&victim);
        }
        let bytes = match self.data(id)?.map.rows.get(at).copied() {
            Some(place) if !replaced => self.decoded(id, at, place)?,
            Some(_) | None => self.empty_chunk(id, &grid)?,
        };
        self.data(id)?.cache.insert(at.clone(), bytes);
        Ok(())
    }

    /// The stored bytes of a chunk, checked.
    pub(crate) fn stored_chunk(&mut self, id: u64, at: &Coordinates, place: ChunkPlace) -> Result<Vec<u8>> {
        let file = self.data(id)?.file.clone();
        if place.offset + place.size > file.size()? {
            return Err(self.chunk_fault(id, at, "it is beyond the end of the file"));
        }
        let mut stored = vec![0; index(place.size)];
        segments::read_full(&*file, place.offset, &mut stored)?;
        if place.sum.is_some_and(|sum| sum != crc32c::crc32c(&stored)) {
            return Err(self.chunk_fault(id, at, "its checksum does not match"));
        }
        Ok(stored)
    }

    fn chunk_fault(&self, id: u64, at: &Coordinates, cause: &str) -> TreeError {
        let path = self.paths(id).map(|paths| paths.main()).unwrap_or_default();
        TreeError::DamagedData { path, cause: format!("chunk {at:?}: {cause}") }
    }

    fn decoded(&mut self, id: u64, at: &Coordinates, place: ChunkPlace) -> Result<Vec<u8>> {
        let stored = self.stored_chunk(id, at, place)?;
        let dataset = self.dataset(id)?;
        let (filters, size) = (dataset.filters.clone(), ChunkGrid::of(dataset).bytes());
        let decoded = if Pipeline::is_known(&filters) {
            Pipeline { filters: &filters, element: self.dataset(id)?.element.size }
                .decode(stored, place.mask, size)
        } else {
            match &mut self.data(id)?.engine {
                Some(engine) => engine.decode(&stored, place.mask, size),
                None => return Err(unknown_filter(&filters)),
            }
        };
        decoded.map_err(|cause| self.chunk_fault(id, at, &cause))
    }

    /// Encodes and stores a chunk of the cache if it has changed.
    pub(super) fn store_cached(&mut self, id: u64, at: &Coordinates) -> Result<()> {
        let dataset = self.dataset(id)?;
        let (filters, element) = (dataset.filters.clone(), dataset.element.size);
        let data = self.data(id)?;
        let Some(chunk) = data.cache.get(at).filter(|chunk| chunk.dirty) else { return Ok(()) };
        let raw = std::mem::take(&mut chunk.bytes);
        let encoded = if Pipeline::is_known(&filters) {
            Pipeline { filters: &filters, element }.encode(&raw)
        } else {
            match &mut data.engine {
                Some(engine) => engine.encode(&raw),
                None => Err(unknown_filter(&filters).to_string()),
            }
        };
        let stored = encoded
            .map_err(|cause| self.chunk_fault(id, at, &cause))
            .and_then(|(bytes, mask)| self.store_chunk(id, at, (&bytes, mask, Some(crc32c::crc32c(&bytes)))));
        let chunk = self.data(id)?.cache.get(at).expect("it was there above");
        chunk.bytes = raw;
        chunk.dirty = stored.is_err();
        stored
    }

    /// Writes the stored form of a chunk to a free part of the file, then names it in the index.
    fn store_chunk(
        &mut self,
        id: u64,
        at: &Coordinates,
        (bytes, mask, sum): (&[u8], u32, Option<u32>),
    ) -> Result<()> {
        let place = self.place.clone();
        let data = self.data(id)?;
        let offset = data.map.allocate(length(bytes.len()));
        let stored = ChunkPlace { offset, size: length(bytes.len()), mask, sum };
        data.file.write_at(offset, bytes)?;
        let log = data.log.as_mut().ok_or(TreeError::ReadOnly)?;
        log.append(&*place, &ChunkRecord::Put(at.clone(), stored))?;
        if let Some(old) = data.map.rows.insert(at.clone(), stored) {
            data.map.freed(old);
        }
        if log.records > data.map.rows.len() * 2 + 1024 {
            let rows = data.map.rows.iter().map(|(at, place)| ChunkRecord::Put(at.clone(), *place));
            let records: Vec<ChunkRecord> = std::iter::once(ChunkRecord::Chunks(1)).chain(rows).collect();
            log.rewrite(&*place, &records)?;
        }
        Ok(())
    }

    /// Stores a chunk that the caller has filtered. `at` is in chunks.
    pub fn write_chunk(&mut self, id: u64, at: &[u64], bytes: &[u8], mask: u32) -> Result<()> {
        self.writable()?;
        self.open_data(id)?;
        let (grid, at) = (ChunkGrid::of(self.dataset(id)?), at.to_vec());
        self.data(id)?.cache.remove(&at);
        match self.dataset(id)?.layout {
            DataLayout::Indexed { .. } => {
                self.store_chunk(id, &at, (bytes, mask, Some(crc32c::crc32c(bytes))))
            }
            DataLayout::Ordered { .. } if length(bytes.len()) == grid.bytes() => {
                let base = chunks::number(&grid.extent, &grid.chunk, &at) * grid.bytes();
                self.data(id)?.file.write_at(base, bytes)
            }
            DataLayout::Ordered { .. } => {
                Err(TreeError::Invalid("a chunk without filters has one size only".into()))
            }
            DataLayout::Contiguous => Err(TreeError::Invalid("the dataset has no chunks".into())),
        }
    }

    /// The stored form of a chunk and its mask; `None` if it was never written.
    pub fn read_chunk(&mut self, id: u64, at: &[u64]) -> Result<Option<(Vec<u8>, u32)>> {
        self.flush_object(id)?;
        match self.chunk_place(id, at)? {
            Some(place) => Ok(Some((self.stored_chunk(id, &at.to_vec(), place)?, place.mask))),
            None => Ok(None),
        }
    }

    fn chunk_place(&mut self, id: u64, at: &[u64]) -> Result<Option<ChunkPlace>> {
        let places = self.chunk_places(id)?;
        Ok(places.into_iter().find(|(place, _)| place == at).map(|(_, place)| place))
    }

    /// Coordinates, in chunks, and places of all stored chunks.
    pub fn chunk_places(&mut self, id: u64) -> Result<Vec<(Vec<u64>, ChunkPlace)>> {
        self.flush_object(id)?;
        let (grid, layout) = (ChunkGrid::of(self.dataset(id)?), self.dataset(id)?.layout.clone());
        let data = self.data(id)?;
        match layout {
            DataLayout::Contiguous => Err(TreeError::Invalid("the dataset has no chunks".into())),
            DataLayout::Indexed { .. } => {
                Ok(data.map.rows.iter().map(|(at, place)| (at.clone(), *place)).collect())
            }
            DataLayout::Ordered { .. } => {
                let (end, size) = (data.file.size()?, grid.bytes());
                let counts: Vec<u64> =
                    grid.extent.iter().zip(&grid.chunk).map(|(all, one)| all.div_ceil(*one)).collect();
                let all: u64 = counts.iter().product();
                let row = |number: u64| {
                    let (mut rest, mut at) = (number, vec![0; counts.len()]);
                    for (one, count) in at.iter_mut().zip(&counts).rev() {
                        *one = rest % count;
                        rest /= count;
                    }
                    (at, ChunkPlace { offset: number * size, size, mask: 0, sum: None })
                };
                Ok((0..all.min(end.div_ceil(size))).map(row).collect())
            }
        }
    }
}

fn unknown_filter(filters: &[crate::header::FilterSpec]) -> TreeError {
    let numbers: Vec<String> = filters.iter().map(|filter| filter.number.to_string()).collect();
    TreeError::Unsupported(format!("filters {} without the program's HDF5", numbers.join(", ")))
}
