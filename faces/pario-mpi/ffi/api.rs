//! Safe wrappers of the MPI functions that this library calls.
//!
//! Always: a failure of MPI is a [`MpiError`]; handles are passed unchanged.
#![expect(clippy::too_many_arguments, reason = "the standard's signatures")]

use std::ffi::{c_char, c_int, c_void};

use pario_mpi::{Class, MpiError, Result};

use crate::abi::{Comm, Datatype, File, Group, Info, Request};

pub(crate) type Aint = isize;
pub(crate) type Count = i64;
pub(crate) type Offset = i64;
/// `MPI_Status`: its layout depends on the MPI library.
pub(crate) type Status = c_void;

pub(crate) type CopyFn =
    unsafe extern "C" fn(Comm, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
pub(crate) type DeleteFn = unsafe extern "C" fn(Comm, c_int, *mut c_void, *mut c_void) -> c_int;
pub(crate) type QueryFn = unsafe extern "C" fn(*mut c_void, *mut Status) -> c_int;
pub(crate) type FreeFn = unsafe extern "C" fn(*mut c_void) -> c_int;
pub(crate) type CancelFn = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
pub(crate) type WaitFn = unsafe extern "C" fn(c_int, *mut *mut c_void, f64, *mut Status) -> c_int;

/// Defines functions that call MPI. The caller of each guarantees MPI's conditions on its arguments: pointers are to variables of
/// the right type, handles are live.
macro_rules! calls {
    ($($name:ident = $symbol:literal ($($arg:ident: $ty:ty),*);)*) => { $(
        pub(crate) fn $name($($arg: $ty),*) -> Result<()> {
            let Some(call) = real!($symbol, fn($($ty),*) -> c_int) else { return Err(missing($symbol)) };
            // SAFETY: the signature is the standard's; see the head of this macro for the arguments.
            done($symbol, unsafe { call($($arg),*) })
        }
    )* };
}

calls! {
    comm_rank = "PMPI_Comm_rank"(comm: Comm, rank: *mut c_int);
    comm_size = "PMPI_Comm_size"(comm: Comm, size: *mut c_int);
    comm_dup = "PMPI_Comm_dup"(comm: Comm, made: *mut Comm);
    comm_free = "PMPI_Comm_free"(comm: *mut Comm);
    comm_group = "PMPI_Comm_group"(comm: Comm, group: *mut Group);
    comm_test_inter = "PMPI_Comm_test_inter"(comm: Comm, flag: *mut c_int);
    comm_create_keyval = "PMPI_Comm_create_keyval"(copy: CopyFn, delete: DeleteFn, key: *mut c_int, extra: *mut c_void);
    comm_set_attr = "PMPI_Comm_set_attr"(comm: Comm, key: c_int, value: *mut c_void);
    comm_get_attr = "PMPI_Comm_get_attr"(comm: Comm, key: c_int, value: *mut c_void, flag: *mut c_int);
    group_excl = "PMPI_Group_excl"(group: Group, count: c_int, ranks: *const c_int, made: *mut Group);
    group_free = "PMPI_Group_free"(group: *mut Group);
    allgather = "PMPI_Allgather"(send: *const c_void, send_count: c_int, send_type: Datatype, receive: *mut c_void, receive_count: c_int, receive_type: Datatype, comm: Comm);
    query_thread = "PMPI_Query_thread"(level: *mut c_int);
    type_size = "PMPI_Type_size_x"(datatype: Datatype, size: *mut Count);
    type_extent = "PMPI_Type_get_extent"(datatype: Datatype, lb: *mut Aint, extent: *mut Aint);
    type_true_extent = "PMPI_Type_get_true_extent"(datatype: Datatype, lb: *mut Aint, extent: *mut Aint);
    type_envelope = "PMPI_Type_get_envelope"(datatype: Datatype, integers: *mut c_int, addresses: *mut c_int, datatypes: *mut c_int, combiner: *mut c_int);
    type_contents = "PMPI_Type_get_contents"(datatype: Datatype, integers_max: c_int, addresses_max: c_int, datatypes_max: c_int, integers: *mut c_int, addresses: *mut Aint, datatypes: *mut Datatype);
    type_contents_c = "PMPI_Type_get_contents_c"(datatype: Datatype, integers_max: Count, addresses_max: Count, counts_max: Count, datatypes_max: Count, integers: *mut c_int, addresses: *mut Aint, counts: *mut Count, datatypes: *mut Datatype);
    type_dup = "PMPI_Type_dup"(datatype: Datatype, made: *mut Datatype);
    type_free = "PMPI_Type_free"(datatype: *mut Datatype);
    status_set_elements = "PMPI_Status_set_elements_x"(status: *mut Status, datatype: Datatype, count: Count);
    status_set_cancelled = "PMPI_Status_set_cancelled"(status: *mut Status, flag: c_int);
    info_create = "PMPI_Info_create"(info: *mut Info);
    info_set = "PMPI_Info_set"(info: Info, key: *const c_char, value: *const c_char);
    info_nkeys = "PMPI_Info_get_nkeys"(info: Info, count: *mut c_int);
    info_nthkey = "PMPI_Info_get_nthkey"(info: Info, number: c_int, key: *mut c_char);
    info_get = "PMPI_Info_get"(info: Info, key: *const c_char, value_max: c_int, value: *mut c_char, flag: *mut c_int);
    add_error_code = "PMPI_Add_error_code"(class: c_int, code: *mut c_int);
    add_error_string = "PMPI_Add_error_string"(code: c_int, text: *const c_char);
    file_open = "PMPI_File_open"(comm: Comm, name: *const c_char, mode: c_int, info: Info, file: *mut File);
    file_close = "PMPI_File_close"(file: *mut File);
    file_call_errhandler = "PMPI_File_call_errhandler"(file: File, code: c_int);
    grequest_start = "PMPI_Grequest_start"(query: QueryFn, free: FreeFn, cancel: CancelFn, state: *mut c_void, request: *mut Request);
    grequest_complete = "PMPI_Grequest_complete"(request: Request);
    pack = "PMPI_Pack"(from: *const c_void, count: c_int, datatype: Datatype, to: *mut c_void, to_bytes: c_int, at: *mut c_int, comm: Comm);
    unpack = "PMPI_Unpack"(from: *const c_void, from_bytes: c_int, at: *mut c_int, to: *mut c_void, count: c_int, datatype: Datatype, comm: Comm);
    pack_external_size = "PMPI_Pack_external_size"(rep: *const c_char, count: c_int, datatype: Datatype, size: *mut Aint);
    pack_external = "PMPI_Pack_external"(rep: *const c_char, from: *const c_void, count: c_int, datatype: Datatype, to: *mut c_void, to_bytes: Aint, at: *mut Aint);
    unpack_external = "PMPI_Unpack_external"(rep: *const c_char, from: *const c_void, from_bytes: Aint, at: *mut Aint, to: *mut c_void, count: c_int, datatype: Datatype);
}

/// `MPI_Type_get_envelope_c`, where the library has it; returns whether it does.
pub(crate) fn type_envelope_c(
    datatype: Datatype,
    sizes: &mut [Count; 4],
    combiner: &mut c_int,
) -> Result<bool> {
    type Number = *mut Count;
    let call =
        real!("PMPI_Type_get_envelope_c", fn(Datatype, Number, Number, Number, Number, *mut c_int) -> c_int);
    let Some(call) = call else { return Ok(false) };
    let [integers, addresses, counts, datatypes] = sizes;
    // SAFETY: the signature is the standard's, all pointers are to variables of the caller.
    done("PMPI_Type_get_envelope_c", unsafe {
        call(datatype, integers, addresses, counts, datatypes, combiner)
    })?;
    Ok(true)
}

/// MPICH's generalized request with a poll function; `None` in other libraries.
pub(crate) fn grequest_start_polled(
    functions: (QueryFn, FreeFn, CancelFn, QueryFn, WaitFn),
    state: *mut c_void,
    request: *mut Request,
) -> Option<Result<()>> {
    type Functions =
        unsafe extern "C" fn(QueryFn, FreeFn, CancelFn, QueryFn, WaitFn, *mut c_void, *mut Request) -> c_int;
    let place = real!(
        "MPIX_Grequest_start",
        fn(QueryFn, FreeFn, CancelFn, QueryFn, WaitFn, *mut c_void, *mut Request) -> c_int
    );
    let call: Functions = place?;
    let (query, free, cancel, poll, wait) = functions;
    // SAFETY: the signature is MPICH's; the functions live as long as the program, the state until `free` is called.
    Some(done("MPIX_Grequest_start", unsafe { call(query, free, cancel, poll, wait, state, request) }))
}

/// Whether MPICH's polled requests exist.
pub(crate) fn has_polled_requests() -> bool {
    real!("MPIX_Grequest_start", fn() -> c_int).is_some()
}

/// The string of an error code.
pub(crate) fn error_string(code: c_int) -> Option<String> {
    // Longer than any library's limit.
    let mut text = [0 as c_char; 2048];
    let mut bytes: c_int = 0;
    let call = real!("PMPI_Error_string", fn(c_int, *mut c_char, *mut c_int) -> c_int)?;
    // SAFETY: the signature is the standard's; both pointers are to variables of this function.
    done("PMPI_Error_string", unsafe { call(code, text.as_mut_ptr(), &raw mut bytes) }).ok()?;
    // SAFETY: the library terminates its strings with a zero.
    let said = unsafe { std::ffi::CStr::from_ptr(text.as_ptr()) };
    Some(said.to_string_lossy().into_owned())
}

/// An error code with a text, as MPICH's own file calls create it; `None` where the function does not exist.
pub(crate) fn mpich_error_code(class: c_int, text: &std::ffi::CStr) -> Option<c_int> {
    type Make = unsafe extern "C" fn(
        c_int,
        c_int,
        *const c_char,
        c_int,
        c_int,
        *const c_char,
        *const c_char,
        ...
    ) -> c_int;
    static PLACE: super::Symbol = super::Symbol::new("MPIR_Err_create_code");
    let place = PLACE.address_or_null();
    // SAFETY: MPICH's function of this name has this signature in all versions; null becomes `None`.
    let call = unsafe { std::mem::transmute::<*mut c_void, Option<Make>>(place) }?;
    // Its catalogue has a message for "other I/O error", followed by a text.
    let (function, general, special) = (c"Pario".as_ptr(), c"**io".as_ptr(), c"**io %s".as_ptr());
    // SAFETY: zero-terminated strings; the format takes one of them. MPICH copies them.
    let code = unsafe { call(0, 0, function, 0, class, general, special, text.as_ptr()) };
    (code != 0).then_some(code)
}

fn done(name: &str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        code => {
            Err(MpiError::new(Class::Other, format!("{name} of the MPI library failed with code {code}")))
        }
    }
}

fn missing(name: &str) -> MpiError {
    MpiError::new(Class::UnsupportedOperation, format!("the MPI library has no {name}"))
}
