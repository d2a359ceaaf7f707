//! `pario run -n N` from end to end: ranks that write a file together, and the errors when one of them, or `pario run`, dies; also during
//! collective accesses by every method, and when a server dies or stops.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::pattern;
use common::stage::{TOLD_LIMIT, job, pause, state_of, timed, until};
use pario::partition::Registry;
use pario::partition::binary::find_binary;
use pario::{Datatype, Hints, Method, Partition};
use rustix::process::{Pid, Signal, kill_process};

const PIECE: usize = 10_000;
const PIECES: usize = 30;
/// Path of the signal file for ranks.
const GO: &str = "PARIO_TEST_GO";

/// The work of a rank of a test.
#[test]
fn child() {
    let Some(job) = job() else { return };
    if let Some(method) = job.strip_prefix("rounds ") {
        return go_on(method.parse().unwrap());
    }
    let group = pario::group::from_env().unwrap().expect("a rank has an invitation");
    let (rank, size) = (group.rank(), group.size());
    let partition = Partition::mount(&std::env::var("PARIO_PARTITION").unwrap()).unwrap();
    let options = partition.options().create(true).read(true).write(true);
    let held = job.strip_prefix("hold ");
    let hints = Hints { method: held.map(|method| method.parse().unwrap()), ..Hints::default() };
    let file = options.open_all(&group, "together", &hints).unwrap();
    let byte = Datatype::elementary(1).unwrap();
    let piece = Datatype::contiguous(i64::try_from(PIECE).unwrap(), &byte).unwrap();
    let filetype = piece.resized(0, i64::try_from(PIECE * size).unwrap()).unwrap();
    file.set_view(i64::try_from(PIECE * rank).unwrap(), &byte, &filetype).unwrap();
    let mine = pattern(PIECE * PIECES, rank as u64);
    file.write_at_all(0, &mine).unwrap();
    say(&format!("pid {}", std::process::id()));
    if held.is_some() {
        assert!(until(|| Path::new(&std::env::var(GO).unwrap()).exists()), "the test lets go");
    }
    if job == "wait" {
        let error = loop {
            if let Err(error) = group.barrier() {
                break error;
            }
        };
        say(&format!("error {error}"));
        std::process::exit(9);
    }
    group.barrier().unwrap();
    let mut back = vec![0; mine.len()];
    assert_eq!(file.read_at_all(0, &mut back).unwrap(), mine.len());
    assert!(back == mine, "rank {rank} reads its own");
    file.close().unwrap();
    say("right");
    group.leave();
}

