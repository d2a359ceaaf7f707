//! Every constant of the model, one set for all experiments.

use super::cache::ReadAheadParams;
use super::disk::DiskParams;
use super::elevator::ElevatorParams;
use super::network::NetworkParams;
use super::write_behind::WriteBehindParams;
use super::{NS, VirtualNanos};

/// See the module.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Params {
    pub(crate) disk: DiskParams,
    pub(crate) elevator: ElevatorParams,
    pub(crate) read_ahead: ReadAheadParams,
    pub(crate) behind: WriteBehindParams,
    pub(crate) network: NetworkParams,
    /// Bytes of the largest request on the network.
    pub(crate) request_max: u64,
    /// Requests of a client in flight at most (the slot table of the RPC layer).
    pub(crate) client_slots: usize,
    /// Requests that the server carries out at the same time, unless its scheduler wants one at a time.
    pub(crate) daemons: usize,
    /// Time within which the clients of an application start.
    pub(crate) start_spread_ns: VirtualNanos,
}

impl Params {
    /// The paper's server.
    pub(crate) const PAPER: Params = Params {
        disk: DiskParams::PAPER,
        elevator: ElevatorParams::PAPER,
        read_ahead: ReadAheadParams::PAPER,
        behind: WriteBehindParams::PAPER,
        network: NetworkParams::PAPER,
        request_max: 32 << 10,
        client_slots: 16,
        daemons: 4,
        start_spread_ns: 20 * NS,
    };
}
