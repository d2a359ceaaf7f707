//! The state machine of collectives, driven by hand: which members get which notice, and when.

use super::*;

fn meeting(size: usize) -> CollectiveState {
    CollectiveState::new((0..size).map(|rank| format!("process {}", 100 + rank)).collect())
}

fn bring(
    meeting: &mut CollectiveState,
    channel: u32,
    rank: usize,
    call: CollectiveCall,
) -> Vec<MemberNotice> {
    meeting.contribute(channel, rank, call, Ok(vec![rank.try_into().unwrap()]))
}

/// The ranks addressed by the only notice, and how the collective ended.
#[track_caller]
fn round(told: &[MemberNotice]) -> (Vec<usize>, CollectiveOutcome) {
    match told {
        [MemberNotice::Ended { to, ended, .. }, ..] => (to.clone(), ended.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_round_is_told_to_all_in_the_order_of_ranks() {
    let mut meeting = meeting(3);
    for round_number in 0..2 {
        assert!(bring(&mut meeting, 0, 2, CollectiveCall::Allgather).is_empty(), "{round_number}");
        assert!(bring(&mut meeting, 0, 0, CollectiveCall::Allgather).is_empty());
        let (to, ended) = round(&bring(&mut meeting, 0, 1, CollectiveCall::Allgather));
        assert_eq!(to, [0, 1, 2]);
        assert_eq!(ended.unwrap().parts, [[0], [1], [2]]);
    }
}

#[test]
fn different_collectives_are_told_to_all_and_the_next_round_goes_on() {
    let mut meeting = meeting(2);
    bring(&mut meeting, 0, 0, CollectiveCall::Barrier);
    let (to, ended) = round(&bring(&mut meeting, 0, 1, CollectiveCall::Duplicate));
    assert_eq!(to, [0, 1]);
    let fault = ended.unwrap_err();
    assert!(fault.text.contains("rank 0 barrier, rank 1 duplicate"), "{fault}");
    bring(&mut meeting, 0, 0, CollectiveCall::Broadcast { root: 0 });
    assert!(round(&bring(&mut meeting, 0, 1, CollectiveCall::Broadcast { root: 1 })).1.is_err());
    bring(&mut meeting, 0, 0, CollectiveCall::Barrier);
    assert!(round(&bring(&mut meeting, 0, 1, CollectiveCall::Barrier)).1.is_ok());
}

#[test]
fn channels_do_not_mix() {
    let mut meeting = meeting(2);
    bring(&mut meeting, 0, 0, CollectiveCall::Duplicate);
    let made =
        round(&bring(&mut meeting, 0, 1, CollectiveCall::Duplicate)).1.unwrap().created_channel.unwrap();
    assert!(bring(&mut meeting, made, 0, CollectiveCall::Barrier).is_empty());
    assert!(bring(&mut meeting, 0, 1, CollectiveCall::Barrier).is_empty());
    let told = bring(&mut meeting, 0, 0, CollectiveCall::Barrier);
    assert!(matches!(&told[..], [MemberNotice::Ended { channel: 0, ended: Ok(_), .. }]), "{told:?}");
    let told = bring(&mut meeting, made, 1, CollectiveCall::Barrier);
    assert!(
        matches!(&told[..], [MemberNotice::Ended { channel, ended: Ok(_), .. }] if *channel == made),
        "{told:?}"
    );
}

#[test]
fn a_death_ends_every_round_now_and_later() {
    let mut meeting = meeting(3);
    bring(&mut meeting, 0, 0, CollectiveCall::Barrier);
    let told = meeting.member_died(1, "died");
    let (to, ended) = round(&told);
    assert_eq!(to, [0]);
    let fault = ended.unwrap_err();
    assert_eq!((fault.code, fault.text.as_str()), (Code::Unreachable, "rank 1 (process 101) died"));
    assert!(matches!(told.last(), Some(MemberNotice::Broken { .. })));
    assert_eq!(round(&bring(&mut meeting, 0, 2, CollectiveCall::Barrier)).1.unwrap_err(), fault);
    assert!(meeting.member_died(1, "died").is_empty(), "told once");
    assert!(meeting.member_died(2, "died").is_empty(), "the first death is the reason");
}

#[test]
fn who_left_in_order_is_missed_by_name() {
    let mut meeting = meeting(3);
    bring(&mut meeting, 0, 0, CollectiveCall::Barrier);
    let told = meeting.leave(2);
    let (to, ended) = round(&told);
    assert_eq!(to, [0]);
    assert_eq!(ended.unwrap_err().text, "rank 2 (process 102) has left the group");
    assert!(matches!(&told[1], MemberNotice::Closed { channel: 0, to, .. } if *to == [0, 1]), "{told:?}");
    assert!(
        round(&bring(&mut meeting, 0, 1, CollectiveCall::Barrier)).1.unwrap_err().text.contains("rank 2")
    );
    assert!(meeting.member_died(2, "died").is_empty(), "its end after that is no news");
    assert!(meeting.leave(1).is_empty(), "the first member that left is the reason");
}

#[test]
fn leaving_a_channel_leaves_the_others_alone_and_the_last_closes_it() {
    let mut meeting = meeting(2);
    bring(&mut meeting, 0, 0, CollectiveCall::Duplicate);
    let made =
        round(&bring(&mut meeting, 0, 1, CollectiveCall::Duplicate)).1.unwrap().created_channel.unwrap();
    assert_eq!(meeting.leave_channel(made, 0).len(), 1);
    assert!(meeting.fault(made).is_some() && meeting.fault(0).is_none());
    assert!(meeting.leave_channel(made, 1).is_empty());
    let fault = round(&bring(&mut meeting, made, 0, CollectiveCall::Barrier)).1.unwrap_err();
    assert!(fault.text.contains("that it has left"), "{fault}");
    bring(&mut meeting, 0, 0, CollectiveCall::Barrier);
    assert!(round(&bring(&mut meeting, 0, 1, CollectiveCall::Barrier)).1.is_ok());
}

#[test]
fn two_at_once_in_one_channel_is_refused_and_the_first_stays() {
    let mut meeting = meeting(2);
    bring(&mut meeting, 0, 0, CollectiveCall::Barrier);
    let (to, ended) = round(&bring(&mut meeting, 0, 0, CollectiveCall::Barrier));
    assert_eq!((to, ended.unwrap_err().code), (vec![0], Code::Invalid));
    assert!(round(&bring(&mut meeting, 0, 1, CollectiveCall::Barrier)).1.is_ok());
}

#[test]
fn sizes_and_channels_have_limits_that_all_are_told() {
    let mut group = meeting(2);
    group.contribute(0, 0, CollectiveCall::Allgather, Err("too much".into()));
    let fault = round(&group.contribute(0, 1, CollectiveCall::Allgather, Ok(vec![]))).1.unwrap_err();
    assert_eq!(fault.text, "rank 0: too much");
    let mut large = meeting(5);
    for rank in 0..4 {
        assert!(large.contribute(0, rank, CollectiveCall::Allgather, Ok(vec![0; PART_BYTES_MAX])).is_empty());
    }
    let ended = round(&large.contribute(0, 4, CollectiveCall::Allgather, Ok(vec![0]))).1;
    assert_eq!(ended.unwrap_err().code, Code::TooLarge);
    let mut alone = meeting(1);
    for _ in 1..CHANNELS_MAX {
        assert!(round(&bring(&mut alone, 0, 0, CollectiveCall::Duplicate)).1.is_ok());
    }
    assert_eq!(round(&bring(&mut alone, 0, 0, CollectiveCall::Duplicate)).1.unwrap_err().code, Code::TooMany);
    alone.leave_channel(7, 0);
    assert!(round(&bring(&mut alone, 0, 0, CollectiveCall::Duplicate)).1.is_ok());
}
