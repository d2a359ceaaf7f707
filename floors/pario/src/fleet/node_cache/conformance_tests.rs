//! The conformance suite on the store of a node-cache server, with files of a partition that another client makes, truncates and
//! removes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pario_core::{Generation, InodeId, Layout, ObjectId, ServerIndex};
use pario_server::store::conformance::{self, FileOwner, OpenedFiles};
use pario_server::store::{Store, StoreError};

use super::UpstreamStore;
use super::object::into_fault;
use crate::client::Session;
use crate::{EmbedOptions, Partition};

const STRIPE: u64 = 64 << 10;

/// Files of a partition, and a store above it.
#[derive(Debug)]
struct PartitionFiles {
    partition: Arc<Partition>,
    upstream: Arc<Session>,
    store: UpstreamStore,
    names: Arc<AtomicU64>,
}

impl PartitionFiles {
    /// The name of a file is its inode, so that no table is needed: it is renamed after it was made.
    fn name(inode: InodeId) -> String {
        format!("file-{inode}")
    }
}

impl FileOwner for PartitionFiles {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn make(&self) -> InodeId {
        let new = format!("new-{}", self.names.fetch_add(1, Ordering::Relaxed));
        let inode = self.partition.create(&new).unwrap().inode();
        self.partition.rename(&new, PartitionFiles::name(inode)).unwrap();
        let options = crate::OpenOptions::new(&self.upstream).read(true).write(true);
        let file = options.open_inode(inode, "f").unwrap();
        self.store.open(file, Layout::new(STRIPE, 1, 0, 1).unwrap()).unwrap();
        inode
    }

    /// The manager recalls the store's lease before it truncates.
    fn truncate(
        &self,
        inode: InodeId,
        from: Generation,
        _to: Generation,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let length = self.store.length(ObjectId { inode, generation: from })?.unwrap_or(0);
        if length <= bytes {
            return Ok(());
        }
        let options = self.partition.options().read(true).write(true);
        let file = options.open(PartitionFiles::name(inode));
        file.and_then(|file| file.set_len(bytes)).map_err(|error| StoreError::Below(into_fault(error)))
    }

    fn separates_truncations(&self) -> bool {
        true
    }

    fn remove(&self, inode: InodeId) {
        self.partition.remove_file(PartitionFiles::name(inode)).unwrap();
        self.store.close(inode);
    }
}

fn conforms(cache_bytes: u64) {
    let options = EmbedOptions { servers: 2, stripe_bytes: STRIPE, ..EmbedOptions::default() };
    let (partition, names) = (Arc::new(Partition::embed(&options).unwrap()), Arc::default());
    conformance::all(&|| {
        let upstream = Session::in_lease_group(partition.mount_handle().spec(), 9);
        let store = UpstreamStore::new(ServerIndex(0), cache_bytes);
        let (partition, names) = (Arc::clone(&partition), Arc::clone(&names));
        Box::new(OpenedFiles::new(PartitionFiles { partition, upstream, store, names }))
    });
}

#[test]
fn a_large_cache_conforms() {
    conforms(64 << 20);
}

#[test]
fn a_cache_of_a_few_blocks_conforms() {
    conforms(5 * STRIPE);
}
