//! Mistakes of callers: refused at once on all members, or told to all; none hangs.

use std::fs::OpenOptions;

use pario::core::Code;
use pario::distant::{Distant, DistantOpen, DistantOptions, FilePlace, SharedFileOptions};

use crate::members::{HomeDirs, as_homes, on_members};

#[test]
fn members_with_different_arguments_or_calls_are_told() {
    let dirs = HomeDirs::new(3);
    as_homes(&[0, 0, 1], &dirs, |group, distant| {
        let request = 1000 + group.rank() as u64;
        let error = distant.create(&SharedFileOptions::for_requests(request)).unwrap_err();
        assert_eq!(error.code(), Code::NotSame, "{error}");
        assert!(error.to_string().contains("the options of the shared file"), "{error}");
        // One registers while the others create.
        let error = match group.rank() {
            1 => distant.register(None).map(|_| ()).unwrap_err(),
            _ => distant.create(&SharedFileOptions::for_requests(5)).map(|_| ()).unwrap_err(),
        };
        assert_eq!(error.code(), Code::NotSame, "{error}");
        // Two files, ended in different order.
        let first = distant.create(&SharedFileOptions::for_requests(5)).unwrap();
        let second = distant.create(&SharedFileOptions::for_requests(5)).unwrap();
        let (one, other) = if group.rank() == 0 { (first, second) } else { (second, first) };
        let error = one.destroy(distant).unwrap_err();
        assert!(error.to_string().contains("the number of the distant file"), "{error}");
        let _ = other.destroy(distant).unwrap_err();
        // After all that the group still works.
        let third = distant.create(&SharedFileOptions::for_requests(5)).unwrap();
        third.write_at(group.rank() as u64, b"x").unwrap();
        third.destroy(distant).unwrap();
    });
    assert!(dirs.files().is_empty());
}

#[test]
fn a_home_without_its_directory_is_named_on_all_members() {
    let dirs = HomeDirs::new(2);
    let errors = on_members(&[0, 1, 0], |group| {
        // The directory of rank 2 is missing.
        let error = Distant::join(&group, &DistantOptions::in_dir(dirs.of(group.rank()))).unwrap_err();
        group.leave();
        error.to_string()
    });
    assert!(errors[0].contains("rank 2 could not start"), "{}", errors[0]);
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
}

#[test]
fn a_component_that_cannot_be_created_names_its_rank() {
    let dirs = HomeDirs::new(3);
    let errors = as_homes(&[0, 1, 2], &dirs, |_, distant| {
        let path = dirs.0.path().join("missing").join("vectors");
        let options = SharedFileOptions::default().path(path).place(FilePlace::Distant).homes(&[1]);
        distant.create(&options).unwrap_err().to_string()
    });
    assert!(errors[0].contains("rank 1"), "{}", errors[0]);
    assert!(errors[1].contains("missing"), "{}", errors[1]);
}

#[test]
fn homes_of_a_shared_file_are_checked() {
    let dirs = HomeDirs::new(2);
    as_homes(&[0, 0], &dirs, |_, distant| {
        for homes in [&[2][..], &[0, 0], &[]] {
            let error = distant.create(&SharedFileOptions::default().homes(homes)).unwrap_err();
            assert_eq!(error.code(), Code::Invalid, "{error}");
        }
        let error = distant.create(&SharedFileOptions::default().place(FilePlace::Filesystem)).unwrap_err();
        assert!(error.to_string().contains("needs a path"), "{error}");
    });
}

#[test]
fn bad_files_are_refused() {
    let dirs = HomeDirs::new(1);
    as_homes(&[0], &dirs, |_, distant| {
        let appending = OpenOptions::new().append(true).create(true).open(dirs.of(0).join("log")).unwrap();
        let error = distant.register(Some(appending)).unwrap_err();
        assert!(error.to_string().contains("O_APPEND"), "{error}");
        let directory = std::fs::File::open(dirs.of(0)).unwrap();
        assert_eq!(distant.register(Some(directory)).unwrap_err().code(), Code::IsDirectory);
        assert_eq!(distant.open(3, "x", DistantOpen::Create).unwrap_err().code(), Code::Invalid);
        assert_eq!(distant.lookup("").unwrap_err().code(), Code::Invalid);
        let file = distant.open(0, "x", DistantOpen::Create).unwrap();
        let beyond = file.write_at(u64::MAX - 3, b"12345").unwrap_err();
        assert_eq!(beyond.code(), Code::TooLarge);
        assert_eq!(file.read_at(1 << 63, &mut [0]).unwrap_err().code(), Code::TooLarge);
        assert_eq!(file.read_at(5, &mut []).unwrap(), 0);
        file.remove().unwrap();
    });
}

#[test]
fn components_of_other_homes_are_not_taken_for_the_same_file() {
    let dirs = HomeDirs::new(2);
    let path = dirs.0.path().join("kept");
    let options =
        |request| SharedFileOptions::for_requests(request).path(&path).place(FilePlace::Distant).suffix(1);
    as_homes(&[0, 1], &dirs, |_, distant| {
        let shared = distant.create(&options(4096)).unwrap();
        shared.write_at(0, &[1; 10_000]).unwrap();
        shared.close(distant).unwrap();
        let error = distant.create(&options(8192)).unwrap_err();
        assert!(error.to_string().contains("other homes or blocks"), "{error}");
        distant.create(&options(4096)).unwrap().destroy(distant).unwrap();
    });
    assert!(dirs.files().is_empty());
}
