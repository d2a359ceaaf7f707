//! How a file enters and leaves the mixed phase; see [`super::script`] for the syntax of a script.

use pario_core::InodeId;
use pario_net::message::Want;

use super::LeaseGroup;
use super::script::{check, session};

/// Five flips within a second: A writes, B reads, in turn.
const PING_PONG: &str = "1 A write => 1 A exclusive 0
     2 B read  => recall A 0
     A back 0  => 2 B read 1
     3 A write => recall B 1
     B back 1  => 3 A exclusive 2
     at 500
     4 B read  => recall A 2
     A back 2  => 4 B read 3
     5 A write => recall B 3
     B back 3  => 5 A exclusive 4
     at 999
     6 B read  => recall A 4
     A back 4  => 6 B mixed 5
     7 A write => 7 A mixed 6\n";

#[test]
fn ping_pong_ends_in_the_mixed_phase() {
    check(&format!("{PING_PONG} 8 C read => 8 C mixed 7\n 9 look => quiet 9\n 10 A read => 10 A mixed 6"));
}

#[test]
fn nothing_is_free_in_the_mixed_phase_since_a_request_may_end_it() {
    let script = check(&format!("{PING_PONG} A back 6\n at 2500"));
    let is_free = |want| script.leases.is_free_for((session("C"), LeaseGroup::default()), InodeId(1), want);
    assert!(!is_free(Want::Read {}) && !is_free(Want::Write {}));
}

#[test]
fn slow_ping_pong_stays_in_phases() {
    check(
        &PING_PONG
            .replace("at 999", "at 1000")
            .replace("mixed", "read")
            .replace("=> 7 A read 6", "=> recall B 5"),
    );
}

#[test]
fn going_mixed_recalls_everybody_once() {
    check(&PING_PONG.replace(
        "6 B read  => recall A 4\n     A back 4  => 6 B mixed 5\n     7 A write => 7 A mixed 6",
        "6 B read  => recall A 4\n 7 A write\n 8 C read\n A back 4  => 6 B mixed 5, 7 A mixed 6, 8 C mixed 7",
    ));
}

#[test]
fn taking_turns_without_a_recall_is_no_ping_pong() {
    let turns = (0..10).map(|turn| {
        let (want, phase) = if turn % 2 == 0 { ("read", "read") } else { ("write", "exclusive") };
        let name = if turn % 2 == 0 { 'A' } else { 'B' };
        format!("{turn} {name} {want} => {turn} {name} {phase} {turn}\n{name} back {turn}\n")
    });
    check(&turns.collect::<String>());
}

#[test]
fn the_last_one_to_leave_ends_the_mixed_phase() {
    check(&format!("{PING_PONG} A back 6\n B gone => settle B\n 8 C write\n B settled => 8 C exclusive 7"));
}

#[test]
fn a_dead_mixed_user_is_settled_first() {
    check(&format!("{PING_PONG} A gone => settle A\n 8 C read\n 9 look\n A settled => quiet 9, 8 C mixed 7"));
}

#[test]
fn one_kind_of_user_leaves_the_mixed_phase_after_a_second() {
    check(&format!(
        "{PING_PONG} A back 6
         at 1998
         8 C read => 8 C mixed 7
         at 1999
         9 D read => recall B 5, recall C 7
         B back 5
         C back 7 => 9 D read 8
         10 C read => 10 C read 9"
    ));
}

#[test]
fn a_return_that_leaves_one_session_ends_the_mixed_phase() {
    check(&format!("{PING_PONG} at 2500\n B back 5 => recall A 6\n A back 6\n 8 A write => 8 A exclusive 7"));
}

#[test]
fn both_kinds_keep_the_mixed_phase() {
    check(&format!("{PING_PONG} at 9000\n 8 C write => 8 C mixed 7\n C back 7\n 9 B write => 9 B mixed 5"));
}

#[test]
fn a_stop_ends_the_mixed_phase() {
    check(&format!(
        "{PING_PONG} 8 stop => recall A 6, recall B 5\n A back 6\n B back 5 => quiet 8\n 9 A write\n end 8 => 9 A exclusive 7"
    ));
}
