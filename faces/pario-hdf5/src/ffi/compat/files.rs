//! Opening and creating files: native HDF5 files, and files with a driver of their own, go to native HDF5 in the same program.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::Read;

use super::super::abi::{DEFAULT, Herr, Hid};
use super::super::library::{Library, of_slot};
use super::super::values::put;
use super::functions::ours;

/// First bytes of a native HDF5 file.
const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";

/// Whether a name is a regular file that begins as native HDF5 files do.
fn is_native_file(name: *const c_char) -> bool {
    if name.is_null() {
        return false;
    }
    // SAFETY: the program passes a text that ends in NUL.
    let Ok(name) = unsafe { CStr::from_ptr(name) }.to_str() else { return false };
    let mut head = [0; 8];
    std::fs::metadata(name).is_ok_and(|meta| meta.is_file())
        && File::open(name).and_then(|mut file| file.read_exact(&mut head)).is_ok()
        && head == *SIGNATURE
}

/// Whether an access list names another driver than the default.
fn has_driver(library: &Library, fapl: Hid) -> bool {
    if fapl == DEFAULT {
        return false;
    }
    // SAFETY: any number may be asked for.
    let driver = unsafe { (library.f.H5Pget_driver)(fapl) };
    let known = [c"H5FD_SEC2_id_g", c"H5FD_SEC2_g"];
    let sec2 = known.iter().find_map(|name| library.variables.get(name).ok());
    driver > 0 && sec2.is_some_and(|sec2| sec2 != driver)
}

/// Runs `call` with an access list that leads to native HDF5.
fn natively<T>(library: &Library, fapl: Hid, call: impl FnOnce(Hid) -> T) -> T {
    let f = &library.f;
    let list = if fapl == DEFAULT {
        let class = library.variables.get(c"H5P_CLS_FILE_ACCESS_ID_g").unwrap_or(0);
        // SAFETY: the class is HDF5's own.
        unsafe { (f.H5Pcreate)(class) }
    } else {
        // SAFETY: the list is the program's and open.
        unsafe { (f.H5Pcopy)(fapl) }
    };
    // SAFETY: the name ends in NUL.
    let native = unsafe { (f.H5VLget_connector_id_by_name)(c"native".as_ptr()) };
    // SAFETY: list and connector are open.
    unsafe { (f.H5Pset_vol)(list, native, std::ptr::null()) };
    let result = call(list);
    // SAFETY: the stack is put back below; closing clears it, and the program wants to see the error.
    let errors = unsafe { (f.H5Eget_current_stack)() };
    // SAFETY: both were opened above.
    unsafe { (f.H5VLclose)(native) };
    // SAFETY: as above.
    unsafe { (f.H5Pclose)(list) };
    // SAFETY: the stack was saved above; this closes it.
    unsafe { (f.H5Eset_current_stack)(errors) };
    result
}

unsafe extern "C" fn open<const S: usize>(name: *const c_char, flags: c_uint, fapl: Hid) -> Hid {
    let library = of_slot(S);
    // SAFETY: the arguments are passed on, with another access list at most.
    let call = |list| unsafe { (library.f.H5Fopen)(name, flags, list) };
    if has_driver(library, fapl) || is_native_file(name) { natively(library, fapl, call) } else { call(fapl) }
}

unsafe extern "C" fn create<const S: usize>(name: *const c_char, flags: c_uint, fcpl: Hid, fapl: Hid) -> Hid {
    let library = of_slot(S);
    // SAFETY: as above.
    let call = |list| unsafe { (library.f.H5Fcreate)(name, flags, fcpl, list) };
    if has_driver(library, fapl) { natively(library, fapl, call) } else { call(fapl) }
}

unsafe extern "C" fn is_accessible<const S: usize>(name: *const c_char, fapl: Hid) -> c_int {
    let library = of_slot(S);
    // SAFETY: as above.
    let call = |list| unsafe { (library.f.H5Fis_accessible)(name, list) };
    if has_driver(library, fapl) || is_native_file(name) { natively(library, fapl, call) } else { call(fapl) }
}

unsafe extern "C" fn is_hdf5<const S: usize>(name: *const c_char) -> c_int {
    let library = of_slot(S);
    if is_native_file(name) {
        return 1;
    }
    // SAFETY: the argument is the program's.
    unsafe { (library.f.H5Fis_accessible)(name, DEFAULT) }
}

/// Dimension scales use old references, which h5py understands, in native files only; for libhdf5_hl ours are such.
unsafe extern "C" fn is_native<const S: usize>(id: Hid, native: *mut bool) -> Herr {
    let library = of_slot(S);
    if ours(library, id) {
        put(native, true);
        return 0;
    }
    // SAFETY: the arguments are passed on as they are.
    unsafe { (library.f.H5VLobject_is_native)(id, native) }
}

/// Names and functions.
pub(super) fn table<const S: usize>() -> Vec<(&'static str, *const c_void)> {
    vec![
        ("H5Fopen", open::<S> as *const c_void),
        ("H5Fcreate", create::<S> as *const c_void),
        ("H5Fis_accessible", is_accessible::<S> as *const c_void),
        ("H5Fis_hdf5", is_hdf5::<S> as *const c_void),
        ("H5VLobject_is_native", is_native::<S> as *const c_void),
    ]
}
