//! Requests to servers that are stopped or wedged: each command ends within its limit and names the server.

use std::time::Duration;

use rustix::process::Signal;
use rustix::time::ClockId;

use crate::support::{CliFixture, CommandOutput, RunningCommand, kill, said, until};

/// Time limit of a query, or an order to a stopped server: 8 s for the answer, 2 s for the end of its process, and a loaded machine.
const LIMIT: Duration = Duration::from_secs(15);
/// Time limit of a `down` that kills a server: 60 s for the answer to the order, which the service thread has taken, then 15 s after
/// SIGTERM, or 60 s while one of its threads is active.
const KILL_LIMIT: Duration = Duration::from_secs(150);

fn now() -> Duration {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Runs a command that must end within `limit`.
#[track_caller]
fn within(limit: Duration, world: &CliFixture, words: &[&str]) -> CommandOutput {
    let began = now();
    let said = world.pario(words);
    let took = now().saturating_sub(began);
    assert!(took < limit, "{words:?} took {took:?}: {said:?}");
    said
}

/// Error about a server that does not answer: index, host, process, its state, and the cure.
#[track_caller]
fn assert_named(text: &str, server: u16, (pid, state): (i32, &str), cure: &str) {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(&format!("process {pid},"))).collect();
    assert_eq!(lines.len(), 1, "{text}");
    for wanted in [&format!("server {server} of"), host.as_str(), state, "does not answer within", cure] {
        assert!(lines[0].contains(wanted), "no '{wanted}' in: {text}");
    }
}

/// Questions and orders other than `down`.
#[track_caller]
fn assert_reported(world: &CliFixture, server: u16, (pid, state): (i32, &str), cure: &str) {
    let status = within(LIMIT, world, &["status", "s"]);
    assert_eq!(status.code, 3, "{status:?}");
    assert_named(&status.out, server, (pid, state), cure);
    let doctor = within(LIMIT, world, &["doctor", "s"]);
    assert_eq!(doctor.code, 3, "{doctor:?}");
    assert_named(&doctor.out, server, (pid, state), cure);
    let up = within(LIMIT, world, &["up", "s"]);
    assert_eq!((up.code, up.err.lines().count()), (1, 1), "{up:?}");
    assert_named(&up.err, server, (pid, state), cure);
}

#[test]
fn a_stopped_server_is_named_and_ends_in_order() {
    let world = CliFixture::new();
    world.up("s", 2);
    std::fs::write(world.path("f"), "kept").unwrap();
    world.ok(&["cp", "f", "pario://s/f"]);
    let pid = world.server_pids("s")[1];
    kill(pid, Signal::STOP);
    assert_reported(&world, 1, (pid, "is stopped"), &format!("`kill -CONT {pid}`"));
    let down = within(LIMIT, &world, &["down", "s"]);
    assert_eq!(down.code, 0, "{down:?}");
    assert_eq!(down.out, "s: 1 server stopped, 1 server ended by SIGTERM, data kept\n");
    let note = format!("s: server 1 (process {pid}) answered no order and was ended by SIGTERM");
    assert_eq!(down.err, format!("pario: note: {note}\n"));
    assert!(until(|| world.processes().is_empty()));
    world.ok(&["up", "s"]);
    assert_eq!(world.ok(&["cat", "pario://s/f"]), "kept");
}

#[test]
fn a_wedged_server_is_named_and_killed_aloud() {
    let world = CliFixture::new();
    let (point, data) = (world.path("point"), world.text("data"));
    std::fs::create_dir(&point).unwrap();
    let mut up = world.command();
    up.env("PARIO_KILL_POINT", "log-written=hang").env("PARIO_KILL_POINT_DIR", &point);
    let up = said(&up.args(["up", "--name", "s", "--servers", "2", "--dir", &data]).output().unwrap());
    assert_eq!(up.code, 0, "{up:?}");
    std::fs::write(world.path("f"), "kept").unwrap();
    world.ok(&["cp", "f", "pario://s/f"]);
    let pid = world.server_pids("s")[0];
    std::fs::write(point.join("go"), "").unwrap();
    let _waits = RunningCommand::start(world.command().args(["mkdir", "pario://s/d"]));
    assert!(until(|| point.join("reached").exists()), "the manager does not come to the point");
    assert_reported(&world, 0, (pid, "runs but"), "`pario down s`");
    let down = within(KILL_LIMIT, &world, &["down", "s"]);
    assert_eq!(down.code, 3, "{down:?}");
    assert_eq!(down.out, "s: 1 server stopped, 1 server killed because of no answer, data kept\n");
    assert!(down.err.contains(&format!("server 0 (process {pid}) answered no order")), "{down:?}");
    assert!(down.err.contains("was killed") && down.err.lines().count() == 1, "{down:?}");
    assert!(until(|| !world.processes().contains(&pid)));
    world.ok(&["up", "s"]);
    assert_eq!(world.ok(&["cat", "pario://s/f"]), "kept");
}
