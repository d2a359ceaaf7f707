//! Opening as a collective call.

use std::time::Duration;

use pario::team::{HandleVariable, Hint, Position, TeamCode, TeamFile, TeamResult};

use super::common::options;

/// Opens on threads at these positions, with these variables; in order.
fn open(name: &std::path::Path, callers: &[(Position, HandleVariable)]) -> Vec<TeamResult<TeamFile>> {
    std::thread::scope(|scope| {
        let open = |&(position, variable)| {
            scope.spawn(move || {
                let options = options("").patience(Duration::from_secs(20));
                TeamFile::open_all(name, &options, position, variable)
            })
        };
        let threads: Vec<_> = callers.iter().map(open).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn shared(address: usize, number: u32) -> HandleVariable {
    // A shared variable lies on the stack of thread 0.
    HandleVariable { address, is_own: number == 0 }
}

#[test]
fn threads_of_a_team_get_one_handle() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("file");
    let private = |number: u32| HandleVariable { address: 0x1000 * (number as usize + 1), is_own: true };
    let kinds: [&dyn Fn(u32) -> HandleVariable; 2] = [&|number| shared(0x7000, number), &private];
    for variable in kinds {
        let callers: Vec<_> = (0..3).map(|number| (Position::of(number, 3), variable(number))).collect();
        let files: Vec<TeamFile> = open(&name, &callers).into_iter().map(Result::unwrap).collect();
        std::thread::scope(|scope| {
            for (number, file) in files.iter().enumerate() {
                scope.spawn(move || {
                    let member = file.at(Position::of(u32::try_from(number).unwrap(), 3));
                    member.write_all(&[b"abc"[number]], Hint::Contiguous).unwrap();
                    member.close_all().unwrap();
                });
            }
        });
        assert_eq!(std::fs::read(&name).unwrap(), b"abc");
    }
}

#[test]
fn teams_of_two_initial_threads_do_not_mix() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("file");
    let callers: Vec<_> = [(0x7000, 0), (0x9000, 1), (0x9000, 0), (0x7000, 1)]
        .map(|(address, number)| (Position::of(number, 2), shared(address, number)))
        .into();
    let files: Vec<TeamFile> = open(&name, &callers).into_iter().map(Result::unwrap).collect();
    files[0].close().unwrap();
    assert_eq!(files[3].close().unwrap_err().code(), TeamCode::Closed);
    files[1].write_at(0, b"x").unwrap();
    files[2].close().unwrap();
    assert_eq!(files[1].close().unwrap_err().code(), TeamCode::Closed);
}

#[test]
fn an_inner_team_has_a_file_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("file");
    let inner = |number| Position::of(1, 2).inner(number, 2).unwrap();
    let callers: Vec<_> = (0..2).map(|number| (inner(number), shared(0x5000, number))).collect();
    let files: Vec<TeamFile> = open(&name, &callers).into_iter().map(Result::unwrap).collect();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| files[1].at(inner(1)).write_all(b"b", Hint::Unknown).unwrap());
        files[0].at(inner(0)).write_all(b"a", Hint::Unknown).unwrap();
        other.join().unwrap();
    });
    let error = files[0].at(Position::of(0, 2)).write_all(b"c", Hint::Unknown).unwrap_err();
    assert!(error.to_string().contains("thread 0 is not below thread 1"), "{error}");
    files[0].at(Position::of(1, 2)).write_all(b"c", Hint::Unknown).unwrap();
    assert_eq!(std::fs::read(&name).unwrap(), b"abc");
}

#[test]
fn an_error_and_a_disagreement_are_told_to_all() {
    let dir = tempfile::tempdir().unwrap();
    let callers: Vec<_> = (0..2).map(|number| (Position::of(number, 2), shared(0x6000, number))).collect();
    let missing = dir.path().join("missing/file");
    for result in open(&missing, &callers) {
        assert_eq!(result.unwrap_err().errno(), 2);
    }
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    std::thread::scope(|scope| {
        let open = |number, name| {
            scope.spawn(move || {
                TeamFile::open_all(name, &options(""), Position::of(number, 2), shared(0x6000, number))
                    .unwrap_err()
            })
        };
        for thread in [open(0, &one), open(1, &two)] {
            let error = thread.join().unwrap();
            assert_eq!(error.code(), TeamCode::NotSame, "{error}");
        }
    });
    // A thread that never comes.
    let options = options("").patience(Duration::from_millis(30));
    let error = TeamFile::open_all(&one, &options, Position::of(1, 2), shared(0x6000, 1)).unwrap_err();
    assert!(error.code() == TeamCode::Lost && error.to_string().contains("thread 0 is missing"), "{error}");
}
