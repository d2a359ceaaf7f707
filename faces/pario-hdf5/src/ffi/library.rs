//! The HDF5 libraries of this process: a table of functions each, found at run time.
//!
//! Never: links HDF5; uses a function that was not found. Always: a library keeps its slot until the process ends.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, OnceLock};

use super::abi::{
    Herr, Hid, LinkInfo, LinkOperator, ObjectInfo, ObjectOperator, OldLinkInfo, OldObjectInfo, Token,
};

/// Libraries that one process can hold.
pub(crate) const SLOTS: usize = 8;

/// A callback over identifiers.
pub(crate) type IdOperator = unsafe extern "C" fn(Hid, *mut c_void) -> Herr;
/// Older callback over links.
pub(crate) type OldLinkOperator =
    unsafe extern "C" fn(Hid, *const c_char, *const OldLinkInfo, *mut c_void) -> Herr;
/// Older callback over objects.
pub(crate) type OldObjectOperator =
    unsafe extern "C" fn(Hid, *const c_char, *const OldObjectInfo, *mut c_void) -> Herr;

macro_rules! functions {
    ($($(#[doc = $doc:literal])? $name:ident $(| $other:ident)? : fn($($arg:ty),* $(,)?) -> $ret:ty;)*) => {
        /// Functions of one HDF5 library.
        #[expect(non_snake_case, reason = "these are the names of HDF5")]
        #[derive(Debug)]
        pub(crate) struct HdfFunctions {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) -> $ret,)*
            /// Variadic.
            pub(crate) H5Epush2: unsafe extern "C" fn(
                Hid, *const c_char, *const c_char, c_uint, Hid, Hid, Hid, *const c_char, ...
            ) -> Herr,
        }

        impl HdfFunctions {
            fn load(handle: *mut c_void) -> Result<HdfFunctions, String> {
                Ok(HdfFunctions {
                    $($name: {
                        let names = [stringify!($name) $(, stringify!($other))?];
                        let address = find(handle, &names)?;
                        // SAFETY: the symbol is the function of this name, with the signature of HDF5's headers.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> $ret>(address) }
                    },)*
                    H5Epush2: {
                        let address = find(handle, &["H5Epush2"])?;
                        // SAFETY: as above.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(
                                Hid, *const c_char, *const c_char, c_uint, Hid, Hid, Hid, *const c_char, ...
                            ) -> Herr>(address)
                        }
                    },
                })
            }
        }
    };
}

