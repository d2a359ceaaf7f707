//! The network between clients and server: a delay each way, and the server's link, which one message at a time passes.

use super::Nanos;
use super::disk::span;
use super::random::Random;

/// What the network and the processes at its ends cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NetworkParams {
    /// One way, without load.
    pub(crate) delay_ns: Nanos,
    /// Mean of what comes on top at random, one way.
    pub(crate) jitter_ns: Nanos,
    /// Bytes a second of the server's link, each way.
    pub(crate) bandwidth: u64,
    /// The server's processor for a request and its reply.
    pub(crate) request_ns: Nanos,
    /// A client's processor between two accesses.
    pub(crate) think_ns: Nanos,
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
pub(crate) struct Network {
    params: NetworkParams,
    inwards_free: Nanos,
    outwards_free: Nanos,
}

impl Network {
    pub(crate) fn new(params: NetworkParams) -> Network {
        Network { params, inwards_free: 0, outwards_free: 0 }
    }

    /// When a request that carries `bytes`, sent at `now`, is at the server.
    pub(crate) fn request(&mut self, now: Nanos, bytes: u64, random: &mut Random) -> Nanos {
        let there = now + self.delay(random);
        self.inwards_free = self.inwards_free.max(there) + span(bytes, self.params.bandwidth);
        self.inwards_free
    }

    /// When a reply that carries `bytes`, given at `now`, is at the client.
    pub(crate) fn reply(&mut self, now: Nanos, bytes: u64, random: &mut Random) -> Nanos {
        let busy = self.params.request_ns.max(span(bytes, self.params.bandwidth));
        self.outwards_free = self.outwards_free.max(now) + busy;
        self.outwards_free + self.delay(random)
    }

    fn delay(&self, random: &mut Random) -> Nanos {
        self.params.delay_ns + random.exponential(self.params.jitter_ns)
    }
}
