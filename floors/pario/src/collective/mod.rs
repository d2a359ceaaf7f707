//! Collectively opened files: views, collective and independent accesses, and the choice of a method for each.
//!
//! ```text
//!  GroupFile ─► queue (order) ─► trait Method ─► server-directed: the stream as a record, drained with the view
//!                                             ─► client-directed: the same, to the node cache
//!                                             ─► two-phase:       exchanged by offset lists, written in large runs
//! ```
//! Never: sends an offset list, except where two-phase was chosen. Always: an access reads the bytes that its own process wrote,
//! by any method.

mod active_method;
mod atomic;
mod choice;
mod client_directed;
mod elements;
#[cfg(test)]
mod exchanges_tests;
mod file;
mod hints;
#[cfg(test)]
mod interface_tests;
mod method;
mod opening;
mod plain_file;
mod queue;
mod report;
mod requests;
mod server_directed;
mod shared;
mod two_phase;

pub use self::file::{GroupFile, Seek};
pub use self::hints::Hints;
pub use self::queue::{OrderedJob, OrderedQueue};
pub(crate) use self::report::check as check_environment;
pub use self::two_phase::{BUFFER_BYTES, PlainFile, PlainMode, TwoPhaseCounts};
pub(crate) use self::two_phase::{RankConnection, connect_ranks};
pub(crate) use self::two_phase::{network, own_addresses};

use pario_core::{Code, Fault};
use pario_view::{ErrorClass, ViewError};

/// The MPI error for a view that is illegal for its file.
fn illegal(error: &ViewError) -> Fault {
    let code = match error.class() {
        ErrorClass::Type => Code::Datatype,
        ErrorClass::ValueTooLarge => Code::TooLarge,
        ErrorClass::Arg | ErrorClass::Count | ErrorClass::Dims | ErrorClass::Rank => Code::Invalid,
    };
    Fault::new(code, error.to_string())
}