functions! {
    H5free_memory: fn(*mut c_void) -> Herr;
    H5Eget_current_stack: fn() -> Hid;
    H5Eset_current_stack: fn(Hid) -> Herr;
    H5Idec_ref: fn(Hid) -> c_int;
    H5Iget_type: fn(Hid) -> c_int;
    H5Iiterate: fn(c_int, IdOperator, *mut c_void) -> Herr;
    H5VLobject: fn(Hid) -> *mut c_void;
    H5VLwrap_register: fn(*mut c_void, c_int) -> Hid;
    H5VLget_connector_id_by_name: fn(*const c_char) -> Hid;
    H5VLclose: fn(Hid) -> Herr;
    H5VLget_file_type: fn(*mut c_void, Hid, Hid) -> Hid;
    H5Tcopy: fn(Hid) -> Hid;
    H5Tclose: fn(Hid) -> Herr;
    H5Tcreate: fn(c_int, usize) -> Hid;
    H5Tset_tag: fn(Hid, *const c_char) -> Herr;
    H5Tvlen_create: fn(Hid) -> Hid;
    H5Tinsert: fn(Hid, *const c_char, usize, Hid) -> Herr;
    H5Tarray_create2: fn(Hid, c_uint, *const u64) -> Hid;
    H5Tequal: fn(Hid, Hid) -> c_int;
    H5Tcommitted: fn(Hid) -> c_int;
    H5Tencode: fn(Hid, *mut c_void, *mut usize) -> Herr;
    H5Tdecode | H5Tdecode1: fn(*const c_void) -> Hid;
    H5Tget_class: fn(Hid) -> c_int;
    H5Tget_size: fn(Hid) -> usize;
    H5Tget_order: fn(Hid) -> c_int;
    H5Tget_sign: fn(Hid) -> c_int;
    H5Tget_cset: fn(Hid) -> c_int;
    H5Tis_variable_str: fn(Hid) -> c_int;
    H5Tget_nmembers: fn(Hid) -> c_int;
    H5Tget_member_name: fn(Hid, c_uint) -> *mut c_char;
    H5Tget_member_type: fn(Hid, c_uint) -> Hid;
    H5Tget_member_offset: fn(Hid, c_uint) -> usize;
    H5Tget_member_value: fn(Hid, c_uint, *mut c_void) -> Herr;
    H5Tget_super: fn(Hid) -> Hid;
    H5Tget_array_dims2: fn(Hid, *mut u64) -> c_int;
    H5Tget_tag: fn(Hid) -> *mut c_char;
    H5Tconvert: fn(Hid, Hid, usize, *mut c_void, *mut c_void, Hid) -> Herr;
    H5Screate: fn(c_int) -> Hid;
    H5Screate_simple: fn(c_int, *const u64, *const u64) -> Hid;
    H5Sclose: fn(Hid) -> Herr;
    H5Sget_simple_extent_type: fn(Hid) -> c_int;
    H5Sget_simple_extent_dims: fn(Hid, *mut u64, *mut u64) -> c_int;
    H5Sget_simple_extent_npoints: fn(Hid) -> i64;
    H5Sget_select_npoints: fn(Hid) -> i64;
    H5Sget_select_type: fn(Hid) -> c_int;
    H5Sselect_valid: fn(Hid) -> c_int;
    H5Ssel_iter_create: fn(Hid, usize, c_uint) -> Hid;
    H5Ssel_iter_get_seq_list: fn(Hid, usize, usize, *mut usize, *mut usize, *mut u64, *mut usize) -> Herr;
    H5Ssel_iter_close: fn(Hid) -> Herr;
    H5Sencode2: fn(Hid, *mut c_void, *mut usize, Hid) -> Herr;
    H5Sdecode: fn(*const c_void) -> Hid;
    H5Pcopy: fn(Hid) -> Hid;
    H5Pclose: fn(Hid) -> Herr;
    H5Pcreate: fn(Hid) -> Hid;
    H5Pencode2: fn(Hid, *mut c_void, *mut usize, Hid) -> Herr;
    H5Pdecode: fn(*const c_void) -> Hid;
    H5Pget_layout: fn(Hid) -> c_int;
    H5Pget_chunk: fn(Hid, c_int, *mut u64) -> c_int;
    H5Pset_chunk: fn(Hid, c_int, *const u64) -> Herr;
    H5Pget_external_count: fn(Hid) -> c_int;
    H5Pset_filter: fn(Hid, c_int, c_uint, usize, *const c_uint) -> Herr;
    H5Pget_nfilters: fn(Hid) -> c_int;
    H5Pget_filter2: fn(Hid, c_uint, *mut c_uint, *mut usize, *mut c_uint, usize, *mut c_char, *mut c_uint) -> c_int;
    H5Pfill_value_defined: fn(Hid, *mut c_int) -> Herr;
    H5Pset_fill_time: fn(Hid, c_int) -> Herr;
    H5Pset_fill_value: fn(Hid, Hid, *const c_void) -> Herr;
    H5Treclaim: fn(Hid, Hid, Hid, *mut c_void) -> Herr;
    H5Fopen: fn(*const c_char, c_uint, Hid) -> Hid;
    H5Fis_accessible: fn(*const c_char, Hid) -> c_int;
    H5VLobject_is_native: fn(Hid, *mut bool) -> Herr;
    H5Pget_fill_value: fn(Hid, Hid, *mut c_void) -> Herr;
    H5Pget_obj_track_times: fn(Hid, *mut bool) -> Herr;
    H5Pget_create_intermediate_group: fn(Hid, *mut c_uint) -> Herr;
    H5Pget_char_encoding: fn(Hid, *mut c_int) -> Herr;
    H5Pget_link_creation_order: fn(Hid, *mut c_uint) -> Herr;
    H5Pget_elink_prefix: fn(Hid, *mut c_char, usize) -> isize;
    H5Pget_userblock: fn(Hid, *mut u64) -> Herr;
    H5Pget_driver: fn(Hid) -> Hid;
    H5Pget_copy_object: fn(Hid, *mut c_uint) -> Herr;
    H5Pget_data_transform: fn(Hid, *mut c_char, usize) -> isize;
    H5Pset_vol: fn(Hid, Hid, *const c_void) -> Herr;
    H5Pset_fapl_core: fn(Hid, usize, bool) -> Herr;
    H5Fcreate: fn(*const c_char, c_uint, Hid, Hid) -> Hid;
    H5Fclose: fn(Hid) -> Herr;
    H5Dcreate2: fn(Hid, *const c_char, Hid, Hid, Hid, Hid, Hid) -> Hid;
    H5Dwrite: fn(Hid, Hid, Hid, Hid, Hid, *const c_void) -> Herr;
    H5Dread: fn(Hid, Hid, Hid, Hid, Hid, *mut c_void) -> Herr;
    H5Dflush: fn(Hid) -> Herr;
    H5Dclose: fn(Hid) -> Herr;
    H5Dget_chunk_info_by_coord: fn(Hid, *const u64, *mut c_uint, *mut u64, *mut u64) -> Herr;
    H5Dread_chunk | H5Dread_chunk1: fn(Hid, Hid, *const u64, *mut u32, *mut c_void) -> Herr;
    H5Dwrite_chunk: fn(Hid, Hid, u32, *const u64, usize, *const c_void) -> Herr;
    H5Dget_create_plist: fn(Hid) -> Hid;
    H5Oget_info3: fn(Hid, *mut ObjectInfo, c_uint) -> Herr;
    H5Oget_info_by_name3: fn(Hid, *const c_char, *mut ObjectInfo, c_uint, Hid) -> Herr;
    H5Oget_info_by_idx3: fn(Hid, *const c_char, c_int, c_int, u64, *mut ObjectInfo, c_uint, Hid) -> Herr;
    H5Ovisit3: fn(Hid, c_int, c_int, ObjectOperator, *mut c_void, c_uint) -> Herr;
    H5Ovisit_by_name3: fn(Hid, *const c_char, c_int, c_int, ObjectOperator, *mut c_void, c_uint, Hid) -> Herr;
    H5Oopen_by_token: fn(Hid, Token) -> Hid;
    H5Oclose: fn(Hid) -> Herr;
    H5Literate2: fn(Hid, c_int, c_int, *mut u64, LinkOperator, *mut c_void) -> Herr;
    H5Literate_by_name2: fn(Hid, *const c_char, c_int, c_int, *mut u64, LinkOperator, *mut c_void, Hid) -> Herr;
    H5Lvisit2: fn(Hid, c_int, c_int, LinkOperator, *mut c_void) -> Herr;
    H5Lvisit_by_name2: fn(Hid, *const c_char, c_int, c_int, LinkOperator, *mut c_void, Hid) -> Herr;
    H5Lget_info2: fn(Hid, *const c_char, *mut LinkInfo, Hid) -> Herr;
    H5Lget_info_by_idx2: fn(Hid, *const c_char, c_int, c_int, u64, *mut LinkInfo, Hid) -> Herr;
    H5Oget_info1: fn(Hid, *mut OldObjectInfo) -> Herr;
    H5Oget_info2: fn(Hid, *mut OldObjectInfo, c_uint) -> Herr;
    H5Oget_info_by_name1: fn(Hid, *const c_char, *mut OldObjectInfo, Hid) -> Herr;
    H5Oget_info_by_name2: fn(Hid, *const c_char, *mut OldObjectInfo, c_uint, Hid) -> Herr;
    H5Oget_info_by_idx1: fn(Hid, *const c_char, c_int, c_int, u64, *mut OldObjectInfo, Hid) -> Herr;
    H5Oget_info_by_idx2: fn(Hid, *const c_char, c_int, c_int, u64, *mut OldObjectInfo, c_uint, Hid) -> Herr;
    H5Ovisit1: fn(Hid, c_int, c_int, OldObjectOperator, *mut c_void) -> Herr;
    H5Ovisit2: fn(Hid, c_int, c_int, OldObjectOperator, *mut c_void, c_uint) -> Herr;
    H5Ovisit_by_name1: fn(Hid, *const c_char, c_int, c_int, OldObjectOperator, *mut c_void, Hid) -> Herr;
    H5Ovisit_by_name2: fn(Hid, *const c_char, c_int, c_int, OldObjectOperator, *mut c_void, c_uint, Hid) -> Herr;
    H5Lvisit1: fn(Hid, c_int, c_int, OldLinkOperator, *mut c_void) -> Herr;
    H5Lvisit_by_name1: fn(Hid, *const c_char, c_int, c_int, OldLinkOperator, *mut c_void, Hid) -> Herr;
    H5Literate1: fn(Hid, c_int, c_int, *mut u64, OldLinkOperator, *mut c_void) -> Herr;
    H5Literate_by_name1: fn(Hid, *const c_char, c_int, c_int, *mut u64, OldLinkOperator, *mut c_void, Hid) -> Herr;
    H5Lget_info1: fn(Hid, *const c_char, *mut OldLinkInfo, Hid) -> Herr;
    H5Lget_info_by_idx1: fn(Hid, *const c_char, c_int, c_int, u64, *mut OldLinkInfo, Hid) -> Herr;
    H5Oopen_by_addr: fn(Hid, u64) -> Hid;
    H5Rcreate: fn(*mut c_void, Hid, *const c_char, c_int, Hid) -> Herr;
    H5Rdereference1: fn(Hid, c_int, *const c_void) -> Hid;
    H5Rdereference2: fn(Hid, Hid, c_int, *const c_void) -> Hid;
    H5Rget_obj_type1: fn(Hid, c_int, *const c_void) -> c_int;
    H5Rget_obj_type2: fn(Hid, c_int, *const c_void, *mut c_int) -> Herr;
    H5Rget_region: fn(Hid, c_int, *const c_void) -> Hid;
    H5Rget_name: fn(Hid, c_int, *const c_void, *mut c_char, usize) -> isize;
    H5Iget_name: fn(Hid, *mut c_char, usize) -> isize;
}

