//! Base types of all floors: ids, byte ranges, stripe arithmetic, file attributes, faults, limits, sizes, clock.
//!
//! Never: opens, sends, sleeps, spawns. Always: a number that crosses floors has its own type.

pub mod attr;
pub mod clock;
pub mod codec;
pub mod fault;
pub mod ids;
pub mod layout;
pub mod limits;
pub mod random;
pub mod sabotage;
pub mod size;
pub mod text;

pub use attr::{AttrChange, DirEntry, FileAttr, FileKind, Space, Striping};
pub use clock::{Clock, Nanos};
pub use fault::{Code, Fault};
pub use ids::{Generation, Incarnation, InodeId, LocalOffset, ObjectId, PartitionId, ServerIndex, SessionId};
pub use layout::{Layout, StripePiece};
pub use random::SeededRandom;
pub use sabotage::Sabotage;
pub use size::Size;
