//! What stands behind an open file: servers with leases, servers without, or a cache server that stands for all.
//!
//! | | lease | record | message | lent descriptor |
//! |---|---|---|---|---|
//! | `Leased` | manager | same node | other nodes | where the server lends |
//! | `Unleased` | none | same node, confirmed | other nodes | only if opened so |
//! | `Proxied` | manager | never | every access, to one server | reads, where the server lends |
//!
//! Never: changes while the file is open. Always: a caller asks for a property, not for the variant.

use pario_core::{Generation, Layout};
use pario_server::LocalServer;

use super::atomic_access::AtomicReads;

/// See the module.
pub(in crate::client) enum Backing {
    /// The servers of a partition; the manager grants leases.
    Leased,
    /// Servers that grant no leases: a write is complete when they have confirmed it, and no read data is cached.
    Unleased(Unleased),
    /// A cached file: every access is a message to one server, which replies after the block's owner, possibly another server, has served
    /// it. The manager grants leases.
    Proxied(Proxied),
}

/// A file on servers that grant no leases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unleased {
    /// Its generation on these servers.
    pub(crate) generation: Generation,
    /// Whether servers may lend descriptors of its objects: not if they move its bytes elsewhere by themselves, as a node cache does.
    pub(crate) may_be_lent: bool,
}

/// A file behind a cache server.
pub(in crate::client) struct Proxied {
    /// Block size in bytes: an access inside one block is atomic.
    pub(in crate::client) block_bytes: u64,
    /// The server of all accesses, if this process runs it.
    pub(in crate::client) local_server: Option<LocalServer>,
    /// State of multi-block atomic calls that need no lock of the readers.
    pub(in crate::client) atomic_reads: Option<AtomicReads>,
}

/// How to reach a cached file.
#[derive(Clone, Debug)]
pub(crate) struct CacheRoute {
    /// The layout: the whole file at the server that serves this client.
    pub(crate) layout: Layout,
    /// Block size in bytes: an access inside one block is atomic.
    pub(crate) block_bytes: u64,
    /// That server, if this process runs it.
    pub(crate) local_server: Option<LocalServer>,
    /// Ownership of a block moves to its last writer, so that the data of one call can be read atomically.
    pub(crate) moves_to_writer: bool,
}

impl From<CacheRoute> for Backing {
    fn from(route: CacheRoute) -> Backing {
        Backing::Proxied(Proxied {
            block_bytes: route.block_bytes,
            local_server: route.local_server,
            atomic_reads: route.moves_to_writer.then(AtomicReads::default),
        })
    }
}

impl Backing {
    /// Whether the manager grants leases of the file.
    pub(in crate::client) fn has_leases(&self) -> bool {
        self.unleased().is_none()
    }

    /// The file on servers that grant no leases.
    pub(in crate::client) fn unleased(&self) -> Option<Unleased> {
        match self {
            Backing::Unleased(unleased) => Some(*unleased),
            Backing::Leased | Backing::Proxied(_) => None,
        }
    }

    /// The cache server that stands for all servers.
    pub(in crate::client) fn proxied(&self) -> Option<&Proxied> {
        match self {
            Backing::Proxied(proxied) => Some(proxied),
            Backing::Leased | Backing::Unleased(_) => None,
        }
    }

    /// Whether writes may be records in the outbox.
    pub(in crate::client) fn takes_records(&self) -> bool {
        self.proxied().is_none()
    }

    /// Whether descriptors of the file's objects may be lent to this process. Lent objects do not include undrained records.
    pub(in crate::client) fn may_be_lent(&self) -> bool {
        self.unleased().is_none_or(|unleased| unleased.may_be_lent)
    }

    /// The server in this process that serves all accesses.
    pub(in crate::client) fn local_server(&self) -> Option<&LocalServer> {
        self.proxied().and_then(|proxied| proxied.local_server.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every property of every variant.
    #[test]
    fn each_backing_has_its_properties() {
        let unleased = |may_be_lent| Backing::Unleased(Unleased { generation: Generation(3), may_be_lent });
        let proxied = Backing::Proxied(Proxied { block_bytes: 4096, local_server: None, atomic_reads: None });
        for (backing, has_leases, takes_records, may_be_lent) in [
            (Backing::Leased, true, true, true),
            (unleased(false), false, true, false),
            (unleased(true), false, true, true),
            (proxied, true, false, true),
        ] {
            let found = (backing.has_leases(), backing.takes_records(), backing.may_be_lent());
            assert_eq!(found, (has_leases, takes_records, may_be_lent));
            assert!(backing.local_server().is_none());
        }
    }
}
