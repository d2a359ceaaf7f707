//! Open MPI's constants, 3 to 5. Its handles are addresses; predefined handles are addresses of data in the library.

use std::ffi::{CStr, c_int, c_void};

use pario_mpi::Class;

/// The address of a data symbol of the MPI library, looked up once.
macro_rules! data {
    ($name:literal) => {{
        static PLACE: crate::ffi::Symbol = crate::ffi::Symbol::new($name);
        PLACE.data()
    }};
}

pub(crate) const NAME: &str = "Open MPI";
pub(crate) const LIBRARY: &str = "libpario_mpi_openmpi.so";
/// Possible names of the MPI library.
pub(crate) const SONAMES: &[&CStr] = &[c"libmpi.so.40", c"libmpi.so.80"];
/// Libraries of other ABIs, and the Pario library to preload with each.
pub(crate) const OTHERS: &[(&CStr, &str)] = &[
    (c"libmpi.so.12", "libpario_mpi_mpich.so"),
    (c"libmpich.so.12", "libpario_mpi_mpich.so"),
    (c"libmpi_abi.so.1", "libpario_mpi_abi.so"),
];

pub(crate) type Comm = *mut c_void;
pub(crate) type Datatype = *mut c_void;
pub(crate) type Errhandler = *mut c_void;
pub(crate) type File = *mut c_void;
pub(crate) type Group = *mut c_void;
pub(crate) type Info = *mut c_void;
pub(crate) type Request = *mut c_void;

pub(crate) fn comm_self() -> Comm {
    data!("ompi_mpi_comm_self")
}

pub(crate) fn comm_null() -> Comm {
    data!("ompi_mpi_comm_null")
}

pub(crate) fn byte() -> Datatype {
    data!("ompi_mpi_byte")
}

pub(crate) fn datatype_null() -> Datatype {
    data!("ompi_mpi_datatype_null")
}

pub(crate) fn info_null() -> Info {
    data!("ompi_mpi_info_null")
}

pub(crate) fn file_null() -> File {
    data!("ompi_mpi_file_null")
}

/// Value of a request variable before it is created.
pub(crate) fn request_none() -> Request {
    std::ptr::null_mut()
}

/// Value of a group variable before it is created.
pub(crate) fn group_none() -> Group {
    std::ptr::null_mut()
}

/// `MPI_STATUS_IGNORE`.
pub(crate) const STATUS_IGNORE: usize = 0;
/// Whether the error handler of MPI_FILE_NULL can be called.
pub(crate) const NULL_FILE_HANDLES: bool = false;
pub(crate) const DISPLACEMENT_CURRENT: i64 = -54_278_278;
pub(crate) const THREAD_MULTIPLE: c_int = 3;
pub(crate) const SEEK_SET: c_int = 600;
pub(crate) const SEEK_CUR: c_int = 602;
pub(crate) const SEEK_END: c_int = 604;

pub(crate) const ORDER_FORTRAN: c_int = 1;
pub(crate) const DISTRIBUTE_BLOCK: c_int = 0;
pub(crate) const DISTRIBUTE_CYCLIC: c_int = 1;
pub(crate) const DISTRIBUTE_NONE: c_int = 2;
pub(crate) const DISTRIBUTE_DFLT_DARG: c_int = -1;

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
    pub(crate) const NAMED: c_int = 0;
    pub(crate) const DUP: c_int = 1;
    pub(crate) const CONTIGUOUS: c_int = 2;
    pub(crate) const VECTOR: c_int = 3;
    pub(crate) const HVECTOR_INTEGER: c_int = 4;
    pub(crate) const HVECTOR: c_int = 5;
    pub(crate) const INDEXED: c_int = 6;
    pub(crate) const HINDEXED_INTEGER: c_int = 7;
    pub(crate) const HINDEXED: c_int = 8;
    pub(crate) const INDEXED_BLOCK: c_int = 9;
    pub(crate) const STRUCT_INTEGER: c_int = 10;
    pub(crate) const STRUCT: c_int = 11;
    pub(crate) const SUBARRAY: c_int = 12;
    pub(crate) const DARRAY: c_int = 13;
    pub(crate) const F90_REAL: c_int = 14;
    pub(crate) const F90_COMPLEX: c_int = 15;
    pub(crate) const F90_INTEGER: c_int = 16;
    pub(crate) const RESIZED: c_int = 17;
    pub(crate) const HINDEXED_BLOCK: c_int = 18;
    pub(crate) const VALUE_INDEX: c_int = 19;
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
        Class::UnsupportedDatarep => 51,
        Class::UnsupportedOperation => 52,
        // Open MPI has no class for it.
        Class::ValueTooLarge => 16,
    }
}
