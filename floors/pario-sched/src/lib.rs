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
//! | [`Controller::new`] | a policy by name ([`policy_names`]) and [`Options`] |
//! | [`Controller::post`] | a [`Request`]; refused when queues are full, with the reason |
//! | [`Controller::next`] | [`Pick::Serve`] a run, [`Pick::Wait`] until a time, [`Pick::Idle`] until something happens; may be asked again while runs are under way |
//! | [`Controller::complete`] | each part of a run, once |

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
