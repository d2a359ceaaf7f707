//! Bytes that changed at rest: a truncated object is an error that names server and range, a flipped bit is detected by every read path,
//! and bytes that were never written are zeros.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::{SeededRandom, pattern, small};
use pario::group::Group;
use pario::{
    Alone, Checksums, Datatype, EmbedOptions, EmbedStore, EmbedTransport, GroupFile, Hints, Partition,
};

const BYTES: usize = 400_000;
const STRIPE: u64 = 64 << 10;

struct DamagedPartition {
    dir: tempfile::TempDir,
    partition: Partition,
    data: Vec<u8>,
}

impl DamagedPartition {
    /// A file `f` of two servers, synced.
    fn new(transport: EmbedTransport, store: EmbedStore, checksums: Checksums) -> DamagedPartition {
        let dir = tempfile::tempdir().unwrap();
        let options = EmbedOptions {
            transport,
            store,
            checksums,
            dir: Some(dir.path().to_owned()),
            ..small(2, STRIPE)
        };
        let partition = Partition::embed(&options).unwrap();
        let data = pattern(BYTES, 7);
        let file = partition.create("f").unwrap();
        file.write_at(0, &data).unwrap();
        file.sync().unwrap();
        file.close().unwrap();
        DamagedPartition { dir, partition, data }
    }

    /// Path of server `server`'s part of the only file.
    fn object(&self, server: usize) -> PathBuf {
        let mut found = Vec::new();
        let objects = self.dir.path().join(format!("server-{server}/objects"));
        for dir in std::fs::read_dir(objects).unwrap() {
            found.extend(std::fs::read_dir(dir.unwrap().path()).unwrap().map(|entry| entry.unwrap().path()));
        }
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    fn read(&self, at: usize, bytes: usize) -> Result<Vec<u8>, String> {
        let client = self.partition.another_client();
        let mut back = vec![0xEE; bytes];
        let file = client.open("f").unwrap();
        let count = file.read_at(at as u64, &mut back).map_err(|error| error.to_string())?;
        back.truncate(count);
        Ok(back)
    }

    /// Half of the bytes, in pieces of 8, as a view selects them; read `times` times.
    fn read_view(&self, times: usize) -> Result<Vec<u8>, String> {
        let client = self.partition.another_client();
        let group: std::sync::Arc<dyn Group> = Alone::group();
        let file: GroupFile = client.options().read(true).open_all(&group, "f", &Hints::default()).unwrap();
        let byte = Datatype::elementary(1).unwrap();
        let pieces = Datatype::contiguous(8, &byte).unwrap().resized(0, 16).unwrap();
        file.set_view(0, &byte, &pieces).unwrap();
        let mut back = vec![0; BYTES / 2];
        for _ in 0..times {
            file.read_at(0, &mut back).map_err(|error| error.to_string())?;
        }
        Ok(back)
    }
}

fn flip(path: &Path, bit: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, bit / 8).unwrap();
    byte[0] ^= 1 << (bit % 8);
    file.write_all_at(&byte, bit / 8).unwrap();
}

/// File offset of a byte of server `server`'s object.
fn in_file(server: u64, at: u64) -> usize {
    usize::try_from((at / STRIPE * 2 + server) * STRIPE + at % STRIPE).unwrap()
}

#[test]
fn a_flipped_bit_is_found_by_every_way_of_reading() {
    for transport in [EmbedTransport::Unix, EmbedTransport::InProcess, EmbedTransport::Tcp] {
        let stage = DamagedPartition::new(transport, EmbedStore::Files, Checksums::On);
        let view: Vec<u8> = stage.data.chunks(16).flat_map(|row| row[..8].to_vec()).collect();
        assert_eq!(stage.read(0, BYTES + 10).unwrap(), stage.data);
        assert!(stage.read_view(3).unwrap() == view);
        let mut chance = SeededRandom::new(11);
        for _ in 0..25 {
            let server = chance.index(2);
            let object = stage.object(server);
            let bit = chance.below(std::fs::metadata(&object).unwrap().len() * 8);
            let at = in_file(server as u64, bit / 8);
            flip(&object, bit);
            let told = stage.read(0, BYTES).unwrap_err();
            assert!(told.contains(&format!("server {server}")), "{transport:?}: {told}");
            assert!(told.contains("do not match their checksum"), "{transport:?}: {told}");
            stage.read(at, 1).unwrap_err();
            stage.read(at.saturating_sub(5000), 6000).unwrap_err();
            stage.read_view(1).unwrap_err();
            flip(&object, bit);
            // The bit is flipped between reads of one handle.
            stage.read_view(2).unwrap();
        }
        assert_eq!(stage.read(0, BYTES).unwrap(), stage.data);
    }
}

