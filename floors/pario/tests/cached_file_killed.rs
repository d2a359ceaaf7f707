//! The file cache between real processes of several nodes, some of which are killed: survivors get an error in time that names the
//! process, synced data is in the plain file, and no files or processes are left behind.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::pattern;
use common::stage::{TOLD_LIMIT, job, timed, until};
use pario::group::{self, Hub};
use pario::{CacheOptions, GroupFile, Placement, Result, open_cached};
use rustix::process::{Pid, Signal, kill_process};

const BLOCK: u64 = 4096;
/// Data of each rank, in blocks.
const SHARE: u64 = 8;
/// Set for ranks with first-touch placement.
const PLACEMENT: &str = "PARIO_TEST_PLACEMENT";

/// Makes three tests of each: one for each placement.
macro_rules! for_each_placement {
    ($($name:ident,)*) => {
        mod home {
            $(#[test]
            fn $name() {
                super::$name(pario::Placement::Home);
            })*
        }

        mod first_touch {
            $(#[test]
            fn $name() {
                super::$name(pario::Placement::FirstTouch);
            })*
        }

        mod last_writer {
            $(#[test]
            fn $name() {
                super::$name(pario::Placement::LastWriter);
            })*
        }
    };
}

for_each_placement! {
    processes_of_two_nodes_share_a_plain_file_and_leave_nothing,
    a_killed_server_is_told_by_its_rank_and_what_was_synced_is_safe,
    whoever_is_killed_at_any_moment_is_told_and_what_was_synced_stays,
    what_a_killed_writer_had_written_is_read_by_others_and_reaches_the_file,
    a_server_killed_while_nobody_looks_is_told_at_the_next_write,
}

/// The work of this process if it is a rank of a test.
#[test]
fn child() {
    let Some(path) = job() else { return };
    let group = group::from_env().unwrap().expect("a rank has an invitation");
    let options = CacheOptions {
        create: true,
        block_bytes: Some(BLOCK),
        stripe_bytes: Some(BLOCK),
        placement: std::env::var(PLACEMENT).unwrap().parse().unwrap(),
        ..CacheOptions::default()
    };
    let mut file = Some(open_cached(&group, &path, &options).unwrap());
    say("open");
    let mut orders = std::io::stdin().lines();
    while let Some(Ok(order)) = orders.next() {
        let words: Vec<&str> = order.split(' ').collect();
        let (done, took) = timed(|| carry_out(&words, &mut file));
        let took = took.as_millis();
        say(&done.map_or_else(|error| format!("error {took} {error}"), |said| format!("done {said}")));
        if words[0] == "leave" {
            group.leave();
        }
    }
}

fn carry_out(words: &[&str], file: &mut Option<GroupFile>) -> Result<String> {
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    let bytes = usize::try_from(SHARE * BLOCK).unwrap();
    match words[0] {
        "write" => {
            let data = pattern(bytes, number(2));
            file.as_ref().unwrap().write_at(number(1) * SHARE * BLOCK, &data).map(|()| String::new())
        }
        "read" => {
            let mut found = vec![0; bytes];
            let count = file.as_ref().unwrap().read_at(number(1) * SHARE * BLOCK, &mut found)?;
            Ok(format!("{}", count == bytes && found == pattern(bytes, number(2))))
        }
        // Writes, reads a neighbour's data and syncs in a loop until a call fails.
        "rounds" => {
            let (rank, mut longest) = (number(1), Duration::ZERO);
            for round in 0.. {
                let file = file.as_ref().unwrap();
                let mut step = |work: &mut dyn FnMut() -> Result<()>| {
                    let (worked, took) = timed(work);
                    longest = longest.max(took);
                    worked
                };
                let data = pattern(bytes, round * 10 + rank);
                let written = step(&mut || file.write_at(rank * SHARE * BLOCK, &data));
                let read = step(&mut || {
                    file.read_at((rank + 1) % 4 * SHARE * BLOCK, &mut vec![0; bytes]).map(|_| ())
                });
                // A failed rank still takes part, like a program that informs all ranks.
                let synced = step(&mut || file.sync());
                if let Err(error) = written.and(read).and(synced) {
                    return Ok(format!("{} {error}", longest.as_millis()));
                }
                say(&format!("round {round}"));
            }
            Ok(String::new())
        }
        "sync" => file.as_ref().unwrap().sync().map(|()| String::new()),
        "close" => file.take().unwrap().close().map(|()| String::new()),
        "threads" => Ok(own_threads().to_string()),
        "leave" => Ok(String::new()),
        odd => panic!("{odd}"),
    }
}

