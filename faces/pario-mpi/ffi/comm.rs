//! How the ranks of a communicator meet: once per communicator, with the MPI library's help; from then on they are a group of
//! Pario's and need MPI no more.
//!
//! Always: what a communicator's ranks met at lives as long as the communicator or a file that was opened with it.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pario::group::{Hub, Invitation, own_node};
use pario::{Alone, Group, LocalGroup};
use pario_mpi::{Class, Host, HostMark, Problem, Result};

use super::{api, table};
use crate::abi::{self, Comm};

/// Room for an invitation, or for the sentence why there is none.
const LETTER_BYTES: usize = 512;

/// Where ranks have met.
#[derive(Debug)]
pub(crate) struct Meeting {
    pub(crate) group: Arc<dyn Group>,
    /// Of rank 0.
    hub: Mutex<Option<Hub>>,
}

impl Drop for Meeting {
    fn drop(&mut self) {
        // Others may still be on their way out.
        if let Some(hub) = self.hub.lock().unwrap_or_else(PoisonError::into_inner).take() {
            hub.retire();
        }
    }
}

/// The group of a communicator; collective. `None` of a problem is told to some ranks only.
pub(crate) fn meet(comm: Comm) -> Result<Arc<Meeting>> {
    if comm == abi::comm_null() {
        return Err(Problem::new(Class::Comm, "a file is opened on MPI_COMM_NULL"));
    }
    let mut inter = 0;
    api::comm_test_inter(comm, &raw mut inter)?;
    if inter != 0 {
        return Err(Problem::new(
            Class::Comm,
            "a file is opened on an intercommunicator, which the standard forbids",
        ));
    }
    let keys = keys()?;
    let (mut kept, mut found): (*mut c_void, c_int) = (std::ptr::null_mut(), 0);
    api::comm_get_attr(comm, keys.meeting, (&raw mut kept).cast(), &raw mut found)?;
    if found != 0 {
        // SAFETY: the attribute is a box that `keep` made and only `forget_meeting` frees, with the communicator.
        let kept = unsafe { &*kept.cast::<Arc<Meeting>>() };
        return Ok(Arc::clone(kept));
    }
    let meeting = Arc::new(gather(comm)?);
    let boxed = Box::into_raw(Box::new(Arc::clone(&meeting)));
    api::comm_set_attr(comm, keys.meeting, boxed.cast())?;
    Ok(meeting)
}

fn gather(comm: Comm) -> Result<Meeting> {
    let (mut rank, mut size) = (0, 0);
    api::comm_rank(comm, &raw mut rank)?;
    api::comm_size(comm, &raw mut size)?;
    let (rank, size) = (number(rank), number(size));
    if size == 1 {
        return Ok(Meeting { group: Alone::group(), hub: Mutex::new(None) });
    }
    let mut own = abi::comm_null();
    api::comm_dup(comm, &raw mut own)?;
    let met = gather_on(own, rank, size);
    let freed = api::comm_free(&raw mut own);
    let meeting = met?;
    freed?;
    Ok(meeting)
}

fn gather_on(comm: Comm, rank: usize, size: usize) -> Result<Meeting> {
    let marks = exchange_marks(comm, Host::mark(), size)?;
    if marks.iter().any(|mark| *mark != marks[0]) {
        let group = super::far::gather(comm, rank, size)?;
        return Ok(Meeting { group, hub: Mutex::new(None) });
    }
    let mut letter = [0_u8; LETTER_BYTES];
    let mut hub = None;
    if rank == 0 {
        match Hub::start(size) {
            Ok(started) => {
                write_letter(&mut letter, b'I', &started.invitation(0).to_bytes());
                hub = Some(started);
            }
            Err(error) => write_letter(&mut letter, b'E', error.to_string().as_bytes()),
        }
    }
    let bytes = c_int::try_from(LETTER_BYTES).expect("a small number");
    api::bcast(letter.as_mut_ptr().cast(), bytes, abi::byte(), 0, comm)?;
    let invitation = read_letter(&letter, rank)?;
    let joined = own_node().and_then(|node| LocalGroup::join(&invitation, node.as_deref()));
    let group =
        joined.map_err(|error| Problem::new(Class::Other, format!("joining the other ranks: {error}")))?;
    Ok(Meeting { group, hub: Mutex::new(hub) })
}

fn exchange_marks(comm: Comm, own: HostMark, size: usize) -> Result<Vec<HostMark>> {
    let mut marks = vec![own; size];
    let bytes = c_int::try_from(own.len()).expect("a small number");
    api::allgather(
        own.as_ptr().cast(),
        bytes,
        abi::byte(),
        marks.as_mut_ptr().cast(),
        bytes,
        abi::byte(),
        comm,
    )?;
    Ok(marks)
}

fn write_letter(letter: &mut [u8; LETTER_BYTES], kind: u8, body: &[u8]) {
    let bytes = body.len().min(LETTER_BYTES - 3);
    letter[0] = kind;
    letter[1..3].copy_from_slice(&u16::try_from(bytes).expect("it fits").to_le_bytes());
    letter[3..3 + bytes].copy_from_slice(&body[..bytes]);
}

fn read_letter(letter: &[u8; LETTER_BYTES], rank: usize) -> Result<Invitation> {
    let bytes = usize::from(u16::from_le_bytes([letter[1], letter[2]])).min(LETTER_BYTES - 3);
    let body = &letter[3..3 + bytes];
    match letter[0] {
        b'I' => Ok(Invitation::from_bytes(body, rank)?),
        _ => Err(Problem::new(Class::Other, format!("rank 0: {}", String::from_utf8_lossy(body)))),
    }
}

/// Attributes: what a communicator's ranks met at, and the end of MPI.
#[derive(Clone, Copy, Debug)]
struct Keys {
    meeting: c_int,
}

fn keys() -> Result<Keys> {
    static KEYS: OnceLock<Result<Keys>> = OnceLock::new();
    KEYS.get_or_init(|| {
        let (mut meeting, mut end) = (0, 0);
        api::comm_create_keyval(copy_nothing, forget_meeting, &raw mut meeting, std::ptr::null_mut())?;
        // Attributes of MPI_COMM_SELF are deleted when MPI_Finalize begins.
        api::comm_create_keyval(copy_nothing, finalize, &raw mut end, std::ptr::null_mut())?;
        api::comm_set_attr(abi::comm_self(), end, std::ptr::null_mut())?;
        Ok(Keys { meeting })
    })
    .clone()
}

/// A duplicate of a communicator has met nobody yet.
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

unsafe extern "C" fn forget_meeting(
    _comm: Comm,
    _key: c_int,
    value: *mut c_void,
    _extra: *mut c_void,
) -> c_int {
    if !value.is_null() {
        // SAFETY: `meet` made the box and set it once; MPI deletes an attribute once.
        drop(unsafe { Box::from_raw(value.cast::<Arc<Meeting>>()) });
    }
    0
}

/// MPI ends: what the program has not closed is given to the servers now.
unsafe extern "C" fn finalize(_comm: Comm, _key: c_int, _value: *mut c_void, _extra: *mut c_void) -> c_int {
    for opened in table::take_all() {
        if let Err(problem) = super::errors::protected(|| opened.file.abandon()) {
            // Nobody is left to be given an error code.
            super::errors::complain(&format!("{} was never closed: {}", opened.file.name(), problem.text));
        }
    }
    0
}

fn number(from: c_int) -> usize {
    usize::try_from(from).unwrap_or(0)
}
