//! `Partition::mount_or_start`: programs that get a partition file and mount its partition; the first program starts it.
//!
//! Programs are this binary again ([`child_mounts`]); servers are the real `pario`. Always: processes that a test started end with it.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pario::partition::binary::find_binary;
use pario::partition::{PartitionState, Registry};
use pario::start::{DownMode, down};
use pario::{Partition, Result};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

const FILE: &str = "PARIO_TEST_MOUNTING";
const CALLERS: usize = 6;
const SERVERS: usize = 3;
const BYTES: usize = 300_000;
/// Longest wait for a condition.
const PATIENCE_S: i64 = 60;

/// A directory with its own registry and partition file.
struct MountFixture {
    dir: tempfile::TempDir,
}

impl MountFixture {
    /// `None`, with a message, if the `pario` command is not built.
    fn new() -> Option<MountFixture> {
        if let Err(error) = find_binary() {
            eprintln!("SKIPPED, build it with `cargo build -p pario-cli`: {error}");
            return None;
        }
        let stage = MountFixture { dir: tempfile::tempdir().unwrap() };
        let servers: Vec<String> =
            (0..SERVERS).map(|at| stage.path(&format!("data/{at}")).display().to_string()).collect();
        std::fs::create_dir(stage.path("data")).unwrap();
        let text = format!("name = \"shared\"\nstripe = \"64KiB\"\nservers = {servers:?}\n");
        std::fs::write(stage.path("shared.toml"), text).unwrap();
        Some(stage)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn registry(&self) -> Registry {
        Registry::open(&self.path("registry"))
    }

    /// Running servers that were started with this fixture's registry.
    fn servers(&self) -> Vec<i32> {
        let mark = format!("PARIO_REGISTRY={}", self.path("registry").display());
        let is_ours = |pid: &i32| {
            let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let has =
                |text: &[u8], word: &str| text.split(|byte| *byte == 0).any(|part| part == word.as_bytes());
            has(&read("environ"), &mark) && has(&read("cmdline"), "serve")
        };
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_ours).collect()
    }

    fn kill_servers(&self) {
        for pid in self.servers().into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        assert!(until(|| self.servers().is_empty()), "killed servers end");
    }

    /// Programs that all start concurrently.
    fn callers(&self, count: usize, job: &str) -> Vec<MountProgram> {
        let mut callers: Vec<MountProgram> =
            (0..count).map(|at| MountProgram::start(self, &format!("{job} {at}"))).collect();
        callers.iter_mut().for_each(MountProgram::wait_ready);
        callers.iter_mut().for_each(MountProgram::go);
        callers
    }
}

impl Drop for MountFixture {
    fn drop(&mut self) {
        for pid in self.servers().into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        until(|| self.servers().is_empty());
    }
}

/// One program.
struct MountProgram {
    child: Child,
    lines: BufReader<std::process::ChildStderr>,
}

