//! Policies: choose the virtual request that is served next. The trait, the table of names, and shared helpers.
//!
//! Never: a policy does I/O, reads a clock, knows about overlapping bytes (the controller holds those requests back), or scans all
//! requests to choose one. Always: a request returned by `pick` is removed from the policy's index.
//!
//! To add a policy: write `policy/NAME.rs`, add `mod NAME;` here and one line to `TABLE` in `table.rs`. The conformance suite, the properties and the
//! benchmark run over the table.

mod contract;
mod deadline;
mod fifo;
mod flows;
mod mlf;
mod ranked;
mod sjf;
mod table;
mod tbf;
mod wfq;
mod wsjf;

pub use contract::{Joins, Policy, PolicyChoice, RunDone, Virtual, VirtualId, WaitingFigures};
use ranked::{Ranked, serve};
pub(crate) use table::by_name;
pub use table::policy_names;
