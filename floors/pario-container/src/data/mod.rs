//! The elements of datasets: runs of a row-major array against the data file.
//!
//! Never: converts elements. Always: what was never written reads as the fill value.

pub(crate) mod chunked;
pub(crate) mod chunks;
mod extent;
pub(crate) mod filters;
pub(crate) mod segments;

use std::fmt::Debug;
use std::sync::Arc;

pub use self::chunks::ChunkPlace;
use self::chunks::{ChunkCache, ChunkMap, ChunkRecord};
use self::segments::FileSegment;
use crate::bytes::{index, length};
use crate::error::{Result, TreeError};
use crate::header::{DataLayout, Dataset, HeaderRecord, Kind};
use crate::log::Log;
use crate::place::{PlaceEntry, PlaceFile};
use crate::tree::Tree;

/// Bytes of fill values written at once.
const FILL_STEP: u64 = 4 << 20;

/// Filters that are not built in, by the program's own library. The whole pipeline of a dataset is run.
pub trait ExternalFilters: Debug + Send {
    /// The stored form of a chunk, and the mask of filters left out.
    fn encode(&mut self, raw: &[u8]) -> std::result::Result<(Vec<u8>, u32), String>;
    /// The chunk of a stored form.
    fn decode(&mut self, stored: &[u8], mask: u32, size: u64) -> std::result::Result<Vec<u8>, String>;
}

/// What is open of a dataset's data.
#[derive(Debug)]
pub(crate) struct OpenData {
    file: Arc<dyn PlaceFile>,
    map: ChunkMap,
    log: Option<Log>,
    cache: ChunkCache,
    engine: Option<Box<dyn ExternalFilters>>,
}

impl OpenData {
    /// The data of a contiguous dataset.
    pub(crate) fn contiguous(file: Arc<dyn PlaceFile>) -> OpenData {
        OpenData { file, map: ChunkMap::default(), log: None, cache: ChunkCache::default(), engine: None }
    }
}

impl Tree {
    pub(crate) fn dataset(&self, id: u64) -> Result<&Dataset> {
        self.expect_kind(id, Kind::Dataset)?;
        Ok(self.node(id)?.header.dataset().expect("the kind was checked"))
    }

    pub(crate) fn open_data(&mut self, id: u64) -> Result<()> {
        if self.node(id)?.data.is_some() {
            return Ok(());
        }
        let indexed = matches!(self.dataset(id)?.layout, DataLayout::Indexed { .. });
        let (untrimmed, paths) = (self.dataset(id)?.untrimmed, self.paths(id)?);
        let place = self.place.clone();
        let write = self.is_writable();
        let file: Arc<dyn PlaceFile> = match place.kind(&paths.main())? {
            None if !write => Arc::new(NoFile),
            Some(PlaceEntry::File) | None => place.open(&paths.main(), write)?,
            Some(_) => {
                let cause = "the data is not a regular file".into();
                return Err(TreeError::DamagedData { path: paths.main(), cause });
            }
        };
        let (mut map, mut log) = (ChunkMap::default(), None);
        if indexed {
            let path = paths.part("chunks");
            match Log::load(&*place, &path)? {
                Some((found, records)) => (map, log) = (ChunkMap::from_records(records), Some(found)),
                None if write => log = Some(Log::create(&*place, &path, &[ChunkRecord::Chunks(1)])?),
                None => (),
            }
        }
        let data = OpenData { file, map, log, cache: ChunkCache::default(), engine: None };
        self.node_mut(id)?.data = Some(data);
        if untrimmed && write { self.trim(id) } else { Ok(()) }
    }

    fn data(&mut self, id: u64) -> Result<&mut OpenData> {
        self.open_data(id)?;
        Ok(self.node_mut(id)?.data.as_mut().expect("opened above"))
    }

    /// Sets the library that runs filters which are not built in.
    pub fn set_external_filters(&mut self, id: u64, engine: Box<dyn ExternalFilters>) -> Result<()> {
        self.data(id)?.engine = Some(engine);
        Ok(())
    }

    /// Whether such a library is needed and not set.
    pub fn needs_external_filters(&mut self, id: u64) -> Result<bool> {
        if filters::Pipeline::is_known(&self.dataset(id)?.filters) {
            return Ok(false);
        }
        Ok(self.data(id)?.engine.is_none())
    }

