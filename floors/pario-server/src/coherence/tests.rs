//! Every rule of the lease machine as a short script; see [`super::script`] for the syntax.

use pario_core::{InodeId, Nanos, SessionId};
use pario_net::message::{Phase, Want};

use super::script::{check, session, show};
use super::*;

#[test]
fn readers_share_without_a_recall() {
    check("1 A read => 1 A read 0\n 2 B read => 2 B read 1\n A back 0\n B back 1\n idle");
}

#[test]
fn a_lone_writer_is_exclusive_and_may_read() {
    check(
        "1 A write => 1 A exclusive 0\n 2 A read => 2 A exclusive 0\n 3 A write => 3 A exclusive 0\n A back 0\n idle",
    );
}

#[test]
fn a_second_writer_makes_both_share_the_write_phase() {
    check(
        "1 A write => 1 A exclusive 0
         2 B write => recall A 0
         A back 0  => 2 B write 1
         3 A write => 3 A write 2
         4 C write => 4 C write 3",
    );
}

#[test]
fn a_writer_is_exclusive_again_after_its_rival_died() {
    check(
        "1 A write => 1 A exclusive 0
         2 B write => recall A 0
         A gone    => settle A
         A settled => 2 B exclusive 1",
    );
}

#[test]
fn writers_that_wait_together_share() {
    check(
        "1 A read  => 1 A read 0
         2 B write => recall A 0
         3 C write
         4 D read
         A back 0  => 2 B write 1, 3 C write 2, recall B 1, recall C 2
         C back 2
         B back 1  => 4 D read 3",
    );
}

#[test]
fn a_reader_makes_writers_give_back() {
    check(
        "1 A write => 1 A exclusive 0
         2 B read  => recall A 0
         3 C read
         A back 0  => 2 B read 1, 3 C read 2",
    );
}

#[test]
fn a_reader_may_not_overtake_a_waiting_writer() {
    check(
        "1 A read  => 1 A read 0
         2 B write => recall A 0
         3 C read
         A back 0  => 2 B exclusive 1, recall B 1
         B back 1  => 3 C read 2",
    );
}

#[test]
fn a_recalled_holder_that_asks_again_waits_its_turn() {
    check(
        "1 A write => 1 A exclusive 0
         2 B read  => recall A 0
         3 A write
         A back 0  => 2 B read 1, recall B 1
         B back 1  => 3 A exclusive 2",
    );
}

#[test]
fn a_lone_reader_that_writes_keeps_the_file() {
    check("1 A read => 1 A read 0\n 2 A write => 2 A exclusive 1\n A back 0\n A back 1\n idle");
}

#[test]
fn the_last_writer_that_reads_keeps_the_file() {
    check(
        "1 A write => 1 A exclusive 0
         2 B write => recall A 0
         A back 0  => 2 B write 1
         3 B read  => 3 B exclusive 2",
    );
}

#[test]
fn one_of_many_readers_that_writes_gives_back_as_well() {
    check(
        "1 A read  => 1 A read 0
         2 B read  => 2 B read 1
         3 A write => recall A 0, recall B 1
         A back 0
         B back 1  => 3 A exclusive 2",
    );
}

#[test]
fn one_of_many_writers_that_reads_gives_back_as_well() {
    check(
        "1 A write => 1 A exclusive 0
         2 B write => recall A 0
         A back 0  => 2 B write 1
         3 A write => 3 A write 2
         4 A read  => recall A 2, recall B 1
         B back 1
         A back 2  => 4 A read 3",
    );
}

#[test]
fn late_and_doubled_returns_are_ignored() {
    check(
        "1 A write => 1 A exclusive 0
         A back 7
         B back 0
         A back 0
         A back 0
         2 B write => 2 B exclusive 1
         A back 1
         3 C write => recall B 1",
    );
}

#[test]
fn a_dead_writer_is_settled_before_anybody_gets_the_file() {
    check(
        "1 A write => 1 A exclusive 0
         2 B read  => recall A 0
         A gone    => settle A
         A back 0
         3 C write
         A gone
         A settled => 2 B read 1, recall B 1
         A settled
         B back 1  => 3 C exclusive 2",
    );
}

#[test]
fn a_writer_may_not_join_while_another_is_settled() {
    check(
        "1 A write => 1 A exclusive 0
         2 B write => recall A 0
         A back 0  => 2 B write 1
         3 A write => 3 A write 2
         A gone    => settle A
         4 C write
         5 B write => 5 B write 1
         A settled => 4 C write 3",
    );
}

#[test]
fn a_dead_reader_is_released_at_once() {
    check("1 A read => 1 A read 0\n 2 B write => recall A 0\n A gone => 2 B exclusive 1\n B back 1\n idle");
}

#[test]
fn requests_of_the_dead_are_dropped() {
    check(
        "1 A read  => 1 A read 0
         2 B write => recall A 0
         3 B read
         4 C read
         B gone    => 4 C read 1
         A back 0
         C back 1
         idle",
    );
}

