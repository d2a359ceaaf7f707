//! Health of a partition: which servers answer, and whether every object matches its inode.
//!
//! ```no_run
//! use pario::health::{Examination, PartitionHealth, Unwatched};
//!
//! let entry = pario::partition::Registry::open_default()?.find("scratch")?;
//! let health = PartitionHealth::of(&entry);
//! println!("{}: {}", health.name, health.condition.word());
//! let partition = pario::Partition::mount("scratch")?;
//! let examination = Examination::of(&partition, &health, &Unwatched)?;
//! examination.problems.iter().for_each(|problem| println!("{problem}"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! Never: changes a partition, but for [`repair`]. Always: an object is judged twice before it is reported, since files come,
//! grow and go meanwhile.

mod absent;
mod at_rest;
mod examine;
mod partition;
mod problem;
pub mod questions;
mod repair;
mod watch;

pub use absent::AbsentObject;
pub use at_rest::{AtRest, Damage, DamageKind, DeepCheck};
pub use examine::Examination;
pub use partition::{Condition, PartitionHealth, ServerHealth};
pub use problem::{FoundObject, HealthProblem};
pub use repair::{RepairExtent, RepairPlan, Repaired, repair};
pub use watch::{Unwatched, Watch};
