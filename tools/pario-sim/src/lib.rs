//! Simulation of Pario's coherence: processes, servers, a manager, messages and faults, driven by one seeded random generator.
//!
//! The lease machine, the lock machine (`pario_server::coherence`), the client's lock table (`pario::client::lock_table`) and the blocks
//! and ledger of caches (`pario_store::cache`) are the real code. The threads and sockets around them are simulated, step by step:
//!
//! ```text
//!  client ─ requests ─► manager (Leases, Locks) ─ replies ─► client      each arrow is a separate queue; any of them may be next
//!         ◄─ notices ──                                                  (recalls cross grants)
//!         ─ records ──► servers of its node, in commit order ─ staging ─► store ─ sync ─► stable storage
//!         ─ messages ─► servers of other nodes ─ replies ─►                 (Ledger, Block)
//! ```
//! Faults: a process, a server, the manager, a node or all of them are killed (the last messages may be lost; memory is) or stopped;
//! servers and the manager restart, as another incarnation, the manager with its log; memory is short; the store is full for a while.
//! Afterwards the run continues without faults until no event is left.
//!
//! Checked at every step and at the end: concurrent accesses to a file are allowed by their leases; locks do not conflict; reads find
//! visible writes; one order explains all accesses of atomic mode; every block is cached by one server only; no promised byte is lost and
//! every other loss is reported to its writer; no request is forgotten; dead clients hold nothing; all clients finish.
//!
//! A second simulation, also run for each seed, covers the ownership of blocks in the file cache: see `places`.
//!
//! Not checked: the order in which the successor of a killed server drains records of several writers for the same bytes when they offer
//! their outboxes one after another.
//!
//! Always: the same seed gives the same runs. Never: reads a clock, sleeps, spawns.

mod bugs;
mod client;
mod coverage;
mod delivery;
mod events;
mod faults;
mod manager;
mod oracle;
mod placement;
mod server;
mod simulation;
mod staging;
mod step;
mod sync;

#[path = "../../../floors/pario/tests/atomic/checker.rs"]
#[expect(unreachable_pub, reason = "shared with a test")]
mod history;

pub use bugs::{ALL_BUGS, AnyBug, ClientBug, PlacementBug};
pub use coverage::{Coverage, EXPECTED};
pub use simulation::{RunOptions, Violation, run};