/// Writes and reads together with the others, by one method, until a call fails; prints each iteration, and the error with the
/// milliseconds of the longest call in that iteration.
fn go_on(method: Method) {
    let group = pario::group::from_env().unwrap().expect("a rank has an invitation");
    let (rank, size) = (group.rank(), group.size());
    let partition = Partition::mount(&std::env::var("PARIO_PARTITION").unwrap()).unwrap();
    let options = partition.options().create(true).read(true).write(true);
    let hints = Hints { method: Some(method), ..Hints::default() };
    let file = options.open_all(&group, "together", &hints).unwrap();
    let byte = Datatype::elementary(1).unwrap();
    let piece = Datatype::contiguous(i64::try_from(PIECE).unwrap(), &byte).unwrap();
    let filetype = piece.resized(0, i64::try_from(PIECE * size).unwrap()).unwrap();
    file.set_view(i64::try_from(PIECE * rank).unwrap(), &byte, &filetype).unwrap();
    say(&format!("pid {}", std::process::id()));
    for round in 0u64.. {
        let mine = pattern(PIECE * PIECES, round << 8 | rank as u64);
        let mut back = vec![0; mine.len()];
        let (written, writing) = timed(|| file.write_at_all(0, &mine));
        let (read, reading) = timed(|| file.read_at_all(0, &mut back));
        // A failed rank still takes part, like a program that informs all ranks.
        let (synced, syncing) = timed(|| file.sync());
        let all = written.is_ok() && read == Ok(mine.len());
        assert!(!all || back == mine, "rank {rank} reads its own in round {round}");
        if let Err(error) = written.and(read).and(synced) {
            let longest = writing.max(reading).max(syncing).as_millis();
            say(&format!("error {longest} {error}"));
            break;
        }
        say(&format!("round {round}"));
    }
    assert!(until(|| Path::new(&std::env::var(GO).unwrap()).exists()), "the test lets go");
    std::process::exit(9);
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("said {line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// `pario run` with ranks that are this binary; all processes end with it.
struct RankRun {
    child: Child,
    lines: Receiver<(usize, String)>,
    dir: tempfile::TempDir,
}

impl RankRun {
    /// `None`, with a message, if the command is not built.
    fn start(size: usize, options: &[&str], job: &str) -> Option<RankRun> {
        let binary = match find_binary() {
            Ok(binary) => binary,
            Err(error) => {
                assert!(std::env::var_os("PARIO_TEST_RUN").is_none(), "`./test` builds the command: {error}");
                eprintln!("SKIPPED, build it with `cargo build -p pario-cli`: {error}");
                return None;
            }
        };
        let dir = tempfile::Builder::new().prefix("pario-ranks-").tempdir().unwrap();
        let mut command = Command::new(binary);
        command.args(["run", "-n", &size.to_string(), "--tag-output", "--name", "ranks", "--dir"]);
        command.arg(dir.path()).args(options).arg("--").arg(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]);
        command.env("PARIO_TEST_JOB", job).env("PARIO_REGISTRY", dir.path().join("registry"));
        command.env(GO, dir.path().join("go")).env_remove("PARIO_NODE");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let Some((tag, text)) = line.split_once("] ") else { continue };
                let (Some(rank), Some((_, text))) = (tag.strip_prefix('['), text.split_once("said ")) else {
                    continue;
                };
                let _ = said.send((rank.parse().unwrap(), text.to_owned()));
            }
        });
        Some(RankRun { child, lines, dir })
    }

    /// The next line of `count` ranks, by rank.
    #[track_caller]
    fn hear(&self, count: usize) -> BTreeMap<usize, String> {
        let next = |_| self.lines.recv_timeout(Duration::from_secs(60)).expect("ranks print a line");
        let heard: BTreeMap<usize, String> = (0..count).map(next).collect();
        assert_eq!(heard.len(), count, "each says one thing: {heard:?}");
        heard
    }

    /// The process ids of the ranks.
    #[track_caller]
    fn pids(&self, size: usize) -> Vec<u32> {
        let number = |text: String| text.strip_prefix("pid ").unwrap().parse().unwrap();
        self.hear(size).into_values().map(number).collect()
    }

    /// Iterations done by each of these ranks, once all have done `least` of them and `enough` returns true. Lines of other ranks are
    /// ignored.
    #[track_caller]
    fn rounds(&self, ranks: &[usize], mut done: BTreeMap<usize, u64>, least: u64) -> BTreeMap<usize, u64> {
        while ranks.iter().any(|rank| done.get(rank).is_none_or(|done| *done < least)) {
            let (rank, said) = self.lines.recv_timeout(Duration::from_secs(60)).expect("ranks go on");
            let round = said.strip_prefix("round ").unwrap_or_else(|| panic!("rank {rank}: {said}"));
            done.insert(rank, round.parse().unwrap());
        }
        done
    }

    /// The errors, by rank, of the surviving ranks; every failed call failed in time.
    #[track_caller]
    fn errors(&self, ranks: &[usize]) -> BTreeMap<usize, String> {
        let mut errors = BTreeMap::new();
        while errors.len() < ranks.len() {
            let (rank, said) = self.lines.recv_timeout(Duration::from_secs(60)).expect("ranks are told");
            let Some(said) = said.strip_prefix("error ") else { continue };
            let (millis, error) = said.split_once(' ').unwrap();
            let took = Duration::from_millis(millis.parse().unwrap());
            assert!(took < TOLD_LIMIT, "rank {rank} was told after {took:?}: {error}");
            assert!(ranks.contains(&rank), "rank {rank} is told: {error}");
            errors.insert(rank, error.to_owned());
        }
        errors
    }

    fn let_go(&self) {
        std::fs::write(self.dir.path().join("go"), "").unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    fn registry(&self) -> Registry {
        Registry::open(&self.dir.path().join("registry"))
    }
}

