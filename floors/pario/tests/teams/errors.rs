//! Mistakes, failures and members that do not come: the same error on all, and no wait without end.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pario::team::{
    Arguments, CommonTarget, Hint, Position, RefusedCall, TeamCode, TeamError, TeamFile, TeamOptions,
    TeamPlace,
};

use super::common::{Place, options, pattern, together};

/// Code and text of an error.
fn told(error: &TeamError) -> (TeamCode, String) {
    (error.code(), error.to_string())
}

#[test]
fn members_that_disagree_are_told_all_alike() {
    for place in Place::all() {
        let file = place.create("write_behind=off");
        let results = together(&file, 3, |number, member| match number {
            1 => member.read_all(&mut [0; 4], Hint::Unknown).unwrap_err(),
            _ => member.write_all(b"abc", Hint::Unknown).unwrap_err(),
        });
        assert!(results.iter().all(|error| told(error) == told(&results[0])), "{results:?}");
        assert_eq!(results[0].code(), TeamCode::NotSame);
        assert!(results[0].to_string().contains("write_all") && results[0].to_string().contains("threads "));
        let results = together(&file, 2, |number, member| {
            let hint = [Hint::Contiguous, Hint::NotContiguous][number];
            member.write_all(b"abc", hint).unwrap_err()
        });
        assert!(results.iter().all(|error| error.code() == TeamCode::NotSame));
        let results = together(&file, 2, |number, member| member.seek_all(number as u64).unwrap_err());
        assert!(results.iter().all(|error| error.code() == TeamCode::NotSame));
        let lengths = together(&file, 2, |number, member| {
            member.write_com_all(&[0; 10][..5 + number], Hint::Unknown).unwrap_err()
        });
        assert!(lengths.iter().all(|error| error.code() == TeamCode::NotSame));
        // The handle works on, and no byte was written.
        together(&file, 2, |number, member| member.write_all(&[b"xy"[number]], Hint::Unknown).unwrap());
        file.close().unwrap();
        assert_eq!(place.content(), b"xy");
    }
}

#[test]
fn a_disagreement_of_a_write_that_went_behind_is_told_by_the_next_call() {
    let place = Place::partition();
    let file = place.create("");
    // Thread 0 commits its part without a meeting, and is gone when thread 1 calls another function.
    file.at(Position::of(0, 2)).write_all(b"abc", Hint::Unknown).unwrap();
    assert_eq!(file.at(Position::of(1, 2)).read_all(&mut [0; 3], Hint::Unknown).unwrap(), 0);
    let results = together(&file, 2, |_, member| member.write_all(b"abc", Hint::Unknown).unwrap_err());
    assert!(results.iter().all(|error| error.code() == TeamCode::NotSame), "{results:?}");
    together(&file, 2, |_, member| member.write_all(b"abc", Hint::Unknown).unwrap());
    file.close().unwrap();
}

#[test]
fn wrong_arguments_of_one_member_are_refused_on_all() {
    for place in Place::all() {
        let file = place.create("write_behind=off");
        let results = together(&file, 2, |number, member| {
            let offset = if number == 1 { u64::MAX - 2 } else { 0 };
            member.write_at_all(offset, b"abcd", Hint::Unknown).unwrap_err()
        });
        assert!(results.iter().all(|error| told(error) == told(&results[0])));
        assert_eq!(results[0].code(), TeamCode::BadArgument);
        assert!(results[0].to_string().contains("of thread 1"), "{}", results[0]);
        let results = together(&file, 2, |number, member| {
            if number == 0 {
                return member.write_all(b"abcd", Hint::Unknown).unwrap_err();
            }
            let kind = RefusedCall {
                is_write: true,
                arguments: Arguments::Different,
                at_pointer: true,
                hint: Hint::Unknown,
            };
            member.refuse(kind, TeamError::new(TeamCode::BadArgument, "length -1")).unwrap_err()
        });
        assert!(results.iter().all(|error| error.to_string().contains("length -1")), "{results:?}");
        let offsets = [0u64];
        let list = [std::io::IoSlice::new(b"a"), std::io::IoSlice::new(b"b")];
        let one = file.at(Position::ALONE);
        let error = one
            .write_list(&list, TeamPlace::Each(&offsets), Arguments::Different, Hint::Unknown)
            .unwrap_err();
        assert!(error.to_string().contains("2 buffers and 1 offsets"));
        let error = one.read_com_all(CommonTarget::Length(3), Hint::Unknown).unwrap_err();
        assert!(error.to_string().contains("no thread has given memory"));
        assert_eq!(file.size().unwrap(), 0);
        assert_eq!(file.tell(), 0);
        // Empty lists take part.
        assert_eq!(one.write_list(&[], TeamPlace::Pointer, Arguments::Different, Hint::Unknown).unwrap(), 0);
    }
}