    /// Reads runs of elements, given as first element and count, packed into `buffer`.
    pub fn read_elements(&mut self, id: u64, runs: &[(u64, u64)], buffer: &mut [u8]) -> Result<()> {
        let element = self.check_runs(id, runs, buffer.len())?;
        self.open_data(id)?;
        let dataset = self.dataset(id)?;
        match &dataset.layout {
            DataLayout::Contiguous if dataset.fill.is_some() && !dataset.allocated => {
                chunks::fill(buffer, dataset.fill.as_ref().map(|fill| &fill.0[..]));
                Ok(())
            }
            DataLayout::Contiguous => {
                let segments = contiguous(runs, element);
                segments::read(&*self.data(id)?.file, &segments, buffer)
            }
            DataLayout::Ordered { .. } => self.read_ordered(id, runs, buffer),
            DataLayout::Indexed { .. } => self.read_indexed(id, runs, buffer),
        }
    }

    /// Writes packed elements to runs.
    pub fn write_elements(&mut self, id: u64, runs: &[(u64, u64)], buffer: &[u8]) -> Result<()> {
        self.writable()?;
        let element = self.check_runs(id, runs, buffer.len())?;
        self.open_data(id)?;
        let dataset = self.dataset(id)?;
        match &dataset.layout {
            DataLayout::Contiguous => {
                if dataset.fill.is_some() && !dataset.allocated {
                    self.allocate(id)?;
                }
                let segments = contiguous(runs, element);
                segments::write(&*self.data(id)?.file, &segments, buffer)
            }
            DataLayout::Ordered { .. } => self.write_ordered(id, runs, buffer),
            DataLayout::Indexed { .. } => self.write_indexed(id, runs, buffer),
        }
    }

    /// Element size, after the runs were found to be inside the dataset and to fit the buffer.
    fn check_runs(&self, id: u64, runs: &[(u64, u64)], buffer: usize) -> Result<u64> {
        let dataset = self.dataset(id)?;
        let (elements, size) = (dataset.space.elements(), dataset.element.size);
        let inside =
            |(start, count): &(u64, u64)| start.checked_add(*count).is_some_and(|end| end <= elements);
        let wanted: u64 = runs.iter().map(|(_, count)| count).sum();
        if !runs.iter().all(inside) {
            return Err(TreeError::Invalid("the selection is outside the dataset".into()));
        }
        if wanted * size != length(buffer) {
            return Err(TreeError::Invalid("the selection and the buffer have different sizes".into()));
        }
        Ok(size)
    }

    /// Writes the fill value over a contiguous dataset before its first write.
    fn allocate(&mut self, id: u64) -> Result<()> {
        let dataset = self.dataset(id)?;
        let (total, element) = (dataset.bytes(), dataset.element.size.max(1));
        let value = dataset.fill.clone().map(|fill| fill.0);
        let step = (FILL_STEP / element).max(1) * element;
        let mut block = vec![0; index(step.min(total))];
        chunks::fill(&mut block, value.as_deref());
        let file = self.data(id)?.file.clone();
        let mut at = 0;
        while at < total {
            let size = step.min(total - at);
            file.write_at(at, &block[..index(size)])?;
            at += size;
        }
        self.commit_header(id, HeaderRecord::Allocated(true))
    }

    /// Writes chunks that are held back.
    pub(crate) fn flush_data(&mut self, id: u64) -> Result<()> {
        let Some(data) = &self.node(id)?.data else { return Ok(()) };
        for at in data.cache.dirty() {
            self.store_cached(id, &at)?;
        }
        Ok(())
    }

    /// Bytes that the elements of a dataset take in storage.
    pub fn stored_bytes(&mut self, id: u64) -> Result<u64> {
        let dataset = self.dataset(id)?;
        match dataset.layout {
            DataLayout::Contiguous => Ok(dataset.bytes()),
            DataLayout::Ordered { .. } => self.data(id)?.file.size(),
            DataLayout::Indexed { .. } => Ok(chunks::stored_bytes(&self.data(id)?.map)),
        }
    }
}

fn contiguous(runs: &[(u64, u64)], element: u64) -> Vec<FileSegment> {
    let mut at = 0;
    let mut segments = Vec::with_capacity(runs.len());
    for (start, count) in runs {
        let size = index(count * element);
        segments.push(FileSegment { offset: start * element, at, size });
        at += size;
    }
    segments
}

/// The data file of a dataset that was never written.
#[derive(Debug)]
struct NoFile;

impl PlaceFile for NoFile {
    fn read_at(&self, _offset: u64, _buffer: &mut [u8]) -> Result<usize> {
        Ok(0)
    }

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Err(TreeError::ReadOnly)
    }

    fn size(&self) -> Result<u64> {
        Ok(0)
    }

    fn set_size(&self, _size: u64) -> Result<()> {
        Err(TreeError::ReadOnly)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}
