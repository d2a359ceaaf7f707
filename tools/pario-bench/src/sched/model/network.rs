//! The network between clients and server: a delay in each direction, and the server's link, which carries one message at a time.

use super::VirtualNanos;
use super::disk::span;
use super::random::ModelRandom;

/// Costs of the network and of the processes at its ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NetworkParams {
    /// One direction, without load.
    pub(crate) delay_ns: VirtualNanos,
    /// Mean of the random addition, one direction.
    pub(crate) jitter_ns: VirtualNanos,
    /// Bytes per second of the server's link, in each direction.
    pub(crate) bandwidth: u64,
    /// Processor time of the server for a request and its reply.
    pub(crate) request_ns: VirtualNanos,
    /// Processor time of a client between two accesses.
    pub(crate) think_ns: VirtualNanos,
}

impl NetworkParams {
    /// Gigabit Ethernet and NFS version 3 over TCP on processors of 2 GHz.
    pub(crate) const PAPER: NetworkParams = NetworkParams {
        delay_ns: 60_000,
        jitter_ns: 100_000,
        bandwidth: 117_000_000,
        request_ns: 30_000,
        think_ns: 100_000,
    };
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ModelNetwork {
    params: NetworkParams,
    inwards_free: VirtualNanos,
    outwards_free: VirtualNanos,
}

impl ModelNetwork {
    pub(crate) fn new(params: NetworkParams) -> ModelNetwork {
        ModelNetwork { params, inwards_free: 0, outwards_free: 0 }
    }

    /// Arrival at the server of a request of `bytes`, sent at `now`.
    pub(crate) fn request(
        &mut self,
        now: VirtualNanos,
        bytes: u64,
        random: &mut ModelRandom,
    ) -> VirtualNanos {
        let there = now + self.delay(random);
        self.inwards_free = self.inwards_free.max(there) + span(bytes, self.params.bandwidth);
        self.inwards_free
    }

    /// Arrival at the client of a reply of `bytes`, sent at `now`.
    pub(crate) fn reply(&mut self, now: VirtualNanos, bytes: u64, random: &mut ModelRandom) -> VirtualNanos {
        let busy = self.params.request_ns.max(span(bytes, self.params.bandwidth));
        self.outwards_free = self.outwards_free.max(now) + busy;
        self.outwards_free + self.delay(random)
    }

    fn delay(&self, random: &mut ModelRandom) -> VirtualNanos {
        self.params.delay_ns + random.exponential(self.params.jitter_ns)
    }
}
