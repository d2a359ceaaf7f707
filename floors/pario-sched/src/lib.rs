//! I/O scheduler for any I/O system: a host posts requests, the scheduler says which to run now, the host runs them.
//!
//! Never: does I/O, starts a thread, reads a clock, knows a file's content or size. Always: deterministic: the same calls give the same
//! answers; time is an argument, in microseconds, and a time that goes backwards counts as the latest seen.
//!
//! ```
//! use pario_sched::{ApplicationId, Controller, FileId, Options, Outcome, Pick, Request};
//!
//! let mut controller = Controller::new("fifo", Options::default())?;
//! let id = controller.post(Request::read(FileId(1), ApplicationId(7), 0, 4096, 0))?;
//! let Pick::Serve(run) = controller.next(10) else { panic!("a request waits") };
//! assert_eq!((run.parts[0].id, run.offset(), run.bytes()), (id, 0, 4096));
//! controller.complete(id, 250, Outcome::Done { bytes: 4096 })?;
//! assert_eq!(controller.next(250), Pick::Idle);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The interface
//! | call | purpose |
//! |---|---|
//! | [`Controller::new`] | a policy by name ([`policy_names`]) and [`Options`]; [`Controller::with_policy`] takes your own [`Policy`] |
//! | [`Controller::post`] | a [`Request`]; [`PostRefused`] when a queue is full, with the limit; see also [`Controller::room`] |
//! | [`Controller::next`] | [`Pick::Serve`] a run, [`Pick::Wait`] until a time, [`Pick::Idle`] until the next call |
//! | [`Controller::complete`] | each part of a run, once, in any order |
//! | [`Controller::withdraw`] | an application has left: returns its requests that do not run yet |
//! | [`Controller::set_weight`] | of an application, for `mlf`, `wsjf`, `tbf` and `wfq` |
//! | [`Controller::add_host`], [`Controller::set_vectored`] | several hosts share a controller; the vectored operations of each |
//! | [`Controller::overdue`] | runs that were not completed in time |
//! | [`Controller::statistics`], [`Controller::trace`] | counts, and a record of events |
//!
//! # Semantics
//! Requests of one file that overlap run in the order of arrival when one of them writes; all others in any order. A request of zero
//! length overlaps nothing and is served alone. Offsets beyond a file's end are left to the host: it completes with fewer bytes, which
//! also tells `mlf` that the file has ended. An application that floods is refused while others can still post: it may have at most as
//! many unfinished requests as there are free slots. Files and applications without requests are forgotten, oldest first, when the tables
//! are full; their counts are kept in sum.
//!
//! # Guarantees of the policies
//! | policy | order | no request waits for ever because |
//! |---|---|---|
//! | `fifo` | arrival | only earlier requests are served before it |
//! | `mlf` | small first, large ones merge; turns of files | at most `size / quantum.bytes_min + 17 n + patience_choices` turns pass it |
//! | `wsjf` | size over weight, less waiting | only requests that arrive within its handicap pass it |
//! | `sjf` | size | not guaranteed |
//! | `deadline` | offset, expired deadlines first | after its deadline only requests waiting then pass it |
//! | `tbf` | tokens of its application | its bucket fills at a steady rate |
//! | `wfq` | bytes over weight | others get at most their share of the bytes waiting before it, and one request |
//!
//! The exact bounds are in the heads of the policies' files and are checked by `tests/bounds.rs`. They count requests issued to the host;
//! a request that is held back by an overlapping one waits for that one first.

mod aggregate;
mod controller;
mod error;
mod histogram;
mod index;
mod options;
mod order;
mod policy;
mod request;
mod statistics;
mod table;
mod trace;

pub use controller::{Controller, Overdue, RequestTimes};
pub use error::{NotRunning, PostRefused, SetupError};
pub use histogram::Histogram;
pub use options::{Aggregation, Options, QuantumOptions, SwitchCost};
pub use policy::{Joins, Policy, PolicyChoice, RunDone, Virtual, VirtualId, WaitingFigures, policy_names};
pub use request::{
    ApplicationId, FileId, HostId, IoKind, IoRun, Outcome, Pick, Request, RequestId, RunPart, Vectored,
};
pub use statistics::{ApplicationFigures, Fairness, FileFigures, Statistics, Totals, jain};
pub use trace::{Trace, TraceError, TraceEvent, TraceRecord};
