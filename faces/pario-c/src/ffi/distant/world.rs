//! Distant I/O of this process: joined once, by all members together.
//!
//! Always: a process that an MPI started and that knows no group of its ranks is told how to form one.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use pario_api::distant::{Distant, DistantOptions};
use pario_api::group::GROUP_VARIABLE;

use crate::ffi::pario::{group, has_group};
use crate::ffi::per_process::PerProcess;
use crate::last_error::{CallError, CallResult};

static WORLD: PerProcess<Mutex<Option<Arc<Distant>>>> = PerProcess::new();

/// Variables by which MPI libraries tell a process the number of ranks.
const MPI_SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"];

fn lock() -> std::sync::MutexGuard<'static, Option<Arc<Distant>>> {
    WORLD.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses a rank of an MPI program that would be alone.
fn check_group() -> CallResult<()> {
    let is_many = |name: &&&str| {
        let value = std::env::var(name).ok();
        value.and_then(|value| value.parse::<usize>().ok()).is_some_and(|size| 1 < size)
    };
    match MPI_SIZES.iter().find(is_many) {
        Some(name) if !has_group() && std::env::var_os(GROUP_VARIABLE).is_none() => {
            let text = format!(
                "{name} says that MPI started this process: call pario_group_from_comm(MPI_COMM_WORLD) of pario_group.h first, or start it by `pario run -n N`"
            );
            Err(CallError::new(libc::ESRCH, text))
        }
        Some(_) | None => Ok(()),
    }
}

/// Distant I/O of the group; the first call joins, as a home without a directory.
pub(super) fn joined() -> CallResult<Arc<Distant>> {
    join(None, false)
}

/// Distant I/O with a directory of this member; `is_first`: an error if it was joined before.
pub(super) fn join(dir: Option<&Path>, is_first: bool) -> CallResult<Arc<Distant>> {
    let mut world = lock();
    if let Some(distant) = world.as_ref() {
        if is_first {
            return Err(CallError::new(
                libc::EBUSY,
                "dio_init: Distant I/O has begun already, by dio_init or SF_Create",
            ));
        }
        return Ok(Arc::clone(distant));
    }
    check_group()?;
    let options = dir.map_or_else(DistantOptions::serving, DistantOptions::in_dir);
    let distant = Arc::new(Distant::join(&group()?, &options)?);
    *world = Some(Arc::clone(&distant));
    Ok(distant)
}

/// Distant I/O, if it was joined.
pub(super) fn current() -> CallResult<Arc<Distant>> {
    let none = || CallError::new(libc::EINVAL, "Distant I/O has not begun: call dio_init first");
    lock().clone().ok_or_else(none)
}

/// Ends Distant I/O of all members.
pub(super) fn leave() -> CallResult<()> {
    let distant = lock().take().ok_or_else(|| CallError::new(libc::EINVAL, "Distant I/O has not begun"))?;
    Ok(distant.meet()?)
}
