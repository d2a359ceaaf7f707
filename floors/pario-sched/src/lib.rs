//! An I/O scheduler that any I/O system can use: requests are posted, it says what to run now, the host runs it.
//!
//! Never: does I/O, starts a thread, reads a clock, knows a file's content or size. Always: the same calls give the same
//! answers; time is an argument, in microseconds, and a time that goes backwards counts as the latest seen.
//!
//! ```
//! use pario_sched::{ApplicationId, Controller, FileId, Options, Outcome, Pick, Request};
//!
//! let mut controller = Controller::new("fifo", Options::default())?;
//! let id = controller.post(Request::read(FileId(1), ApplicationId(7), 0, 4096, 0))?;
//! let Pick::Serve(run) = controller.next(10) else { panic!("something waits") };
//! assert_eq!((run.parts[0].id, run.offset(), run.bytes()), (id, 0, 4096));
//! controller.complete(id, 250, Outcome::Done { bytes: 4096 })?;
//! assert_eq!(controller.next(250), Pick::Idle);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The interface
//! | call | what |
//! |---|---|
//! | [`Controller::new`] | a policy by name ([`policy_names`]) and [`Options`]; [`Controller::with_policy`] takes your own [`Policy`] |
//! | [`Controller::post`] | a [`Request`]; [`Refused`] when a queue is full, with the limit; [`Controller::room`] tells before |
//! | [`Controller::next`] | [`Pick::Serve`] a run, [`Pick::Wait`] until a time, [`Pick::Idle`] until something happens; may be asked again while runs are under way |
//! | [`Controller::complete`] | each part of a run, once, in any order |
//! | [`Controller::withdraw`] | an application is gone: takes back what does not run yet |
//! | [`Controller::set_weight`] | of an application, for `mlf`, `wsjf`, `tbf` and `wfq` |
//! | [`Controller::add_host`], [`Controller::set_vectored`] | several hosts share a controller; which vectored operations each has |
//! | [`Controller::overdue`] | runs that were not completed in time |
//! | [`Controller::statistics`], [`Controller::trace`] | what happened, counted and told |
//!
//! # What is defined
//! Requests of one file that overlap run in the order of arrival when one of them writes; all others in any order. A request of zero
//! length overlaps nothing and is served alone. Offsets beyond a file's end are the host's business: it completes with fewer bytes,
//! which also tells `mlf` that the file has ended. An application that floods is refused while others still have room: it may have at most as
//! many unfinished requests as there are free places. Files and applications without requests are forgotten, oldest first, when
//! the tables are full; their counts are kept in sum.
//!
//! # What policies promise
//! | policy | order | nobody waits for ever because |
//! |---|---|---|
//! | `fifo` | arrival | only what came before goes before |
//! | `mlf` | small first, large ones grow together; turns of files | at most `size / quantum.bytes_min + 17 n + patience_choices` turns pass it |
//! | `wsjf` | size over weight, less waiting | only what comes within its handicap passes it |
//! | `sjf` | size | it does not promise that |
//! | `deadline` | offset, the late first | after its deadline only what waited then passes it |
//! | `tbf` | tokens of its application | its bucket fills at a steady rate |
//! | `wfq` | bytes over weight | others get at most their share of what waits before it, and one request |
//!
//! The exact bounds are in the heads of the policies' files and are checked by `tests/bounds.rs`. They count what the host is told; a request that
//! is held back by another's bytes waits for that one first.

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

pub use controller::{Completion, Controller, Overdue};
pub use error::{NotRunning, Refused, SetupError};
pub use histogram::Histogram;
pub use options::{Aggregation, Options, QuantumOptions, SwitchCost};
pub use policy::{Choice, Joins, Policy, RunDone, Virtual, VirtualId, WaitingFigures, policy_names};
pub use request::{
    ApplicationId, FileId, HostId, Kind, Outcome, Part, Pick, Request, RequestId, Run, Vectored,
};
pub use statistics::{ApplicationFigures, Fairness, FileFigures, Statistics, Totals, jain};
pub use trace::{Event, Record, Trace, TraceError};