/// A mapping of an object must not return bytes that changed after it was made.
#[test]
fn a_bit_that_is_flipped_between_two_reads_is_found_by_the_second() {
    let stage = DamagedPartition::new(EmbedTransport::Unix, EmbedStore::Files, Checksums::On);
    let client = stage.partition.another_client();
    let group: std::sync::Arc<dyn Group> = Alone::group();
    let file = client.options().read(true).open_all(&group, "f", &Hints::default()).unwrap();
    let byte = Datatype::elementary(1).unwrap();
    file.set_view(0, &byte, &Datatype::contiguous(8, &byte).unwrap().resized(0, 16).unwrap()).unwrap();
    let mut back = vec![0; BYTES / 2];
    for _ in 0..3 {
        file.read_at(0, &mut back).unwrap();
    }
    flip(&stage.object(1), 8 * 70_000);
    file.read_at(0, &mut back).unwrap_err();
}

#[test]
fn a_cut_object_is_an_error_that_names_server_and_range() {
    for checksums in [Checksums::Off, Checksums::On] {
        for transport in [EmbedTransport::Unix, EmbedTransport::InProcess, EmbedTransport::Tcp] {
            let stage = DamagedPartition::new(transport, EmbedStore::Files, checksums);
            let object = stage.object(1);
            let file = std::fs::File::options().write(true).open(&object).unwrap();
            file.set_len(70_000).unwrap();
            let lost = in_file(1, 70_000);
            let what = format!("{transport:?}, {checksums:?}");
            for (at, bytes) in [(lost, 1), (lost - 10, 20), (0, BYTES)] {
                let told = stage.read(at, bytes).unwrap_err();
                assert!(told.contains("server 1"), "{what}: {told}");
                assert!(told.contains("cut short") || told.contains("checksum"), "{what}: {told}");
                if checksums == Checksums::Off {
                    assert!(told.contains("bytes 70000.."), "{what}: {told}");
                }
            }
            stage.read_view(1).unwrap_err();
            stage.read_view(3).unwrap_err();
            assert_eq!(stage.read(0, 60_000).unwrap(), stage.data[..60_000], "{what}: what is there is read");
        }
    }
}

#[test]
fn the_store_direct_finds_both() {
    let stage = DamagedPartition::new(EmbedTransport::Unix, EmbedStore::Direct, Checksums::On);
    let (dir, data) = (stage.dir, stage.data);
    // After a restart: caches would hide the bytes on the disk.
    drop(stage.partition);
    let options = || EmbedOptions {
        store: EmbedStore::Direct,
        checksums: Checksums::On,
        dir: Some(dir.path().to_owned()),
        ..small(2, STRIPE)
    };
    let read = || {
        let partition = Partition::embed(&options()).unwrap();
        let mut back = vec![0; BYTES];
        partition.open("f").unwrap().read_at(0, &mut back).map(|_| back).map_err(|error| error.to_string())
    };
    assert!(read().unwrap() == data);
    let object = walk(&dir.path().join("server-0/objects")).remove(0);
    flip(&object, 12_345);
    assert!(read().unwrap_err().contains("checksum"));
    flip(&object, 12_345);
    std::fs::File::options().write(true).open(&object).unwrap().set_len(1000).unwrap();
    assert!(read().unwrap_err().contains("cut short"));
}

fn walk(dir: &Path) -> Vec<PathBuf> {
    let below = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    below.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn what_was_never_written_is_zeros() {
    for checksums in [Checksums::Off, Checksums::On] {
        for transport in [EmbedTransport::Unix, EmbedTransport::Tcp] {
            let options = EmbedOptions { transport, store: EmbedStore::Files, checksums, ..small(3, STRIPE) };
            let partition = Partition::embed(&options).unwrap();
            let file = partition.create("f").unwrap();
            file.write_at(1_000_000, b"far").unwrap();
            file.set_len(3_000_000).unwrap();
            file.sync().unwrap();
            let mut back = vec![7; 3_000_000];
            for client in [partition.another_client(), partition.another_client()] {
                let file = client.open("f").unwrap();
                assert_eq!(file.read_at(0, &mut back).unwrap(), 3_000_000);
                assert_eq!(&back[1_000_000..1_000_003], b"far");
                assert!(back.iter().filter(|byte| **byte != 0).count() == 3);
            }
            // Truncated and extended again.
            file.write_at(0, &vec![1; 3_000_000]).unwrap();
            file.set_len(100_001).unwrap();
            file.set_len(2_000_000).unwrap();
            assert_eq!(file.read_at(0, &mut back).unwrap(), 2_000_000);
            assert!(back[..100_001] == vec![1; 100_001] && back[100_001..2_000_000] == vec![0; 1_899_999]);
        }
    }
}
