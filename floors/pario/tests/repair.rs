//! `pario up` on a partition with one dead server: only that server is restarted, by the real command, while this process keeps files open
//! and continues to write.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::stage::{Stage, timed, until};
use common::{difference, pattern};
use pario::{File, Partition};
use rustix::process::Signal;

const SERVERS: usize = 4;
const SMALL: &str = "stripe = \"16KiB\"\n[cache]\noutbox = \"512KiB\"";

/// A file that lies on one server only.
fn file_on(partition: &Partition, server: u16) -> File {
    let options = partition.options().read(true).write(true).create(true).stripe_count(1);
    options.first_server(server).open(format!("only-on-{server}")).unwrap()
}

#[track_caller]
fn expect(file: &File, expected: &[u8]) {
    let mut found = vec![0; expected.len()];
    file.read_exact_at(0, &mut found).unwrap();
    if let Some(what) = difference(expected, &found) {
        panic!("{file:?}: {what}");
    }
}

#[track_caller]
fn up(stage: &Stage) -> String {
    let said = stage.up_command().stderr(Stdio::inherit()).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    String::from_utf8(said.stdout).unwrap()
}

fn pids(stage: &Stage) -> Vec<u32> {
    (0..SERVERS).map(|server| stage.server_pid(server)).collect()
}

/// Kills a server, restarts it, and asserts that only this server is new.
#[track_caller]
fn replace(stage: &Stage, victim: usize) {
    let before = pids(stage);
    stage.signal(victim, Signal::KILL);
    let line = up(stage);
    assert!(line.contains("1 of 4 servers restarted"), "{line}");
    for (server, (old, new)) in before.iter().zip(pids(stage)).enumerate() {
        assert_eq!(*old == new, server != victim, "server {server}: process {old}, then {new}");
    }
}

/// Writes to a file repeatedly until it is stopped.
struct LoopWriter {
    over: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<Result<(), pario::Error>>,
}

impl LoopWriter {
    fn start(file: File) -> LoopWriter {
        let (over, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ended, counted) = (Arc::clone(&over), Arc::clone(&rounds));
        let thread = std::thread::spawn(move || {
            for round in 0.. {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                // Records, and an occasional sync.
                file.write_at(round % 64 * 3000, &pattern(3000, round))?;
                if round % 16 == 0 {
                    file.sync()?;
                }
                counted.fetch_add(1, Ordering::Relaxed);
            }
            file.sync()
        });
        LoopWriter { over, rounds, thread }
    }

    fn gets_on(&self) {
        let before = self.rounds.load(Ordering::Relaxed);
        assert!(until(|| before + 50 < self.rounds.load(Ordering::Relaxed) || self.thread.is_finished()));
    }