/// Numbers that HDF5 assigns when it starts.
#[derive(Debug)]
pub(crate) struct Variables {
    handle: usize,
}

impl Variables {
    /// The current value of a variable of type `hid_t`; it is assigned once the library has started.
    pub(crate) fn get(&self, name: &CStr) -> Result<Hid, String> {
        // SAFETY: the handle is that of a loaded library, the name ends in NUL.
        let address = unsafe { libc::dlsym(self.handle as *mut c_void, name.as_ptr()) };
        if address.is_null() {
            return Err(format!("HDF5 has no variable {}", name.to_string_lossy()));
        }
        // SAFETY: HDF5 declares all variables of these names as `hid_t`.
        Ok(unsafe { *address.cast::<Hid>() })
    }
}

/// An HDF5 library of this process.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) slot: usize,
    pub(crate) f: HdfFunctions,
    pub(crate) variables: Variables,
    /// Address at which it is loaded.
    base: usize,
}

static LIBRARIES: [OnceLock<Library>; SLOTS] = [const { OnceLock::new() }; SLOTS];
static LOADING: Mutex<()> = Mutex::new(());

fn find(handle: *mut c_void, names: &[&str]) -> Result<*mut c_void, String> {
    for name in names {
        let text = CString::new(*name).map_err(|_| "a name with NUL".to_owned())?;
        // SAFETY: the handle is that of a loaded library, the name ends in NUL.
        let address = unsafe { libc::dlsym(handle, text.as_ptr()) };
        if !address.is_null() {
            return Ok(address);
        }
    }
    Err(format!("this HDF5 has no function {}; Pario needs HDF5 1.14 or 2.x", names.join(" or ")))
}