#[test]
fn the_dead_are_neither_recalled_nor_granted() {
    check(
        "1 A write => 1 A exclusive 0\n 2 B read => recall A 0\n 3 A read\n A gone => settle A\n A settled => 2 B read 1",
    );
}

#[test]
fn a_session_that_comes_back_waits_for_its_own_settling() {
    check("1 A write => 1 A exclusive 0\n A gone => settle A\n 2 A write\n A settled => 2 A exclusive 1");
}

#[test]
fn a_restored_writer_blocks_until_its_death_is_settled() {
    check(
        "A restored
         B restored
         1 C read
         2 look
         A back 0
         A settled
         A gone      => settle A
         B reclaimed => settle B
         3 B write
         B gone
         A settled
         B settled   => quiet 2, 1 C read 0
         C back 0
         idle",
    );
}

#[test]
fn a_session_that_reclaims_drops_read_leases_too() {
    check("1 A read => 1 A read 0\n 2 B write => recall A 0\n A reclaimed => 2 B exclusive 1");
}

#[test]
fn a_look_makes_those_who_write_behind_give_back() {
    check(
        "1 A write => 1 A exclusive 0
         2 look    => recall A 0
         3 A write
         A back 0  => quiet 2, 3 A exclusive 1
         4 B write => recall A 1
         A back 1  => 4 B write 2
         5 A write => 5 A write 3
         6 look A  => recall A 3, recall B 2
         A back 3
         B back 2  => quiet 6
         idle",
    );
}

#[test]
fn a_look_leaves_readers_and_its_askers_own_exclusive_lease() {
    check(
        "1 A read => 1 A read 0\n 2 look => quiet 2\n 3 A write => 3 A exclusive 1\n 4 look A => quiet 4\n 5 look B => recall A 1",
    );
}

#[test]
fn a_look_waits_for_the_dead_also_for_its_asker() {
    check(
        "1 A write => 1 A exclusive 0\n A gone => settle A\n 2 look\n 3 look A\n A settled => quiet 2, quiet 3\n idle",
    );
}

#[test]
fn a_look_needs_no_turn_but_a_moment_of_silence() {
    check(
        "1 A read  => 1 A read 0
         2 B write => recall A 0
         3 look    => quiet 3
         A back 0  => 2 B exclusive 1
         4 C read  => recall B 1
         5 D write
         6 look
         B back 1  => quiet 6, 4 C read 2, recall C 2",
    );
}

#[test]
fn a_stop_takes_everything_and_holds_everybody_up() {
    check(
        "1 A read => 1 A read 0
         2 B read => 2 B read 1
         3 stop   => recall A 0, recall B 1
         4 A read
         A back 0
         B back 1 => quiet 3
         5 look
         6 C write
         7 stop
         cancel 3
         end 9
         end 3    => quiet 5, 4 A read 2, recall A 2
         A back 2 => 6 C exclusive 3, recall C 3
         C back 3 => quiet 7
         end 7
         idle",
    );
}

#[test]
fn a_stop_may_be_ended_before_it_is_in_force() {
    check(
        "1 A write => 1 A exclusive 0\n 2 stop => recall A 0\n 3 B read\n end 2\n A back 0 => 3 B read 1\n 4 C read => 4 C read 2",
    );
}

#[test]
fn only_a_stop_is_ended() {
    check(
        "1 A write => 1 A exclusive 0\n 2 B read => recall A 0\n end 2\n end 2 on 7\n A back 0 => 2 B read 1\n B back 1\n idle",
    );
}

#[test]
fn cancelling_lets_the_next_ones_in() {
    check(
        "1 A read  => 1 A read 0
         2 B read  => 2 B read 1
         3 C write => recall A 0, recall B 1
         4 D read
         5 A read
         cancel 3  => 4 D read 2
         cancel 3
         A back 0  => 5 A read 3",
    );
}

#[test]
fn files_do_not_disturb_each_other() {
    check(
        "1 A write => 1 A exclusive 0
         2 B write on 2 => 2 B exclusive 1
         3 stop on 3 => quiet 3
         4 A read on 2 => recall B 1
         B gone => settle B
         B settled on 2 => 4 A read 2
         end 3 on 3
         A gone => settle A
         A settled
         idle",
    );
}

#[test]
fn waits_are_listed_with_their_holders() {
    let script = check(
        "1 A read => 1 A read 0\n at 10\n 2 B write => recall A 0\n at 20\n 3 stop\n 4 stop on 2 => quiet 4\n 5 C read on 2",
    );
    let lines: Vec<WaitLine> = script.leases.waiting(Nanos(0).plus_ms(30)).collect();
    let facts: Vec<_> = lines.iter().map(|line| (line.inode.0, line.waiter, line.ticket.0)).collect();
    let expected = [
        (1, Waiter::Session(session("B")), 2),
        (1, Waiter::Barrier(Barrier::Stop), 3),
        (2, Waiter::Session(session("C")), 5),
    ];
    assert_eq!(facts, expected);
    assert_eq!((lines[0].since, lines[0].waited.as_millis()), (Nanos(0).plus_ms(10), 20));
    assert_eq!((&lines[1].holders, lines[1].stopped_by), (&vec![session("A")], None));
    assert_eq!((lines[2].holders.len(), lines[2].stopped_by), (0, Some(WaitTicket(4))));
}