impl Drop for RankRun {
    fn drop(&mut self) {
        // In order, if it still can: it ends its ranks and servers too.
        if let Ok(None) = self.child.try_wait() {
            send(self.child.id(), Signal::TERM);
            until(|| !matches!(self.child.try_wait(), Ok(None)));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        for server in
            self.registry().get("ranks").ok().flatten().map(|entry| entry.servers).unwrap_or_default()
        {
            if server.process().is_alive() {
                send(server.pid, Signal::KILL);
                until(|| !server.process().is_alive());
            }
        }
    }
}

fn send(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal);
}

#[test]
fn ranks_write_one_file_together() {
    for (size, options) in
        [(1, &["--servers", "1"][..]), (3, &["--servers", "2"]), (5, &["--servers", "3", "--nodes", "3"])]
    {
        let Some(mut run) = RankRun::start(size, options, "plain") else { return };
        run.pids(size);
        assert!(run.hear(size).values().all(|said| said == "right"));
        assert!(run.end().success());
    }
}

#[test]
fn a_killed_rank_is_told_to_the_others_and_is_the_exit_code() {
    let Some(mut run) = RankRun::start(4, &["--servers", "2"], "wait") else { return };
    let pids = run.pids(4);
    send(pids[1], Signal::KILL);
    let (heard, took) = timed(|| run.hear(3));
    let who = format!("rank 1 (process {}, ranks-", pids[1]);
    for (rank, said) in heard {
        assert!(rank != 1 && said.contains(&who), "{rank}: {said}");
    }
    assert!(took < TOLD_LIMIT, "{took:?}");
    assert_eq!(run.end().code(), Some(137));
}

#[test]
fn ranks_are_told_when_pario_run_is_killed() {
    let Some(mut run) = RankRun::start(3, &["--servers", "1"], "wait") else { return };
    let pids = run.pids(3);
    let ticks: Vec<u64> = pids.iter().map(|pid| pario_sys::process::start_ticks(*pid).unwrap()).collect();
    send(run.child.id(), Signal::KILL);
    run.end();
    // Their output has no reader any more; they end by their errors, or hang.
    for (pid, ticks) in pids.iter().zip(ticks) {
        let ended = until(|| !pario_sys::process::is_alive(*pid, ticks));
        if !ended {
            send(*pid, Signal::KILL);
        }
        assert!(ended, "rank {pid} ends");
    }
}

/// Inodes of memory that a process has open or mapped.
fn memory(pid: u32) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    for line in maps.lines().filter(|line| line.contains("/memfd:")) {
        found.insert(line.split_ascii_whitespace().nth(4).unwrap().parse().unwrap());
    }
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map_while(Result::ok) {
        let link = std::fs::read_link(entry.path()).unwrap_or_default();
        if link.to_string_lossy().starts_with("/memfd:") {
            use std::os::unix::fs::MetadataExt;
            found.extend(std::fs::metadata(entry.path()).map(|metadata| metadata.ino()).ok());
        }
    }
    found
}

#[test]
fn no_memory_is_shared_between_nodes() {
    each_method(no_memory_between_nodes);
}

