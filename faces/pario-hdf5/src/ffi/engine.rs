//! Filters that are not built in, run by the program's own HDF5: a native dataset of one chunk in memory, written and read raw.
//!
//! Never: touches storage. Always: used on the thread of the caller.

use std::ffi::c_int;

use pario_container::{DataLayout, ExternalFilters, FilterSpec, Hex, Pipeline, TypeRecord};

use super::abi::{ACC_TRUNC, DEFAULT, Hid};
use super::failure::{Failure, VolOutcome};
use super::handle::Handle;
use super::library::{Library, of_slot};
use super::values::{Closer, Owned, checked, index};
use super::{dataset, plists, space, types};

/// Growth of the memory file.
const INCREMENT: usize = 1 << 16;

/// A native dataset of one chunk in memory.
#[derive(Debug)]
struct OneChunk {
    // Closed in this order.
    dataset: Owned,
    _file: Owned,
    element: Owned,
    rank: usize,
    library: &'static Library,
}

impl OneChunk {
    fn new(library: &'static Library, record: &TypeRecord, dcpl: Hid, chunk: &[u64]) -> VolOutcome<OneChunk> {
        let f = &library.f;
        let fapl = plists::decode(library, &Hex::default(), c"H5P_CLS_FILE_ACCESS_ID_g")?;
        // SAFETY: the list is open.
        checked(unsafe { (f.H5Pset_fapl_core)(fapl.id, INCREMENT, false) }, "H5Pset_fapl_core")?;
        // SAFETY: the name ends in NUL.
        let native = unsafe { (f.H5VLget_connector_id_by_name)(c"native".as_ptr()) };
        checked(native, "H5VLget_connector_id_by_name")?;
        // SAFETY: list and connector are open.
        let set = unsafe { (f.H5Pset_vol)(fapl.id, native, std::ptr::null()) };
        // SAFETY: it was opened above.
        unsafe { (f.H5VLclose)(native) };
        checked(set, "H5Pset_vol")?;
        // SAFETY: the name ends in NUL; nothing of this name is made in storage.
        let file = unsafe { (f.H5Fcreate)(c"pario-filter".as_ptr(), ACC_TRUNC, DEFAULT, fapl.id) };
        let file = Owned::new(library, file, Closer::File, "H5Fcreate")?;
        let maximum = chunk.iter().map(|size| Some(*size)).collect();
        let shape =
            space::create(library, &pario_container::DataSpace::Simple { extent: chunk.to_vec(), maximum })?;
        // Filters see stored elements: values of variable length are their names.
        let element = if types::holds(&record.description).0 {
            types::bytes(library, index(record.size))?
        } else {
            types::decode(library, record)?
        };
        // SAFETY: a copy is changed, all identifiers are open.
        let list = Owned::new(library, unsafe { (f.H5Pcopy)(dcpl) }, Closer::Plist, "H5Pcopy")?;
        let rank = c_int::try_from(chunk.len()).map_err(|_| Failure::new("too many dimensions"))?;
        // SAFETY: the list of sizes has `rank` entries.
        checked(unsafe { (f.H5Pset_chunk)(list.id, rank, chunk.as_ptr()) }, "H5Pset_chunk")?;
        // SAFETY: the list is open; 1 is `H5D_FILL_TIME_NEVER`.
        checked(unsafe { (f.H5Pset_fill_time)(list.id, 1) }, "H5Pset_fill_time")?;
        // SAFETY: list and type are open; no value makes the fill value undefined.
        let done = unsafe { (f.H5Pset_fill_value)(list.id, element.id, std::ptr::null()) };
        checked(done, "H5Pset_fill_value")?;
        // SAFETY: all identifiers are open, the name ends in NUL.
        let made = unsafe {
            (f.H5Dcreate2)(file.id, c"c".as_ptr(), element.id, shape.id, DEFAULT, list.id, DEFAULT)
        };
        let dataset = Owned::new(library, made, Closer::Dataset, "H5Dcreate2")?;
        Ok(OneChunk { dataset, _file: file, element, rank: chunk.len(), library })
    }

    fn encode(&self, raw: &[u8]) -> VolOutcome<(Vec<u8>, u32)> {
        let (f, zero) = (&self.library.f, vec![0_u64; self.rank]);
        let id = self.dataset.id;
        // SAFETY: the buffer holds one chunk of this type.
        let done =
            unsafe { (f.H5Dwrite)(id, self.element.id, DEFAULT, DEFAULT, DEFAULT, raw.as_ptr().cast()) };
        checked(done, "H5Dwrite")?;
        // SAFETY: the dataset is open.
        checked(unsafe { (f.H5Dflush)(id) }, "H5Dflush")?;
        let (mut size, mut mask, mut address, mut unused) = (0, 0, 0, 0);
        let (mask_at, size_at) = (&raw mut mask, &raw mut size);
        // SAFETY: the position has as many entries as the dataset has dimensions; all places outlive the call.
        let done =
            unsafe { (f.H5Dget_chunk_info_by_coord)(id, zero.as_ptr(), mask_at, &raw mut address, size_at) };
        checked(done, "H5Dget_chunk_info_by_coord")?;
        let mut stored = vec![0_u8; index(size)];
        // SAFETY: the buffer has the size that was asked for.
        let done = unsafe {
            (f.H5Dread_chunk)(id, DEFAULT, zero.as_ptr(), &raw mut unused, stored.as_mut_ptr().cast())
        };
        checked(done, "H5Dread_chunk")?;
        Ok((stored, mask))
    }

