//! Whose blocks without a fixed place are: the machines that decide it, at homes, at owners, and for whoever looks for a block.
//!
//! ```text
//!  access ─ Walk ─► Table (what one server knows) ─ claim ─► Directory (of the block's home)
//!                     └─ Reach: blocks are taken from another server's Table, which passes them on at the Directory
//! ```
//! Never: waits, sends or touches bytes; `shared_file` does that with threads, and the simulator step by step. Always: the words that
//! they exchange are those of [`crate::places`].

mod directory;
mod moment;
mod reach;
mod sabotage;
mod table;
mod taking;
mod walk;

pub use directory::Directory;
pub use moment::{Hold, Look};
pub use reach::{Heard, Reach, runs};
pub use sabotage::Bug;
pub use table::{ASKED_MAX, Begun, Found, Table, Visitor};
pub use taking::Parted;
pub use walk::{Step, Walk};

#[cfg(test)]
pub(crate) use table::REMEMBERED_MAX;
