//! Counts the group exchanges of frequent collective calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pario_core::{Code, Fault};
use pario_view::Datatype;

use super::{GroupFile, Hints, Seek};
use crate::Partition;
use crate::client::OpenOptions;
use crate::error::Result;
use crate::group::{Agreed, CollectiveCall, Group, threads};

/// A member that counts its exchanges, including those of its duplicates.
#[derive(Debug)]
struct CountedGroup {
    group: Arc<dyn Group>,
    exchanges: Arc<AtomicUsize>,
}

impl Group for CountedGroup {
    fn rank(&self) -> usize {
        self.group.rank()
    }

    fn size(&self) -> usize {
        self.group.size()
    }

    fn node_of(&self, rank: usize) -> usize {
        self.group.node_of(rank)
    }

    fn allgather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.collect(CollectiveCall::Allgather, bytes)
    }

    fn collect(&self, call: CollectiveCall, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.exchanges.fetch_add(1, Ordering::Relaxed);
        self.group.collect(call, bytes)
    }

    fn check(&self) -> Result<()> {
        self.group.check()
    }

    fn duplicate(&self) -> Result<Arc<dyn Group>> {
        self.exchanges.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(CountedGroup { group: self.group.duplicate()?, exchanges: Arc::clone(&self.exchanges) }))
    }

    fn duplicate_if(&self, alike: &[(&str, &[u8])], mine: Result<&[u8]>) -> Result<Agreed> {
        self.exchanges.fetch_add(1, Ordering::Relaxed);
        let (group, all) = self.group.duplicate_if(alike, mine)?;
        Ok((Arc::new(CountedGroup { group, exchanges: Arc::clone(&self.exchanges) }), all))
    }
}

/// Runs three members, each with the same collectively opened file.
fn each(body: impl Fn(&GroupFile, &dyn Fn() -> usize) + Sync) {
    let partition = Partition::in_process(2).unwrap();
    std::thread::scope(|scope| {
        for group in threads(3) {
            scope.spawn(|| {
                let rounds = Arc::new(AtomicUsize::new(0));
                let group: Arc<dyn Group> = Arc::new(CountedGroup { group, exchanges: Arc::clone(&rounds) });
                let client = partition.another_client();
                let options = client.options().create(true).read(true).write(true);
                let file = options.open_all(&group, "field", &Hints::default()).unwrap();
                body(&file, &|| rounds.swap(0, Ordering::Relaxed));
                file.close().unwrap();
            });
        }
    });
}

#[test]
fn members_meet_once_for_a_view_and_twice_for_a_length() {
    each(|file, rounds| {
        let byte = Datatype::elementary(1).unwrap();
        rounds();
        file.set_view(0, &byte, &byte.resized(0, 3).unwrap()).unwrap();
        assert_eq!(rounds(), 1);
        file.set_len(100).unwrap();
        assert_eq!(rounds(), 2);
        assert_eq!(file.seek_shared(Seek::Set(7)).unwrap(), 7);
        assert_eq!(rounds(), 2);
        file.write_at_all(file.group().rank() as u64, b"a").unwrap();
        assert_eq!(rounds(), 0);
        file.sync().unwrap();
        assert_eq!(rounds(), 1);
        file.set_atomicity(true).unwrap();
        assert_eq!(rounds(), 2, "their views are compared");
    });
}

/// Opens the file again with the given options; returns the number of exchanges.
fn opened_again(file: &GroupFile, path: &str, exclusive: bool) -> (Result<GroupFile>, usize) {
    let rounds = Arc::new(AtomicUsize::new(0));
    let group: Arc<dyn Group> =
        Arc::new(CountedGroup { group: Arc::clone(file.group()), exchanges: Arc::clone(&rounds) });
    let options =
        OpenOptions::new(file.inner.file.session()).create(true).create_new(exclusive).read(true).write(true);
    let opened = options.open_all(&group, path, &Hints::default());
    (opened, rounds.load(Ordering::Relaxed))
}

#[test]
fn members_meet_twice_to_open_what_is_there_and_three_times_to_make_it() {
    each(|file, _| {
        let (again, rounds) = opened_again(file, "field", false);
        again.unwrap().close().unwrap();
        assert_eq!(rounds, 2);
        let (made, rounds) = opened_again(file, "other", true);
        made.unwrap().close().unwrap();
        assert_eq!(rounds, 3);
        // A member that opens before rank 0 has created the file retries.
        let (made, rounds) = opened_again(file, "third", false);
        made.unwrap().close().unwrap();
        assert!((2..=3).contains(&rounds), "{rounds} rounds");
        let (refused, _) = opened_again(file, "other", true);
        assert_eq!(refused.unwrap_err().code(), Code::Exists);
    });
}

/// One of three members has written: it sends to the server with the bytes and to the manager. Rank 0 sends to the manager, the
/// third member sends nothing.
#[test]
fn who_has_nothing_to_sync_sends_nothing() {
    each(|file, _| {
        let rank = file.group().rank();
        let synced = || {
            let before = file.counts();
            file.sync().unwrap();
            file.group().barrier().unwrap();
            file.counts().since(&before).messages
        };
        if rank == 1 {
            file.write_at(0, &[1; 10]).unwrap();
        }
        assert_eq!(synced(), [1, 2, 0][rank]);
        assert_eq!(synced(), [1, 0, 0][rank]);
    });
}

fn none<T>() -> Result<T> {
    Err(Fault::new(Code::NoSpace, "no such type").into())
}

#[test]
fn a_view_that_one_cannot_have_is_nobodys() {
    each(|file, _| {
        let (rank, byte) = (file.group().rank(), Datatype::elementary(1).unwrap());
        let wished = if rank == 1 { none() } else { Ok((5, &byte, &byte)) };
        let error = file.set_view_if(wished, &[("a word", b"word")]).unwrap_err();
        assert_eq!(error.code(), Code::NoSpace);
        assert_eq!(error.to_string(), if rank == 1 { "no such type" } else { "rank 1: no such type" });
        let word: &[u8] = if rank == 2 { b"other" } else { b"word" };
        let error = file.set_view_if(Ok((5, &byte, &byte)), &[("a word", word)]).unwrap_err();
        assert_eq!(error.code(), Code::NotSame);
        assert_eq!(
            error.to_string(),
            "ranks 0 and 2 do not agree on a word, which must be equal on all members"
        );
        let two = Datatype::elementary(1 + u64::from(rank == 0)).unwrap();
        let error = file.set_view(5, &two, &two).unwrap_err();
        assert!(error.to_string().contains("the size of the elementary type"), "{error}");
        assert_eq!(file.byte_offset(0).unwrap(), 0, "the view is as it was");
        let wished = if rank == 2 { none() } else { Ok(7) };
        assert_eq!(file.set_len_if(wished).unwrap_err().code(), Code::NoSpace);
        assert_eq!(file.set_len_if(Ok(if rank == 2 { 8 } else { 7 })).unwrap_err().code(), Code::NotSame);
        assert_eq!(file.len().unwrap(), 0);
        let gone = file.seek_shared(Seek::Current(-1)).unwrap_err().to_string();
        assert!(gone.contains("before the start"), "{gone}");
    });
}