    fn decode(&self, stored: &[u8], size: u64) -> VolOutcome<Vec<u8>> {
        let (f, zero) = (&self.library.f, vec![0_u64; self.rank]);
        let id = self.dataset.id;
        // SAFETY: the buffer has the size given.
        let done = unsafe {
            (f.H5Dwrite_chunk)(id, DEFAULT, 0, zero.as_ptr(), stored.len(), stored.as_ptr().cast())
        };
        checked(done, "H5Dwrite_chunk")?;
        let mut raw = vec![0_u8; index(size)];
        // SAFETY: the buffer has room for one chunk of this type.
        let done =
            unsafe { (f.H5Dread)(id, self.element.id, DEFAULT, DEFAULT, DEFAULT, raw.as_mut_ptr().cast()) };
        checked(done, "H5Dread")?;
        Ok(raw)
    }
}

/// Filters with the parameters that they complete themselves for a type and a chunk.
pub(super) fn completed(
    library: &'static Library,
    record: &TypeRecord,
    dcpl: Hid,
    chunk: &[u64],
) -> VolOutcome<Vec<FilterSpec>> {
    let one = OneChunk::new(library, record, dcpl, chunk)?;
    // SAFETY: the dataset is open.
    let list = unsafe { (library.f.H5Dget_create_plist)(one.dataset.id) };
    let list = Owned::new(library, list, Closer::Plist, "H5Dget_create_plist")?;
    plists::filters(library, list.id)
}

/// The filters of one dataset.
#[derive(Debug)]
struct LibraryFilters {
    slot: usize,
    record: TypeRecord,
    properties: Hex,
    chunk: Vec<u64>,
    filters: Vec<FilterSpec>,
}

impl LibraryFilters {
    fn one(&self, mask: u32) -> VolOutcome<OneChunk> {
        let library = of_slot(self.slot);
        let properties = if mask == 0 { &self.properties } else { &Hex::default() };
        let list = plists::decode(library, properties, c"H5P_CLS_DATASET_CREATE_ID_g")?;
        if mask != 0 {
            // HDF5 2.0 ignores the mask of a chunk that was just written raw: the list has only the filters that were applied.
            self.applied(mask).try_for_each(|filter| add_filter(library, list.id, filter))?;
        }
        OneChunk::new(library, &self.record, list.id, &self.chunk)
    }

    /// Filters that a mask leaves in.
    fn applied(&self, mask: u32) -> impl Iterator<Item = &FilterSpec> {
        let kept = self.filters.iter().enumerate().filter(move |(position, _)| mask & (1 << position) == 0);
        kept.map(|(_, filter)| filter)
    }
}

fn add_filter(library: &Library, list: Hid, filter: &FilterSpec) -> VolOutcome<()> {
    // A chunk has one dimension at least, which filters need; the shape is set later.
    let (count, values) = (filter.parameters.len(), filter.parameters.as_ptr());
    // SAFETY: the list is open, the parameters are as many as said.
    let done =
        unsafe { (library.f.H5Pset_filter)(list, filter.number, u32::from(filter.optional), count, values) };
    checked(done, "H5Pset_filter").map(|_| ())
}

impl ExternalFilters for LibraryFilters {
    fn encode(&mut self, raw: &[u8]) -> Result<(Vec<u8>, u32), String> {
        self.one(0).and_then(|one| one.encode(raw)).map_err(|failure| failure.text)
    }

    fn decode(&mut self, stored: &[u8], mask: u32, size: u64) -> Result<Vec<u8>, String> {
        if self.applied(mask).next().is_none() {
            return Ok(stored.to_vec());
        }
        self.one(mask).and_then(|one| one.decode(stored, size)).map_err(|failure| failure.text)
    }
}

/// Gives a dataset with other filters than the built-in ones this engine.
pub(super) fn attach(library: &'static Library, handle: &Handle) -> VolOutcome<()> {
    let id = handle.object();
    let known =
        handle.tree()?.header(id)?.dataset().is_none_or(|dataset| Pipeline::is_known(&dataset.filters));
    if known || !handle.tree()?.needs_external_filters(id)? {
        return Ok(());
    }
    let facts = dataset::dataset_of(handle)?;
    let chunk = match facts.layout {
        DataLayout::Ordered { chunk } | DataLayout::Indexed { chunk } => chunk,
        DataLayout::Contiguous => return Ok(()),
    };
    let engine = LibraryFilters {
        slot: library.slot,
        record: facts.element,
        properties: facts.properties,
        chunk,
        filters: facts.filters,
    };
    Ok(handle.tree()?.set_external_filters(id, Box::new(engine))?)
}