#[test]
fn holders_and_their_rights_can_be_asked() {
    let leases = check(
        "1 A write => 1 A exclusive 0\n A gone => settle A\n 2 B read on 2 => 2 B read 1\n C restored on 3",
    )
    .leases;
    let rights = |who, inode| leases.holds_write(session(who), InodeId(inode));
    assert_eq!((rights("A", 1), rights("B", 1), rights("B", 2), rights("C", 3)), (true, false, false, true));
    assert_eq!((leases.holders(InodeId(1)), leases.holders(InodeId(4))), (vec![session("A")], vec![]));
    assert_eq!((leases.phase(InodeId(2)), leases.phase(InodeId(4))), (Some(Phase::Read {}), None));
}

#[test]
fn a_forgotten_file_names_those_who_waited() {
    let mut leases =
        check("1 A read => 1 A read 0\n 2 stop => recall A 0\n A back 0 => quiet 2\n 3 B write\n 4 look")
            .leases;
    assert_eq!(leases.forget(InodeId(1)), [WaitTicket(3), WaitTicket(4)]);
    assert!(leases.is_idle(), "{leases:?}");
    assert_eq!(leases.forget(InodeId(1)), []);
}

#[test]
fn numbers_start_at_the_seed_and_go_on() {
    let (mut leases, mut out) = (Leases::new(u64::MAX), Vec::new());
    for number in 1..=2 {
        let (session, ticket) = (SessionId(number), WaitTicket(number));
        leases.acquire(
            LeaseRequest {
                session,
                inode: InodeId(1),
                want: Want::Read {},
                group: LeaseGroup::default(),
                ticket,
            },
            Nanos(0),
            &mut out,
        );
    }
    assert_eq!(
        out.iter().map(show).collect::<Vec<_>>(),
        [format!("1 \u{1} read {}", u64::MAX), "2 \u{2} read 0".into()]
    );
}

#[test]
#[should_panic(expected = "already waits")]
fn a_ticket_in_use_is_refused() {
    check("1 A write => 1 A exclusive 0\n 2 B read => recall A 0\n 2 C read");
}

#[test]
fn a_party_is_one_user() {
    check(
        "
        1 a read 7        => 1 a read 0
        2 b read 7        => 2 b read 1
        3 b write 7       => 3 b exclusive 2
        4 a write 7       => 4 a exclusive 0
        5 c write 7       => 5 c exclusive 3
        6 s write         => recall a 0, recall b 2, recall c 3
        a back 0          =>
        7 a write 7       =>
        b back 2          =>
        c back 3          => 6 s write 4, 7 a write 5
        ",
    );
}

#[test]
fn the_members_of_a_party_do_not_count_as_flips() {
    check(
        "
        1 a write 7       => 1 a exclusive 0
        2 b read 7        => 2 b exclusive 1
        3 a read 7        => 3 a exclusive 0
        4 s read          => recall a 0, recall b 1
        a back 0          =>
        b back 1          => 4 s read 2
        5 a read 7        => 5 a read 3
        6 a write 7       => recall a 3, recall s 2
        ",
    );
}

#[test]
fn free_is_what_is_granted_at_once_and_takes_nothing_from_anybody() {
    let (a, b, file) = (SessionId(1), SessionId(2), InodeId(1));
    let party = LeaseGroup::default();
    let free = |leases: &Leases, who: SessionId| {
        [Want::Read {}, Want::Write {}, Want::WriteInGroup {}]
            .map(|want| leases.is_free_for((who, party), file, want))
    };
    let mut leases = Leases::new(0);
    let mut ticket = 0;
    let mut ask = |leases: &mut Leases, session, want| {
        ticket += 1;
        let ask = LeaseRequest { session, inode: file, want, group: party, ticket: WaitTicket(ticket) };
        let mut out = Vec::new();
        leases.acquire(ask, Nanos(0), &mut out);
        out.iter().any(|action| matches!(action, LeaseAction::Grant { ticket, .. } if *ticket == ask.ticket))
    };
    assert_eq!(free(&leases, a), [true; 3], "no session holds it");
    assert!(ask(&mut leases, a, Want::Read {}));
    assert_eq!(free(&leases, b), [true, false, false]);
    assert_eq!(free(&leases, a), [true, false, false], "what it has, and no more");
    assert!(ask(&mut leases, b, Want::Read {}));
    assert!(!ask(&mut leases, b, Want::Write {}), "waits for the other reader");
    assert_eq!(free(&leases, SessionId(3)), [false; 3], "no request overtakes a waiting one");
}
