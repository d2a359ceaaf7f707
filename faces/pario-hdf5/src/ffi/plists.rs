//! Property lists: what the connector needs to know of them, and their stored form.

use std::ffi::{c_int, c_uint};

use pario_container::{FilterSpec, Hex};

use super::abi::{DEFAULT, Hid};
use super::failure::VolOutcome;
use super::library::Library;
use super::values::{Closer, Owned, checked, index};

/// A property list in HDF5's encoding.
pub(crate) fn encode(library: &Library, plist: Hid) -> VolOutcome<Hex> {
    let mut size = 0;
    // SAFETY: the list is open; without a buffer the size is returned.
    let done = unsafe { (library.f.H5Pencode2)(plist, std::ptr::null_mut(), &raw mut size, DEFAULT) };
    checked(done, "H5Pencode2")?;
    let mut bytes = vec![0; size];
    // SAFETY: the buffer has the size that was asked for.
    let done = unsafe { (library.f.H5Pencode2)(plist, bytes.as_mut_ptr().cast(), &raw mut size, DEFAULT) };
    checked(done, "H5Pencode2")?;
    bytes.truncate(size);
    Ok(Hex(bytes))
}

/// The property list of stored bytes; a default one of `class` for none.
pub(crate) fn decode(library: &'static Library, bytes: &Hex, class: &std::ffi::CStr) -> VolOutcome<Owned> {
    if bytes.0.is_empty() {
        let class = library.variables.get(class)?;
        // SAFETY: the class is HDF5's own.
        let id = unsafe { (library.f.H5Pcreate)(class) };
        return Owned::new(library, id, Closer::Plist, "H5Pcreate");
    }
    // SAFETY: the bytes are those of `H5Pencode2`, protected by a checksum.
    let id = unsafe { (library.f.H5Pdecode)(bytes.0.as_ptr().cast()) };
    Owned::new(library, id, Closer::Plist, "H5Pdecode")
}

/// Whether missing groups are to be made, and whether names are UTF-8.
pub(crate) fn link_creation(library: &Library, lcpl: Hid) -> VolOutcome<(bool, bool)> {
    if lcpl == DEFAULT {
        return Ok((false, false));
    }
    let (mut parents, mut cset): (c_uint, c_int) = (0, 0);
    // SAFETY: the list is open; the places outlive the calls.
    checked(
        // SAFETY: the identifiers are open; places and buffers outlive the call.
        unsafe { (library.f.H5Pget_create_intermediate_group)(lcpl, &raw mut parents) },
        "H5Pget_create_intermediate_group",
    )?;
    // SAFETY: as above.
    checked(unsafe { (library.f.H5Pget_char_encoding)(lcpl, &raw mut cset) }, "H5Pget_char_encoding")?;
    Ok((parents != 0, cset == 1))
}

/// Whether times of an object are tracked.
pub(crate) fn timed(library: &Library, ocpl: Hid) -> VolOutcome<bool> {
    let mut tracked = true;
    // SAFETY: the list is open; the place outlives the call.
    checked(unsafe { (library.f.H5Pget_obj_track_times)(ocpl, &raw mut tracked) }, "H5Pget_obj_track_times")?;
    Ok(tracked)
}

/// Shape of the chunks of a creation list.
pub(crate) fn chunk(library: &Library, dcpl: Hid, rank: usize) -> VolOutcome<Vec<u64>> {
    let mut shape = vec![0; rank.max(32)];
    // SAFETY: the buffer has room for 32 dimensions, the most that HDF5 has.
    let count = checked(unsafe { (library.f.H5Pget_chunk)(dcpl, 32, shape.as_mut_ptr()) }, "H5Pget_chunk")?;
    shape.truncate(usize::try_from(count).unwrap_or(0));
    Ok(shape)
}

/// Filters of a creation list.
pub(crate) fn filters(library: &Library, dcpl: Hid) -> VolOutcome<Vec<FilterSpec>> {
    // SAFETY: the list is open.
    let count = checked(unsafe { (library.f.H5Pget_nfilters)(dcpl) }, "H5Pget_nfilters")?;
    (0..c_uint::try_from(count).unwrap_or(0)).map(|position| filter(library, dcpl, position)).collect()
}

fn filter(library: &Library, dcpl: Hid, position: c_uint) -> VolOutcome<FilterSpec> {
    let (mut flags, mut config): (c_uint, c_uint) = (0, 0);
    let mut parameters = vec![0; 256];
    let mut count = parameters.len();
    // SAFETY: the buffers have the sizes given; no name is asked for.
    let number = unsafe {
        (library.f.H5Pget_filter2)(
            dcpl,
            position,
            &raw mut flags,
            &raw mut count,
            parameters.as_mut_ptr(),
            0,
            std::ptr::null_mut(),
            &raw mut config,
        )
    };
    parameters.truncate(count.min(index(256)));
    Ok(FilterSpec { number: checked(number, "H5Pget_filter2")?, optional: flags & 1 != 0, parameters })
}
