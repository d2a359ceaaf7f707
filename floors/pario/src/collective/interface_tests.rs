//! Calls of `GroupFile` that no face uses: described memory at the individual pointer, shared pointers, split reads.

use std::sync::Arc;

use pario_view::{Datatype, Elements};

use super::{GroupFile, Hints, Seek};
use crate::Partition;
use crate::group::{Group, threads};

fn on_ranks(size: usize, body: impl Fn(&GroupFile, &dyn Group) + Sync) {
    let partition = Partition::in_process(2).unwrap();
    let (partition, body) = (&partition, &body);
    std::thread::scope(|scope| {
        for group in threads(size) {
            scope.spawn(move || {
                let own: Arc<dyn Group> = group;
                let options = partition.another_client().options().create(true).read(true).write(true);
                let file = options.open_all(&own, "field", &Hints::default()).unwrap();
                body(&file, &*own);
                file.close().unwrap();
            });
        }
    });
}

/// The first of two bytes, eight times.
fn every_second() -> Elements {
    Elements::new(&Datatype::elementary(1).unwrap().resized(0, 2).unwrap(), 8).unwrap()
}

#[test]
fn described_memory_at_the_individual_pointer() {
    on_ranks(1, |file, _| {
        let memory: Vec<u8> = (0..16).collect();
        file.write_elements(&memory, 0, &every_second()).unwrap();
        assert_eq!(file.position(), 8);
        let mut plain = [0; 8];
        file.read_at(0, &mut plain).unwrap();
        assert_eq!(plain, [0, 2, 4, 6, 8, 10, 12, 14]);
        file.seek(Seek::Set(4)).unwrap();
        let mut back = [0xff; 16];
        assert_eq!(
            file.read_elements(&mut back, 0, &every_second()).unwrap(),
            4,
            "up to the end of the file"
        );
        assert_eq!(back[..8], [8, 0xff, 10, 0xff, 12, 0xff, 14, 0xff]);
        assert_eq!((back[8..] == [0xff; 8], file.position()), (true, 8));
    });
}

#[test]
fn members_share_a_pointer_in_every_form() {
    on_ranks(3, |file, group| {
        let own = u8::try_from(group.rank()).unwrap();
        let pending = file.start_write_shared(vec![own; 10]).unwrap();
        assert_eq!(pending.wait().unwrap(), [own; 10]);
        group.barrier().unwrap();
        file.seek_shared(Seek::Set(0)).unwrap();
        // Each member reads one part, written by any member.
        let mut part = [9; 10];
        assert_eq!(file.read_shared(&mut part).unwrap(), 10);
        let seen = group.allgather(&part).unwrap();
        let mut writers: Vec<u8> = seen.iter().map(|part| part[0]).collect();
        writers.sort_unstable();
        assert_eq!(writers, [0, 1, 2]);
        assert!(seen.iter().all(|part| part.iter().all(|byte| *byte == part[0])), "{seen:?}");
        file.seek_shared(Seek::Set(0)).unwrap();
        let whole = file.start_read_shared(vec![0; 10]).unwrap().wait().unwrap();
        assert_eq!(whole.len(), 10);
        group.barrier().unwrap();
        file.seek_shared(Seek::Set(0)).unwrap();
        file.begin_write_ordered(vec![own + 5; 4]).unwrap();
        file.end_write_all().unwrap();
        file.seek_shared(Seek::Set(0)).unwrap();
        file.begin_read_ordered(vec![0; 4]).unwrap();
        assert_eq!(file.end_read_all().unwrap(), [own + 5; 4], "in rank order");
    });
}

#[test]
fn a_split_read_advances_the_pointer_at_its_first_half() {
    on_ranks(2, |file, group| {
        let own = u8::try_from(group.rank()).unwrap();
        file.seek(Seek::Set(u64::from(own) * 4)).unwrap();
        file.begin_write_all(vec![own + 1; 4]).unwrap();
        assert!(file.end_read_all().is_err(), "the access in progress is a write");
        file.end_write_all().unwrap();
        group.barrier().unwrap();
        file.seek(Seek::Set(0)).unwrap();
        file.begin_read_all(vec![0; 6]).unwrap();
        assert_eq!(file.position(), 6);
        assert!(file.begin_read_all(vec![0; 6]).is_err(), "one at a time");
        assert_eq!(file.end_read_all().unwrap(), [1, 1, 1, 1, 2, 2]);
        assert!(file.end_read_all().is_err(), "no access was begun");
    });
}
