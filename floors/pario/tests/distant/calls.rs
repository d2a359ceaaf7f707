//! What each call does, over all three ways.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use pario::core::Code;
use pario::distant::{Distant, DistantOpen, DistantOptions, FilePlace, SharedFileOptions};

use crate::common::pattern;
use crate::members::{HomeDirs, as_homes, on_members};

/// Ranks 0 and 1 share a node, rank 2 is on another.
const NODES: [usize; 3] = [0, 0, 1];

fn new_file(dirs: &HomeDirs, rank: usize, name: &str) -> File {
    let path = dirs.of(rank).join(name);
    OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap()
}

#[test]
fn every_member_reads_and_writes_the_registered_file_of_every_member() {
    let dirs = HomeDirs::new(3);
    as_homes(&NODES, &dirs, |group, distant| {
        let rank = group.rank();
        let own = new_file(&dirs, rank, "own");
        own.write_all_at(&pattern(5000, rank as u64), 0).unwrap();
        let again = own.try_clone().unwrap();
        let files = distant.register(Some(own)).unwrap();
        assert_eq!(files.members(), [0, 1, 2]);
        for home in 0..3 {
            let mut found = vec![0; 6000];
            assert_eq!(files.read_at(home, 1000, &mut found).unwrap(), 4000);
            assert!(found[..4000] == pattern(5000, home as u64)[1000..]);
            assert_eq!(files.length(home).unwrap(), 5000);
            assert_eq!(files.read_at(home, 5000, &mut found).unwrap(), 0);
        }
        group.barrier().unwrap();
        // Each home has a place for each member.
        for home in 0..3 {
            files.write_at(home, 10_000 + rank as u64 * 100, &[rank as u8 + 1; 100]).unwrap();
            files.sync(home).unwrap();
        }
        group.barrier().unwrap();
        // The home sees them by its own call.
        let mut found = vec![0; 300];
        again.read_exact_at(&mut found, 10_000).unwrap();
        assert!((0..300).all(|at| found[at] == (at / 100) as u8 + 1));
        group.barrier().unwrap();
        if rank == 2 {
            files.truncate(0, 77).unwrap();
        }
        group.barrier().unwrap();
        assert_eq!(files.length(0).unwrap(), 77);
        files.unregister(distant).unwrap();
    });
    assert_eq!(dirs.files().len(), 3);
}

#[test]
fn a_descriptor_is_served_as_it_is() {
    let dirs = HomeDirs::new(3);
    as_homes(&NODES, &dirs, |group, distant| {
        let rank = group.rank();
        let path = dirs.of(rank).join("own");
        std::fs::write(&path, pattern(100, rank as u64)).unwrap();
        let files = distant.register(Some(File::open(&path).unwrap())).unwrap();
        // Renamed and unlinked: nothing changes.
        std::fs::rename(&path, dirs.of(rank).join("other")).unwrap();
        std::fs::remove_file(dirs.of(rank).join("other")).unwrap();
        group.barrier().unwrap();
        for home in 0..3 {
            let mut found = [0; 100];
            assert_eq!(files.read_at(home, 0, &mut found).unwrap(), 100);
            assert!(found[..] == pattern(100, home as u64));
            // Opened for reading only.
            assert_eq!(files.write_at(home, 0, b"x").unwrap_err().code(), Code::NotWritable);
            assert_eq!(files.truncate(home, 0).unwrap_err().code(), Code::NotWritable);
            let started = files.start_write_at(home, 0, vec![1; 10]).unwrap();
            assert_eq!(started.wait().unwrap_err().code(), Code::NotWritable);
        }
        files.unregister(distant).unwrap();
    });
}

