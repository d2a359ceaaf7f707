//! The coherence of Pario in a world of its own: processes, servers, a manager, messages, faults, all moved by one seeded chance.
//!
//! The lease machine, the lock machine (`pario_server::coherence`) and the client's table of locks (`pario::client::lock_table`) are the real
//! ones. What the real system does around them with threads and sockets is played here, step by step:
//!
//! ```text
//!  client ─ requests ─► manager (Leases, Locks) ─ replies ─► client      each arrow is a queue of its own; any of them may be next
//!         ◄─ notices ──                                                  (recalls cross grants)
//!         ─ records ──► servers of its node, in the order of commits
//!         ─ messages ─► servers of other nodes ─ replies ─►
//! ```
//! Faults: a process is killed (what it sent last may be lost) or stopped; a server stands still; the manager is killed and comes back with
//! its log. Afterwards everything goes on without faults until nothing is left to do.
//!
//! Checked at every step and at the end: who may access a file at the same time, who may hold a lock, what a read finds, that one order
//! explains all accesses of atomic mode, that nobody is forgotten, that the dead hold nothing, that everything is quiet in the end.
//!
//! Always: the same seed gives the same run. Never: reads a clock, sleeps, spawns.

mod bugs;
mod chance;
mod client;
mod coverage;
mod events;
mod faults;
mod manager;
mod step;
mod world;

#[path = "../../../floors/pario/tests/atomic/checker.rs"]
#[expect(unreachable_pub, reason = "shared with a test")]
mod history;

pub use bugs::{ALL_BUGS, AnyBug, ClientBug};
pub use coverage::{Coverage, EXPECTED};
pub use world::{Options, Violation, run};
