//! Words shared by all floors: ids, byte ranges, stripe arithmetic, file attributes, faults, limits, sizes, clock.
//!
//! Never: opens, sends, sleeps, spawns. Always: a number that crosses floors has a type of its own.

pub mod attr;
pub mod clock;
pub mod codec;
pub mod fault;
pub mod ids;
pub mod layout;
pub mod limits;
pub mod size;

pub use attr::{AttrChange, DirEntry, FileAttr, FileKind, Space, Striping};
pub use clock::{Clock, ManualClock, Nanos};
pub use fault::{Code, Fault};
pub use ids::{Generation, Incarnation, InodeId, LocalOffset, ObjectId, PartitionId, ServerIndex, SessionId};
pub use layout::{Layout, Piece};
pub use size::Size;
