//! Locks around accesses to a plain file that members of a group read and write themselves: kernel locks, without messages, that also
//! exclude locks at the manager.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use common::stage::{is_stopped, job, pid, until};
use pario::group::{self, Group, Hub, threads_on};
use pario::{CacheOptions, Datatype, GroupFile, open_cached};
use pario_sys::kill_point::{self, ArmedProcess, DIRECTORY, VARIABLE};
use rustix::process::{Signal, kill_process};

/// Size of an access: no system call copies this much atomically.
const BYTES: usize = 300_000;
/// Attempts to reach the mixed phase.
const ROUNDS_MAX: usize = 20_000;

fn open(group: &Arc<dyn Group>, path: &Path) -> GroupFile {
    let options = CacheOptions { create: true, direct: Some(true), ..CacheOptions::default() };
    open_cached(group, path, &options).unwrap()
}

fn with_group<T: Send>(size: usize, work: impl Fn(Arc<dyn Group>) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let run = |group: Arc<dyn Group>| {
            scope.spawn(move || {
                let result = work(Arc::clone(&group));
                group.leave();
                result
            })
        };
        let members: Vec<_> = threads_on(&vec![0; size]).into_iter().map(run).collect();
        members.into_iter().map(|member| member.join().expect("no member panics")).collect()
    })
}

fn fill(file: &GroupFile, value: u8) {
    file.write_at(1000, &vec![value; BYTES]).unwrap();
}

/// The single value of all bytes.
#[track_caller]
fn look(file: &GroupFile) -> u8 {
    let mut found = vec![0; BYTES];
    let count = file.read_at(1000, &mut found).unwrap();
    assert!(found[..count].iter().all(|byte| *byte == found[0]), "one write at a time");
    found[0]
}

/// Writes and reads the same bytes as the others until kernel locks are used.
fn mix(file: &GroupFile) {
    for _ in 0..ROUNDS_MAX {
        fill(file, 1);
        look(file);
        if 0 < file.counts().kernel_locks {
            return;
        }
    }
    panic!("{ROUNDS_MAX} rounds and not one lock in the kernel: {:?}", file.counts());
}

#[test]
fn overlapping_accesses_in_the_mixed_phase_send_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plain");
    with_group(4, |group| {
        let file = open(&group, &path);
        mix(&file);
        group.barrier().unwrap();
        // Every member has the token of the kernel lock group; no member waits for another.
        let turns = 40;
        let mut made = file.counts();
        for turn in 0..turns + group.size() {
            if turn == group.size() {
                made = file.counts();
            }
            if turn % group.size() == group.rank() {
                fill(&file, u8::try_from(turn).unwrap());
            }
            group.barrier().unwrap();
            assert_eq!(usize::from(look(&file)), turn);
            group.barrier().unwrap();
        }
        let made = file.counts().since(&made);
        let own = turns / group.size();
        assert_eq!((made.lock_messages, made.kernel_lock_waits), (0, 0), "{made:?}");
        assert_eq!((made.messages, made.kernel_locks), (0, (turns + own) as u64), "{made:?}");
        file.close().unwrap();
    });
}

#[test]
fn members_and_their_threads_keep_each_other_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plain");
    let made = with_group(3, |group| {
        let file = open(&group, &path);
        mix(&file);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (file, rank) = (&file, u8::try_from(group.rank()).unwrap());
                scope.spawn(move || {
                    for round in 0..60u8 {
                        fill(file, round * 4 + rank + thread);
                        look(file);
                    }
                });
            }
        });
        let made = file.counts();
        file.close().unwrap();
        made
    });
    assert!(made.iter().all(|made| 100 < made.kernel_locks), "{made:?}");
}