#[test]
fn a_file_that_its_home_cuts_ends_earlier_for_all() {
    let dirs = HomeDirs::new(3);
    as_homes(&NODES, &dirs, |group, distant| {
        let own = new_file(&dirs, group.rank(), "own");
        let again = own.try_clone().unwrap();
        own.write_all_at(&[5; 9000], 0).unwrap();
        let files = distant.register(Some(own)).unwrap();
        let mut found = vec![0; 9000];
        assert_eq!(files.read_at(0, 0, &mut found).unwrap(), 9000);
        group.barrier().unwrap();
        again.set_len(4321).unwrap();
        group.barrier().unwrap();
        for home in 0..3 {
            assert_eq!(files.read_at(home, 0, &mut found).unwrap(), 4321);
            let (_, count) = files.start_read_at(home, 4000, vec![0; 5000]).unwrap().wait().unwrap();
            assert_eq!(count, 321);
        }
        files.unregister(distant).unwrap();
    });
}

#[test]
fn members_that_bring_no_file_are_named() {
    let dirs = HomeDirs::new(3);
    as_homes(&NODES, &dirs, |group, distant| {
        let own = (group.rank() == 1).then(|| new_file(&dirs, 1, "own"));
        let files = distant.register(own).unwrap();
        assert_eq!(files.members(), [1]);
        files.write_at(1, group.rank() as u64, &[7]).unwrap();
        let error = files.read_at(2, 0, &mut [0]).unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
        assert!(error.to_string().contains("rank 2 brought no file"), "{error}");
        assert_eq!(files.read_at(3, 0, &mut [0]).unwrap_err().code(), Code::Invalid);
        group.barrier().unwrap();
        assert_eq!(files.length(1).unwrap(), 3);
        files.unregister(distant).unwrap();
    });
}

