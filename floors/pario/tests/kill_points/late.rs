//! A server that was stopped while draining a record, was considered dead, and continues when the record's memory has been reused for
//! another file's bytes.

use pario_sys::kill_point::Action;

use crate::common::stage::until;
use crate::fixture::{KillCase, KillFixture};

const BYTES: usize = 40_000;
/// More than twice what the outbox holds.
const OTHERS: u64 = 30;
const OLD: u8 = b'o';
const NEW: u8 = b'n';
const OTHER: u8 = b'x';

pub fn case(case: KillCase) {
    if case.action == Action::Kill {
        return;
    }
    let Some(stand) = KillFixture::with_server(case, 1, 1) else { return };
    let partition = stand.stage.mount();
    let file = partition.create("wide").unwrap();
    file.write_at(0, &[OLD; BYTES]).unwrap();
    file.sync().unwrap();
    let options = partition.options().write(true).create(true).stripe_count(1).first_server(0);
    let other = options.open("beside").unwrap();
    stand.go();
    file.write_at(0, &[NEW; BYTES]).unwrap();
    let process = stand.stage.server_pid(1);
    stand.reached_by(process);
    file.sync().unwrap_err();
    for number in 0..OTHERS {
        other.write_at(number * 20_000, &[OTHER; 20_000]).unwrap();
    }
    other.sync().unwrap();
    stand.go_on(process);
    // When it answers a new client, it has finished the interrupted work.
    let reader = stand.stage.mount();
    let mut found = vec![0; BYTES];
    assert!(until(|| reader.open("wide").and_then(|wide| wide.read_exact_at(0, &mut found)).is_ok()));
    let foreign = found.iter().position(|byte| ![OLD, NEW].contains(byte));
    assert_eq!(foreign, None, "a byte of another file");
}
