//! Unauthenticated connections, which have not proved the partition's secret yet: their number and their time limit.
//!
//! They have a quota of their own, in total and per address, so that unauthenticated peers use up neither the connections of clients nor
//! descriptors. When it is full the oldest is closed: a client proves itself within two round trips, a flood needs
//! [`UNPROVED_PER_ADDRESS_MAX`] connections in that time to push it out.
//!
//! Never: counts a process of this node against the network's quota (the kernel has named its user). Always: a connection is here from its
//! acceptance until its proof or its end.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use pario_net::stream::Stream;

use super::link::LinkId;

/// From the network in total. One costs a descriptor and at most a Hello of 4 KiB: 5 MiB together.
pub(super) const UNPROVED_MAX: usize = 1024;
/// From one address: the ranks of a large node may all connect concurrently.
pub(super) const UNPROVED_PER_ADDRESS_MAX: usize = 256;
/// From processes of this user on this node.
const UNPROVED_LOCAL_MAX: usize = 1024;
/// Ticks of the service (250 ms) within which the secret must be proved: 3 s, as long as a client waits for each reply of the greeting.
/// Ticks and not a clock: a server that got no processor for seconds does not blame its clients for it.
pub(super) const UNPROVED_TICKS_MAX: u32 = 12;
/// Share of the process's descriptors that unauthenticated peers may use.
const DESCRIPTORS_SHARE: u64 = 8;

const _: () = assert!(UNPROVED_PER_ADDRESS_MAX * 4 <= UNPROVED_MAX, "one address is not the network");

/// Origin of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectionOrigin {
    /// This node.
    Local,
    /// An address; of IPv6 the network of 64 bits, which is one subscriber's.
    Network(IpAddr),
}

impl ConnectionOrigin {
    pub(super) fn of(stream: &Stream) -> ConnectionOrigin {
        match stream.network_addresses().map(|(_, peer)| peer.ip().to_canonical()) {
            None => ConnectionOrigin::Local,
            Some(IpAddr::V6(address)) => {
                let network = u128::from(address) >> 64 << 64;
                ConnectionOrigin::Network(IpAddr::V6(Ipv6Addr::from(network)))
            }
            Some(address) => ConnectionOrigin::Network(address),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct PendingProof {
    origin: ConnectionOrigin,
    ticks: u32,
}

/// See the module. Numbers of links grow, so the order of the map is that of their age.
#[derive(Debug)]
pub(super) struct Unproved {
    links: BTreeMap<LinkId, PendingProof>,
    max: usize,
}

impl Unproved {
    /// For a process with this descriptor limit.
    pub(super) fn new(descriptors: Option<u64>) -> Unproved {
        let share = descriptors.map_or(u64::MAX, |all| (all / DESCRIPTORS_SHARE).max(1));
        Unproved {
            links: BTreeMap::new(),
            max: UNPROVED_MAX.min(usize::try_from(share).unwrap_or(usize::MAX)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// Adds a new connection; returns the connection to close for it.
    pub(super) fn enter(&mut self, id: LinkId, origin: ConnectionOrigin) -> Option<LinkId> {
        let full = match origin {
            ConnectionOrigin::Local
                if UNPROVED_LOCAL_MAX <= self.count(|other| other == ConnectionOrigin::Local) =>
            {
                self.oldest(|other| other == ConnectionOrigin::Local)
            }
            ConnectionOrigin::Local => None,
            ConnectionOrigin::Network(_)
                if UNPROVED_PER_ADDRESS_MAX.min(self.max) <= self.count(|other| other == origin) =>
            {
                self.oldest(|other| other == origin)
            }
            ConnectionOrigin::Network(_) if self.max <= self.count(is_network) => self.oldest(is_network),
            ConnectionOrigin::Network(_) => None,
        };
        self.links.insert(id, PendingProof { origin, ticks: 0 });
        full
    }

    /// The oldest connection from the network, if its descriptor is needed.
    pub(super) fn oldest_of_network(&self) -> Option<LinkId> {
        self.oldest(is_network)
    }

    /// It has proved itself, or has ended.
    pub(super) fn leave(&mut self, id: LinkId) {
        self.links.remove(&id);
    }

    /// A tick of the service; returns the expired connections.
    pub(super) fn tick(&mut self) -> Vec<LinkId> {
        self.links.values_mut().for_each(|waiting| waiting.ticks += 1);
        self.links
            .iter()
            .filter(|(_, waiting)| UNPROVED_TICKS_MAX < waiting.ticks)
            .map(|(id, _)| *id)
            .collect()
    }

    fn count(&self, which: impl Fn(ConnectionOrigin) -> bool) -> usize {
        self.links.values().filter(|waiting| which(waiting.origin)).count()
    }

    fn oldest(&self, which: impl Fn(ConnectionOrigin) -> bool) -> Option<LinkId> {
        self.links.iter().find(|(_, waiting)| which(waiting.origin)).map(|(id, _)| *id)
    }
}

fn is_network(origin: ConnectionOrigin) -> bool {
    origin != ConnectionOrigin::Local
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(last: u8) -> ConnectionOrigin {
        ConnectionOrigin::Network(IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn an_address_pushes_out_its_own_oldest_only() {
        let mut unproved = Unproved::new(None);
        assert_eq!(unproved.enter(LinkId(1), from(1)), None);
        assert_eq!(unproved.enter(LinkId(2), ConnectionOrigin::Local), None);
        let flood = UNPROVED_PER_ADDRESS_MAX as u64;
        for id in 10..10 + flood {
            assert_eq!(unproved.enter(LinkId(id), from(2)), None);
        }
        assert_eq!(unproved.enter(LinkId(5000), from(2)), Some(LinkId(10)));
        unproved.leave(LinkId(10));
        assert_eq!(unproved.enter(LinkId(5001), from(2)), Some(LinkId(11)));
    }

    #[test]
    fn many_addresses_share_one_quota_which_processes_of_this_node_do_not_need() {
        let mut unproved = Unproved::new(Some(80));
        for id in 1..=10 {
            assert_eq!(unproved.enter(LinkId(id), from(u8::try_from(id).unwrap())), None);
        }
        assert_eq!(unproved.enter(LinkId(11), from(11)), Some(LinkId(1)));
        unproved.leave(LinkId(1));
        assert_eq!(unproved.enter(LinkId(12), ConnectionOrigin::Local), None);
        assert_eq!(unproved.oldest_of_network(), Some(LinkId(2)));
        assert_eq!(unproved.len(), 11);
    }

    #[test]
    fn time_is_counted_in_ticks() {
        let mut unproved = Unproved::new(None);
        unproved.enter(LinkId(1), from(1));
        for _ in 0..UNPROVED_TICKS_MAX {
            assert_eq!(unproved.tick(), []);
        }
        unproved.enter(LinkId(2), from(1));
        assert_eq!(unproved.tick(), [LinkId(1)]);
    }
}
