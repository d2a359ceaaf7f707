//! `pario_group.h`: a group of processes that can exchange bytes, for example the ranks of an MPI program.
//!
//! Never: calls the program's exchange after the members have met. Always: an exchange that fails is reported with its result.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use libc::size_t;
use pario_api::core::{Code, Fault};
use pario_api::group::{ByteExchange, FormedGroup, form_group};

use crate::ffi::call::status;
use crate::ffi::pario::{has_group, set_group};
use crate::ffi::per_process::PerProcess;
use crate::last_error::CallError;

/// The program's exchange: `bytes` bytes of this rank, all ranks' bytes in rank order; 0 is success.
type ProgramExchange = unsafe extern "C" fn(*const c_void, *mut c_void, size_t, *mut c_void) -> c_int;

/// Formed groups live as long as the process: rank 0 may serve the others.
static FORMED: PerProcess<Mutex<Vec<FormedGroup>>> = PerProcess::new();

#[derive(Debug)]
struct ProgramRanks {
    rank: usize,
    size: usize,
    exchange: ProgramExchange,
    context: *mut c_void,
}

// SAFETY: the exchange is called on the thread that forms the group only; the program gave the context for that.
unsafe impl Send for ProgramRanks {}
// SAFETY: as above.
unsafe impl Sync for ProgramRanks {}

impl ByteExchange for ProgramRanks {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(&self, own: &[u8]) -> pario_api::Result<Vec<u8>> {
        let mut all = vec![0u8; own.len() * self.size];
        // SAFETY: the program's function gets memory of the sizes that its header states.
        let result =
            unsafe { (self.exchange)(own.as_ptr().cast(), all.as_mut_ptr().cast(), own.len(), self.context) };
        match result {
            0 => Ok(all),
            code => {
                let text = format!("the exchange of the program failed with {code}");
                Err(Fault::new(Code::Io, text).into())
            }
        }
    }
}

/// Forms the group of this process; all ranks call it.
///
/// # Safety
/// `exchange` may be called with `context` until this function returns.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pario_group_from_exchange(
    rank: c_int,
    size: c_int,
    exchange: Option<ProgramExchange>,
    context: *mut c_void,
) -> i64 {
    status(|| {
        let invalid = |text: &str| CallError::new(libc::EINVAL, format!("pario_group_from_exchange: {text}"));
        let exchange = exchange.ok_or_else(|| invalid("the exchange is a null pointer"))?;
        let rank = usize::try_from(rank).map_err(|_| invalid("a negative rank"))?;
        let size = usize::try_from(size).ok().filter(|size| rank < *size);
        let size = size.ok_or_else(|| invalid("a rank beyond the size"))?;
        if has_group() {
            return Err(CallError::new(libc::EBUSY, "this process has a group already"));
        }
        let formed = form_group(Arc::new(ProgramRanks { rank, size, exchange, context }))?;
        set_group(Arc::clone(formed.group()))?;
        FORMED.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner).push(formed);
        Ok(0)
    })
}
