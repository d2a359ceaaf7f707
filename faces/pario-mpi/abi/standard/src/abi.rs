//! The constants of the standard ABI, MPI 5. Combiners below zero do not exist in it.

use std::ffi::{CStr, c_int, c_void};

use pario_mpi::Class;

pub(crate) const NAME: &str = "the standard ABI of MPI";
pub(crate) const LIBRARY: &str = "libpario_mpi_abi.so";
/// Possible names of the MPI library.
pub(crate) const SONAMES: &[&CStr] = &[c"libmpi_abi.so.1", c"libmpi_abi.so.0"];
/// Libraries of other ABIs, and the Pario library to preload with each.
pub(crate) const OTHERS: &[(&CStr, &str)] = &[
    (c"libmpi.so.40", "libpario_mpi_openmpi.so"),
    (c"libmpi.so.12", "libpario_mpi_mpich.so"),
    (c"libmpich.so.12", "libpario_mpi_mpich.so"),
];

pub(crate) type Comm = *mut c_void;
pub(crate) type Datatype = *mut c_void;
pub(crate) type Errhandler = *mut c_void;
pub(crate) type File = *mut c_void;
pub(crate) type Group = *mut c_void;
pub(crate) type Info = *mut c_void;
pub(crate) type Request = *mut c_void;

pub(crate) fn comm_self() -> Comm {
    std::ptr::without_provenance_mut(0x102)
}

pub(crate) fn comm_null() -> Comm {
    std::ptr::without_provenance_mut(0x100)
}

pub(crate) fn byte() -> Datatype {
    std::ptr::without_provenance_mut(0x247)
}

pub(crate) fn datatype_null() -> Datatype {
    std::ptr::without_provenance_mut(0x200)
}

pub(crate) fn info_null() -> Info {
    std::ptr::without_provenance_mut(0x130)
}

pub(crate) fn file_null() -> File {
    std::ptr::without_provenance_mut(0x118)
}

/// Value of a request variable before it is created.
pub(crate) fn request_none() -> Request {
    std::ptr::without_provenance_mut(0x180)
}

/// Value of a group variable before it is created.
pub(crate) fn group_none() -> Group {
    std::ptr::without_provenance_mut(0x108)
}

/// `MPI_STATUS_IGNORE`.
pub(crate) const STATUS_IGNORE: usize = 0;
/// Whether the error handler of MPI_FILE_NULL can be called.
pub(crate) const NULL_FILE_HANDLES: bool = true;
pub(crate) const DISPLACEMENT_CURRENT: i64 = -1;
pub(crate) const THREAD_MULTIPLE: c_int = 4096;
pub(crate) const SEEK_SET: c_int = 403;
pub(crate) const SEEK_CUR: c_int = 401;
pub(crate) const SEEK_END: c_int = 402;

pub(crate) const ORDER_FORTRAN: c_int = 15;
pub(crate) const DISTRIBUTE_BLOCK: c_int = 17;
pub(crate) const DISTRIBUTE_CYCLIC: c_int = 18;
pub(crate) const DISTRIBUTE_NONE: c_int = 16;
pub(crate) const DISTRIBUTE_DFLT_DARG: c_int = 19;

/// `MPI_MODE_…`
pub(crate) mod mode {
    use std::ffi::c_int;
    pub(crate) const CREATE: c_int = 2;
    pub(crate) const RDONLY: c_int = 16;
    pub(crate) const WRONLY: c_int = 256;
    pub(crate) const RDWR: c_int = 32;
    pub(crate) const DELETE_ON_CLOSE: c_int = 4;
    pub(crate) const UNIQUE_OPEN: c_int = 128;
    pub(crate) const EXCL: c_int = 8;
    pub(crate) const APPEND: c_int = 1;
    pub(crate) const SEQUENTIAL: c_int = 64;
}

/// `MPI_COMBINER_…`
pub(crate) mod combiner {
    use std::ffi::c_int;
    pub(crate) const NAMED: c_int = 101;
    pub(crate) const DUP: c_int = 102;
    pub(crate) const CONTIGUOUS: c_int = 103;
    pub(crate) const VECTOR: c_int = 104;
    pub(crate) const HVECTOR_INTEGER: c_int = -1;
    pub(crate) const HVECTOR: c_int = 105;
    pub(crate) const INDEXED: c_int = 106;
    pub(crate) const HINDEXED_INTEGER: c_int = -2;
    pub(crate) const HINDEXED: c_int = 107;
    pub(crate) const INDEXED_BLOCK: c_int = 108;
    pub(crate) const STRUCT_INTEGER: c_int = -3;
    pub(crate) const STRUCT: c_int = 110;
    pub(crate) const SUBARRAY: c_int = 111;
    pub(crate) const DARRAY: c_int = 112;
    pub(crate) const F90_REAL: c_int = 113;
    pub(crate) const F90_COMPLEX: c_int = 114;
    pub(crate) const F90_INTEGER: c_int = 115;
    pub(crate) const RESIZED: c_int = 116;
    pub(crate) const HINDEXED_BLOCK: c_int = 109;
    pub(crate) const VALUE_INDEX: c_int = 117;
}

/// The number of an error class.
pub(crate) fn class_number(class: Class) -> c_int {
    match class {
        Class::Access => 20,
        Class::Amode => 21,
        Class::Arg => 13,
        Class::BadFile => 23,
        Class::Buffer => 1,
        Class::Comm => 5,
        Class::Conversion => 25,
        Class::Count => 2,
        Class::Dims => 12,
        Class::DupDatarep => 27,
        Class::File => 30,
        Class::FileExists => 28,
        Class::FileInUse => 29,
        Class::Info => 34,
        Class::Intern => 17,
        Class::Io => 35,
        Class::NoMem => 39,
        Class::NoSpace => 41,
        Class::NoSuchFile => 42,
        Class::NotSame => 40,
        Class::Other => 16,
        Class::Rank => 6,
        Class::ReadOnly => 45,
        Class::Request => 7,
        Class::Type => 3,
        Class::UnsupportedDatarep => 54,
        Class::UnsupportedOperation => 55,
        Class::ValueTooLarge => 59,
    }
}
