//! The coherence of Pario in a world of its own: processes, servers, a manager, messages, faults, all moved by one seeded chance.
//!
//! The lease machine, the lock machine (`pario_server::coherence`), the client's table of locks (`pario::client::lock_table`) and the blocks
//! and ledger of caches (`pario_store::cache`) are the real ones. What the real system does around them with threads and sockets is played
//! here, step by step:
//!
//! ```text
//!  client ─ requests ─► manager (Leases, Locks) ─ replies ─► client      each arrow is a queue of its own; any of them may be next
//!         ◄─ notices ──                                                  (recalls cross grants)
//!         ─ records ──► servers of its node, in the order of commits ─ staging ─► what lies below ─ sync ─► stable storage
//!         ─ messages ─► servers of other nodes ─ replies ─►                 (Ledger, Block)
//! ```
//! Faults: a process, a server, the manager, a node or everything is killed (what was sent last may be lost; what was in memory is) or
//! stopped; servers and the manager come back, in another life, the manager with its log; memory is short; what lies below is full for a
//! while. Afterwards everything goes on without faults until nothing is left to do.
//!
//! Checked at every step and at the end: who may access a file at the same time, who may hold a lock, what a read finds, that one order
//! explains all accesses of atomic mode, that every block is kept by one server only, that no byte is lost which was promised and every
//! other loss is told to its writer, that nobody is forgotten, that the dead hold nothing, that everything is quiet in the end.
//!
//! A second world, which each seed plays too, is about whose the blocks of a cooperative cache are: see `places`.
//!
//! Not judged: the order in which a server that was killed takes records of several writers for the same bytes when they offer their
//! outboxes to its successor one after the other.
//!
//! Always: the same seed gives the same runs. Never: reads a clock, sleeps, spawns.

mod bugs;
mod chance;
mod client;
mod coverage;
mod events;
mod faults;
mod hear;
mod keeping;
mod manager;
mod places;
mod server;
mod staging;
mod step;
mod truth;
mod world;

#[path = "../../../floors/pario/tests/atomic/checker.rs"]
#[expect(unreachable_pub, reason = "shared with a test")]
mod history;

pub use bugs::{ALL_BUGS, AnyBug, ClientBug, PlaceBug};
pub use coverage::{Coverage, EXPECTED};
pub use world::{Options, Violation, run};
