//! Members and hub of a local group in one process: the cases that need no process to die.

use super::*;
use crate::group::{Hub, Reduce};

/// Joins as every rank, each in its own thread.
fn each<T: Send>(hub: &Hub, body: impl Fn(Arc<LocalGroup>) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let join = |rank| {
            let (invitation, body) = (hub.invitation(rank), &body);
            scope.spawn(move || body(LocalGroup::join(&invitation, None).unwrap()))
        };
        let threads: Vec<_> = (0..hub.size()).map(join).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn collectives_of_one_to_nine_members() {
    for size in 1..=9 {
        let hub = Hub::start(size).unwrap();
        each(&hub, |group| {
            assert_eq!((0..size).map(|rank| group.node_of(rank)).collect::<Vec<_>>(), vec![0; size]);
            let large = vec![u8::try_from(group.rank()).unwrap(); 300_000];
            let all = group.allgather(&large).unwrap();
            for (rank, part) in all.iter().enumerate() {
                assert!(part.len() == 300_000 && part.iter().all(|byte| usize::from(*byte) == rank));
            }
            group.barrier().unwrap();
            let (rank, size) = (group.rank() as u64, size as u64);
            assert_eq!(group.reduce(rank, Reduce::Sum).unwrap(), size * (size - 1) / 2);
            assert_eq!(group.broadcast(0, &[9, group.rank().try_into().unwrap()]).unwrap(), [9, 0]);
        });
    }
}

#[test]
fn disagreement_and_mismatch_are_told_to_all() {
    let hub = Hub::start(3).unwrap();
    each(&hub, |group| {
        let error = group.same("a length", &[u8::from(group.rank() == 1)]).unwrap_err().to_string();
        assert!(error.contains("ranks 0 and 1 do not agree on a length"), "{error}");
        let error = match group.rank() {
            2 => group.duplicate().unwrap_err(),
            _ => group.barrier().unwrap_err(),
        };
        assert!(error.to_string().contains("rank 0 barrier, rank 2 duplicate"), "{error}");
        let much = vec![0; if group.rank() == 0 { (16 << 20) + 1 } else { 1 }];
        let error = group.allgather(&much).unwrap_err();
        assert_eq!(error.code(), Code::TooLarge);
        group.barrier().unwrap();
    });
}

#[test]
fn two_channels_from_two_threads_at_once() {
    let hub = Hub::start(4).unwrap();
    each(&hub, |group| {
        let other = group.duplicate().unwrap();
        let handles: [&dyn Group; 2] = [&*group, &*other];
        std::thread::scope(|scope| {
            for (channel, handle) in handles.into_iter().enumerate() {
                scope.spawn(move || {
                    for round in 0..300u64 {
                        let mine = round * 2 + channel as u64;
                        assert_eq!(handle.reduce(mine, Reduce::Max).unwrap(), mine);
                    }
                });
            }
        });
    });
}

#[test]
fn who_leaves_in_order_is_missed_by_name() {
    let hub = Hub::start(3).unwrap();
    each(&hub, |group| {
        let other = group.duplicate().unwrap();
        if group.rank() == 1 {
            drop(other);
            group.barrier().unwrap();
            return;
        }
        let error = other.barrier().unwrap_err().to_string();
        assert!(error.starts_with("rank 1 (process ") && error.ends_with("has left the group"), "{error}");
        group.barrier().unwrap();
        assert_eq!(other.check().unwrap_err().code(), Code::Closed);
        let error = group.barrier().unwrap_err();
        assert!(error.to_string().starts_with("rank "), "{error}");
        assert_eq!(error.code(), Code::Closed, "{error}");
    });
}

#[test]
fn leaving_ends_a_round_that_another_thread_of_the_member_is_in() {
    let hub = Hub::start(2).unwrap();
    let groups = each(&hub, |group| group);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| groups[0].barrier().unwrap_err().to_string());
        // The other thread gets the error whether it waits in the collective already or calls it later.
        groups[0].leave();
        let error = waiting.join().unwrap();
        assert!(error.starts_with("rank 0 ") && error.contains("left the group"), "{error}");
    });
}