#[test]
fn a_late_member_gets_the_error_of_each_call_that_failed_before_it_came() {
    const CALLS: usize = 20;
    let place = Place::plain();
    let file = place.create("");
    let ahead = AtomicUsize::new(0);
    let kind =
        RefusedCall { is_write: true, arguments: Arguments::Common, at_pointer: true, hint: Hint::Unknown };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for call in 0..CALLS {
                let mistake = TeamError::new(TeamCode::BadArgument, format!("mistake {call}!"));
                let error = file.at(Position::of(0, 2)).refuse(kind, mistake).unwrap_err();
                assert!(error.to_string().contains(&format!("mistake {call}!")), "{error}");
                ahead.store(call + 1, Ordering::Release);
            }
        });
        // A member goes on after a failed call, but not so far that the others lose their calls.
        while ahead.load(Ordering::Acquire) < 8 {
            std::thread::yield_now();
        }
        for call in 0..CALLS {
            let error = file.at(Position::of(1, 2)).write_com_all(b"abc", Hint::Unknown).unwrap_err();
            assert_eq!(error.code(), TeamCode::BadArgument, "{error}");
            assert!(error.to_string().contains(&format!("mistake {call}!")), "call {call}: {error}");
        }
    });
    // Members that run ahead and wait for room join the rounds that others have begun meanwhile.
    together(&file, 4, |number, member| {
        for call in 0..200 {
            let mistake = TeamError::new(TeamCode::BadArgument, format!("mistake {call}!"));
            let error = match number {
                3 => member.refuse(kind, mistake).unwrap_err(),
                _ => member.write_com_all(b"abc", Hint::Unknown).unwrap_err(),
            };
            assert!(error.to_string().contains(&format!("mistake {call}!")), "call {call}: {error}");
        }
    });
    together(&file, 2, |_, member| member.write_all(b"abc", Hint::Unknown).unwrap());
    file.close().unwrap();
}

#[test]
fn threads_on_different_handles_are_told() {
    for place in Place::all() {
        let (one, two) = (place.create("write_behind=off"), place.create("write_behind=off"));
        // Thread 2 takes the wrong handle; the team is known from the calls before and goes on after it.
        std::thread::scope(|scope| {
            for number in 0..3 {
                let (one, two) = (&one, &two);
                scope.spawn(move || {
                    let position = Position::of(number, 3);
                    for again in 0..2 {
                        for file in [one, two] {
                            file.at(position).write_all(b"abc", Hint::Unknown).expect("written");
                        }
                        let file = if number == 2 { two } else { one };
                        let error = match again {
                            0 => file.at(position).write_all(b"abc", Hint::Unknown).unwrap_err(),
                            _ => file.at(position).sync_all().unwrap_err(),
                        };
                        assert_eq!(error.code(), TeamCode::NotSame, "{error}");
                        assert!(error.to_string().contains("do not agree"), "{error}");
                        assert!(error.to_string().contains('2'), "{error}");
                    }
                });
            }
        });
        assert_eq!((one.tell(), two.tell()), (18, 18), "failed calls do not move the pointer");
        one.close().unwrap();
        two.close().unwrap();
    }
}

/// Two teams with equal positions, each of which waits for a thread that is late, are not taken for one.
#[test]
fn late_threads_of_two_teams_are_no_disagreement() {
    let (place, other) = (Place::plain(), Place::plain());
    let (one, two) = (place.create("write_behind=off"), other.create("write_behind=off"));
    let teams = [&one, &two];
    std::thread::scope(|scope| {
        for (team, file) in teams.into_iter().enumerate() {
            for number in 0..2 {
                scope.spawn(move || {
                    let position = Position::of(number, 2);
                    file.at(position).write_all(b"ab", Hint::Unknown).expect("written");
                    // Thread 0 of one team and thread 1 of the other one are late.
                    if number as usize == team {
                        let late = std::sync::mpsc::channel::<()>();
                        assert!(late.1.recv_timeout(Duration::from_millis(700)).is_err());
                    }
                    file.at(position).write_all(b"ab", Hint::Unknown).expect("written");
                });
            }
        }
    });
    assert_eq!((one.tell(), two.tell()), (8, 8));
    one.close().unwrap();
    two.close().unwrap();
}

