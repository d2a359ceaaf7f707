//! Callbacks of datasets.

use std::ffi::{c_char, c_int, c_void};

use pario_container::{DataLayout, DataSpace, Dataset, Hex, Kind, NewDataset, Pipeline};

use super::abi::{DEFAULT, Herr, Hid, LocParams, OK, VolOperation};
use super::failure::{Failure, VolOutcome, guard, guard_status};
use super::group::{NewPlace, make, open_kind};
use super::handle::Handle;
use super::library::Library;
use super::transfer::{self, TransferRequest};
use super::values::{Closer, Owned, arguments, checked, index, operation, put};
use super::{engine, plists, space, types};
use crate::stats::{self, ServedCount};

/// The program's fill value, in memory form; `None` for the default.
fn fill_value(library: &Library, dcpl: Hid, type_id: Hid) -> VolOutcome<Option<Vec<u8>>> {
    let mut defined: c_int = 0;
    // SAFETY: the list is open; the place outlives the call.
    checked(unsafe { (library.f.H5Pfill_value_defined)(dcpl, &raw mut defined) }, "H5Pfill_value_defined")?;
    if defined != 2 {
        return Ok(None);
    }
    let mut value = vec![0; types::size(library, type_id)];
    // SAFETY: the buffer has the size of the type.
    checked(
        // SAFETY: the identifiers are open; places and buffers outlive the call.
        unsafe { (library.f.H5Pget_fill_value)(dcpl, type_id, value.as_mut_ptr().cast()) },
        "H5Pget_fill_value",
    )?;
    Ok(Some(value))
}

fn chunk_shape(library: &Library, dcpl: Hid, rank: usize) -> VolOutcome<Option<Vec<u64>>> {
    // SAFETY: the list is open.
    if checked(unsafe { (library.f.H5Pget_external_count)(dcpl) }, "H5Pget_external_count")? > 0 {
        return Err(Failure::unsupported("datasets in external raw files"));
    }
    // SAFETY: as above.
    match unsafe { (library.f.H5Pget_layout)(dcpl) } {
        0 | 1 => Ok(None),
        2 => plists::chunk(library, dcpl, rank).map(Some),
        3 => Err(Failure::unsupported("virtual datasets")),
        _ => Err(Failure::of_library("H5Pget_layout")),
    }
}

pub(super) unsafe extern "C" fn create(
    object: *mut c_void,
    location: *const LocParams,
    name: *const c_char,
    lcpl: Hid,
    type_id: Hid,
    space_id: Hid,
    dcpl: Hid,
    _dapl: Hid,
    dxpl: Hid,
    _req: *mut *mut c_void,
) -> *mut c_void {
    guard(Handle::slot_of(object), std::ptr::null_mut(), |library| {
        stats::add(ServedCount::Datasets, 1);
        let place = NewPlace { object, location, name, lcpl };
        create_dataset(library, &place, (type_id, space_id, dcpl, dxpl))
    })
}

fn create_dataset(
    library: &'static Library,
    place: &NewPlace,
    (type_id, space_id, dcpl, dxpl): (Hid, Hid, Hid, Hid),
) -> VolOutcome<*mut c_void> {
    let near = Handle::borrow(place.object)?;
    let element = types::record(library, type_id, near)?;
    let shape = space::shape(library, space_id)?;
    let chunk = chunk_shape(library, dcpl, shape.extent().len())?;
    let mut filters = plists::filters(library, dcpl)?;
    if chunk.is_none() {
        filters.clear();
    }
    let fill = fill_value(library, dcpl, type_id)?;
    let in_heap = types::holds(&element.description).0;
    let properties = encoded_properties(library, dcpl, type_id, fill.as_deref(), in_heap)?;
    if !Pipeline::is_known(&filters) {
        filters = engine::completed(library, &element, dcpl, chunk.as_deref().unwrap_or(&[]))?;
    }
    let late = if in_heap { fill.clone() } else { None };
    let new = NewDataset {
        fill: if in_heap { None } else { fill.map(Hex) },
        fill_follows: late.is_some(),
        element: element.clone(),
        space: shape,
        chunk,
        filters,
        properties,
    };
    let handle = make(library, place, new.body()?, plists::timed(library, dcpl)?)?;
    let id = handle.object();
    let raw = handle.into_raw();
    if let Some(value) = late {
        let handle = Handle::borrow(raw)?;
        let size = types::size(library, type_id);
        let stored = types::at_rest(library, &element, handle)?;
        let bytes = index(element.size);
        let mut buffer = value.clone();
        buffer.resize(size.max(bytes), 0);
        types::convert(library, (type_id, stored.id, dxpl), 1, (&mut buffer, None))?;
        reclaim(library, type_id, value)?;
        let mut tree = handle.tree()?;
        tree.flush_heap(id)?;
        tree.set_fill(id, buffer[..bytes].to_vec())?;
    }
    Ok(raw)
}