#[test]
fn a_handle_may_go_while_a_duplicate_stays_and_channels_are_given_back() {
    let hub = Hub::start(2).unwrap();
    each(&hub, |group| {
        for _ in 0..2 * crate::group::collective_state::CHANNELS_MAX {
            let other = group.duplicate().unwrap();
            other.barrier().unwrap();
        }
        let other = group.duplicate().unwrap();
        drop(group);
        other.barrier().unwrap();
    });
}

#[test]
fn strangers_are_refused_and_told_why() {
    let hub = Hub::start(2).unwrap();
    let refused = |invitation: &Invitation| LocalGroup::join(invitation, None).unwrap_err().to_string();
    let good = hub.invitation(1);
    let wrong = Invitation { token: [0; 16], ..good.clone() };
    assert!(refused(&wrong).contains("was not invited"), "{}", refused(&wrong));
    for (rank, size) in [(2, 2), (0, 3)] {
        let text = refused(&Invitation { rank, size, ..good.clone() });
        assert!(text.contains("the group has 2 members"), "{text}");
    }
    std::thread::scope(|scope| {
        let first = scope.spawn(|| LocalGroup::join(&hub.invitation(0), None).unwrap());
        let group = LocalGroup::join(&good, None).unwrap();
        let text = refused(&good);
        assert!(text.contains("rank 1 (process ") && text.contains("has joined already"), "{text}");
        drop((first.join().unwrap(), group));
    });
    // The hub processes the leave before the next join.
    let text = refused(&good);
    assert!(text.contains("joined only once"), "{text}");
}

#[test]
fn a_hub_that_ends_is_named() {
    let hub = Hub::start(2).unwrap();
    let late = hub.invitation(0);
    let groups = each(&hub, |group| group);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| groups[0].barrier().unwrap_err().to_string());
        drop(hub);
        let error = waiting.join().unwrap();
        let pid = std::process::id();
        assert!(error.contains(&format!("the hub of the group (process {pid},")), "{error}");
    });
    assert!(groups[1].check().is_err());
    assert_eq!(groups[1].allgather(b"x").unwrap_err().code(), Code::Unreachable);
    assert!(LocalGroup::join(&late, None).unwrap_err().to_string().contains("has it ended?"));
}

#[test]
fn a_rank_whose_process_ends_before_it_joins_is_not_waited_for() {
    let hub = Hub::start(2).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| LocalGroup::join(&hub.invitation(0), None).unwrap_err().to_string());
        hub.ended(1, "ended with exit code 3");
        let error = waiting.join().unwrap();
        assert!(error.contains("rank 1") && error.contains("exit code 3 before it joined"), "{error}");
    });
}

#[test]
fn labels_make_nodes() {
    let hub = Hub::start(4).unwrap();
    std::thread::scope(|scope| {
        for (rank, label) in [Some("a"), Some("b"), Some("a"), None].into_iter().enumerate() {
            let invitation = hub.invitation(rank);
            scope.spawn(move || {
                let group = LocalGroup::join(&invitation, label).unwrap();
                assert_eq!((0..4).map(|rank| group.node_of(rank)).collect::<Vec<_>>(), [0, 1, 0, 2]);
            });
        }
    });
}

#[test]
fn a_retired_hub_serves_to_the_last_member() {
    let hub = Hub::start(3).unwrap();
    let orders = std::thread::scope(|scope| {
        let invitations: Vec<Invitation> = (0..3).map(|rank| hub.invitation(rank)).collect();
        let threads: Vec<_> = invitations
            .into_iter()
            .map(|invitation| scope.spawn(move || LocalGroup::join(&invitation, None).unwrap()))
            .collect();
        let groups: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        hub.retire();
        groups
    });
    std::thread::scope(|scope| {
        for group in orders {
            scope.spawn(move || (0..20).for_each(|_| group.barrier().unwrap()));
        }
    });
}
