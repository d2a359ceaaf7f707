//! SplitCall collective accesses: a thread of the file runs the access between the two halves.

use std::sync::{Arc, PoisonError};

use pario_mpi::{AccessOrigin, AccessOutcome, Class, MpiError, Result, Together};

use super::access::{self, Buffer};
use super::api::Status;
use super::requests::{RequestDirection, prepare};
use super::table::OpenHandle;

/// A split access that has begun and not ended.
#[derive(Debug)]
pub(crate) struct SplitCall {
    call: &'static str,
    outcome: Arc<AccessOutcome>,
}

/// The first half.
pub(crate) fn begin(
    opened: &Arc<OpenHandle>,
    call: &'static str,
    way: RequestDirection,
    place: AccessOrigin,
    buffer: Buffer,
) -> Result<()> {
    let mut split = opened.split.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(other) = &*split {
        let text = format!(
            "{}: {call}_begin before the {}_end of the access in progress",
            opened.file.name(),
            other.call
        );
        return Err(MpiError::new(Class::UnsupportedOperation, text));
    }
    let outcome = if access::representation(opened).is_some() {
        let outcome = AccessOutcome::new();
        outcome.finish(match way {
            RequestDirection::Read => access::read(opened, place, Together::Yes, buffer),
            RequestDirection::Write => access::write(opened, place, Together::Yes, buffer),
        });
        outcome
    } else {
        let (job, outcome) = prepare(opened, way, place, Together::Yes, buffer)?;
        opened.file.queue().start(job)?;
        outcome
    };
    *split = Some(SplitCall { call, outcome });
    Ok(())
}

/// The second half.
pub(crate) fn end(opened: &OpenHandle, call: &'static str, status: *mut Status) -> Result<()> {
    let mut split = opened.split.lock().unwrap_or_else(PoisonError::into_inner);
    let name = opened.file.name();
    match split.as_ref().map(|split| split.call) {
        None => {
            let text = format!("{name}: {call}_end, but no split collective access was begun");
            return Err(MpiError::new(Class::UnsupportedOperation, text));
        }
        Some(begun) if begun != call => {
            let text = format!("{name}: {call}_end, but {begun}_begin was called");
            return Err(MpiError::new(Class::UnsupportedOperation, text));
        }
        Some(_) => {}
    }
    let Some(begun) = split.take() else { unreachable!("looked at above") };
    access::tell(status, begun.outcome.wait()?)
}
