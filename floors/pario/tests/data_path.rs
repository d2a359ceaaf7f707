//! The data path over every transport and store, one claim a test.

use pario::{EmbedOptions, EmbedStore, EmbedTransport, Partition};

const TRANSPORTS: [EmbedTransport; 3] =
    [EmbedTransport::InProcess, EmbedTransport::Unix, EmbedTransport::Tcp];
const STORES: [EmbedStore; 3] = [EmbedStore::Memory, EmbedStore::Files, EmbedStore::Direct];

fn each(check: impl Fn(&Partition)) {
    for transport in TRANSPORTS {
        for store in STORES {
            let options = EmbedOptions {
                servers: 3,
                stripe_bytes: 64 << 10,
                store,
                transport,
                memory_bytes: 64 << 20,
                ..EmbedOptions::default()
            };
            println!("{transport:?} {store:?}");
            check(&Partition::embed(&options).expect("a partition in this process"));
        }
    }
}

fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        })
        .collect()
}

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
