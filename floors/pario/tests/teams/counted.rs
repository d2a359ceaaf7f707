//! What a call costs, counted.

use pario::team::{Hint, Position};
use pario::{EmbedOptions, EmbedStore, Partition};

use super::common::{Place, options, pattern, together};

#[test]
fn contiguous_parts_of_a_plain_file_cost_one_call_per_item_and_no_copy() {
    let place = Place::plain();
    let file = place.create("active=4,saturation=1MiB");
    together(&file, 4, |number, member| {
        member.write_all(&pattern(number as u64, 1000), Hint::Contiguous).unwrap()
    });
    let small = file.counts();
    assert_eq!((small.calls, small.parts, small.items, small.joined), (1, 4, 1, 3));
    assert_eq!((small.system_calls, small.copied_bytes), (1, 0));
    together(&file, 4, |number, member| {
        member.seek_all(0).unwrap();
        member.write_all(&pattern(number as u64, 1 << 20), Hint::Contiguous).unwrap();
    });
    let large = file.counts().since(&small);
    assert_eq!((large.items, large.system_calls, large.copied_bytes, large.false_hints), (4, 4, 0, 0));
    together(&file, 2, |number, member| {
        member.write_at_all(number as u64 * 5000, b"x", Hint::Contiguous).unwrap();
    });
    assert_eq!(file.counts().since(&small).since(&large).false_hints, 1);
}

#[test]
fn small_parts_on_a_partition_cost_one_copy_and_nothing_else() {
    let Place::Partition(partition) = Place::partition() else { unreachable!("a partition") };
    let file = pario::TeamFile::open_in(&partition, "file", &options("")).unwrap();
    let write = || {
        together(&file, 2, |number, member| {
            member.write_all(&pattern(number as u64, 4096), Hint::Contiguous).unwrap()
        });
    };
    // The first call acquires the lease and attaches the outbox.
    write();
    let (before, team) = (partition.counts(), file.counts());
    for _ in 0..20 {
        write();
    }
    let (after, team) = (partition.counts().since(&before), file.counts().since(&team));
    assert_eq!((after.messages, after.direct_writes), (0, 0));
    assert_eq!((after.records, after.record_bytes), (40, 40 * 4096));
    assert_eq!((team.own_parts, team.items, team.copied_bytes, team.system_calls), (40, 0, 0, 0));
    file.close().unwrap();
}

#[test]
fn large_parts_on_a_partition_cost_one_call_per_item_and_object() {
    let embed = EmbedOptions { servers: 2, store: EmbedStore::Files, ..EmbedOptions::default() };
    let partition = Partition::embed(&embed).unwrap();
    let file = pario::TeamFile::open_in(&partition, "file", &options("active=2,saturation=1MiB")).unwrap();
    let bytes = pattern(1, 4 << 20);
    let write = || {
        together(&file, 2, |_, member| member.write_com_at_all(0, &bytes, Hint::Unknown).unwrap());
    };
    write();
    let (before, team) = (partition.counts(), file.counts());
    write();
    let (after, team) = (partition.counts().since(&before), file.counts().since(&team));
    // Two items, each on two objects.
    assert_eq!((team.items, after.direct_writes, after.messages, after.records), (2, 4, 0, 0));
    assert_eq!(team.copied_bytes, 0);
    file.close().unwrap();
}

#[test]
fn joined_parts_on_a_partition_are_written_from_the_members_memory() {
    let embed = EmbedOptions { servers: 2, store: EmbedStore::Files, ..EmbedOptions::default() };
    let partition = Partition::embed(&embed).unwrap();
    let file = pario::TeamFile::open_in(&partition, "file", &options("active=2,saturation=8MiB")).unwrap();
    let write = || {
        together(&file, 2, |number, member| {
            member.seek_all(0).unwrap();
            member.write_all(&pattern(number as u64, 1 << 20), Hint::Contiguous).unwrap();
        });
    };
    write();
    let (before, team) = (partition.counts(), file.counts());
    write();
    let (after, team) = (partition.counts().since(&before), file.counts().since(&team));
    // One item of two pieces, on two objects: one vectored call for each.
    assert_eq!((team.items, team.joined, team.copied_bytes), (1, 1, 0));
    assert_eq!((after.direct_writes, after.records, after.messages), (2, 0, 0));
    let mut back = vec![0; 2 << 20];
    assert_eq!(file.read_at(0, &mut back).unwrap(), 2 << 20);
    assert!(back == [pattern(0, 1 << 20), pattern(1, 1 << 20)].concat());
    file.close().unwrap();
}

#[test]
fn parts_of_members_that_are_not_active_are_copied_within_the_buffer() {
    let place = Place::plain();
    let file = place.create("active=1,buffer=10000B");
    // Thread 1 goes on; thread 2 finds no room and must wait, which is why it comes last.
    file.at(Position::of(1, 3)).write_all(&pattern(1, 9000), Hint::Unknown).unwrap();
    std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| file.at(Position::of(0, 3)).write_all(&pattern(0, 10), Hint::Unknown).unwrap());
        file.at(Position::of(2, 3)).write_all(&pattern(2, 9000), Hint::Unknown).unwrap();
        waiting.join().unwrap();
    });
    assert_eq!(file.counts().copied_bytes, 9000);
    file.close().unwrap();
    assert!(place.content() == [pattern(0, 10), pattern(1, 9000), pattern(2, 9000)].concat());
}
