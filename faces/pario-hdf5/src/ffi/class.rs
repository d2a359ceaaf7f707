//! The table that HDF5 gets: `H5VL_class_t`, once per library.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::library::SLOTS;
use super::types::NAME;
use super::{attribute, dataset, datatype, file, group, introspect, link, object, optional};

/// `H5VL_VERSION` of HDF5 1.14 and 2.x.
const VOL_VERSION: c_uint = 3;
/// Number of the connector, of the range for testing until one is registered.
const VALUE: c_int = 510;
/// Functions in `H5VL_class_t`.
const FUNCTIONS: usize = 75;

/// `H5VL_CAP_FLAG_*` of what is served: basic and more of attributes, datasets, files, groups, links, objects; references of
/// objects; stored types, creation order, iteration, sizes, access by index, property lists, flush; external, hard, soft and
/// user-defined links; times, filters, fill values.
pub(super) const CAPABILITIES: u64 = 0x8
    | 0x10
    | 0x20
    | 0x40
    | 0x80
    | 0x100
    | 0x200
    | 0x400
    | 0x800
    | 0x1000
    | 0x8000
    | 0x1_0000
    | 0x2_0000
    | 0x8_0000
    | 0x40_0000
    | 0x80_0000
    | 0x100_0000
    | 0x200_0000
    | 0x400_0000
    | 0x800_0000
    | 0x1000_0000
    | 0x2000_0000
    | 0x4000_0000
    | 0x8000_0000
    | 0x1_0000_0000
    | 0x2_0000_0000
    | 0x8_0000_0000
    | 0x10_0000_0000;

/// `H5VL_class_t`.
#[repr(C)]
struct VolClass {
    version: c_uint,
    value: c_int,
    name: *const c_char,
    connector_version: c_uint,
    capabilities: u64,
    functions: [*const c_void; FUNCTIONS],
}

// SAFETY: the table is constant; its pointers are functions and a text.
unsafe impl Sync for VolClass {}

const NONE: *const c_void = std::ptr::null();

macro_rules! function {
    ($name:expr) => {
        $name as *const c_void
    };
}

#[expect(clippy::too_many_lines, reason = "a table: one line per function")]
const fn class<const S: usize>() -> VolClass {
    VolClass {
        version: VOL_VERSION,
        value: VALUE,
        name: NAME.as_ptr(),
        connector_version: 1,
        capabilities: CAPABILITIES,
        functions: [
            // initialize, terminate
            NONE,
            NONE,
            // info: size, copy, cmp, free, to_str, from_str
            NONE,
            NONE,
            NONE,
            NONE,
            NONE,
            function!(introspect::parse_settings::<S>),
            // wrap: get_object, get_wrap_ctx, wrap_object, unwrap_object, free_wrap_ctx
            NONE,
            NONE,
            NONE,
            NONE,
            NONE,
            // attributes
            function!(attribute::create),
            function!(attribute::open),
            function!(attribute::read),
            function!(attribute::write),
            function!(attribute::get),
            function!(attribute::specific),
            function!(optional::refused),
            function!(group::close),
            // datasets
            function!(dataset::create),
            function!(dataset::open),
            function!(dataset::read),
            function!(dataset::write),
            function!(dataset::get),
            function!(dataset::specific),
            function!(optional::dataset),
            function!(group::close),
            // datatypes
            function!(datatype::commit),
            function!(datatype::open),
            function!(datatype::get),
            function!(datatype::specific),
            function!(optional::refused),
            function!(group::close),
            // files
            function!(file::create::<S>),
            function!(file::open::<S>),
            function!(file::get),
            function!(file::specific::<S>),
            function!(optional::file),
            function!(file::close),
            // groups
            function!(group::create),
            function!(group::open),
            function!(group::get),
            function!(group::specific),
            function!(optional::group),
            function!(group::close),
            // links
            function!(link::create),
            function!(link::copy),
            function!(link::relocate),
            function!(link::get),
            function!(link::specific),
            NONE,
            // objects
            function!(object::open),
            function!(object::copy),
            function!(object::get),
            function!(object::specific),
            function!(optional::object),
            // introspection
            function!(introspect::connector_class::<S>),
            function!(introspect::capabilities),
            function!(introspect::query),
            // requests
            NONE,
            NONE,
            NONE,
            NONE,
            NONE,
            NONE,
            // blobs
            function!(object::blob_put),
            function!(object::blob_get),
            function!(object::blob_specific),
            NONE,
            // tokens
            function!(object::token_compare),
            NONE,
            NONE,
            // optional
            NONE,
        ],
    }
}

static CLASSES: [VolClass; SLOTS] = [
    class::<0>(),
    class::<1>(),
    class::<2>(),
    class::<3>(),
    class::<4>(),
    class::<5>(),
    class::<6>(),
    class::<7>(),
];

/// The table of a slot.
pub(super) fn of_slot(slot: usize) -> *const c_void {
    (&raw const CLASSES[slot]).cast()
}

const _: () = assert!(size_of::<VolClass>() == 632, "the size of H5VL_class_t with H5VL_VERSION 3");
