//! MPICH's constants: MPICH 3 to 5, Intel MPI, MVAPICH and others of its ABI.

use std::ffi::{CStr, c_int, c_void};

use pario_mpi::Class;

pub(crate) const NAME: &str = "MPICH";
pub(crate) const LIBRARY: &str = "libpario_mpi_mpich.so";
/// Possible names of the MPI library.
pub(crate) const SONAMES: &[&CStr] =
    &[c"libmpi.so.12", c"libmpich.so.12", c"libmpi_cray.so.12", c"libmpich.so.10"];
/// Libraries of other ABIs, and the Pario library to preload with each.
pub(crate) const OTHERS: &[(&CStr, &str)] =
    &[(c"libmpi.so.40", "libpario_mpi_openmpi.so"), (c"libmpi_abi.so.1", "libpario_mpi_abi.so")];

pub(crate) type Comm = c_int;
pub(crate) type Datatype = c_int;
pub(crate) type Errhandler = c_int;
pub(crate) type File = *mut c_void;
pub(crate) type Group = c_int;
pub(crate) type Info = c_int;
pub(crate) type Request = c_int;

pub(crate) fn comm_self() -> Comm {
    0x4400_0001
}

pub(crate) fn comm_null() -> Comm {
    0x0400_0000
}

pub(crate) fn byte() -> Datatype {
    0x4c00_010d
}

pub(crate) fn datatype_null() -> Datatype {
    0x0c00_0000
}

pub(crate) fn info_null() -> Info {
    0x1c00_0000
}

pub(crate) fn file_null() -> File {
    std::ptr::null_mut()
}

/// Value of a request variable before it is created.
pub(crate) fn request_none() -> Request {
    0x2c00_0000
}

/// Value of a group variable before it is created.
pub(crate) fn group_none() -> Group {
    0x0800_0000
}

/// `MPI_STATUS_IGNORE`.
pub(crate) const STATUS_IGNORE: usize = 1;
/// Whether the error handler of MPI_FILE_NULL can be called.
pub(crate) const NULL_FILE_HANDLES: bool = true;
pub(crate) const DISPLACEMENT_CURRENT: i64 = -54_278_278;
pub(crate) const THREAD_MULTIPLE: c_int = 3;
pub(crate) const SEEK_SET: c_int = 600;
pub(crate) const SEEK_CUR: c_int = 602;
pub(crate) const SEEK_END: c_int = 604;

pub(crate) const ORDER_FORTRAN: c_int = 57;
pub(crate) const DISTRIBUTE_BLOCK: c_int = 121;
pub(crate) const DISTRIBUTE_CYCLIC: c_int = 122;
pub(crate) const DISTRIBUTE_NONE: c_int = 123;
pub(crate) const DISTRIBUTE_DFLT_DARG: c_int = -49767;

/// `MPI_MODE_…`
pub(crate) mod mode {
    use std::ffi::c_int;
    pub(crate) const CREATE: c_int = 1;
    pub(crate) const RDONLY: c_int = 2;
    pub(crate) const WRONLY: c_int = 4;
    pub(crate) const RDWR: c_int = 8;
    pub(crate) const DELETE_ON_CLOSE: c_int = 16;
    pub(crate) const UNIQUE_OPEN: c_int = 32;
    pub(crate) const EXCL: c_int = 64;
    pub(crate) const APPEND: c_int = 128;
    pub(crate) const SEQUENTIAL: c_int = 256;
}

/// `MPI_COMBINER_…`
pub(crate) mod combiner {
    use std::ffi::c_int;
    pub(crate) const NAMED: c_int = 1;
    pub(crate) const DUP: c_int = 2;
    pub(crate) const CONTIGUOUS: c_int = 3;
    pub(crate) const VECTOR: c_int = 4;
    pub(crate) const HVECTOR_INTEGER: c_int = 5;
    pub(crate) const HVECTOR: c_int = 6;
    pub(crate) const INDEXED: c_int = 7;
    pub(crate) const HINDEXED_INTEGER: c_int = 8;
    pub(crate) const HINDEXED: c_int = 9;
    pub(crate) const INDEXED_BLOCK: c_int = 10;
    pub(crate) const STRUCT_INTEGER: c_int = 11;
    pub(crate) const STRUCT: c_int = 12;
    pub(crate) const SUBARRAY: c_int = 13;
    pub(crate) const DARRAY: c_int = 14;
    pub(crate) const F90_REAL: c_int = 15;
    pub(crate) const F90_COMPLEX: c_int = 16;
    pub(crate) const F90_INTEGER: c_int = 17;
    pub(crate) const RESIZED: c_int = 18;
    pub(crate) const HINDEXED_BLOCK: c_int = 19;
    pub(crate) const VALUE_INDEX: c_int = 20;
}

/// The number of an error class.
pub(crate) fn class_number(class: Class) -> c_int {
    match class {
        Class::Access => 20,
        Class::Amode => 21,
        Class::Arg => 12,
        Class::BadFile => 22,
        Class::Buffer => 1,
        Class::Comm => 5,
        Class::Conversion => 23,
        Class::Count => 2,
        Class::Dims => 11,
        Class::DupDatarep => 24,
        Class::File => 27,
        Class::FileExists => 25,
        Class::FileInUse => 26,
        Class::Info => 28,
        Class::Intern => 16,
        Class::Io => 32,
        Class::NoMem => 34,
        Class::NoSpace => 36,
        Class::NoSuchFile => 37,
        Class::NotSame => 35,
        Class::Other => 15,
        Class::Rank => 6,
        Class::ReadOnly => 40,
        Class::Request => 19,
        Class::Type => 3,
        Class::UnsupportedDatarep => 43,
        Class::UnsupportedOperation => 44,
        // Before MPI 4 MPICH has no class for it.
        Class::ValueTooLarge => 15,
    }
}
