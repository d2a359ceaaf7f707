//! Older functions that HDF5 refuses for every connector but its own, though h5py and PyTables call them: listing, object
//! information, references.
//!
//! The import slots of loaded libraries and modules for these names are pointed at functions here, which go to the successors for
//! Pario's objects and to HDF5 for all others. `PARIO_H5_COMPAT=off` leaves everything as it is.

mod files;
mod functions;
mod references;
mod slots;

use std::ffi::c_void;

use super::library::{self, Library};

/// Functions that are replaced, for the library of slot `S`.
fn table<const S: usize>() -> Vec<(&'static str, *const c_void)> {
    let mut all = functions::table::<S>();
    all.extend(references::table::<S>());
    all.extend(files::table::<S>());
    all
}

fn table_of(slot: usize) -> Vec<(&'static str, *const c_void)> {
    match slot {
        0 => table::<0>(),
        1 => table::<1>(),
        2 => table::<2>(),
        3 => table::<3>(),
        4 => table::<4>(),
        5 => table::<5>(),
        6 => table::<6>(),
        _ => table::<7>(),
    }
}

/// Points import slots at the functions here, in libraries that were loaded since the last call.
pub(crate) fn install() {
    if std::env::var("PARIO_H5_COMPAT").is_ok_and(|value| value == "off") {
        return;
    }
    slots::patch(&|address| library::of_address(address).ok().map(|found: &Library| table_of(found.slot)));
}
