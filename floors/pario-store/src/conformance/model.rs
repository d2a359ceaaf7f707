//! Random operations against plain byte vectors.

use std::collections::BTreeMap;

use pario_core::SeededRandom;
use pario_core::{Generation, InodeId, LocalOffset, ObjectId};
use pario_sys::MemoryPiece;

use crate::store::Store;

const INODES: usize = 3;
const OPERATIONS: usize = 160;
/// Offsets and lengths reach over several blocks of any store's cache.
const REACH_BYTES: u64 = 900_000;

struct StoreModel<'a> {
    store: &'a dyn Store,
    objects: BTreeMap<ObjectId, Vec<u8>>,
    generations: [u32; INODES],
    random: SeededRandom,
    seed: u64,
}

/// Runs the operations that follow from `seed` on an empty store and compares every result with a model.
pub fn random_operations(store: &dyn Store, seed: u64) {
    let mut model = StoreModel {
        store,
        objects: BTreeMap::new(),
        generations: [0; INODES],
        random: SeededRandom::new(seed),
        seed,
    };
    for _ in 0..OPERATIONS {
        model.step();
    }
    model.check_all();
}

impl StoreModel<'_> {
    fn step(&mut self) {
        let inode = self.random.index(INODES);
        let object = self.current(inode);
        match self.random.below(20) {
            0..=7 => self.write(object),
            8..=12 => self.read(object),
            13 => self.truncate(inode),
            14 if self.random.coin() => self.remove(object),
            14 | 15 => self.store.flush(object).expect("flush"),
            16 => self.store.sync(object).expect("sync"),
            17 => self.check_list(),
            18 => self.check_length(object),
            _ => self.store.sync_all().expect("sync all"),
        }
    }

    fn current(&self, inode: usize) -> ObjectId {
        let generation = self.generations[inode];
        ObjectId { inode: InodeId(inode as u64), generation: Generation(generation) }
    }

    /// An offset and a length: mostly small, sometimes large, sometimes on the borders of sectors and blocks.
    fn span(&mut self) -> (u64, usize) {
        let at = match self.random.below(4) {
            0 => self.random.below(20_000),
            1 => self.random.below(REACH_BYTES / 4096) * 4096,
            2 => self.random.below(3) * 262_144 + self.random.below(10),
            _ => self.random.below(REACH_BYTES),
        };
        let bytes = match self.random.below(4) {
            0 => self.random.below(30),
            1 => 4096 * (1 + self.random.below(4)),
            2 => self.random.below(10_000),
            _ => self.random.below(REACH_BYTES / 2),
        };
        (at, usize::try_from(bytes).expect("small"))
    }

    fn write(&mut self, object: ObjectId) {
        let (at, bytes) = self.span();
        if bytes == 0 {
            return;
        }
        let value = self.random.next_u64().to_le_bytes();
        let source: Vec<u8> = (0..bytes).map(|i| value[i % 8] ^ (i >> 8).to_le_bytes()[0]).collect();
        let cut = self.random.index(bytes);
        let (head, tail) = MemoryPiece::from(&source[..]).split_at(cut);
        self.store.write(object, LocalOffset(at), &[head, tail]).expect("writing");
        let model = self.objects.entry(object).or_default();
        let start = usize::try_from(at).expect("small");
        if model.len() < start + bytes {
            model.resize(start + bytes, 0);
        }
        model[start..start + bytes].copy_from_slice(&source);
    }

    fn read(&mut self, object: ObjectId) {
        let (at, bytes) = self.span();
        let mut target = vec![0xEE; bytes];
        let read = self.store.read(object, LocalOffset(at), &mut target).expect("reading");
        let start = usize::try_from(at).expect("small");
        let model = self.objects.get(&object).map_or(&[][..], |model| &model[start.min(model.len())..]);
        let expected = &model[..bytes.min(model.len())];
        assert_eq!(read, expected.len(), "seed {}: {object} at {at}, {bytes} bytes", self.seed);
        let first = target.iter().zip(expected).position(|(found, expected)| found != expected);
        assert_eq!(first, None, "seed {}: {object} at {at}, {bytes} bytes: first difference", self.seed);
    }

    fn truncate(&mut self, inode: usize) {
        let from = self.current(inode);
        let grow = u32::from(self.random.below(4) != 0);
        let to = ObjectId { generation: Generation(from.generation.0 + grow), ..from };
        let (bytes, _) = self.span();
        self.store.truncate(from.inode, from.generation, to.generation, bytes).expect("cutting");
        self.generations[inode] = to.generation.0;
        if let Some(mut model) = self.objects.remove(&from) {
            model.truncate(usize::try_from(bytes).expect("small"));
            self.objects.insert(to, model);
        }
        self.check_length(from);
        self.check_length(to);
    }

    fn remove(&mut self, object: ObjectId) {
        self.store.remove(object).expect("removing");
        self.objects.remove(&object);
        self.check_length(object);
    }

    fn check_length(&self, object: ObjectId) {
        let expected = self.objects.get(&object).map(|model| model.len() as u64);
        assert_eq!(self.store.length(object).expect("length"), expected, "seed {}: {object}", self.seed);
    }

    fn check_list(&self) {
        let expected: Vec<_> =
            self.objects.iter().map(|(object, model)| (*object, model.len() as u64)).collect();
        assert_eq!(self.store.list(None, 100).expect("list"), expected, "seed {}", self.seed);
    }

    fn check_all(&self) {
        self.check_list();
        for (object, expected) in &self.objects {
            let mut found = vec![0xEE; expected.len()];
            self.store.read(*object, LocalOffset(0), &mut found).expect("reading");
            let first = found.iter().zip(expected).position(|(found, expected)| found != expected);
            assert_eq!(first, None, "seed {}: {object}: first difference", self.seed);
        }
    }
}