/// A strided write in atomic mode locks at the manager, a contiguous one in the kernel: a contiguous read sees the first completely.
#[test]
fn who_locks_at_the_manager_and_who_locks_in_the_kernel_keep_each_other_out() {
    let (cell, cells) = (3000, 50);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plain");
    with_group(3, |group| {
        let (file, strided) = (open(&group, &path), open(&group, &path));
        mix(&file);
        let byte = Datatype::elementary(1).unwrap();
        let every_other = Datatype::contiguous(cell, &byte).unwrap().resized(0, 2 * cell).unwrap();
        strided.set_view(0, &byte, &every_other).unwrap();
        strided.set_atomicity(true).unwrap();
        let (cell, own) = (usize::try_from(cell).unwrap(), u8::try_from(group.rank()).unwrap());
        let all = vec![0; cell * cells * 2];
        file.write_at(0, &all).unwrap();
        group.barrier().unwrap();
        for round in 0..40u8 {
            let value = 1 + round * 3 + own;
            if usize::from(round) % 3 == group.rank() {
                strided.write_at(0, &vec![value; cell * cells]).unwrap();
            } else if round % 2 == 0 {
                file.write_at(0, &vec![value; cell * cells * 2]).unwrap();
            }
            let mut found = all.clone();
            assert_eq!(file.read_at(0, &mut found).unwrap(), found.len());
            for parity in 0..2 {
                let mut mine = found.chunks(cell).skip(parity).step_by(2).flatten();
                let first = *mine.next().unwrap();
                assert!(mine.all(|byte| *byte == first), "round {round}: half of a write");
            }
            let mut part = vec![0; cell * cells];
            assert_eq!(strided.read_at(0, &mut part).unwrap(), part.len());
            assert!(part.iter().all(|byte| *byte == part[0]), "round {round}: half of a write by a view");
        }
        assert!(0 < file.counts().kernel_locks);
        strided.close().unwrap();
        file.close().unwrap();
    });
}

/// The work of a process that is a member of a test.
#[test]
fn child() {
    let Some(path) = job() else { return };
    kill_point::arm(ArmedProcess::Client).unwrap();
    let group = group::from_env().unwrap().expect("a member has an invitation");
    let file = open(&group, &PathBuf::from(path));
    say("open");
    for order in std::io::stdin().lines().map_while(Result::ok) {
        match order.as_str() {
            "mix" => mix(&file),
            "write" => fill(&file, 10 + u8::try_from(group.rank()).unwrap()),
            "read" => {
                say(&look(&file).to_string());
                continue;
            }
            odd => panic!("{odd}"),
        }
        say("done");
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("said {line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// A member process; killed when dropped.
struct LockMember {
    child: Child,
    orders: ChildStdin,
    lines: Receiver<String>,
}

impl LockMember {
    fn start(hub: &Hub, rank: usize, path: &Path, armed: Option<&Path>) -> LockMember {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).env("PARIO_TEST_JOB", path);
        command.envs(hub.invitation(rank).variables());
        if let Some(dir) = armed {
            command.env(VARIABLE, "direct-written=stop").env(DIRECTORY, dir);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if let Some((_, text)) = line.split_once("said ") {
                    let _ = said.send(text.to_owned());
                }
            }
        });
        LockMember { orders: child.stdin.take().unwrap(), child, lines }
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    #[track_caller]
    fn hear(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(60)).expect("a member answers")
    }

    fn is_silent_for(&self, time: Duration) -> bool {
        self.lines.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
    }
}

impl Drop for LockMember {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A member stopped with a kernel lock is waited for; once killed or resumed, it is not.
#[test]
fn a_stopped_holder_is_waited_for_and_a_killed_one_is_not() {
    if !cfg!(debug_assertions) {
        eprintln!("SKIPPED: a release build has no kill points");
        return;
    }
    for signal in [Signal::CONT, Signal::KILL] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plain");
        let hub = Hub::start(3).unwrap();
        let armed = |rank: usize| (rank == 1).then(|| dir.path());
        let mut members: Vec<LockMember> =
            (0..3).map(|rank| LockMember::start(&hub, rank, &path, armed(rank))).collect();
        assert!(members.iter().all(|member| member.hear() == "open"));
        members.iter_mut().for_each(|member| member.order("mix"));
        assert!(members.iter().all(|member| member.hear() == "done"));
        std::fs::write(dir.path().join("go"), "").unwrap();
        members[1].order("write");
        let holder = members[1].child.id();
        assert!(until(|| dir.path().join("reached").exists() && is_stopped(holder)), "it stops");
        for member in [0, 2] {
            members[member].order("read");
            assert!(members[member].is_silent_for(Duration::from_millis(300)), "it waits for {holder}");
        }
        kill_process(pid(holder), signal).unwrap();
        assert_eq!((members[0].hear(), members[2].hear()), ("11".to_owned(), "11".to_owned()));
        members[0].order("write");
        assert_eq!(members[0].hear(), "done");
        members[2].order("read");
        assert_eq!(members[2].hear(), "10");
    }
}
