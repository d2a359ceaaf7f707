//! The store of a node-cache server against a byte array, above a partition with other writers.

use std::sync::Arc;

use pario_core::{Generation, InodeId, Layout, LocalOffset, ObjectId, ServerIndex};
use pario_server::store::{CacheHooks, Store};
use proptest::prelude::*;

use super::UpstreamStore;
use crate::client::{File, Session};
use crate::{EmbedOptions, Partition};

const STRIPE: u64 = 4096;
const FILE_BYTES: u64 = 20 * STRIPE;

/// One step of a history. Offsets and lengths are in the file; only the bytes of the store's server are accessed here.
#[derive(Clone, Debug)]
enum CacheStep {
    Write { at: u64, bytes: u64, settle: bool },
    Read { at: u64, bytes: u64 },
    StrangerWrites { at: u64, bytes: u64 },
    Flush,
    Reopen,
}

fn step() -> impl Strategy<Value = CacheStep> {
    let place = || (0..FILE_BYTES, 1..2 * STRIPE);
    prop_oneof![
        6 => (place(), any::<bool>()).prop_map(|((at, bytes), settle)| CacheStep::Write { at, bytes, settle }),
        3 => place().prop_map(|(at, bytes)| CacheStep::Read { at, bytes }),
        2 => place().prop_map(|(at, bytes)| CacheStep::StrangerWrites { at, bytes }),
        1 => Just(CacheStep::Flush),
        1 => Just(CacheStep::Reopen),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteState {
    /// Never written.
    Hole,
    /// Written to the store, not confirmed: other clients may or may not see it.
    Open,
    /// All clients must see it.
    Confirmed,
}

/// One store of several, the file below it, and the expected contents.
struct NodeCacheFixture {
    partition: Partition,
    upstream: Arc<Session>,
    store: UpstreamStore,
    layout: Layout,
    server: ServerIndex,
    object: ObjectId,
    other_client: File,
    /// The bytes that the store should return.
    model: Vec<u8>,
    /// State of each byte.
    states: Vec<ByteState>,
}

impl NodeCacheFixture {
    fn new(servers: u16, cache_bytes: u64) -> NodeCacheFixture {
        let options = EmbedOptions { servers: 2, stripe_bytes: STRIPE, ..EmbedOptions::default() };
        let partition = Partition::embed(&options).unwrap();
        let stranger = partition.create("f").unwrap();
        let server = ServerIndex(servers - 1);
        let upstream = Session::in_lease_group(partition.mount_handle().spec(), 9);
        let store = UpstreamStore::new(server, cache_bytes);
        let object = ObjectId { inode: stranger.inode(), generation: Generation(0) };
        let layout = Layout::new(STRIPE, servers, 0, servers).unwrap();
        let (model, states) = (Vec::new(), Vec::new());
        let world = NodeCacheFixture {
            partition,
            upstream,
            store,
            layout,
            server,
            object,
            other_client: stranger,
            model,
            states,
        };
        world.open();
        world
    }

    fn open(&self) {
        let options = crate::OpenOptions::new(&self.upstream).read(true).write(true);
        let file = options.open_inode(self.object.inode, "f").unwrap();
        self.store.open(file, self.layout).unwrap();
    }

    fn put(&mut self, offset: u64, data: &[u8], state: ByteState) {
        let at = usize::try_from(offset).unwrap();
        let end = self.model.len().max(at + data.len());
        self.model.resize(end, 0);
        self.states.resize(end, ByteState::Hole);
        self.model[at..at + data.len()].copy_from_slice(data);
        self.states[at..at + data.len()].fill(state);
    }

    fn confirm_all(&mut self) {
        let open = |state: &&mut ByteState| **state == ByteState::Open;
        self.states.iter_mut().filter(open).for_each(|state| *state = ByteState::Confirmed);
    }

    fn write(&mut self, at: u64, data: &[u8], settle: bool) {
        for piece in self.layout.pieces_on(self.server, at..at + data.len() as u64) {
            let from = usize::try_from(piece.file_offset - at).unwrap();
            let part = &data[from..from + usize::try_from(piece.bytes).unwrap()];
            self.store.write(self.object, piece.local, &[part.into()]).unwrap();
            self.put(piece.file_offset, part, ByteState::Open);
        }
        if settle {
            self.store.confirm(self.object).unwrap();
            self.confirm_all();
        }
    }

    fn read(&self, at: u64, bytes: u64) {
        for piece in self.layout.pieces_on(self.server, at..at + bytes) {
            let mut found = vec![0xee; usize::try_from(piece.bytes).unwrap()];
            let count = self.store.read(self.object, piece.local, &mut found).unwrap();
            found[count..].fill(0);
            let from = usize::try_from(piece.file_offset).unwrap();
            let expected: Vec<u8> =
                (from..from + found.len()).map(|at| self.model.get(at).copied().unwrap_or(0)).collect();
            assert!(expected == found, "{} bytes at {from}", found.len());
        }
    }

    /// Another client writes where the store has no unconfirmed bytes, and sees all confirmed bytes.
    fn other_client_writes(&mut self, at: u64, data: &[u8]) {
        let mut found = vec![0; self.model.len() + 1];
        let count = self.other_client.read_at(0, &mut found).unwrap();
        let settled = |at: &usize| self.states[*at] == ByteState::Confirmed;
        let end = (0..self.model.len()).filter(settled).map(|at| at + 1).max().unwrap_or(0);
        assert!(end <= count, "{count} bytes of at least {end}");
        for at in (0..self.model.len()).filter(settled) {
            assert_eq!(found[at], self.model[at], "byte {at}");
        }
        let at_usize = usize::try_from(at).unwrap();
        let open = |state: &ByteState| *state == ByteState::Open;
        let end = self.states.iter().skip(at_usize).position(open).map_or(usize::MAX, |more| at_usize + more);
        let data = &data[..data.len().min(end - at_usize)];
        self.other_client.write_at(at, data).unwrap();
        self.put(at, data, ByteState::Confirmed);
    }

    fn run_step(&mut self, step: &CacheStep, seed: u8) {
        let data = |bytes: u64| -> Vec<u8> {
            (0..bytes).map(|n| u8::try_from(n % 251).unwrap().wrapping_mul(7) ^ seed | 1).collect()
        };
        match *step {
            CacheStep::Write { at, bytes, settle } => self.write(at, &data(bytes), settle),
            CacheStep::Read { at, bytes } => self.read(at, bytes),
            CacheStep::StrangerWrites { at, bytes } => self.other_client_writes(at, &data(bytes)),
            CacheStep::Flush => {
                self.store.flush(self.object).unwrap();
                self.confirm_all();
            }
            CacheStep::Reopen => {
                self.store.flush(self.object).unwrap();
                self.confirm_all();
                self.store.close(self.object.inode);
                self.open();
            }
        }
    }

    fn end(mut self) {
        self.store.sync(self.object).unwrap();
        self.confirm_all();
        let length = self.store.length(self.object).unwrap().unwrap();
        assert_eq!(length, self.layout.local_length(self.server, self.model.len() as u64));
        let mut found = vec![0; self.model.len() + 1];
        let count = self.partition.another_client().open("f").unwrap().read_at(0, &mut found).unwrap();
        assert!(self.model == found[..count]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn blocks_above_a_partition_that_others_write_to(
        servers in 1u16..4,
        cache_blocks in 0u64..12,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut world = NodeCacheFixture::new(servers, cache_blocks * STRIPE);
        for (number, step) in steps.iter().enumerate() {
            world.run_step(step, u8::try_from(number).unwrap());
        }
        world.end();
    }
}

#[test]
fn a_file_that_was_never_opened_here_is_refused() {
    let store = UpstreamStore::new(ServerIndex(0), 0);
    let object = ObjectId { inode: InodeId(3), generation: Generation(0) };
    assert!(store.read(object, LocalOffset(0), &mut [0]).is_err());
    assert!(store.write(object, LocalOffset(0), &[b"x".as_slice().into()]).is_err());
    assert!(store.confirm(object).is_err());
}

/// Closed files stay for the next open, up to a limit.
#[test]
fn closed_files_are_kept_in_bounds() {
    let partition = Partition::in_process(1).unwrap();
    let upstream = Session::in_lease_group(partition.mount_handle().spec(), 9);
    let store = UpstreamStore::new(ServerIndex(0), 1 << 20);
    let layout = Layout::new(1 << 20, 1, 0, 1).unwrap();
    for number in 0..40 {
        let inode = partition.create(format!("f{number}")).unwrap().inode();
        let options = crate::OpenOptions::new(&upstream).read(true).write(true);
        store.open(options.open_inode(inode, "f").unwrap(), layout).unwrap();
        let object = ObjectId { inode, generation: Generation(0) };
        store.write(object, LocalOffset(0), &[b"some".as_slice().into()]).unwrap();
        store.flush(object).unwrap();
        store.close(inode);
    }
    assert_eq!(store.shared_files(), super::shared::IDLE_FILES_MAX);
    assert!(store.node_cache_stats().cached_bytes <= 4 << 20);
    assert_eq!(partition.metadata("f0").unwrap().size, 4);
}