    fn end(self) -> Result<(), pario::Error> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[test]
fn programs_on_other_servers_notice_nothing() {
    let Some(stage) = Stage::start(SERVERS, SMALL) else { return };
    let partition = stage.mount();
    let hurt = file_on(&partition, 2);
    let data = pattern(100_000, 7);
    hurt.write_at(0, &data).unwrap();
    hurt.sync().unwrap();
    // Another client, so that it has its own session.
    let writer = LoopWriter::start(file_on(&partition.another_client(), 1));
    writer.gets_on();
    replace(&stage, 2);
    writer.gets_on();
    expect(&hurt, &data);
    let more = pattern(100_000, 8);
    hurt.write_at(0, &more).unwrap();
    hurt.write_at(0, &more[..1000]).unwrap();
    hurt.sync().unwrap();
    expect(&hurt, &more);
    // The manager reaches the new server: a truncation is sent to the server itself.
    hurt.set_len(500).unwrap();
    expect(&hurt, &more[..500]);
    writer.gets_on();
    writer.end().unwrap();
    let after = stage.mount();
    assert_eq!(after.metadata("only-on-2").unwrap().size, 500);
}

#[test]
fn the_manager_alone_is_restarted() {
    let Some(stage) = Stage::start(SERVERS, SMALL) else { return };
    let partition = stage.mount();
    let files: Vec<File> = (0..4).map(|server| file_on(&partition, server)).collect();
    for round in 0..3u64 {
        for (file, seed) in files.iter().zip(0..) {
            file.write_at(0, &pattern(50_000, round * 10 + seed)).unwrap();
            file.sync().unwrap();
        }
        replace(&stage, 0);
        for (file, seed) in files.iter().zip(0..) {
            expect(file, &pattern(50_000, round * 10 + seed));
            file.set_len(40_000).unwrap();
            expect(file, &pattern(50_000, round * 10 + seed)[..40_000]);
        }
        let other = stage.mount();
        expect(&other.open("only-on-3").unwrap(), &pattern(50_000, round * 10 + 3)[..40_000]);
    }
}

/// Over TCP a restarted server has another port: its peers are informed, clients find it in the registry.
#[test]
fn a_new_port_is_found_by_all() {
    let Some(stage) = Stage::start(SERVERS, &format!("transport = \"tcp\"\n{SMALL}")) else { return };
    let partition = stage.mount();
    let hurt = file_on(&partition, 2);
    hurt.write_at(0, &pattern(40_000, 1)).unwrap();
    hurt.sync().unwrap();
    let writer = LoopWriter::start(file_on(&partition.another_client(), 1));
    writer.gets_on();
    for victim in [2, 0, 2] {
        replace(&stage, victim);
        expect(&hurt, &pattern(40_000, 1)[..1000]);
        hurt.write_at(0, &pattern(40_000, 1)).unwrap();
        hurt.sync().unwrap();
        hurt.set_len(30_000).unwrap();
        assert_eq!(partition.metadata("only-on-2").unwrap().size, 30_000);
        if victim != 0 {
            writer.gets_on();
        }
    }
    // The manager was down for a short time, which a writer may notice; no other error is allowed.
    if let Err(error) = writer.end() {
        assert!(error.to_string().contains("server 0"), "{error}");
    }
}

/// The process is still being torn down when the next command checks it.
#[test]
fn a_server_that_was_killed_this_moment_is_restarted() {
    let Some(stage) = Stage::start(SERVERS, SMALL) else { return };
    for round in 0..8 {
        let victim = round % SERVERS;
        let script = format!("kill -KILL {} && exec \"$@\"", stage.server_pid(victim));
        let up = stage.up_command();
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(up.get_program()).args(up.get_args());
        for (name, value) in up.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let said = command.output().unwrap();
        assert!(said.status.success(), "round {round}: {said:?}");
        let line = String::from_utf8(said.stdout).unwrap();
        assert!(line.contains("1 of 4 servers restarted"), "round {round}: {line}");
    }
    stage.mount().create("f").unwrap().write_at(0, b"works").unwrap();
}

/// A living server that is stopped, and goes on when this value is dropped.
struct StoppedServer<'a>(&'a Stage, usize);

impl Drop for StoppedServer<'_> {
    fn drop(&mut self) {
        self.0.signal(self.1, Signal::CONT);
    }
}

#[test]
fn a_stopped_server_beside_a_dead_one_is_named_and_nothing_restarts() {
    let Some(stage) = Stage::start(SERVERS, SMALL) else { return };
    stage.signal(2, Signal::KILL);
    stage.signal(1, Signal::STOP);
    let stopped = StoppedServer(&stage, 1);
    let (said, took) = timed(|| stage.up_command().output().unwrap());
    let text = String::from_utf8(said.stderr).unwrap();
    assert!(!said.status.success(), "{text}");
    let cure = format!("kill -CONT {}", stage.server_pid(1));
    assert!(
        text.contains("server 1 of partition") && text.contains("is stopped") && text.contains(&cure),
        "{text}"
    );
    assert!(took.as_secs() < 30, "{took:?}");
    drop(stopped);
    stage.up();
}
