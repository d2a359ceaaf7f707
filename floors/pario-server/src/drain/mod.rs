//! Draining: one thread per server that moves records from the node's outboxes, and writes sent by message, into the store.
//!
//! Never: lets a record that was committed before another began win over it. Always: a cursor moves only when everything before it is in
//! the store or its error is kept.

mod batch;
mod conflict_groups;
mod cut;
mod drainer;
mod interleave;
mod join;
mod merge_wait;
mod outboxes;
mod overwrites;
mod pending;
mod refused;
mod restart_log;
mod run;
mod scan;
mod scatter_buffer;
mod shared;
mod shares;
mod store_speed;
mod task;
mod worker;
mod writer;

use pario_core::{Code, Fault, ServerIndex};

pub(crate) use self::batch::Amount;
pub(crate) use self::drainer::Drainer;
pub use self::restart_log::RestartLogSpec;
pub(crate) use self::task::{ByValue, DrainDone, DrainTask, WriteTarget};

/// The fault of a store error, with the server's index.
pub(crate) fn store_fault(index: ServerIndex, error: &pario_store::StoreError) -> Fault {
    let fault = Fault::from(error);
    if fault.code == Code::NoSpace {
        return Fault::new(Code::NoSpace, format!("server {index} is full: {}", fault.text));
    }
    fault.at(format!("server {index}"))
}
