//! Older functions for links and objects, carried out by their successors.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::super::abi::{Herr, Hid, LINK_HARD, LinkInfo, ObjectInfo, OldLinkInfo, OldObjectInfo, Token};
use super::super::handle::Handle;
use super::super::library::{Library, OldLinkOperator, OldObjectOperator, of_slot};
use crate::stats::{self, ServedCount};

/// `H5O_INFO_BASIC | TIME | NUM_ATTRS`.
const ALL_FIELDS: c_uint = 7;

/// Whether an identifier is one of Pario's objects.
pub(super) fn ours(library: &Library, id: Hid) -> bool {
    // SAFETY: any number may be asked for; only files, groups, types, datasets and attributes have objects.
    let kind = unsafe { (library.f.H5Iget_type)(id) };
    if ![1, 2, 3, 5, 7].contains(&kind) {
        return false;
    }
    // SAFETY: as above.
    if kind == 3 && unsafe { (library.f.H5Tcommitted)(id) } <= 0 {
        return false;
    }
    // SAFETY: the identifier is open and has an object.
    let object = unsafe { (library.f.H5VLobject)(id) };
    let found = Handle::borrow(object).is_ok();
    if found {
        stats::add(ServedCount::Compatibility, 1);
    }
    found
}

fn old_object(new: &ObjectInfo) -> OldObjectInfo {
    OldObjectInfo {
        file: new.file,
        address: new.token.id(),
        kind: new.kind,
        links: new.links,
        accessed: new.accessed,
        modified: new.modified,
        changed: new.changed,
        born: new.born,
        attributes: new.attributes,
        native: [0; 12],
    }
}

fn old_link(new: &LinkInfo) -> OldLinkInfo {
    // SAFETY: the kind says which member is set.
    let value = unsafe {
        if new.kind == LINK_HARD {
            new.value.token.id()
        } else {
            super::super::values::length(new.value.size)
        }
    };
    OldLinkInfo { kind: new.kind, order_valid: new.order_valid, order: new.order, cset: new.cset, value }
}

fn empty_object() -> ObjectInfo {
    ObjectInfo {
        file: 0,
        token: Token([0; 16]),
        kind: 0,
        links: 0,
        accessed: 0,
        modified: 0,
        changed: 0,
        born: 0,
        attributes: 0,
    }
}

fn empty_link() -> LinkInfo {
    let value = super::super::abi::LinkValue { token: Token([0; 16]) };
    LinkInfo { kind: 0, order_valid: false, order: 0, cset: 0, value }
}

/// Calls the successor and returns its result in the older form.
fn object_info(target: *mut OldObjectInfo, successor: impl FnOnce(*mut ObjectInfo) -> Herr) -> Herr {
    let mut new = empty_object();
    let done = successor(&raw mut new);
    if done >= 0 {
        super::super::values::put(target, old_object(&new));
    }
    done
}

fn link_info(target: *mut OldLinkInfo, successor: impl FnOnce(*mut LinkInfo) -> Herr) -> Herr {
    let mut new = empty_link();
    let done = successor(&raw mut new);
    if done >= 0 {
        super::super::values::put(target, old_link(&new));
    }
    done
}

/// The program's function and its data.
struct LinkCall {
    operator: OldLinkOperator,
    data: *mut c_void,
}

unsafe extern "C" fn call_link(
    group: Hid,
    name: *const c_char,
    info: *const LinkInfo,
    data: *mut c_void,
) -> Herr {
    // SAFETY: the functions below pass their own call, HDF5 valid information.
    let (call, old) = unsafe { (&*data.cast::<LinkCall>(), old_link(&*info)) };
    // SAFETY: the program's function gets what the older interface promises.
    unsafe { (call.operator)(group, name, &raw const old, call.data) }
}

struct ObjectCall {
    operator: OldObjectOperator,
    data: *mut c_void,
}

unsafe extern "C" fn call_object(
    id: Hid,
    name: *const c_char,
    info: *const ObjectInfo,
    data: *mut c_void,
) -> Herr {
    // SAFETY: as above.
    let (call, old) = unsafe { (&*data.cast::<ObjectCall>(), old_object(&*info)) };
    // SAFETY: as above.
    unsafe { (call.operator)(id, name, &raw const old, call.data) }
}

/// Defines functions that serve Pario's objects and pass others to HDF5's function of the same name.
macro_rules! compat {
    ($($name:ident($first:ident : Hid $(, $arg:ident : $ty:ty)*) -> $ret:ty { $library:ident => $body:expr })*) => {
        $(
            #[expect(non_snake_case, reason = "this is the name of HDF5")]
            unsafe extern "C" fn $name<const S: usize>($first: Hid $(, $arg: $ty)*) -> $ret {
                let $library = of_slot(S);
                if ours($library, $first) {
                    // SAFETY: the successor gets the program's arguments, which have the same meaning.
                    return unsafe { $body };
                }
                // SAFETY: the arguments are passed on as they are.
                unsafe { ($library.f.$name)($first $(, $arg)*) }
            }
        )*

        /// Names and functions.
        pub(super) fn table<const S: usize>() -> Vec<(&'static str, *const c_void)> {
            vec![$((stringify!($name), $name::<S> as *const c_void)),*]
        }
    };
}