#[test]
fn another_team_uses_a_handle_after_a_member_was_given_up() {
    let place = Place::plain();
    let patience = Duration::from_millis(50);
    let file = place.open(&options("").patience(patience));
    let lost = file.at(Position::of(0, 3)).read_at_all(0, &mut [0; 1], Hint::Unknown).unwrap_err();
    assert_eq!(lost.code(), TeamCode::Lost, "{lost}");
    // A late member of that team gets its error; others begin anew.
    let late = file.at(Position::of(1, 3)).read_at_all(0, &mut [0; 1], Hint::Unknown).unwrap_err();
    assert_eq!(told(&late), told(&lost));
    file.at(Position::ALONE).write_all(b"alone", Hint::Unknown).unwrap();
    file.at(Position::ALONE).close_all().unwrap();
    assert_eq!(place.content(), b"alone");
}

#[test]
fn a_member_that_never_comes_is_named_after_the_patience() {
    for place in Place::all() {
        let file = place.open(&options("write_behind=off").patience(Duration::from_millis(50)));
        let results: Vec<TeamError> = std::thread::scope(|scope| {
            let call = |number| {
                let file = &file;
                scope.spawn(move || {
                    file.at(Position::of(number, 3)).write_all(b"x", Hint::Unknown).unwrap_err()
                })
            };
            [call(0), call(2)].map(|thread| thread.join().unwrap()).into()
        });
        assert!(results.iter().all(|error| told(error) == told(&results[0])));
        assert_eq!(results[0].code(), TeamCode::Lost);
        assert!(results[0].to_string().contains("thread 1 of 3 is missing"), "{}", results[0]);
        // The late one is told the same, and the next call works.
        let late = file.at(Position::of(1, 3)).write_all(b"x", Hint::Unknown).unwrap_err();
        assert_eq!(told(&late), told(&results[0]));
        together(&file, 3, |_, member| member.write_all(b"y", Hint::Unknown).unwrap());
        file.close().unwrap();
        assert_eq!(place.content(), b"yyy");
    }
}

#[test]
fn a_member_that_panics_or_is_dropped_is_named_at_once() {
    for place in Place::all() {
        let file = place.create("write_behind=off");
        for panics in [true, false] {
            let mut members = file.members(3);
            let last = members.pop().unwrap();
            std::thread::scope(|scope| {
                let waiting: Vec<_> = members
                    .into_iter()
                    .map(|member| scope.spawn(move || member.write_all(b"x", Hint::Unknown).unwrap_err()))
                    .collect();
                let ended = scope.spawn(move || {
                    let _member = last;
                    assert!(!panics, "a member that panics");
                });
                assert_eq!(ended.join().is_err(), panics);
                for thread in waiting {
                    let error = thread.join().unwrap();
                    assert_eq!(error.code(), TeamCode::Lost);
                    let how = if panics { "thread 2 panicked" } else { "thread 2 was dropped" };
                    assert!(error.to_string().contains(how), "{error}");
                }
            });
        }
        let mut members = file.members(2);
        members.pop().unwrap().leave();
        let error = members[0].write_all(b"x", Hint::Unknown).unwrap_err();
        assert!(error.to_string().contains("thread 1 has left the team"), "{error}");
        drop(members);
        // New members are a new team.
        std::thread::scope(|scope| {
            for member in file.members(2) {
                scope.spawn(move || member.write_all(b"z", Hint::Unknown).unwrap());
            }
        });
        file.close().unwrap();
        assert_eq!(place.content(), b"zz");
    }
}

#[test]
fn two_teams_on_one_handle_are_told() {
    let place = Place::plain();
    let file = place.create("");
    let begun = Barrier::new(2);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            begun.wait();
            file.at(Position::of(0, 2)).write_all(b"x", Hint::Unknown)
        });
        begun.wait();
        while file.counts().calls == 0 {
            std::thread::yield_now();
        }
        for other in [Position::of(0, 2), Position::of(1, 3), Position::of(0, 2).inner(0, 1).unwrap()] {
            let error = file.at(other).write_all(b"y", Hint::Unknown).unwrap_err();
            assert_eq!(error.code(), TeamCode::TwoTeams, "{error}");
        }
        file.at(Position::of(1, 2)).write_all(b"z", Hint::Unknown).unwrap();
        waiting.join().unwrap().unwrap();
    });
    file.close().unwrap();
    assert_eq!(place.content(), b"xz");
}

