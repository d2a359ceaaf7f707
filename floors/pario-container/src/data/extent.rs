//! Growing and shrinking of chunked datasets.
//!
//! Always: an element that was outside the extent once reads as the fill value when the dataset grows again.

use super::chunked::ChunkGrid;
use super::chunks::{self, ChunkRecord, Coordinates, byte_range, chunk_bytes};
use crate::bytes::index;
use crate::error::{Result, TreeError};
use crate::header::{DataLayout, DataSpace, HeaderRecord};
use crate::tree::Tree;

impl Tree {
    /// Sets the extent of a chunked dataset.
    pub fn set_extent(&mut self, id: u64, extent: &[u64]) -> Result<()> {
        self.writable()?;
        let dataset = self.dataset(id)?;
        let DataSpace::Simple { extent: current, maximum } = &dataset.space else {
            return Err(TreeError::Invalid("the dataset has no dimensions".into()));
        };
        if current == extent {
            return Ok(());
        }
        if dataset.layout == DataLayout::Contiguous {
            return Err(TreeError::Invalid("only chunked datasets change their extent".into()));
        }
        if current.len() != extent.len() {
            return Err(TreeError::Invalid(format!("the dataset has {} dimensions", current.len())));
        }
        if extent.iter().zip(maximum).any(|(size, most)| most.is_some_and(|most| *size > most)) {
            return Err(TreeError::Invalid("the extent is larger than the dataset's maximum".into()));
        }
        let bytes = extent.iter().try_fold(dataset.element.size, |all, one| all.checked_mul(*one));
        if bytes.is_none_or(|bytes| bytes > i64::MAX.unsigned_abs()) {
            return Err(TreeError::Invalid("the dataset has more than 2^63 bytes".into()));
        }
        let shrank = extent.iter().zip(current).any(|(new, old)| new < old);
        let (old, layout) = (current.clone(), dataset.layout.clone());
        // The grid of ordered chunks must not change its width.
        if let (DataLayout::Ordered { chunk }, true) = (&layout, extent[1..] != old[1..]) {
            self.order_to_index(id, &old, &chunk.clone())?;
        }
        self.open_data(id)?;
        self.commit_header(id, HeaderRecord::Extent { extent: extent.to_vec(), shrank })?;
        if shrank { self.trim(id) } else { Ok(()) }
    }

    /// Gives a dataset of ordered chunks an index: its rows of chunks are about to change their length.
    fn order_to_index(&mut self, id: u64, _extent: &[u64], chunk: &[u64]) -> Result<()> {
        let places = self.chunk_places(id)?;
        let path = self.paths(id)?.part("chunks");
        let rows = places.into_iter().map(|(at, place)| ChunkRecord::Put(at, place));
        let records: Vec<ChunkRecord> = std::iter::once(ChunkRecord::Chunks(1)).chain(rows).collect();
        let size = chunk_bytes(chunk, self.dataset(id)?.element.size);
        let file = self.data(id)?.file.clone();
        // Chunks at the end may be there in part; a place in the index is whole.
        file.set_size(file.size()?.div_ceil(size) * size)?;
        crate::log::Log::create(&*self.place, &path, &records)?;
        let mut header = self.header(id)?.clone();
        if let crate::header::ObjectBody::Dataset(dataset) = &mut header.body {
            dataset.layout = DataLayout::Indexed { chunk: chunk.to_vec() };
        }
        self.commit_header(id, HeaderRecord::Object(Box::new(header)))?;
        self.node_mut(id)?.data = None;
        Ok(())
    }

    /// Clears elements outside the extent.
    pub(super) fn trim(&mut self, id: u64) -> Result<()> {
        let (grid, layout) = (ChunkGrid::of(self.dataset(id)?), self.dataset(id)?.layout.clone());
        match layout {
            DataLayout::Contiguous => return Ok(()),
            DataLayout::Ordered { .. } => self.trim_ordered(id, &grid)?,
            DataLayout::Indexed { .. } => self.trim_indexed(id, &grid)?,
        }
        self.commit_header(id, HeaderRecord::Trimmed(true))
    }

    /// Only the first dimension has changed: whole chunks at the end, and rows of the last ones.
    fn trim_ordered(&mut self, id: u64, grid: &ChunkGrid) -> Result<()> {
        let row: u64 =
            grid.extent.iter().zip(&grid.chunk).skip(1).map(|(all, one)| all.div_ceil(*one).max(1)).product();
        let kept = grid.extent[0].div_ceil(grid.chunk[0]);
        let file = self.data(id)?.file.clone();
        if file.size()? > kept * row * grid.bytes() {
            file.set_size(kept * row * grid.bytes())?;
        }
        let inside = grid.extent[0] % grid.chunk[0];
        if inside == 0 {
            return Ok(());
        }
        let line = chunk_bytes(&grid.chunk[1..], grid.element);
        let zeros = vec![0; index((grid.chunk[0] - inside) * line)];
        for number in (kept - 1) * row..kept * row {
            let at = number * grid.bytes() + inside * line;
            if at < file.size()? {
                file.write_at(at, &zeros)?;
            }
        }
        Ok(())
    }

    fn trim_indexed(&mut self, id: u64, grid: &ChunkGrid) -> Result<()> {
        let place = self.place.clone();
        self.flush_object(id)?;
        let rows: Vec<Coordinates> = self.data(id)?.map.rows.keys().cloned().collect();
        for at in rows {
            let starts_outside =
                at.iter().zip(&grid.chunk).zip(&grid.extent).any(|((one, size), all)| one * size >= *all);
            if starts_outside {
                let data = self.data(id)?;
                data.log
                    .as_mut()
                    .ok_or(TreeError::ReadOnly)?
                    .append(&*place, &ChunkRecord::Drop(at.clone()))?;
                if let Some(old) = data.map.rows.remove(&at) {
                    data.map.freed(old);
                }
                data.cache.remove(&at);
                continue;
            }
            self.clear_outside(id, grid, &at)?;
        }
        Ok(())
    }

    fn clear_outside(&mut self, id: u64, grid: &ChunkGrid, at: &Coordinates) -> Result<()> {
        let beyond = chunks::outside(&grid.extent, &grid.chunk, at);
        if beyond.is_empty() {
            return Ok(());
        }
        let value = self.dataset(id)?.fill.clone().map(|fill| fill.0);
        if !self.dataset(id)?.filters.is_empty() {
            self.cached(id, at, false)?;
            let chunk = self.data(id)?.cache.get(at).expect("cached above");
            for (start, count) in beyond {
                chunks::fill(&mut chunk.bytes[byte_range(start, count, grid.element)], value.as_deref());
            }
            chunk.dirty = true;
            return self.store_cached(id, at);
        }
        let Some(place) = self.data(id)?.map.rows.get(at).copied() else { return Ok(()) };
        let file = self.data(id)?.file.clone();
        for (start, count) in beyond {
            let mut bytes = vec![0; index(count * grid.element)];
            chunks::fill(&mut bytes, value.as_deref());
            file.write_at(place.offset + start * grid.element, &bytes)?;
        }
        Ok(())
    }
}