#[test]
fn files_of_a_home_are_opened_published_and_removed_without_its_help() {
    let dirs = HomeDirs::new(3);
    std::fs::create_dir(dirs.of(1).join("below")).unwrap();
    as_homes(&NODES, &dirs, |group, distant| {
        if group.rank() == 2 {
            let missing = distant.open(1, "below/integrals", DistantOpen::Write).unwrap_err();
            assert_eq!(missing.code(), Code::NotFound);
            let file = distant.open(1, "below/integrals", DistantOpen::Create).unwrap();
            assert_eq!(file.home(), 1);
            file.write_at(1 << 20, b"records").unwrap();
            distant.publish("integrals", &file).unwrap();
            assert_eq!(distant.publish("integrals", &file).unwrap_err().code(), Code::Exists);
        }
        group.barrier().unwrap();
        assert_eq!(distant.lookup("nothing").unwrap_err().code(), Code::NotFound);
        let file = distant.lookup("integrals").unwrap();
        let mut found = [1; 9];
        assert_eq!(file.read_at((1 << 20) - 2, &mut found).unwrap(), 9);
        assert_eq!(&found, b"\0\0records");
        assert_eq!(file.length().unwrap(), (1 << 20) + 7);
        group.barrier().unwrap();
        if group.rank() == 0 {
            distant.unpublish("integrals").unwrap();
            assert_eq!(distant.lookup("integrals").unwrap_err().code(), Code::NotFound);
            let again = distant.open(1, "below/integrals", DistantOpen::Read).unwrap();
            assert_eq!(again.write_at(0, b"x").unwrap_err().code(), Code::NotWritable);
            again.remove().unwrap();
        }
        group.barrier().unwrap();
        // What was looked up stays readable.
        assert_eq!(file.read_at(1 << 20, &mut found).unwrap(), 7);
    });
    assert_eq!(dirs.files(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_path_never_leads_out_of_the_directory_of_its_home() {
    let dirs = HomeDirs::new(2);
    std::fs::write(dirs.0.path().join("secret"), b"secret").unwrap();
    std::os::unix::fs::symlink(dirs.0.path(), dirs.of(1).join("link")).unwrap();
    std::os::unix::fs::symlink(dirs.0.path().join("secret"), dirs.of(1).join("last")).unwrap();
    as_homes(&[0, 1], &dirs, |_, distant| {
        let secret = dirs.0.path().join("secret");
        for path in ["../secret", "link/secret", "last", "", ".", "a/../../secret", secret.to_str().unwrap()]
        {
            for how in [DistantOpen::Read, DistantOpen::Create] {
                assert!(distant.open(1, path, how).is_err(), "{path}");
            }
        }
    });
}

#[test]
fn any_subset_of_the_members_are_homes() {
    let dirs = HomeDirs::new(4);
    on_members(&[0, 0, 1, 1], |group| {
        let options = match group.rank() {
            1 | 2 => DistantOptions::in_dir(dirs.of(group.rank())),
            _ => DistantOptions::client(),
        };
        let distant = Distant::join(&group, &options).unwrap();
        assert_eq!(distant.homes(), [1, 2]);
        let shared = distant.create(&SharedFileOptions::for_requests(4096)).unwrap();
        assert_eq!((shared.homes(), shared.stripe()), (&[1, 2][..], 4096));
        let own = pattern(20_000, group.rank() as u64);
        shared.write_at(group.rank() as u64 * 20_000, &own).unwrap();
        group.barrier().unwrap();
        let other = (group.rank() + 1) % 4;
        let mut found = vec![0; 20_000];
        shared.read_at(other as u64 * 20_000, &mut found).unwrap();
        assert!(found == pattern(20_000, other as u64));
        // A client has no file to bring.
        let file = tempfile::tempfile().unwrap();
        let error = distant.register(Some(file)).unwrap_err().to_string();
        assert!(error.contains("brings a file and joined as a client"), "{error}");
        shared.destroy(&distant).unwrap();
        distant.leave().unwrap();
        group.leave();
    });
    assert!(dirs.files().is_empty());
}

#[test]
fn a_shared_file_grows_from_all_sides_and_ends_exactly() {
    let dirs = HomeDirs::new(3);
    for place in [FilePlace::Distant, FilePlace::Filesystem] {
        as_homes(&NODES, &dirs, |group, distant| {
            let path = dirs.0.path().join("vectors");
            let options = SharedFileOptions::for_requests(4096).path(path).place(place);
            let shared = distant.create(&options).unwrap();
            assert_eq!(shared.place(), place);
            let mut found = vec![9; 10_000];
            let empty = shared.read_at(0, &mut found).unwrap_err();
            assert!(matches!(empty, pario::Error::PastEnd { read: 0, .. }), "{empty}");
            group.barrier().unwrap();
            // Far beyond the end: only its own component grows.
            if group.rank() == 2 {
                shared.write_at((1 << 41) + 100, b"end").unwrap();
            }
            group.barrier().unwrap();
            assert_eq!(shared.length().unwrap(), (1 << 41) + 103);
            found.fill(9);
            shared.read_at(123_456, &mut found).unwrap();
            assert!(found.iter().all(|byte| *byte == 0), "never written is zero");
            found.fill(9);
            let error = shared.read_at((1 << 41) - 5000, &mut found).unwrap_err();
            assert!(matches!(error, pario::Error::PastEnd { read: 5103, .. }), "{error}");
            assert_eq!(&found[5098..5104], b"\0\0end\0", "the bytes before the end were read");
            group.barrier().unwrap();
            shared.destroy(distant).unwrap();
        });
        assert!(dirs.files().is_empty(), "{:?}", dirs.files());
    }
}

#[test]
fn a_suffix_keeps_the_bytes_for_another_run() {
    let dirs = HomeDirs::new(3);
    let path = dirs.0.path().join("restart");
    for place in [FilePlace::Distant, FilePlace::Filesystem] {
        let options = SharedFileOptions::for_requests(4096).path(&path).place(place).suffix(7);
        as_homes(&NODES, &dirs, |group, distant| {
            let shared = distant.create(&options).unwrap();
            shared.write_at(group.rank() as u64 * 5000, &pattern(5000, 3)).unwrap();
            shared.close(distant).unwrap();
        });
        let files = dirs.files();
        match place {
            FilePlace::Distant => assert_eq!(files.len(), 3, "{files:?}"),
            FilePlace::Filesystem => assert_eq!(files, [dirs.0.path().join("restart.7.0")]),
        }
        as_homes(&NODES, &dirs, |group, distant| {
            let shared = distant.create(&options).unwrap();
            let mut found = vec![0; 5000];
            shared.read_at(group.rank() as u64 * 5000, &mut found).unwrap();
            assert!(found == pattern(5000, 3));
            assert_eq!(shared.length().unwrap(), 15_000);
            group.barrier().unwrap();
            shared.destroy(distant).unwrap();
        });
        assert!(dirs.files().is_empty());
    }
}

#[test]
fn the_place_is_tried() {
    let dirs = HomeDirs::new(4);
    // All see one directory.
    as_homes(&[0, 0, 1, 1], &dirs, |_, distant| {
        let shared = distant.create(&SharedFileOptions::default().path(dirs.0.path().join("v"))).unwrap();
        assert_eq!(shared.place(), FilePlace::Filesystem);
        shared.write_at(0, b"x").unwrap();
        shared.destroy(distant).unwrap();
    });
    assert!(dirs.files().is_empty());
}

#[test]
fn requests_complete_in_any_order_from_any_thread() {
    let dirs = HomeDirs::new(3);
    as_homes(&NODES, &dirs, |group, distant| {
        let shared = distant.create(&SharedFileOptions::for_requests(30 << 10)).unwrap();
        const RECORD: usize = 30_000;
        let base = group.rank() as u64 * 600 * RECORD as u64;
        // More than the limit of requests to one home.
        let writes: Vec<_> = (0..600u64)
            .map(|number| {
                shared.start_write_at(base + number * RECORD as u64, pattern(RECORD, number)).unwrap()
            })
            .collect();
        let mut writes: Vec<_> = writes.into_iter().rev().collect();
        std::thread::scope(|scope| {
            let half = writes.split_off(300);
            for part in [writes, half] {
                scope.spawn(|| {
                    for write in part {
                        while !write.test() {
                            std::thread::yield_now();
                        }
                        assert_eq!(write.wait().unwrap().1, RECORD);
                    }
                });
            }
        });
        group.barrier().unwrap();
        let other = (group.rank() as u64 + 1) % 3 * 600 * RECORD as u64;
        let reads: Vec<_> = (0..600u64)
            .map(|number| shared.start_read_at(other + number * RECORD as u64, vec![0; RECORD]).unwrap())
            .collect();
        for (number, read) in reads.into_iter().enumerate().rev() {
            let (found, count) = read.wait().unwrap();
            assert!(count == RECORD && found == pattern(RECORD, number as u64), "record {number}");
        }
        // One large access over all components, by workers.
        let large = pattern(9 << 20, 5);
        let (_, count) = shared.start_write_at(base + 17, large.clone()).unwrap().wait().unwrap();
        assert_eq!(count, 9 << 20);
        let (found, _) = shared.start_read_at(base + 17, vec![0; 9 << 20]).unwrap().wait().unwrap();
        assert!(found == large);
        // Abandoned ones do no harm; those under way are completed by the end.
        let kept = shared.start_write_at(base, vec![1; 5000]).unwrap();
        drop(shared.start_read_at(base, vec![0; 5000]).unwrap());
        group.barrier().unwrap();
        shared.destroy(distant).unwrap();
        assert!(kept.test());
        kept.wait().unwrap();
    });
    assert!(dirs.files().is_empty());
}

#[test]
fn several_files_of_both_kinds_live_side_by_side() {
    let dirs = HomeDirs::new(3);
    as_homes(&NODES, &dirs, |group, distant| {
        let path = dirs.0.path().join("plain");
        let create = |number: usize| {
            let place = if number.is_multiple_of(2) { FilePlace::Distant } else { FilePlace::Filesystem };
            distant.create(&SharedFileOptions::for_requests(8192).path(&path).place(place)).unwrap()
        };
        let files: Vec<_> = (0..6).map(create).collect();
        for (number, file) in files.iter().enumerate() {
            file.write_at(group.rank() as u64 * 10_000, &pattern(10_000, number as u64)).unwrap();
        }
        group.barrier().unwrap();
        for (number, file) in files.iter().enumerate() {
            let mut found = vec![0; 10_000];
            file.read_at((2 - group.rank() as u64) * 10_000, &mut found).unwrap();
            assert!(found == pattern(10_000, number as u64));
        }
        group.barrier().unwrap();
        for file in files {
            file.destroy(distant).unwrap();
        }
    });
    assert!(dirs.files().is_empty());
}