/// Frees what HDF5 allocated for one element with variable-length values.
fn reclaim(library: &'static Library, type_id: Hid, mut value: Vec<u8>) -> VolOutcome<()> {
    let one = space::create(library, &DataSpace::Scalar)?;
    // SAFETY: the buffer holds one element in memory form, used no more.
    let done = unsafe { (library.f.H5Treclaim)(type_id, one.id, DEFAULT, value.as_mut_ptr().cast()) };
    checked(done, "H5Treclaim").map(|_| ())
}

/// Creation properties in HDF5's encoding, with the fill value in the dataset's own type: the program's may have
/// variable-length parts, which would be encoded as an address. If the dataset's has such, the fill value is left out and put
/// back by [`creation_list`].
fn encoded_properties(
    library: &'static Library,
    dcpl: Hid,
    type_id: Hid,
    fill: Option<&[u8]>,
    in_heap: bool,
) -> VolOutcome<Hex> {
    let Some(fill) = fill else { return plists::encode(library, dcpl) };
    // SAFETY: the list is open.
    let copy = Owned::new(library, unsafe { (library.f.H5Pcopy)(dcpl) }, Closer::Plist, "H5Pcopy")?;
    let value = if in_heap { std::ptr::null() } else { fill.as_ptr().cast() };
    // SAFETY: list and type are open; the value has the size of the type, none makes the fill value undefined.
    let done = unsafe { (library.f.H5Pset_fill_value)(copy.id, type_id, value) };
    checked(done, "H5Pset_fill_value")?;
    plists::encode(library, copy.id)
}

/// The creation list of a dataset.
fn creation_list(library: &'static Library, handle: &Handle, dataset: &Dataset) -> VolOutcome<Owned> {
    let list = plists::decode(library, &dataset.properties, c"H5P_CLS_DATASET_CREATE_ID_g")?;
    let Some(fill) = dataset.fill.as_ref().filter(|_| types::holds(&dataset.element.description).0) else {
        return Ok(list);
    };
    let (plain, stored) =
        (types::decode(library, &dataset.element)?, types::at_rest(library, &dataset.element, handle)?);
    let mut value = fill.0.clone();
    value.resize(value.len().max(types::size(library, plain.id)), 0);
    types::convert(library, (stored.id, plain.id, DEFAULT), 1, (&mut value, None))?;
    // SAFETY: the buffer holds one element in memory form, which HDF5 copies.
    let done = unsafe { (library.f.H5Pset_fill_value)(list.id, plain.id, value.as_ptr().cast()) };
    reclaim(library, plain.id, value)?;
    checked(done, "H5Pset_fill_value")?;
    Ok(list)
}

