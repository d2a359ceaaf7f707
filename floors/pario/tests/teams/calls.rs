//! What each call does.

use std::io::{IoSlice, IoSliceMut};

use pario::team::{Arguments, CommonTarget, Hint, Position, TeamCode, TeamFile, TeamPlace};

use super::common::{Place, at_positions, options, pattern, together};

#[test]
fn parts_lie_one_after_the_other_and_the_pointer_moves() {
    for place in Place::all() {
        for settings in ["", "saturation=8KiB", "active=1", "write_behind=off", "saturation=4KiB,active=2"] {
            let file = place.create(settings);
            for round in 0..5u64 {
                let counts = together(&file, 4, |number, member| {
                    let length = 5000 * (number + 1);
                    member.write_all(&pattern(round * 4 + number as u64, length), Hint::Contiguous)
                });
                let counts: Vec<u64> = counts.into_iter().map(Result::unwrap).collect();
                assert_eq!(counts, [5000, 10_000, 15_000, 20_000]);
                assert_eq!(file.tell(), (round + 1) * 50_000);
            }
            let expected: Vec<u8> =
                (0..20usize).flat_map(|at| pattern(at as u64, 5000 * (at % 4 + 1))).collect();
            file.close().unwrap();
            assert!(place.content() == expected, "{settings}");
        }
    }
}

#[test]
fn large_parts_are_divided_and_read_back() {
    for place in Place::all() {
        let file = place.create("saturation=256KiB,active=2");
        together(&file, 3, |number, member| {
            member.write_all(&pattern(number as u64, 700_001), Hint::Unknown).unwrap();
        });
        together(&file, 3, |number, member| {
            let mut back = vec![0; 700_001];
            member.seek_all(0).unwrap();
            assert_eq!(member.read_all(&mut back, Hint::Contiguous).unwrap(), 700_001);
            assert!(back == pattern(number as u64, 700_001), "part {number}");
            member.close_all().unwrap();
        });
        assert_eq!(place.content().len(), 2_100_003);
    }
}

#[test]
fn lists_at_offsets_and_at_the_pointer() {
    for place in Place::all() {
        let file = place.create("");
        together(&file, 2, |number, member| {
            let (one, two) = (pattern(number as u64, 300), pattern(10 + number as u64, 200));
            let lists = [IoSlice::new(&one), IoSlice::new(&two)];
            let offsets = [number as u64 * 300, 600 + number as u64 * 200];
            let place = TeamPlace::Each(&offsets);
            assert_eq!(member.write_list(&lists, place, Arguments::Different, Hint::Unknown).unwrap(), 500);
            assert_eq!(member.tell().unwrap(), 0);
            member.sync_all().unwrap();
            let (mut first, mut second) = (vec![0; 100], vec![0; 400]);
            let mut targets = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
            assert_eq!(member.read_list(&mut targets, TeamPlace::Pointer, Hint::Unknown).unwrap(), 500);
            let whole: Vec<u8> = [(0, 300), (1, 300), (10, 200), (11, 200)]
                .iter()
                .flat_map(|(seed, n)| pattern(*seed, *n))
                .collect();
            assert_eq!([first, second].concat(), whole[number * 500..][..500]);
        });
        assert_eq!(file.tell(), 1000);
    }
}

#[test]
fn common_calls_move_the_pointer_once() {
    for place in Place::all() {
        let file = place.create("saturation=64KiB,active=4");
        let bytes = pattern(3, 1_000_000);
        together(&file, 4, |number, member| {
            assert_eq!(member.write_com_all(&bytes, Hint::Unknown).unwrap(), 1_000_000);
            member.seek_all(1).unwrap();
            let mut back = vec![0; 900_000];
            let target = match number {
                2 => CommonTarget::Memory(&mut back),
                _ => CommonTarget::Length(900_000),
            };
            assert_eq!(member.read_com_all(target, Hint::Unknown).unwrap(), 900_000);
            assert!(number != 2 || back == bytes[1..900_001]);
        });
        assert_eq!(file.tell(), 900_001);
        assert_eq!(file.size().unwrap(), 1_000_000);
    }
}

#[test]
fn nested_teams_have_one_order() {
    let inner = |outer: u32, number, size| Position::of(outer, 2).inner(number, size).unwrap();
    let positions = [inner(1, 2, 3), inner(0, 1, 2), inner(1, 0, 3), inner(0, 0, 2), inner(1, 1, 3)];
    for place in Place::all() {
        let file = place.create("");
        at_positions(&file, &positions, |number, member| {
            member.write_all(&[b"ebcad"[number]], Hint::Unknown).unwrap();
        });
        // Another size at the next call, and a single thread at the one after.
        at_positions(&file, &[Position::of(1, 2), Position::of(0, 2)], |number, member| {
            member.write_all(&[b"gf"[number]], Hint::Unknown).unwrap();
        });
        file.at(Position::ALONE).write_all(b"h", Hint::Unknown).unwrap();
        file.close().unwrap();
        assert_eq!(place.content(), b"abcdefgh");
    }
}

