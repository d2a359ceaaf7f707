//! The data path over every transport and store, one property per test.

mod common;

use common::{each, pattern, small};
use pario::{EmbedOptions, Partition};

#[test]
fn a_process_reads_what_it_wrote() {
    each(|partition| {
        let file = partition.create("f").unwrap();
        let data = pattern(1 << 20, 1);
        let mut at = 0;
        for step in [1usize, 100, 8192, 65_536, 70_000, 300_000].iter().cycle() {
            let end = (at + step).min(data.len());
            file.write_at(at as u64, &data[at..end]).unwrap();
            at = end;
            if at == data.len() {
                break;
            }
        }
        let mut back = vec![0; data.len() + 10];
        assert_eq!(file.read_at(0, &mut back).unwrap(), data.len());
        assert!(back[..data.len()] == data[..]);
        assert_eq!(file.len().unwrap(), data.len() as u64);
        file.sync().unwrap();
        file.close().unwrap();
        assert_eq!(partition.metadata("f").unwrap().size, data.len() as u64);
    });
}

#[test]
fn another_client_sees_a_completed_write() {
    each(|partition| {
        let other = partition.another_client();
        let file = partition.create("f").unwrap();
        let theirs = other.options().read(true).write(true).open("f").unwrap();
        for round in 0..20u8 {
            file.write_at(u64::from(round) * 1000, &[round; 1000]).unwrap();
            let mut back = [0; 1000];
            assert_eq!(theirs.read_at(u64::from(round) * 1000, &mut back).unwrap(), 1000, "round {round}");
            assert_eq!(back, [round; 1000]);
            theirs.write_at(u64::from(round) * 1000 + 500, &[99; 10]).unwrap();
            assert_eq!(file.read_at(u64::from(round) * 1000, &mut back).unwrap(), 1000);
            assert_eq!(back[500..510], [99; 10]);
        }
        assert_eq!(other.metadata("f").unwrap().size, 20_000);
    });
}

#[test]
fn holes_and_the_end_are_exact() {
    each(|partition| {
        let file = partition.create("f").unwrap();
        file.write_at(5_000_000_000, b"end").unwrap();
        let mut back = [7; 100];
        assert_eq!(file.read_at(4_999_999_950, &mut back).unwrap(), 53);
        assert_eq!(back[..50], [0; 50]);
        assert_eq!(&back[50..53], b"end");
        assert_eq!(file.read_at(5_000_000_003, &mut back).unwrap(), 0);
        file.set_len(200_000).unwrap();
        assert_eq!(file.len().unwrap(), 200_000);
        file.write_at(0, &[1; 200_000]).unwrap();
        file.set_len(100).unwrap();
        file.set_len(300).unwrap();
        let mut back = [7; 400];
        assert_eq!(file.read_at(0, &mut back).unwrap(), 300);
        assert_eq!(back[..100], [1; 100]);
        assert_eq!(back[100..300], [0; 200]);
    });
}

#[test]
fn an_unlinked_file_lives_until_its_last_user_is_gone() {
    each(|partition| {
        let file = partition.create("f").unwrap();
        file.write_at(0, &[5; 100_000]).unwrap();
        partition.remove_file("f").unwrap();
        let second = partition.create("f").unwrap();
        second.write_at(0, b"new").unwrap();
        let mut back = [0; 100_000];
        assert_eq!(file.read_at(0, &mut back).unwrap(), 100_000);
        assert_eq!(back, [5; 100_000]);
        file.close().unwrap();
        assert_eq!(second.len().unwrap(), 3);
    });
}

#[test]
fn a_write_into_a_hole_that_was_read_is_seen() {
    each(|partition| {
        let file = partition.create("f").unwrap();
        file.set_len(500_000).unwrap();
        let mut back = [7; 1000];
        file.read_exact_at(300_000, &mut back).unwrap();
        assert_eq!(back, [0; 1000]);
        file.write_at(300_000, &[1; 1000]).unwrap();
        file.read_exact_at(300_000, &mut back).unwrap();
        assert_eq!(back, [1; 1000]);
    });
}

#[test]
fn a_sequential_reader_sees_its_own_writes_ahead_of_it() {
    each(|partition| {
        let file = partition.create("f").unwrap();
        file.write_at(0, &[1; 200_000]).unwrap();
        file.sync().unwrap();
        file.write_at(150_000, &[2; 100]).unwrap();
        for block in 0..20 {
            let mut back = [0; 10_000];
            file.read_exact_at(block * 10_000, &mut back).unwrap();
            assert_eq!(back[0], if block == 15 { 2 } else { 1 }, "block {block}");
        }
    });
}

#[test]
fn a_writer_sees_its_own_lengths_everywhere() {
    each(|partition| {
        partition.create_dir("d").unwrap();
        let file = partition.create("d/f").unwrap();
        for round in 1..5u64 {
            file.write_at(round * 1000, &[1; 10]).unwrap();
            let expected = round * 1000 + 10;
            assert_eq!(file.len().unwrap(), expected);
            assert_eq!(partition.metadata("d/f").unwrap().size, expected);
            let listed: Vec<u64> =
                partition.read_dir("d").unwrap().map(|entry| entry.unwrap().attr.size).collect();
            assert_eq!(listed, [expected]);
        }
    });
}

/// More blocks than requests may be under way.
#[test]
fn one_call_may_cover_very_many_blocks() {
    for transport in common::TRANSPORTS {
        for store in common::STORES {
            let options = EmbedOptions { transport, store, ..small(2, 4 << 10) };
            let partition = Partition::embed(&options).unwrap();
            let file = partition.create("f").unwrap();
            let data = pattern(5 << 20, 3);
            file.write_at(1000, &data).unwrap();
            let mut back = vec![0; data.len()];
            file.read_exact_at(1000, &mut back).unwrap();
            assert!(back == data, "{transport:?} {store:?}");
        }
    }
}
