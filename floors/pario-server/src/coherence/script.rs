//! A small language for tests of the lease machine: `input => actions`, one line per input.
//!
//! Inputs: `T S read|write [P]` (session S, of lease group P, requests under ticket T), `S back N` (returns lease N), `S gone`, `S
//! settled`, `S restored`, `S reclaimed`, `T look [S]`, `T stop`, `end T`, `cancel T`, `at MS` (sets the clock), `idle` (asserts that
//! nothing is left). Any of them may end in `on N` for another file than 1. Leases are numbered from 0.

use pario_core::{InodeId, Nanos, SessionId};
use pario_net::message::{Phase, Want};

use super::*;

/// A machine in the middle of a script.
pub(super) struct LeaseScript {
    pub(super) leases: Leases,
    now: Nanos,
    line: String,
}

/// Runs a script and compares the actions of each line.
#[track_caller]
pub(super) fn check(script: &str) -> LeaseScript {
    let mut state = LeaseScript { leases: Leases::new(0), now: Nanos(0), line: String::new() };
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (input, expected) = line.split_once("=>").unwrap_or((line, ""));
        line.clone_into(&mut state.line);
        let actions: Vec<String> = state.step(input.trim()).iter().map(show).collect();
        assert_eq!(actions.join(", "), expected.trim(), "after `{line}`");
    }
    state
}

impl LeaseScript {
    fn step(&mut self, input: &str) -> Vec<LeaseAction> {
        let (input, inode) = input.split_once(" on ").unwrap_or((input, "1"));
        let inode = InodeId(inode.parse().unwrap());
        let words: Vec<&str> = input.split_whitespace().collect();
        let (now, out) = (self.now, &mut Vec::new());
        let leases = &mut self.leases;
        match words[..] {
            ["at", ms] => self.now = Nanos(0).plus_ms(ms.parse().unwrap()),
            ["idle"] => assert!(leases.is_idle(), "{leases:?}"),
            ["end", number] => leases.barrier_end(inode, ticket(number), now, out),
            ["cancel", number] => leases.cancel(ticket(number), now, out),
            [number, "look"] => leases.barrier(barrier(inode, number, Barrier::Look, None), now, out),
            [number, "look", who] => {
                leases.barrier(barrier(inode, number, Barrier::Look, Some(who)), now, out)
            }
            [number, "stop"] => leases.barrier(barrier(inode, number, Barrier::Stop, None), now, out),
            [who, "back", number] => {
                let back = Return { session: session(who), inode, number: number.parse().unwrap() };
                leases.returned(back, now, out);
            }
            [who, "gone"] => leases.session_died(session(who), now, out),
            [who, "settled"] => leases.recovered(inode, session(who), now, out),
            [who, "restored"] => leases.restore(session(who), inode),
            [who, "reclaimed"] => leases.reclaimed(session(who), now, out),
            [number, who, want] | [number, who, want, _] => {
                let party = LeaseGroup(words.get(3).map_or(0, |party| party.parse().unwrap()));
                let want = match want {
                    "write" => Want::Write {},
                    "together" => Want::WriteInGroup {},
                    _ => Want::Read {},
                };
                let ask =
                    LeaseRequest { session: session(who), inode, want, group: party, ticket: ticket(number) };
                leases.acquire(ask, now, out);
            }
            _ => panic!("no such input: {}", self.line),
        }
        std::mem::take(out)
    }
}

/// The session of this name.
pub(super) fn session(name: &str) -> SessionId {
    SessionId(u64::from(name.as_bytes()[0]))
}

fn name(session: SessionId) -> char {
    char::from(u8::try_from(session.0).unwrap())
}

fn ticket(number: &str) -> WaitTicket {
    WaitTicket(number.parse().unwrap())
}

fn barrier(inode: InodeId, number: &str, kind: Barrier, asker: Option<&str>) -> BarrierRequest {
    BarrierRequest { inode, ticket: ticket(number), kind, requester: asker.map(session) }
}

/// An action in script syntax.
pub(super) fn show(action: &LeaseAction) -> String {
    match *action {
        LeaseAction::Grant { ticket, session, lease } => {
            let phase = match lease.phase {
                Phase::Exclusive {} => "exclusive",
                Phase::Write {} => "write",
                Phase::Read {} => "read",
                Phase::Mixed {} => "mixed",
            };
            format!("{} {} {phase} {}", ticket.0, name(session), lease.number)
        }
        LeaseAction::Recall { session, number, .. } => format!("recall {} {number}", name(session)),
        LeaseAction::Recover { session, .. } => format!("settle {}", name(session)),
        LeaseAction::Quiet { ticket } => format!("quiet {}", ticket.0),
    }
}
