//! Types of HDF5's C interface that the connector sees, from 1.14 to 2.x.
//!
//! Always: the layout is that of HDF5's public headers with `H5VL_VERSION` 3.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

/// Identifier of an HDF5 object.
pub(crate) type Hid = i64;
/// Result of a C function: negative is a failure.
pub(crate) type Herr = c_int;

pub(crate) const OK: Herr = 0;
pub(crate) const FAIL: Herr = -1;
/// `H5P_DEFAULT`, and `H5S_ALL`.
pub(crate) const DEFAULT: Hid = 0;
/// `H5S_BLOCK`.
pub(crate) const SPACE_BLOCK: Hid = 1;
/// `H5S_PLIST`.
pub(crate) const SPACE_PLIST: Hid = 2;
/// `H5S_UNLIMITED`.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// `H5I_type_t`.
pub(crate) const ID_FILE: c_int = 1;
pub(crate) const ID_GROUP: c_int = 2;
pub(crate) const ID_DATATYPE: c_int = 3;
pub(crate) const ID_DATASET: c_int = 5;
pub(crate) const ID_ATTR: c_int = 7;

/// `H5O_type_t`.
pub(crate) const OBJECT_GROUP: c_int = 0;
pub(crate) const OBJECT_DATASET: c_int = 1;
pub(crate) const OBJECT_TYPE: c_int = 2;

/// `H5L_type_t`.
pub(crate) const LINK_HARD: c_int = 0;
pub(crate) const LINK_SOFT: c_int = 1;
pub(crate) const LINK_EXTERNAL: c_int = 64;

/// Flags of opening and creating files.
pub(crate) const ACC_RDWR: c_uint = 1;
pub(crate) const ACC_TRUNC: c_uint = 2;
pub(crate) const ACC_EXCL: c_uint = 4;
pub(crate) const ACC_SWMR_WRITE: c_uint = 0x20;
pub(crate) const ACC_SWMR_READ: c_uint = 0x40;

/// `H5O_token_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) [u8; 16]);

impl Token {
    pub(crate) fn of(id: u64) -> Token {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&id.to_le_bytes());
        Token(bytes)
    }

    pub(crate) fn id(&self) -> u64 {
        u64::from_le_bytes(self.0[..8].try_into().expect("eight bytes"))
    }
}

/// `H5VL_loc_by_name_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LocByName {
    pub(crate) name: *const c_char,
    pub(crate) lapl: Hid,
}

/// `H5VL_loc_by_idx_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LocByIndex {
    pub(crate) name: *const c_char,
    pub(crate) index: c_int,
    pub(crate) order: c_int,
    pub(crate) n: u64,
    pub(crate) lapl: Hid,
}

/// The union of `H5VL_loc_params_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union LocData {
    pub(crate) token: *const Token,
    pub(crate) name: LocByName,
    pub(crate) index: LocByIndex,
}

/// `H5VL_loc_params_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LocParams {
    pub(crate) object: c_int,
    pub(crate) kind: c_int,
    pub(crate) data: LocData,
}

/// `H5VL_loc_type_t`.
pub(crate) const BY_SELF: c_int = 0;
pub(crate) const BY_NAME: c_int = 1;
pub(crate) const BY_INDEX: c_int = 2;
pub(crate) const BY_TOKEN: c_int = 3;

/// The head of all argument structures with a union: an operation, then the arguments.
#[repr(C)]
pub(crate) struct VolOperation {
    pub(crate) kind: c_int,
    pub(crate) args: [u64; 0],
}

/// `H5VL_optional_args_t`.
#[repr(C)]
pub(crate) struct OptionalOperation {
    pub(crate) kind: c_int,
    pub(crate) args: *mut c_void,
}

/// Arguments that return a text: buffer and its size, and where the length goes.
#[repr(C)]
pub(crate) struct TextArgs {
    pub(crate) size: usize,
    pub(crate) buffer: *mut c_char,
    pub(crate) length: *mut usize,
}

/// `H5VL_attr_get_name_args_t`.
#[repr(C)]
pub(crate) struct AttrNameArgs {
    pub(crate) location: LocParams,
    pub(crate) text: TextArgs,
}

/// `H5VL_attr_get_info_args_t`.
#[repr(C)]
pub(crate) struct AttrInfoArgs {
    pub(crate) location: LocParams,
    pub(crate) name: *const c_char,
    pub(crate) info: *mut AttrInfo,
}

/// `H5A_info_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AttrInfo {
    pub(crate) order_valid: bool,
    pub(crate) order: c_uint,
    pub(crate) cset: c_int,
    pub(crate) size: u64,
}

/// `H5A_operator2_t`.
pub(crate) type AttrOperator = unsafe extern "C" fn(Hid, *const c_char, *const AttrInfo, *mut c_void) -> Herr;

/// `H5VL_attr_iterate_args_t`.
#[repr(C)]
pub(crate) struct AttrIterateArgs {
    pub(crate) index: c_int,
    pub(crate) order: c_int,
    pub(crate) position: *mut u64,
    pub(crate) operator: Option<AttrOperator>,
    pub(crate) data: *mut c_void,
}

/// `H5VL_attr_delete_by_idx_args_t`.
#[repr(C)]
pub(crate) struct AttrIndexArgs {
    pub(crate) index: c_int,
    pub(crate) order: c_int,
    pub(crate) n: u64,
}

/// `H5VL_file_cont_info_t`.
#[repr(C)]
pub(crate) struct ContainerInfo {
    pub(crate) version: c_uint,
    pub(crate) features: u64,
    pub(crate) token_size: usize,
    pub(crate) blob_size: usize,
}