#[test]
fn the_end_of_the_file_is_the_same_answer_on_all() {
    for place in Place::all() {
        let file = place.create("saturation=4KiB");
        file.write_at(0, &pattern(1, 10_000)).unwrap();
        let results = together(&file, 4, |_, member| {
            let mut back = vec![0; 3000];
            let first = member.read_all(&mut back, Hint::Unknown).unwrap_err();
            let second = member.read_all(&mut back, Hint::Unknown).unwrap_err();
            assert_eq!((second.code(), second.count()), (TeamCode::EndOfFile, 0));
            (first.code(), first.count())
        });
        assert!(results.iter().all(|(code, _)| *code == TeamCode::EndOfFile));
        assert_eq!(results.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [3000, 3000, 3000, 1000]);
        assert_eq!(file.tell(), 10_000);
    }
}

#[test]
fn tasks_write_numbered_parts_in_any_order() {
    for place in Place::all() {
        let file = place.create("buffer=10000B");
        file.at(Position::ALONE).write_all(b"head", Hint::Unknown).unwrap();
        for part in [2u64, 0, 3] {
            file.write_part(&pattern(part, 100), part, 4).unwrap();
        }
        let refused = file.at(Position::ALONE).write_all(b"x", Hint::Unknown).unwrap_err();
        assert!(refused.to_string().contains("part 1 of 4 has not been written"), "{refused}");
        assert!(file.write_part(&[], 2, 4).unwrap_err().to_string().contains("already"));
        assert!(file.write_part(&[], 4, 4).is_err() && file.write_part(&[], 1, 5).is_err());
        file.write_part(&pattern(1, 100), 1, 4).unwrap();
        assert_eq!(file.tell(), 404);
        let kept = file.write_part(&[0; 10_001], 1, 2).unwrap_err();
        assert!(kept.to_string().contains("part 0 is missing"), "{kept}");
        file.close().unwrap();
        let expected: Vec<u8> = (0..4).flat_map(|part| pattern(part, 100)).collect();
        assert!(place.content() == [b"head".to_vec(), expected].concat());
    }
}

#[test]
fn a_lone_caller_gets_threads() {
    for place in Place::all() {
        let file = place.create("saturation=64KiB").with_threads(3).unwrap();
        let bytes = pattern(9, 3_000_000);
        file.write_divided_at(5, &bytes).unwrap();
        let mut back = vec![0; 3_000_000];
        assert_eq!(file.read_divided_at(5, &mut back).unwrap(), 3_000_000);
        assert!(back == bytes);
        let error = file.read_divided_at(1_000_005, &mut back).unwrap_err();
        assert_eq!((error.code(), error.count()), (TeamCode::EndOfFile, 2_000_000));
        file.close().unwrap();
    }
}

#[test]
fn a_file_opened_to_append_begins_at_its_end() {
    for place in Place::all() {
        place.create("").write_at(0, b"abc").unwrap();
        let file = place.open(&options("").append(true));
        together(&file, 2, |number, member| member.write_all(&[b"de"[number]], Hint::Contiguous).unwrap());
        file.close().unwrap();
        assert_eq!(place.content(), b"abcde");
    }
}

/// A setting makes a container; `auto` finds one; `flatten` makes it a plain file with the same bytes.
#[test]
fn a_team_writes_a_container_that_becomes_a_plain_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("field");
    let file = TeamFile::open(&path, &options("target=log,active=3")).unwrap();
    let parts: Vec<Vec<u8>> = (0..3).map(|number| pattern(number as u64, 900_000 + number)).collect();
    together(&file, 3, |number, member| member.write_all(&parts[number], Hint::Unknown).unwrap());
    file.close().unwrap();
    assert!(pario::containers::is_container(&path), "target=log made no container");
    // A setting is for new files: an existing file keeps its kind.
    let check = |settings: &str| {
        let again = TeamFile::open(&path, &options(settings)).unwrap();
        let mut found = vec![0; parts.concat().len()];
        again.read_at(0, &mut found).unwrap();
        assert!(found == parts.concat(), "read through a team with '{settings}'");
        again.close().unwrap();
    };
    ["", "target=plain", "target=log"].into_iter().for_each(check);
    pario::containers::flatten(&pario::containers::LogOptions::default(), &path).unwrap();
    assert!(std::fs::read(&path).unwrap() == parts.concat(), "read as a plain file");
    ["", "target=plain", "target=log"].into_iter().for_each(check);
    assert!(path.is_file());
}

/// Members that are not active run ahead, and begin a round as soon as one retires: the others join it.
#[test]
fn members_that_run_ahead_do_not_lose_each_other() {
    for place in Place::all() {
        let file = place.open(&options("active=1").patience(std::time::Duration::from_secs(20)));
        let parts: Vec<Vec<u8>> = (0_u64..4).map(|number| pattern(number, 1000)).collect();
        together(&file, 4, |number, member| {
            for call in 0..500 {
                let written = member.write_all(&parts[number], Hint::Contiguous);
                assert_eq!(written.unwrap_or_else(|error| panic!("call {call}: {error}")), 1000);
            }
        });
        file.close().unwrap();
        assert!(place.content() == parts.concat().repeat(500));
    }
}
