//! Groups of threads, as their members see them.

use std::sync::Barrier;

use super::*;
use crate::group::Reduce;

/// Runs every member in its own thread.
fn each<T: Send>(members: Vec<Arc<dyn Group>>, body: impl Fn(Arc<dyn Group>) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = members.into_iter().map(|group| scope.spawn(|| body(group))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn collectives_of_one_to_nine_members() {
    for size in 1..=9 {
        each(threads(size), |group| {
            assert_eq!(group.size(), size);
            let mine = [u8::try_from(group.rank()).unwrap()];
            let all = group.allgather(&mine).unwrap();
            assert_eq!(all.concat(), (0..u8::try_from(size).unwrap()).collect::<Vec<_>>());
            group.barrier().unwrap();
            assert_eq!(group.broadcast(size - 1, &mine).unwrap(), [u8::try_from(size - 1).unwrap()]);
            let size = size as u64;
            assert_eq!(group.reduce(group.rank() as u64, Reduce::Sum).unwrap(), size * (size - 1) / 2);
            assert_eq!(group.reduce(group.rank() as u64, Reduce::Max).unwrap(), size - 1);
            group.same("a word", b"word").unwrap();
            group.agree(Ok(())).unwrap();
            group.leave();
        });
    }
}

#[test]
fn disagreement_is_told_to_all() {
    let errors = each(threads(3), |group| {
        let said = group.same("a length", &[u8::from(group.rank() == 2)]).unwrap_err().to_string();
        group.barrier().unwrap();
        let mine = match group.rank() {
            1 => Err(Fault::new(Code::NoSpace, "no room").into()),
            _ => Ok(()),
        };
        (said, group.agree(mine).unwrap_err().to_string())
    });
    for (rank, (same, agree)) in errors.iter().enumerate() {
        assert!(same.contains("ranks 0 and 2 do not agree on a length"), "{same}");
        assert_eq!(agree, if rank == 1 { "no room" } else { "rank 1: no room" });
    }
}

#[test]
fn different_collectives_end_for_all() {
    each(threads(4), |group| {
        let error = match group.rank() {
            3 => group.duplicate().unwrap_err(),
            _ => group.barrier().unwrap_err(),
        };
        assert!(error.to_string().contains("rank 0 barrier, rank 3 duplicate"), "{error}");
        group.barrier().unwrap();
    });
}

#[test]
fn a_member_that_is_dropped_is_gone_and_named() {
    let mut members = threads(3);
    let lost = members.pop().unwrap();
    let met = Barrier::new(3);
    let errors = std::thread::scope(|scope| {
        let waiting: Vec<_> = members
            .into_iter()
            .map(|group| {
                let met = &met;
                scope.spawn(move || {
                    let other = group.duplicate().unwrap();
                    group.check().unwrap();
                    met.wait();
                    let error = other.barrier().unwrap_err();
                    assert_eq!(group.check().unwrap_err(), error);
                    assert_eq!(group.allgather(b"later").unwrap_err(), error);
                    error.to_string()
                })
            })
            .collect();
        let dying = scope.spawn(|| {
            let other = lost.duplicate().unwrap();
            met.wait();
            drop((lost, other));
        });
        dying.join().unwrap();
        waiting.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    for error in errors {
        assert!(error.starts_with("rank 2 (a thread of process "), "{error}");
        assert!(error.ends_with("ended without leaving the group"), "{error}");
    }
}

#[test]
fn a_panic_is_told_as_one_and_leaving_as_leaving() {
    let mut members = threads(2);
    let lost = members.pop().unwrap();
    let died = std::thread::spawn(move || {
        let _lost = lost;
        panic!("a panic that this test wants");
    });
    assert!(died.join().is_err());
    let error = members[0].barrier().unwrap_err().to_string();
    assert!(error.ends_with("panicked"), "{error}");

    let members = threads(2);
    members[1].leave();
    let error = members[0].barrier().unwrap_err().to_string();
    assert!(error.starts_with("rank 1") && error.ends_with("has left the group"), "{error}");
    assert!(members[0].check().is_err());
    assert_eq!(members[1].barrier().unwrap_err().code(), Code::Closed);
}

#[test]
fn a_handle_may_go_while_a_duplicate_stays() {
    each(threads(2), |group| {
        let other = group.duplicate().unwrap();
        drop(group);
        for _ in 0..10 {
            other.barrier().unwrap();
        }
    });
}

#[test]
fn two_channels_from_two_threads_at_once() {
    each(threads(4), |group| {
        let other = group.duplicate().unwrap();
        std::thread::scope(|scope| {
            for (channel, handle) in [&group, &other].into_iter().enumerate() {
                scope.spawn(move || {
                    for round in 0..200u64 {
                        let mine = round * 2 + channel as u64;
                        assert_eq!(handle.reduce(mine, Reduce::Max).unwrap(), mine);
                    }
                });
            }
        });
    });
}

#[test]
fn nodes_are_numbered_by_their_first_members() {
    let members = threads_on(&[7, 3, 7, 9]);
    let nodes: Vec<usize> = (0..4).map(|rank| members[0].node_of(rank)).collect();
    assert_eq!(nodes, [0, 1, 0, 2]);
}

#[test]
fn too_much_at_once_is_told_to_all() {
    each(threads(2), |group| {
        let bytes = vec![0; if group.rank() == 1 { PART_BYTES_MAX + 1 } else { 0 }];
        let error = group.allgather(&bytes).unwrap_err();
        assert_eq!(error.code(), Code::TooLarge);
        assert!(error.to_string().starts_with("rank 1: "), "{error}");
        group.barrier().unwrap();
    });
}