pub(super) unsafe extern "C" fn open(
    object: *mut c_void,
    location: *const LocParams,
    name: *const c_char,
    _dapl: Hid,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> *mut c_void {
    guard(Handle::slot_of(object), std::ptr::null_mut(), |library| {
        stats::add(ServedCount::Datasets, 1);
        Ok(open_kind(library, (object, location), name, (Kind::Dataset, DEFAULT))?.into_raw())
    })
}

/// The element at `position` of a list that HDF5 passes.
fn at<T: Copy>(list: *const T, position: usize) -> T {
    // SAFETY: HDF5 passes lists of `count` entries, and `position` is less.
    unsafe { *list.add(position) }
}

pub(super) unsafe extern "C" fn read(
    count: usize,
    datasets: *const *mut c_void,
    memory_types: *const Hid,
    memory_spaces: *const Hid,
    file_spaces: *const Hid,
    dxpl: Hid,
    buffers: *const *mut c_void,
    _req: *mut *mut c_void,
) -> Herr {
    let first = if count > 0 { at(datasets, 0) } else { std::ptr::null_mut() };
    guard_status(Handle::slot_of(first), |library| {
        for position in 0..count {
            stats::add(ServedCount::Reads, 1);
            let handle = Handle::borrow(at(datasets, position).cast_const())?;
            engine::attach(library, handle)?;
            let request = TransferRequest {
                memory_type: at(memory_types, position),
                memory_space: at(memory_spaces, position),
                file_space: at(file_spaces, position),
                dxpl,
            };
            transfer::read(library, handle, request, at(buffers, position))?;
        }
        Ok(OK)
    })
}

pub(super) unsafe extern "C" fn write(
    count: usize,
    datasets: *const *mut c_void,
    memory_types: *const Hid,
    memory_spaces: *const Hid,
    file_spaces: *const Hid,
    dxpl: Hid,
    buffers: *const *const c_void,
    _req: *mut *mut c_void,
) -> Herr {
    let first = if count > 0 { at(datasets, 0) } else { std::ptr::null_mut() };
    guard_status(Handle::slot_of(first), |library| {
        for position in 0..count {
            stats::add(ServedCount::Writes, 1);
            let handle = Handle::borrow(at(datasets, position).cast_const())?;
            engine::attach(library, handle)?;
            let request = TransferRequest {
                memory_type: at(memory_types, position),
                memory_space: at(memory_spaces, position),
                file_space: at(file_spaces, position),
                dxpl,
            };
            transfer::write(library, handle, request, at(buffers, position))?;
        }
        Ok(OK)
    })
}

/// What a handle's dataset is.
pub(super) fn dataset_of(handle: &Handle) -> VolOutcome<Dataset> {
    let tree = handle.tree()?;
    let dataset = tree.header(handle.object())?.dataset().cloned();
    dataset.ok_or_else(|| Failure::new("a dataset is needed"))
}

pub(super) unsafe extern "C" fn get(
    object: *mut c_void,
    args: *mut VolOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |library| {
        stats::add(ServedCount::Datasets, 1);
        let handle = Handle::borrow(object)?;
        let dataset = dataset_of(handle)?;
        let target: &mut Hid = arguments(args);
        match operation(args) {
            0 => {
                *target = plists::decode(library, &Hex::default(), c"H5P_CLS_DATASET_ACCESS_ID_g")?.release()
            }
            1 => *target = creation_list(library, handle, &dataset)?.release(),
            2 => *target = space::create(library, &dataset.space)?.release(),
            3 => {
                let status: &mut *mut c_int = arguments(args);
                put(*status, status_of(handle, &dataset)?);
            }
            4 => {
                let size: &mut *mut u64 = arguments(args);
                let stored = if matches!(dataset.space, DataSpace::Null) {
                    0
                } else {
                    handle.tree()?.stored_bytes(handle.object())?
                };
                put(*size, stored);
            }
            5 => *target = types::decode(library, &dataset.element)?.release(),
            kind => return Err(Failure::unsupported(&format!("query {kind} of datasets"))),
        }
        Ok(OK)
    })
}

/// `H5D_space_status_t`: not, partly or wholly allocated.
fn status_of(handle: &Handle, dataset: &Dataset) -> VolOutcome<c_int> {
    let chunk = match &dataset.layout {
        DataLayout::Contiguous => return Ok(if dataset.fill.is_none() || dataset.allocated { 2 } else { 0 }),
        DataLayout::Ordered { chunk } | DataLayout::Indexed { chunk } => chunk,
    };
    let stored = handle.tree()?.chunk_places(handle.object())?.len();
    let all: u64 =
        dataset.space.extent().iter().zip(chunk).map(|(size, part)| size.div_ceil(*part)).product();
    Ok(if stored == 0 {
        0
    } else if index(all) == stored {
        2
    } else {
        1
    })
}

pub(super) unsafe extern "C" fn specific(
    object: *mut c_void,
    args: *mut VolOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |library| {
        stats::add(ServedCount::Datasets, 1);
        let handle = Handle::borrow(object)?;
        match operation(args) {
            0 => {
                let extent: &mut *const u64 = arguments(args);
                let rank = dataset_of(handle)?.space.extent().len();
                // SAFETY: HDF5 passes as many sizes as the dataset has dimensions.
                let extent = unsafe { std::slice::from_raw_parts(*extent, rank) };
                engine::attach(library, handle)?;
                handle.tree()?.set_extent(handle.object(), extent)?;
            }
            1 => handle.tree()?.flush_object(handle.object())?,
            2 => handle.tree()?.refresh(handle.object())?,
            kind => return Err(Failure::unsupported(&format!("operation {kind} of datasets"))),
        }
        Ok(OK)
    })
}
