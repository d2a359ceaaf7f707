//! The Pario group of a communicator: formed once (`pario::group::form_group`), with MPI for the exchange of bytes only, and kept as an
//! attribute of the communicator.
//!
//! Always: the group lives as long as the communicator or a file that was opened with it.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, OnceLock};

use pario::Error;
use pario::group::{ByteExchange, FormedGroup, form_group};
use pario_mpi::{Class, MpiError, Result};

use super::{api, table};
use crate::abi::{self, Comm};

/// The ranks of a communicator; used on the thread that called MPI, inside that call.
#[derive(Debug)]
struct CommRanks {
    comm: CommHandle,
    rank: usize,
    size: usize,
}

#[derive(Clone, Copy, Debug)]
struct CommHandle(Comm);
// SAFETY: a handle, which any thread may pass to the MPI library that made it.
unsafe impl Send for CommHandle {}
// SAFETY: the same.
unsafe impl Sync for CommHandle {}

impl ByteExchange for CommRanks {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(&self, own: &[u8]) -> std::result::Result<Vec<u8>, Error> {
        let mut all = vec![0; own.len() * self.size];
        let bytes = c_int::try_from(own.len()).expect("parts are small while ranks meet");
        let (from, to) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
        let gathered = api::allgather(from, bytes, abi::byte(), to, bytes, abi::byte(), self.comm.0);
        gathered.map_err(|problem| problem.to_error())?;
        Ok(all)
    }
}

/// The group of a communicator; collective. An error may be returned on some ranks only.
pub(crate) fn meet(comm: Comm) -> Result<Arc<FormedGroup>> {
    if comm == abi::comm_null() {
        return Err(MpiError::new(Class::Comm, "a file is opened on MPI_COMM_NULL"));
    }
    let mut inter = 0;
    api::comm_test_inter(comm, &raw mut inter)?;
    if inter != 0 {
        return Err(MpiError::new(
            Class::Comm,
            "a file is opened on an intercommunicator, which the standard forbids",
        ));
    }
    let keys = keys()?;
    let (mut kept, mut found): (*mut c_void, c_int) = (std::ptr::null_mut(), 0);
    api::comm_get_attr(comm, keys.meeting, (&raw mut kept).cast(), &raw mut found)?;
    if found != 0 {
        // SAFETY: the attribute is a box that `keep` made and only `delete_group` frees, with the communicator.
        let kept = unsafe { &*kept.cast::<Arc<FormedGroup>>() };
        return Ok(Arc::clone(kept));
    }
    let meeting = Arc::new(gather(comm)?);
    let boxed = Box::into_raw(Box::new(Arc::clone(&meeting)));
    api::comm_set_attr(comm, keys.meeting, boxed.cast())?;
    Ok(meeting)
}

fn gather(comm: Comm) -> Result<FormedGroup> {
    let (mut rank, mut size) = (0, 0);
    api::comm_rank(comm, &raw mut rank)?;
    api::comm_size(comm, &raw mut size)?;
    let (rank, size) = (number(rank), number(size));
    if size == 1 {
        return Ok(form_group(Arc::new(CommRanks { comm: CommHandle(comm), rank, size }))?);
    }
    let mut own = abi::comm_null();
    api::comm_dup(comm, &raw mut own)?;
    let formed = form_group(Arc::new(CommRanks { comm: CommHandle(own), rank, size }));
    let freed = api::comm_free(&raw mut own);
    let formed = formed?;
    freed?;
    Ok(formed)
}

/// Attribute keys: the group of a communicator, and the end of MPI.
#[derive(Clone, Copy, Debug)]
struct AttributeKeys {
    meeting: c_int,
}

fn keys() -> Result<AttributeKeys> {
    static KEYS: OnceLock<Result<AttributeKeys>> = OnceLock::new();
    KEYS.get_or_init(|| {
        let (mut meeting, mut end) = (0, 0);
        api::comm_create_keyval(copy_nothing, delete_group, &raw mut meeting, std::ptr::null_mut())?;
        // Attributes of MPI_COMM_SELF are deleted when MPI_Finalize begins.
        api::comm_create_keyval(copy_nothing, finalize, &raw mut end, std::ptr::null_mut())?;
        api::comm_set_attr(abi::comm_self(), end, std::ptr::null_mut())?;
        Ok(AttributeKeys { meeting })
    })
    .clone()
}

/// A duplicate of a communicator has no group yet.
unsafe extern "C" fn copy_nothing(
    _comm: Comm,
    _key: c_int,
    _extra: *mut c_void,
    _from: *mut c_void,
    _to: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: MPI passes the address of a variable.
    unsafe { flag.write(0) };
    0
}

unsafe extern "C" fn delete_group(
    _comm: Comm,
    _key: c_int,
    value: *mut c_void,
    _extra: *mut c_void,
) -> c_int {
    if !value.is_null() {
        // SAFETY: `meet` made the box and set it once; MPI deletes an attribute once.
        drop(unsafe { Box::from_raw(value.cast::<Arc<FormedGroup>>()) });
    }
    0
}

/// MPI ends: flushes files that the program has not closed to the servers. They stay open: attributes that were set before the
/// first open are deleted after this one, and a library may close its files then, as HDF5 does.
unsafe extern "C" fn finalize(_comm: Comm, _key: c_int, _value: *mut c_void, _extra: *mut c_void) -> c_int {
    let cannot_stay = |opened: &table::OpenHandle| {
        let given = super::errors::protected(|| opened.file.flush_alone());
        !given.unwrap_or(false)
    };
    for opened in table::take_if(cannot_stay) {
        if let Err(problem) = super::errors::protected(|| opened.file.abandon()) {
            // No caller is left to get an error code.
            super::errors::complain(&format!("{} was never closed: {}", opened.file.name(), problem.text));
        }
    }
    0
}

fn number(from: c_int) -> usize {
    usize::try_from(from).unwrap_or(0)
}
