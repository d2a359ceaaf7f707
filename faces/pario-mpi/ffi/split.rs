//! Split collective accesses: a thread of the file does the access between the two halves.

use std::sync::{Arc, PoisonError};

use pario_mpi::{Class, Outcome, Place, Problem, Result, Together};

use super::access::{self, Buffer};
use super::api::Status;
use super::requests::{Way, prepare};
use super::table::Opened;

/// The first half of an access, whose second is to come.
#[derive(Debug)]
pub(crate) struct Split {
    call: &'static str,
    outcome: Arc<Outcome>,
}

/// The first half.
pub(crate) fn begin(
    opened: &Arc<Opened>,
    call: &'static str,
    way: Way,
    place: Place,
    buffer: Buffer,
) -> Result<()> {
    let mut split = opened.split.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(other) = &*split {
        let text = format!("{}: {call}_begin while {}_end is to come", opened.file.name(), other.call);
        return Err(Problem::new(Class::UnsupportedOperation, text));
    }
    let outcome = if access::representation(opened).is_some() {
        let outcome = Outcome::new();
        outcome.tell(match way {
            Way::Read => access::read(opened, place, Together::Yes, buffer),
            Way::Write => access::write(opened, place, Together::Yes, buffer),
        });
        outcome
    } else {
        let (job, outcome) = prepare(opened, way, place, Together::Yes, buffer)?;
        opened.file.line().run(job)?;
        outcome
    };
    *split = Some(Split { call, outcome });
    Ok(())
}

/// The second half.
pub(crate) fn end(opened: &Opened, call: &'static str, status: *mut Status) -> Result<()> {
    let mut split = opened.split.lock().unwrap_or_else(PoisonError::into_inner);
    let name = opened.file.name();
    match split.as_ref().map(|split| split.call) {
        None => {
            let text = format!("{name}: {call}_end, but no split collective access was begun");
            return Err(Problem::new(Class::UnsupportedOperation, text));
        }
        Some(begun) if begun != call => {
            let text = format!("{name}: {call}_end, but {begun}_begin was called");
            return Err(Problem::new(Class::UnsupportedOperation, text));
        }
        Some(_) => {}
    }
    let Some(begun) = split.take() else { unreachable!("looked at above") };
    access::tell(status, begun.outcome.wait()?)
}