/// `H5VL_file_get_name_args_t`.
#[repr(C)]
pub(crate) struct FileNameArgs {
    pub(crate) object: c_int,
    pub(crate) text: TextArgs,
}

/// `H5VL_file_get_obj_ids_args_t`.
#[repr(C)]
pub(crate) struct ObjectIdsArgs {
    pub(crate) types: c_uint,
    pub(crate) most: usize,
    pub(crate) ids: *mut Hid,
    pub(crate) count: *mut usize,
}

/// Arguments of the count of open objects.
#[repr(C)]
pub(crate) struct ObjectCountArgs {
    pub(crate) types: c_uint,
    pub(crate) count: *mut usize,
}

/// Arguments of `H5Fis_accessible`.
#[repr(C)]
pub(crate) struct AccessibleArgs {
    pub(crate) name: *const c_char,
    pub(crate) fapl: Hid,
    pub(crate) accessible: *mut bool,
}

/// Arguments of the comparison of files.
#[repr(C)]
pub(crate) struct EqualArgs {
    pub(crate) other: *mut c_void,
    pub(crate) same: *mut bool,
}

/// `H5VL_group_get_info_args_t`.
#[repr(C)]
pub(crate) struct GroupInfoArgs {
    pub(crate) location: LocParams,
    pub(crate) info: *mut GroupInfo,
}

/// `H5G_info_t`.
#[repr(C)]
pub(crate) struct GroupInfo {
    pub(crate) storage: c_int,
    pub(crate) links: u64,
    pub(crate) order_max: i64,
    pub(crate) mounted: bool,
}

/// Arguments of a hard link.
#[repr(C)]
pub(crate) struct HardLinkArgs {
    pub(crate) object: *mut c_void,
    pub(crate) location: LocParams,
}

/// Arguments of a user-defined or external link.
#[repr(C)]
pub(crate) struct UserLinkArgs {
    pub(crate) class: c_int,
    pub(crate) buffer: *const c_void,
    pub(crate) size: usize,
}

/// `H5L_info2_t`; its union holds a token or a size.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LinkInfo {
    pub(crate) kind: c_int,
    pub(crate) order_valid: bool,
    pub(crate) order: i64,
    pub(crate) cset: c_int,
    pub(crate) value: LinkValue,
}

/// The union of `H5L_info2_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union LinkValue {
    pub(crate) token: Token,
    pub(crate) size: usize,
}

/// Arguments of a link's value.
#[repr(C)]
pub(crate) struct LinkValueArgs {
    pub(crate) size: usize,
    pub(crate) buffer: *mut c_void,
}

/// `H5L_iterate2_t`.
pub(crate) type LinkOperator = unsafe extern "C" fn(Hid, *const c_char, *const LinkInfo, *mut c_void) -> Herr;

/// `H5VL_link_iterate_args_t`.
#[repr(C)]
pub(crate) struct LinkIterateArgs {
    pub(crate) recursive: bool,
    pub(crate) index: c_int,
    pub(crate) order: c_int,
    pub(crate) position: *mut u64,
    pub(crate) operator: Option<LinkOperator>,
    pub(crate) data: *mut c_void,
}

/// `H5O_info2_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ObjectInfo {
    pub(crate) file: c_ulong,
    pub(crate) token: Token,
    pub(crate) kind: c_int,
    pub(crate) links: c_uint,
    pub(crate) accessed: i64,
    pub(crate) modified: i64,
    pub(crate) changed: i64,
    pub(crate) born: i64,
    pub(crate) attributes: u64,
}

/// `H5O_info1_t`: as above with an address, then facts of native files.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OldObjectInfo {
    pub(crate) file: c_ulong,
    pub(crate) address: u64,
    pub(crate) kind: c_int,
    pub(crate) links: c_uint,
    pub(crate) accessed: i64,
    pub(crate) modified: i64,
    pub(crate) changed: i64,
    pub(crate) born: i64,
    pub(crate) attributes: u64,
    /// Header facts (64 bytes) and metadata sizes (32 bytes) of native files.
    pub(crate) native: [u64; 12],
}

/// `H5L_info1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OldLinkInfo {
    pub(crate) kind: c_int,
    pub(crate) order_valid: bool,
    pub(crate) order: i64,
    pub(crate) cset: c_int,
    /// Address or size of the value.
    pub(crate) value: u64,
}

/// `H5O_iterate2_t`.
pub(crate) type ObjectOperator =
    unsafe extern "C" fn(Hid, *const c_char, *const ObjectInfo, *mut c_void) -> Herr;

/// `H5VL_object_visit_args_t`.
#[repr(C)]
pub(crate) struct VisitArgs {
    pub(crate) index: c_int,
    pub(crate) order: c_int,
    pub(crate) fields: c_uint,
    pub(crate) operator: Option<ObjectOperator>,
    pub(crate) data: *mut c_void,
}

/// Arguments of object information.
#[repr(C)]
pub(crate) struct ObjectInfoArgs {
    pub(crate) fields: c_uint,
    pub(crate) info: *mut ObjectInfo,
}

/// `H5G_stat_t`.
#[repr(C)]
pub(crate) struct GroupStat {
    pub(crate) file: [c_ulong; 2],
    pub(crate) object: [c_ulong; 2],
    pub(crate) links: c_uint,
    pub(crate) kind: c_int,
    pub(crate) modified: i64,
    pub(crate) link_size: usize,
    /// `H5O_stat_t`.
    pub(crate) header: [u64; 3],
}

/// Two arguments side by side.
#[repr(C)]
pub(crate) struct Pair<A, B>(pub(crate) A, pub(crate) B);