/// Threads of the cache in this process.
fn own_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map_while(std::result::Result::ok);
    let name =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.map(name).filter(|name| name.starts_with("pario-cache") || name.starts_with("pario-serve")).count()
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("said {line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// A rank of a test; killed when dropped.
struct CacheRank {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl CacheRank {
    fn start(hub: &Hub, (rank, node): (usize, &str), path: &Path, placement: Placement) -> CacheRank {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).env("PARIO_TEST_JOB", path);
        command.envs(hub.invitation(rank).variables()).env("PARIO_NODE", node);
        command.env(PLACEMENT, placement.word());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(std::result::Result::ok) {
                if let Some((_, text)) = line.split_once("said ") {
                    let _ = said.send(text.to_owned());
                }
            }
        });
        CacheRank { orders: child.stdin.take(), child, lines }
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
    }

    #[track_caller]
    fn hear(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(60)).expect("a rank answers")
    }

    #[track_caller]
    fn ask(&mut self, order: &str) -> String {
        self.order(order);
        self.hear()
    }

    /// Asserts that an order fails, in time, with an error that names a rank.
    #[track_caller]
    fn fails(&mut self, order: &str, rank: usize) {
        self.order(order);
        self.failed(order, rank);
    }

    #[track_caller]
    fn failed(&self, order: &str, rank: usize) {
        let said = self.hear();
        let told = said.strip_prefix("error ").unwrap_or_else(|| panic!("{order}: {said}"));
        let (millis, error) = told.split_once(' ').unwrap();
        let took = Duration::from_millis(millis.parse().unwrap());
        assert!(took < TOLD_LIMIT, "{order} took {took:?}: {error}");
        assert!(error.contains(&format!("rank {rank}")), "{order}: {error}");
    }

    fn kill(&mut self) {
        kill_process(Pid::from_raw(self.child.id().try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for CacheRank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two nodes with two ranks each: ranks 0 and 2 serve.
struct Cast {
    ranks: Vec<CacheRank>,
    // After the ranks: it is dropped last.
    _hub: Hub,
    dir: tempfile::TempDir,
}

impl Cast {
    fn start(placement: Placement) -> Cast {
        let dir = tempfile::tempdir().unwrap();
        let hub = Hub::start(4).unwrap();
        let path = dir.path().join("plain");
        let ranks: Vec<CacheRank> = ["a", "a", "b", "b"]
            .iter()
            .enumerate()
            .map(|(rank, node)| CacheRank::start(&hub, (rank, node), &path, placement))
            .collect();
        for rank in &ranks {
            assert_eq!(rank.hear(), "open");
        }
        Cast { ranks, _hub: hub, dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("plain")
    }

    /// All ranks execute an order together.
    #[track_caller]
    fn all(&mut self, order: impl Fn(usize) -> String) {
        for (rank, actor) in self.ranks.iter_mut().enumerate() {
            actor.order(&order(rank));
        }
        for actor in &self.ranks {
            let said = actor.hear();
            assert!(said.starts_with("done"), "{said}");
        }
    }

    /// The data of all ranks was written with these seeds and is in the plain file.
    #[track_caller]
    fn check_plain(&self, seed: impl Fn(usize) -> u64) {
        let found = std::fs::read(self.path()).unwrap();
        let bytes = usize::try_from(SHARE * BLOCK).unwrap();
        for rank in 0..4 {
            assert!(
                found[rank * bytes..(rank + 1) * bytes] == pattern(bytes, seed(rank)),
                "the share of rank {rank}"
            );
        }
        // Names are in memory, sockets have no files.
        assert_eq!(std::fs::read_dir(self.dir.path()).unwrap().count(), 1, "only the file is there");
    }
}

fn processes_of_two_nodes_share_a_plain_file_and_leave_nothing(placement: Placement) {
    let mut cast = Cast::start(placement);
    assert_eq!(
        cast.ranks[0].ask("threads"),
        "done 3",
        "one server, one cache that reads ahead and writes behind"
    );
    assert_eq!(cast.ranks[1].ask("threads"), "done 0");
    cast.all(|rank| format!("write {rank} {rank}"));
    cast.all(|rank| format!("read {} {}", (rank + 1) % 4, (rank + 1) % 4));
    cast.all(|_| "sync".to_owned());
    cast.check_plain(|rank| rank as u64);
    cast.all(|rank| format!("write {rank} {}", rank + 10));
    cast.all(|_| "close".to_owned());
    cast.check_plain(|rank| rank as u64 + 10);
    for rank in 0..4 {
        assert!(until(|| cast.ranks[rank].ask("threads") == "done 0"), "rank {rank} has ended its server");
    }
    cast.all(|_| "leave".to_owned());
}

fn a_killed_server_is_told_by_its_rank_and_what_was_synced_is_safe(placement: Placement) {
    for victim in [0, 2] {
        let mut cast = Cast::start(placement);
        cast.all(|rank| format!("write {rank} {rank}"));
        cast.all(|_| "sync".to_owned());
        cast.ranks[victim].kill();
        let left: Vec<usize> = (0..4).filter(|rank| *rank != victim).collect();
        // Every other block has its home there.
        for rank in &left {
            cast.ranks[*rank].order("read 3 3");
        }
        for rank in &left {
            cast.ranks[*rank].failed("read", victim);
        }
        for rank in &left {
            cast.ranks[*rank].order("sync");
        }
        for rank in &left {
            cast.ranks[*rank].failed("sync", victim);
        }
        for rank in &left {
            cast.ranks[*rank].order("close");
        }
        for rank in &left {
            cast.ranks[*rank].failed("close", victim);
        }
        cast.check_plain(|rank| rank as u64);
        for rank in &left {
            assert!(
                until(|| cast.ranks[*rank].ask("threads") == "done 0"),
                "rank {rank} has ended its server"
            );
        }
    }
}

/// Kills one of them during its work. Data synced by all is present: of this iteration, or of the next one.
fn killed_at_any_moment(victim: usize, after: u64, placement: Placement) {
    let mut cast = Cast::start(placement);
    for (rank, actor) in cast.ranks.iter_mut().enumerate() {
        actor.order(&format!("rounds {rank}"));
    }
    let mut synced = 0;
    while synced < after {
        let said = cast.ranks[(victim + 1) % 4].hear();
        synced = said.strip_prefix("round ").unwrap_or_else(|| panic!("{said}")).parse().unwrap();
    }
    cast.ranks[victim].kill();
    for rank in (0..4).filter(|rank| *rank != victim) {
        let told = loop {
            let said = cast.ranks[rank].hear();
            match said.strip_prefix("round ") {
                Some(round) => synced = synced.max(round.parse().unwrap()),
                None => break said,
            }
        };
        let (millis, error) =
            told.strip_prefix("done ").unwrap_or_else(|| panic!("{told}")).split_once(' ').unwrap();
        let took = Duration::from_millis(millis.parse().unwrap());
        assert!(took < TOLD_LIMIT, "rank {rank} was told after {took:?}: {error}");
        assert!(error.contains(&format!("rank {victim}")), "rank {rank}: {error}");
    }
    let found = std::fs::read(cast.path()).unwrap();
    let bytes = usize::try_from(SHARE * BLOCK).unwrap();
    for rank in 0..4usize {
        let one = |round: u64| pattern(bytes, round * 10 + rank as u64);
        let (now, next) = (one(synced), one(synced + 1));
        for at in 0..bytes {
            let byte = found[rank * bytes + at];
            assert!(byte == now[at] || byte == next[at], "byte {at} of rank {rank} after round {synced}");
        }
    }
}

fn whoever_is_killed_at_any_moment_is_told_and_what_was_synced_stays(placement: Placement) {
    for (victim, after) in [(0, 1), (2, 2), (1, 3), (3, 1), (0, 5), (2, 4)] {
        killed_at_any_moment(victim, after, placement);
    }
}

fn what_a_killed_writer_had_written_is_read_by_others_and_reaches_the_file(placement: Placement) {
    let mut cast = Cast::start(placement);
    cast.all(|rank| format!("write {rank} {rank}"));
    assert_eq!(cast.ranks[1].ask("write 1 77"), "done ");
    cast.ranks[1].kill();
    for rank in [0, 2, 3] {
        assert_eq!(cast.ranks[rank].ask("read 1 77"), "done true", "rank {rank}");
    }
    for rank in [0, 2, 3] {
        cast.ranks[rank].order("close");
    }
    for rank in [0, 2, 3] {
        cast.ranks[rank].failed("close", 1);
    }
    // Each server writes back its data when its process closes the file.
    let ended = |actor: &mut CacheRank| actor.ask("threads") == "done 0";
    assert!(until(|| ended(&mut cast.ranks[0])) && until(|| ended(&mut cast.ranks[2])));
    cast.check_plain(|rank| if rank == 1 { 77 } else { rank as u64 });
}

fn a_server_killed_while_nobody_looks_is_told_at_the_next_write(placement: Placement) {
    let mut cast = Cast::start(placement);
    cast.all(|rank| format!("write {rank} {rank}"));
    cast.ranks[2].kill();
    match placement {
        Placement::Home => {
            // A buffered write may still be accepted; the next cannot.
            let told = (0..50).any(|_| cast.ranks[0].ask("write 0 5").contains("rank 2"));
            assert!(told);
        }
        Placement::Auto | Placement::FirstTouch | Placement::LastWriter => {
            // Writes to blocks first touched on the other node continue; an access to blocks of the dead node fails immediately.
            for seed in 5..10 {
                assert_eq!(cast.ranks[0].ask(&format!("write 0 {seed}")), "done ");
                assert_eq!(cast.ranks[1].ask(&format!("write 1 {seed}")), "done ");
            }
            cast.ranks[0].fails("write 2 5", 2);
            cast.ranks[1].fails("write 3 5", 2);
            assert_eq!(cast.ranks[0].ask("write 0 5"), "done ");
        }
    }
    cast.ranks[3].fails("read 0 5", 2);
}
