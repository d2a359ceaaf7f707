//! Tests of the ledger and of the names on it.

mod damage;
mod faulty;
mod kill;
mod ledger;
mod links;
mod model;
mod power_cut;
mod scale;
mod semantics;
mod sessions;
mod world;