fn no_memory_between_nodes(method: Method) {
    let job = format!("hold {}", method.word());
    let options = ["--servers", "4", "--nodes", "2", "--stripe", "64KiB"];
    let Some(mut run) = RankRun::start(4, &options, &job) else { return };
    let ranks = run.pids(4);
    let servers = run.registry().find("ranks").unwrap().servers;
    let labels: Vec<_> = servers.iter().map(|server| server.node.clone().unwrap()).collect();
    assert_eq!(labels, ["node0", "node0", "node1", "node1"]);
    let rank_label = |rank: usize| format!("node{}", rank / 2);
    let all: Vec<(String, BTreeSet<u64>)> = ranks
        .iter()
        .enumerate()
        .map(|(rank, pid)| (rank_label(rank), memory(*pid)))
        .chain(servers.iter().map(|server| (server.node.clone().unwrap(), memory(server.pid))))
        .collect();
    let shared = |a: usize, b: usize| all[a].1.intersection(&all[b].1).count();
    let pairs = || (0..all.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
    for (a, b) in pairs().filter(|(a, b)| all[*a].0 != all[*b].0) {
        assert_eq!(shared(a, b), 0, "{method:?}: {a} and {b} are on different nodes");
    }
    // Within a node they do share memory: a rank's outbox and its servers' cursors, or the merge buffer of ranks.
    for rank in 0..4 {
        let peers = match method {
            Method::Auto | Method::ServerDirected => 4..8,
            Method::ClientDirected | Method::TwoPhase => 0..4,
        };
        let own = peers.filter(|peer| *peer != rank && all[*peer].0 == all[rank].0);
        assert!(own.map(|peer| shared(rank, peer)).sum::<usize>() > 0, "{method:?}: rank {rank} shares");
    }
    run.let_go();
    assert!(run.hear(4).values().all(|said| said == "right"));
    assert!(run.end().success());
}

const METHODS: [Method; 3] = [Method::ServerDirected, Method::ClientDirected, Method::TwoPhase];
const ROUNDS: u64 = 3;

/// Ranks in collective calls by one method, and their process ids.
fn busy(method: Method) -> Option<(RankRun, Vec<u32>)> {
    let job = format!("rounds {}", method.word());
    let run = RankRun::start(3, &["--servers", "2", "--stripe", "64KiB"], &job)?;
    let pids = run.pids(3);
    run.rounds(&[0, 1, 2], BTreeMap::new(), ROUNDS);
    Some((run, pids))
}

/// Every method in its own thread: they wait more than they work.
fn each_method(check: impl Fn(Method) + Sync) {
    std::thread::scope(|scope| {
        for method in METHODS {
            let check = &check;
            scope.spawn(move || check(method));
        }
    });
}

#[test]
fn a_rank_killed_in_a_collective_is_told_by_every_method() {
    each_method(|method| {
        // The first rank merges for the others, or serves them, in methods with such a rank.
        for victim in [0, 2] {
            let Some((run, pids)) = busy(method) else { return };
            let left: Vec<usize> = (0..3).filter(|rank| *rank != victim).collect();
            send(pids[victim], Signal::KILL);
            for (rank, error) in run.errors(&left) {
                let who = format!("rank {victim}");
                assert!(error.contains(&who), "{method:?}, rank {rank}: {error}");
            }
            run.let_go();
        }
    });
}

#[test]
fn a_rank_that_is_merely_stopped_is_waited_for_by_every_method() {
    each_method(|method| {
        let Some((run, pids)) = busy(method) else { return };
        send(pids[1], Signal::STOP);
        assert!(until(|| state_of(pids[1]) == Some('T')), "it stops");
        // Longer than the timeout for a dead process.
        pause(TOLD_LIMIT + Duration::from_millis(500));
        let mut done = BTreeMap::new();
        while let Ok((rank, said)) = run.lines.try_recv() {
            let round: u64 = said.strip_prefix("round ").unwrap_or_else(|| panic!("{said}")).parse().unwrap();
            done.insert(rank, round);
        }
        let most = done.values().max().copied().unwrap_or(ROUNDS);
        send(pids[1], Signal::CONT);
        run.rounds(&[0, 1, 2], done, most + ROUNDS);
    });
}

#[test]
fn a_server_killed_or_stopped_in_a_collective_is_told_by_every_method() {
    each_method(|method| {
        for signal in [Signal::KILL, Signal::STOP] {
            let Some((run, _)) = busy(method) else { return };
            let server = run.registry().find("ranks").unwrap().servers[1].pid;
            send(server, signal);
            for (rank, error) in run.errors(&[0, 1, 2]) {
                assert!(error.contains("server 1"), "{method:?}, {signal:?}, rank {rank}: {error}");
            }
            // So that the partition can be stopped.
            send(server, Signal::CONT);
            run.let_go();
        }
    });
}
