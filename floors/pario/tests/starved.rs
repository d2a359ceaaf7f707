//! Running servers without processor time: calls wait for them, and none fails. A server that was given up because it was stopped is used
//! again by the first call after it resumes.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::pattern;
use common::stage::{Stage, timed, told};
use pario::{File, Partition};
use rustix::process::Signal;

/// Starvation time of the servers; a dead server is given up after 3.5 s.
const STARVED: Duration = Duration::from_secs(10);
/// Programs that compete for the servers' processor: the servers, at the lowest priority, get almost no time.
const SPINNERS: usize = 24;

/// Programs that do nothing but use one processor.
struct Spinners(Vec<Child>);

impl Spinners {
    fn start(processor: &str) -> Spinners {
        let spin = || {
            // Each in its own session: where the scheduler groups by session, each counts.
            let mut command = Command::new("setsid");
            command
                .args(["taskset", "-c", processor, "sh", "-c", "while :; do :; done"])
                .stdin(Stdio::null());
            command.spawn().unwrap()
        };
        Spinners((0..SPINNERS).map(|_| spin()).collect())
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success())
}

/// Binds a process to one processor at the lowest priority; false, with a message, if that is not possible.
fn starve(pid: u32, processor: &str) -> bool {
    let number = pid.to_string();
    // Where the scheduler groups by session, the group's weight counts and not the process's.
    let group = format!("/proc/{pid}/autogroup");
    let _ = std::fs::write(group, "19");
    let done = run("taskset", &["-a", "-c", "-p", processor, &number])
        && run("chrt", &["-a", "-i", "-p", "0", &number]);
    if !done {
        eprintln!("SKIPPED: `taskset` and `chrt` of util-linux are needed to starve a server");
    }
    done
}

/// Processor time that a process has used.
fn used(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Every kind of call through the servers.
fn calls(partition: &Partition, file: &File, round: u64) -> pario::Result<()> {
    let data = pattern(100_000, round);
    file.write_at(round * 100_000, &data)?;
    file.sync()?;
    let mut back = vec![0; data.len()];
    file.read_exact_at(round * 100_000, &mut back)?;
    assert!(back == data, "round {round}");
    partition.metadata("f")?;
    partition.create(format!("g{round}"))?.close()?;
    partition.read_dir("/").map(|entries| assert!(entries.count() != 0))
}

#[test]
fn no_call_fails_while_the_servers_get_no_processor() {
    // A message to every server, so that the test waits for replies and not only for cursors.
    let Some(stage) = Stage::start(2, "stripe = \"16KiB\"") else { return };
    let partition = stage.mount();
    let file = partition.create("f").unwrap();
    calls(&partition, &file, 0).unwrap();
    let pids = [stage.server_pid(0), stage.server_pid(1)];
    let before = pids.map(used);
    let processor = first_processor();
    let spinners = Spinners::start(&processor);
    if !pids.iter().all(|pid| starve(*pid, &processor)) {
        return;
    }
    // Other processes on this processor share it; the calls belong to this test.
    let (rounds, took) = std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let began = timed(|| ()).1;
            let mut round = 1;
            let (_, took) = timed(|| {
                let mut spent = began;
                while spent < STARVED {
                    let (result, took) = timed(|| calls(&partition, &file, round));
                    result.unwrap_or_else(|error| {
                        panic!("round {round} after {spent:?} and {took:?}: {error}")
                    });
                    (spent, round) = (spent + took, round + 1);
                }
            });
            (round, took)
        });
        // A call under way may need much longer than the starvation time: the processor is given back when the time ends.
        let (keep, never) = std::sync::mpsc::channel::<()>();
        let _ = never.recv_timeout(STARVED + Duration::from_secs(2));
        drop((keep, spinners));
        caller.join().unwrap()
    });
    let after = pids.map(used);
    eprintln!("{rounds} rounds in {took:?}; processor time of the servers {before:?} and {after:?} ticks");
    file.close().unwrap();
}

/// The first processor that this process may use.
fn first_processor() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    allowed.split([',', '-']).next().unwrap().into()
}

/// A client that gave a server up uses it again as soon as it can, at the first call.
#[test]
fn a_server_that_goes_on_is_used_by_the_next_call() {
    let Some(stage) = Stage::start(2, "stripe = \"16KiB\"") else { return };
    let partition = stage.mount();
    let file = partition.create("f").unwrap();
    calls(&partition, &file, 0).unwrap();
    for server in [0, 1] {
        stage.signal(server, Signal::STOP);
        let error = told(server, || {
            partition.create("h").and_then(|file| {
                file.write_at(0, &[1; 100_000])?;
                file.sync()
            })
        });
        assert!(error.to_string().contains("is stopped"), "{error}");
        stage.signal(server, Signal::CONT);
        // Immediately: a client does not get a second error about a running server.
        partition.metadata("f").unwrap();
        let mut back = [0; 100];
        let again = partition.open("f").unwrap();
        again.read_exact_at(0, &mut back).unwrap();
        again.read_exact_at(16 << 10, &mut back).unwrap();
    }
}
