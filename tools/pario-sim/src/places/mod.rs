//! Placement of the cooperative cache in a world of its own: servers on one plain file whose blocks have a home, or an owner that changes.
//!
//! The directories of homes, the tables of owners, the walk of an access and what comes of a take (`pario_store::ownership`) are the real
//! ones, as are the blocks and ledgers of caches. Threads are tasks that go on when the seeded chance says so, and wait as the real ones do;
//! messages are delayed, reordered, lost with their connection, late or doubled:
//!
//! ```text
//!  client ─► task: walk ─┬─ own block
//!                        ├─ claim, give back, pass ─► home (directory)
//!                        ├─ visit ─► owner's task ─► its block
//!                        ├─ take ──► owner's task ─► out of its cache ─► pass ─► home
//!                        └─ at one moment: all blocks held, or seen with the same stamps (moment)
//! ```
//! Not played: cuts, reading ahead, a second file. Always: the same seed gives the same run. Never: reads a clock, sleeps, spawns a thread.

mod access;
mod faults;
mod hand;
mod moment;
mod net;
mod owner;
mod play;
mod server;
mod truth;
mod world;

pub(crate) use play::run;