#[test]
fn a_closed_handle_refuses_and_a_waiting_call_ends() {
    for place in Place::all() {
        let file = place.create("write_behind=off");
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(|| file.at(Position::of(0, 2)).write_all(b"x", Hint::Unknown).unwrap_err());
            while file.counts().calls == 0 {
                std::thread::yield_now();
            }
            file.close().unwrap();
            assert_eq!(waiting.join().unwrap().code(), TeamCode::Closed);
        });
        let one = file.at(Position::ALONE);
        let calls: [Result<(), TeamError>; 6] = [
            one.write_all(b"x", Hint::Unknown).map(drop),
            one.close_all(),
            file.close(),
            file.write_at(0, b"x"),
            file.write_part(b"x", 0, 1),
            file.size().map(drop),
        ];
        assert!(
            calls.iter().all(|result| result.as_ref().unwrap_err().code() == TeamCode::Closed),
            "{calls:?}"
        );
    }
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("missing");
    let open = |path: &std::path::Path, options: &TeamOptions| TeamFile::open(path, options).unwrap_err();
    let read = TeamOptions::default().read(true);
    let error = open(&path, &read);
    assert!(error.errno() == 2 && error.to_string().contains("missing"), "{error}");
    assert_eq!(open(dir.path(), &read).errno(), 21);
    assert_eq!(open(&path, &TeamOptions::default()).code(), TeamCode::BadArgument);
    std::fs::write(dir.path().join("other"), b"of another program").unwrap();
    let log = open(dir.path(), &options("target=log"));
    assert!(log.to_string().contains("is not a container"), "{log}");
    assert!(open(&path, &options("target=log").create(false)).errno() == 2 && !path.exists());
    let unknown = open(std::path::Path::new("pario://"), &read);
    assert!(unknown.to_string().contains("names no partition"), "{unknown}");
    std::fs::write(&path, b"x").unwrap();
    assert_eq!(open(&path, &options("").create_new(true)).errno(), 17);
    let file = TeamFile::open(&path, &read).unwrap();
    let refused = file.at(Position::ALONE).write_all(b"y", Hint::Unknown).unwrap_err();
    assert!(refused.to_string().contains("open for reading only"), "{refused}");
    assert!(file.write_at(0, b"y").is_err() && file.write_part(b"y", 0, 1).is_err());
}

/// `/dev/full` refuses every write with "no space left".
#[test]
fn a_full_disk_is_told_to_all_and_the_pointer_stays() {
    let file = TeamFile::open("/dev/full", &TeamOptions::default().write(true)).unwrap();
    for _ in 0..3 {
        let results = together(&file, 2, |_, member| {
            member.write_all(&pattern(0, 70_000), Hint::Contiguous).unwrap_err()
        });
        assert!(results.iter().all(|error| told(error) == told(&results[0])));
        assert_eq!((results[0].code(), results[0].errno()), (TeamCode::NoSpace, 28));
        assert!(results[0].to_string().contains("/dev/full: writing at 0"), "{}", results[0]);
        assert_eq!(file.tell(), 0);
    }
}

#[test]
fn an_error_behind_a_member_that_went_on_is_told_once_to_all() {
    let settings = pario::team::TeamSettings::parse("active=1").unwrap();
    let file = TeamFile::open("/dev/full", &TeamOptions::default().write(true).settings(settings)).unwrap();
    // Thread 1 is not active: its part is copied, and it goes on.
    file.at(Position::of(1, 2)).write_all(b"abc", Hint::Unknown).unwrap();
    file.at(Position::of(0, 2)).write_all(b"abc", Hint::Unknown).unwrap();
    assert_eq!(file.counts().copied_bytes, 3);
    let results = together(&file, 2, |_, member| member.sync_all().unwrap_err());
    assert!(results.iter().all(|error| error.code() == TeamCode::NoSpace), "{results:?}");
    assert!(together(&file, 2, |_, member| member.close_all()).iter().all(Result::is_ok));
}

#[test]
fn needs_root_a_full_tmpfs_is_told_to_all_and_the_handle_works_on() {
    let dir = tempfile::tempdir().unwrap();
    let mount = |args: &[&str]| {
        std::process::Command::new(args[0]).args(&args[1..]).status().is_ok_and(|s| s.success())
    };
    let path = dir.path().to_str().unwrap();
    assert!(mount(&["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path]), "root mounts a tmpfs");
    let file = TeamFile::open(dir.path().join("file"), &options("saturation=64KiB,active=2")).unwrap();
    let results = together(&file, 2, |_, member| member.write_all(&pattern(0, 1 << 20), Hint::Contiguous));
    let errors: Vec<TeamError> = results.into_iter().map(Result::unwrap_err).collect();
    assert!(errors.iter().all(|error| error.code() == TeamCode::NoSpace), "{errors:?}");
    assert_eq!(file.tell(), 0);
    // Once there is room again, the handle works on.
    std::fs::File::options().write(true).open(dir.path().join("file")).unwrap().set_len(0).unwrap();
    together(&file, 2, |number, member| {
        member.write_all(&pattern(number as u64, 1000), Hint::Contiguous).unwrap()
    });
    assert_eq!(file.tell(), 2000);
    file.close().unwrap();
    drop(file);
    assert!(mount(&["umount", path]));
}
