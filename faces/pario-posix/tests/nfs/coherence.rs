//! Writes through NFS and through other clients of the partition, each seen by the other after it has returned; the end of an export.

use nfs3_client::Nfs3Client;
use nfs3_client::nfs3_types::nfs3::stable_how;
use pario_posix::Export;

use crate::client::{BlockingStream, ExportedPartition, NfsUser, now, options};

#[test]
fn every_client_sees_what_another_has_written() {
    let exported = ExportedPartition::new();
    let (mut one, mut two) = (exported.root(), exported.root());
    let file = one.create("f", 0o644).unwrap();
    let other = exported.partition.another_client();
    let plain = other.options().read(true).write(true).open("/f").unwrap();
    let mut expected = vec![0; 4096];
    for round in 0..50_u8 {
        let place = usize::from(round) * 64;
        let mut back = vec![0; 64];
        one.write(&file, place as u64, &[round; 64], stable_how::UNSTABLE).unwrap();
        plain.read_exact_at(place as u64, &mut back).unwrap();
        assert_eq!(back, [round; 64], "written through NFS in round {round}");
        plain.write_at(place as u64, &[round + 100; 64]).unwrap();
        assert_eq!(two.read(&file, place as u64, 64).unwrap().0, [round + 100; 64], "round {round}");
        assert_eq!(two.attributes(&file).unwrap().size, place as u64 + 64);
        expected[place..place + 64].fill(round + 100);
    }
    assert_eq!(one.read(&file, 0, 4096).unwrap(), (expected[..50 * 64].to_vec(), true));
    let root = one.root.clone();
    other.rename("/f", "/g").unwrap();
    assert!(one.lookup(&root, "f").is_err());
    assert_eq!(two.lookup(&root, "g").unwrap(), file);
}

#[test]
fn clients_write_at_the_same_time() {
    let exported = ExportedPartition::new();
    let file = exported.root().create("f", 0o644).unwrap();
    std::thread::scope(|scope| {
        for number in 0..4_u8 {
            let (exported, file) = (&exported, &file);
            scope.spawn(move || {
                let mut user = exported.root();
                for round in 0..20_u64 {
                    let offset = (round * 4 + u64::from(number)) * 10_000;
                    user.write(file, offset, &[number + 1; 10_000], stable_how::UNSTABLE).unwrap();
                }
            });
        }
    });
    let mut user = exported.root();
    assert_eq!(user.attributes(&file).unwrap().size, 800_000);
    let (data, is_end) = user.read(&file, 0, 1 << 20).unwrap();
    assert!(is_end);
    for (index, piece) in data.chunks(10_000).enumerate() {
        let number = u8::try_from(index % 4).unwrap() + 1;
        assert!(piece.iter().all(|byte| *byte == number), "piece {index}");
    }
}

#[test]
fn an_export_ends_in_order_and_handles_outlive_it() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let file = user.create("f", 0o644).unwrap();
    let before = user.write(&file, 0, b"unstable", stable_how::UNSTABLE).unwrap();
    assert_eq!(exported.export.stop(), 0);
    assert_eq!(exported.export.connections(), 0);
    assert!(now(user.nfs.null()).is_err(), "the connection has ended");
    let again = Export::new(&exported.partition, options()).unwrap();
    let mut user = NfsUser::new(again.address(), 0, 0, &[]);
    assert_eq!(user.read(&file, 0, 100).unwrap(), (b"unstable".to_vec(), true));
    let after = user.write(&file, 0, b"x", stable_how::UNSTABLE).unwrap();
    assert_ne!(before, after, "a new start has a new write verifier");
}

#[test]
fn connections_are_limited_and_come_back() {
    let exported = ExportedPartition::new();
    let address = exported.export.address();
    let mut clients: Vec<Nfs3Client<BlockingStream>> =
        (0..32).map(|_| Nfs3Client::new(BlockingStream::new(address))).collect();
    for client in &mut clients {
        now(client.null()).unwrap();
    }
    assert!(now(Nfs3Client::new(BlockingStream::new(address)).null()).is_err(), "the 33rd is closed");
    now(clients[0].null()).unwrap();
    clients.clear();
    let clock = pario::MonotonicClock;
    let began = pario::core::Clock::now(&clock);
    while now(Nfs3Client::new(BlockingStream::new(address)).null()).is_err() {
        let waited = pario::core::Clock::now(&clock).since(began);
        assert!(waited < std::time::Duration::from_secs(30), "ended connections are still counted");
    }
}