/// The library of a slot.
pub(crate) fn of_slot(slot: usize) -> &'static Library {
    LIBRARIES[slot].get().expect("a callback of this slot exists only after the library was found")
}

/// The library that holds the code at `address`.
pub(crate) fn of_address(address: *const c_void) -> Result<&'static Library, String> {
    let _one = LOADING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // SAFETY: all fields may be zero.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` outlives the call; any address may be asked for.
    let found = unsafe { libc::dladdr(address, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return Err("the calling HDF5 is not in a shared library; Pario cannot serve static programs".into());
    }
    let base = info.dli_fbase as usize;
    if let Some(known) = LIBRARIES.iter().filter_map(OnceLock::get).find(|library| library.base == base) {
        return Ok(known);
    }
    let Some((slot, cell)) = LIBRARIES.iter().enumerate().find(|(_, cell)| cell.get().is_none()) else {
        return Err(format!("this process holds more than {SLOTS} HDF5 libraries"));
    };
    // SAFETY: the name is a C string of the loader; the library is loaded, so that its code does not run again.
    let handle = unsafe { libc::dlopen(info.dli_fname, libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if handle.is_null() {
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(info.dli_fname) };
        return Err(format!("{} cannot be opened again", name.to_string_lossy()));
    }
    let f = HdfFunctions::load(handle)?;
    Ok(cell.get_or_init(|| Library { slot, f, variables: Variables { handle: handle as usize }, base }))
}