impl MountProgram {
    fn start(stage: &MountFixture, job: &str) -> MountProgram {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child_mounts"]).env(FILE, stage.path("shared.toml"));
        command.env("PARIO_TEST_JOB", job).env("PARIO_REGISTRY", stage.path("registry"));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        MountProgram { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    #[track_caller]
    fn wait_ready(&mut self) {
        assert_eq!(self.line(), "ready");
    }

    fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    /// The last line of its output.
    fn end(mut self) -> String {
        let line = self.line();
        drop(self.child.stdin.take());
        // Servers may hold its standard error open: this waits only for its end.
        let status = self.child.wait().unwrap();
        if status.success() { line } else { format!("{line} ({status})") }
    }
}

impl Drop for MountProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test of its own: a program that mounts or starts, and does its job.
#[test]
fn child_mounts() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let job = std::env::var("PARIO_TEST_JOB").unwrap();
    let (verb, number) = job.split_once(' ').unwrap();
    // Not the macro: the test harness would keep it.
    writeln!(std::io::stderr(), "ready").unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let said = match carry_out(Path::new(&file), verb, number.parse().unwrap()) {
        Ok(()) => "done".to_owned(),
        Err(error) => format!("failed: {error}"),
    };
    writeln!(std::io::stderr(), "{said}").unwrap();
}

fn carry_out(file: &Path, verb: &str, own: usize) -> Result<()> {
    let partition = Partition::mount_or_start(file)?;
    if verb == "write" {
        let file = partition.create(format!("from-{own}"))?;
        file.write_at(0, &bytes(own))?;
        file.close()?;
    }
    for writer in 0..CALLERS {
        let path = format!("from-{writer}");
        // A file exists from its creation on and is complete after its close.
        assert!(until(|| partition.metadata(&path).is_ok_and(|attr| attr.size == BYTES as u64)), "{path}");
        let mut found = vec![0; BYTES];
        partition.open(&path)?.read_exact_at(0, &mut found)?;
        assert!(found == bytes(writer), "{path} as {own} reads it");
    }
    Ok(())
}

fn bytes(writer: usize) -> Vec<u8> {
    (0..BYTES).map(|at| (at ^ (at >> 8) ^ (writer * 37)).to_le_bytes()[0]).collect()
}

fn until(mut condition: impl FnMut() -> bool) -> bool {
    let now = || clock_gettime(ClockId::Monotonic).tv_sec;
    let began = now();
    while !condition() {
        if PATIENCE_S < now() - began {
            return false;
        }
        let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
    true
}

#[track_caller]
fn all_done(callers: Vec<MountProgram>) {
    let said: Vec<String> = callers.into_iter().map(MountProgram::end).collect();
    assert!(said.iter().all(|word| word == "done"), "{said:?}");
}

#[test]
fn of_many_the_first_starts_the_servers_and_all_mount() {
    let Some(stage) = MountFixture::new() else { return };
    all_done(stage.callers(CALLERS, "write"));
    let entry = stage.registry().find("shared").unwrap();
    assert_eq!((entry.epoch, entry.state), (1, PartitionState::Running), "it was started once");
    assert_eq!(
        stage.servers().len(),
        SERVERS,
        "and one set of servers is there, also after the programs ended"
    );
    // The next programs find it running.
    all_done(stage.callers(1, "read"));
    assert_eq!(stage.registry().find("shared").unwrap().epoch, 1);
    // All servers die: the next programs restart it, once, with its data.
    stage.kill_servers();
    all_done(stage.callers(CALLERS, "read"));
    let entry = stage.registry().find("shared").unwrap();
    assert_eq!((entry.epoch, stage.servers().len()), (2, SERVERS));
    // One server dies: the partition counts as not running.
    let pid = Pid::from_raw(i32::try_from(entry.servers[1].pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    assert!(until(|| stage.servers().len() == SERVERS - 1));
    all_done(stage.callers(2, "read"));
    assert_eq!(stage.servers().len(), SERVERS);
    let gone = down(&stage.registry(), "shared", DownMode::Destroy).unwrap();
    assert_eq!((gone.stopped, gone.left.len()), (SERVERS, 0), "{gone:?}");
    assert!(stage.servers().is_empty());
    assert_eq!(std::fs::read_dir(stage.path("data")).unwrap().count(), 0);
}

#[test]
fn a_start_that_fails_is_told_to_all_and_leaves_nothing() {
    let Some(stage) = MountFixture::new() else { return };
    std::fs::write(stage.path("data/1"), "a file where a directory should be").unwrap();
    for caller in stage.callers(2, "read") {
        let word = caller.end();
        assert!(word.starts_with("failed: ") && word.contains("data/1"), "{word}");
    }
    assert!(until(|| stage.servers().is_empty()));
    assert!(stage.registry().list().unwrap().is_empty());
    let left: Vec<_> =
        std::fs::read_dir(stage.path("data")).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["1"]);
}