compat! {
    H5Oget_info1(id: Hid, info: *mut OldObjectInfo) -> Herr {
        lib => object_info(info, |new| (lib.f.H5Oget_info3)(id, new, ALL_FIELDS))
    }
    H5Oget_info2(id: Hid, info: *mut OldObjectInfo, _fields: c_uint) -> Herr {
        lib => object_info(info, |new| (lib.f.H5Oget_info3)(id, new, ALL_FIELDS))
    }
    H5Oget_info_by_name1(id: Hid, name: *const c_char, info: *mut OldObjectInfo, lapl: Hid) -> Herr {
        lib => object_info(info, |new| (lib.f.H5Oget_info_by_name3)(id, name, new, ALL_FIELDS, lapl))
    }
    H5Oget_info_by_name2(id: Hid, name: *const c_char, info: *mut OldObjectInfo, _fields: c_uint, lapl: Hid) -> Herr {
        lib => object_info(info, |new| (lib.f.H5Oget_info_by_name3)(id, name, new, ALL_FIELDS, lapl))
    }
    H5Oget_info_by_idx1(id: Hid, name: *const c_char, by: c_int, order: c_int, n: u64, info: *mut OldObjectInfo, lapl: Hid) -> Herr {
        lib => object_info(info, |new| (lib.f.H5Oget_info_by_idx3)(id, name, by, order, n, new, ALL_FIELDS, lapl))
    }
    H5Oget_info_by_idx2(id: Hid, name: *const c_char, by: c_int, order: c_int, n: u64, info: *mut OldObjectInfo, _fields: c_uint, lapl: Hid) -> Herr {
        lib => object_info(info, |new| (lib.f.H5Oget_info_by_idx3)(id, name, by, order, n, new, ALL_FIELDS, lapl))
    }
    H5Ovisit1(id: Hid, by: c_int, order: c_int, operator: OldObjectOperator, data: *mut c_void) -> Herr {
        lib => {
            let mut call = ObjectCall { operator, data };
            (lib.f.H5Ovisit3)(id, by, order, call_object, (&raw mut call).cast(), ALL_FIELDS)
        }
    }
    H5Ovisit2(id: Hid, by: c_int, order: c_int, operator: OldObjectOperator, data: *mut c_void, _fields: c_uint) -> Herr {
        lib => {
            let mut call = ObjectCall { operator, data };
            (lib.f.H5Ovisit3)(id, by, order, call_object, (&raw mut call).cast(), ALL_FIELDS)
        }
    }
    H5Ovisit_by_name1(id: Hid, name: *const c_char, by: c_int, order: c_int, operator: OldObjectOperator, data: *mut c_void, lapl: Hid) -> Herr {
        lib => {
            let mut call = ObjectCall { operator, data };
            (lib.f.H5Ovisit_by_name3)(id, name, by, order, call_object, (&raw mut call).cast(), ALL_FIELDS, lapl)
        }
    }
    H5Ovisit_by_name2(id: Hid, name: *const c_char, by: c_int, order: c_int, operator: OldObjectOperator, data: *mut c_void, _fields: c_uint, lapl: Hid) -> Herr {
        lib => {
            let mut call = ObjectCall { operator, data };
            (lib.f.H5Ovisit_by_name3)(id, name, by, order, call_object, (&raw mut call).cast(), ALL_FIELDS, lapl)
        }
    }
    H5Lvisit1(id: Hid, by: c_int, order: c_int, operator: OldLinkOperator, data: *mut c_void) -> Herr {
        lib => {
            let mut call = LinkCall { operator, data };
            (lib.f.H5Lvisit2)(id, by, order, call_link, (&raw mut call).cast())
        }
    }
    H5Lvisit_by_name1(id: Hid, name: *const c_char, by: c_int, order: c_int, operator: OldLinkOperator, data: *mut c_void, lapl: Hid) -> Herr {
        lib => {
            let mut call = LinkCall { operator, data };
            (lib.f.H5Lvisit_by_name2)(id, name, by, order, call_link, (&raw mut call).cast(), lapl)
        }
    }
    H5Literate1(id: Hid, by: c_int, order: c_int, position: *mut u64, operator: OldLinkOperator, data: *mut c_void) -> Herr {
        lib => {
            let mut call = LinkCall { operator, data };
            (lib.f.H5Literate2)(id, by, order, position, call_link, (&raw mut call).cast())
        }
    }
    H5Literate_by_name1(id: Hid, name: *const c_char, by: c_int, order: c_int, position: *mut u64, operator: OldLinkOperator, data: *mut c_void, lapl: Hid) -> Herr {
        lib => {
            let mut call = LinkCall { operator, data };
            (lib.f.H5Literate_by_name2)(id, name, by, order, position, call_link, (&raw mut call).cast(), lapl)
        }
    }
    H5Lget_info1(id: Hid, name: *const c_char, info: *mut OldLinkInfo, lapl: Hid) -> Herr {
        lib => link_info(info, |new| (lib.f.H5Lget_info2)(id, name, new, lapl))
    }
    H5Lget_info_by_idx1(id: Hid, name: *const c_char, by: c_int, order: c_int, n: u64, info: *mut OldLinkInfo, lapl: Hid) -> Herr {
        lib => link_info(info, |new| (lib.f.H5Lget_info_by_idx2)(id, name, by, order, n, new, lapl))
    }
    H5Oopen_by_addr(id: Hid, address: u64) -> Hid {
        lib => (lib.f.H5Oopen_by_token)(id, Token::of(address))
    }
}
