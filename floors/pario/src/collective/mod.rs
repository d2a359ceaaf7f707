//! Files of a group: views, collective and independent accesses, and the choice of a method for each.
//!
//! ```text
//!  GroupFile ─► plan (view, pointer, method) ─► server-directed: the stream as a record, taken by the view
//!                                             ─► client-directed: the same, to the node's own tier
//!                                             ─► two-phase:       exchanged by offset lists, written in large pieces
//! ```
//! Never: sends an offset list, except where two-phase was chosen. Always: an access reads what its own process wrote, whichever
//! method wrote it.

mod atomic;
mod choice;
mod client_directed;
mod elements;
mod file;
mod hints;
mod manner;
mod opening;
mod report;
mod requests;
#[cfg(test)]
mod rounds_tests;
mod shared;
mod two_phase;

pub use self::file::{GroupFile, Seek};
pub use self::hints::Hints;
pub(crate) use self::two_phase::connect_ranks;
pub use self::two_phase::{BUFFER_BYTES, PlainFile, PlainMode, TwoPhaseCounts};
pub(crate) use self::two_phase::{network, own_addresses};

use pario_core::{Code, Fault};
use pario_view::{ErrorClass, ViewError};

/// A view that is illegal for its file, as the error that MPI names for it.
fn illegal(error: &ViewError) -> Fault {
    let code = match error.class() {
        ErrorClass::Type => Code::Datatype,
        ErrorClass::ValueTooLarge => Code::TooLarge,
        ErrorClass::Arg | ErrorClass::Count | ErrorClass::Dims | ErrorClass::Rank => Code::Invalid,
    };
    Fault::new(code, error.to_string())
}
