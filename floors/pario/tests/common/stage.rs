//! A partition of real server processes, and programs that are this test binary again.
//!
//! Always: processes that a test started end with it, also when it fails.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use pario::Partition;
use pario::partition::binary::find_binary;
use pario::partition::{Layers, Registry, Settings};
use pario::start::{DownMode, down, up};
use pario_core::{Clock, Nanos};
use pario_sys::clock::MonotonicClock;
use rustix::process::{Pid, Signal, kill_process};

/// A call that needs a dead or silent server fails within this time.
pub const TOLD_LIMIT: Duration = Duration::from_secs(5);
/// Longest wait for a condition.
const PATIENCE: Duration = Duration::from_secs(60);
const START_LIMIT: Duration = Duration::from_secs(30);
pub const NAME: &str = "stage";
/// Its partition file.
const FILE: &str = "stage.toml";
/// Variable that makes this binary a program of a test.
const JOB: &str = "PARIO_TEST_JOB";

/// See the module.
pub struct Stage {
    /// Dropped after the servers and before the directory: the order of fields matters.
    kept: Vec<Box<dyn std::any::Any>>,
    dir: tempfile::TempDir,
    settings: Settings,
}

impl Stage {
    /// A running partition; `None`, with a message, if the `pario` command is not built.
    pub fn start(servers: usize, more: &str) -> Option<Stage> {
        let stage = Stage::prepare(servers, more)?;
        stage.up();
        Some(stage)
    }

    /// The same, not started yet.
    pub fn prepare(servers: usize, more: &str) -> Option<Stage> {
        if let Err(error) = find_binary() {
            assert!(
                std::env::var_os("PARIO_TEST_RUN").is_none(),
                "`./test` builds the command first: {error}"
            );
            eprintln!("SKIPPED, build it with `cargo build -p pario-cli`: {error}");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("pario-stage-").tempdir().unwrap();
        let dirs: Vec<String> =
            (0..servers).map(|at| server_dir(dir.path(), at).display().to_string()).collect();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        let text = format!("name = \"{NAME}\"\nservers = {dirs:?}\n{more}\n");
        std::fs::write(dir.path().join(FILE), &text).unwrap();
        let settings = Layers::new().text(&text, Path::new(FILE)).unwrap().check().unwrap();
        Some(Stage { kept: Vec::new(), dir, settings })
    }

    /// Keeps a value that must outlive the servers but not their directories: a file system under one of them.
    pub fn keep(&mut self, thing: impl std::any::Any) {
        self.kept.push(Box::new(thing));
    }

    /// Starts it, or starts it again.
    pub fn up(&self) {
        up(&self.registry(), &self.settings, START_LIMIT).unwrap();
    }

    /// The `pario` command, applied to this partition.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(find_binary().unwrap());
        command.args(arguments).env("PARIO_REGISTRY", self.registry().path()).stdin(Stdio::null());
        command
    }

    /// `pario up`, so that servers get their own environment.
    pub fn up_command(&self) -> Command {
        self.command(&["up", self.dir().join(FILE).to_str().unwrap()])
    }

    /// The directory of this fixture.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The process id of one server, from the registry.
    pub fn server_pid(&self, server: usize) -> u32 {
        self.registry().find(NAME).unwrap().servers[server].pid
    }

    pub fn down(&self) {
        let down = down(&self.registry(), NAME, DownMode::Keep).unwrap();
        assert!(down.killed.is_empty(), "{down:?}");
    }

    pub fn mount(&self) -> Partition {
        Partition::mount_from(&self.registry(), NAME).unwrap()
    }

    pub fn registry(&self) -> Registry {
        Registry::open(&self.dir.path().join("registry"))
    }

    pub fn server_dir(&self, server: usize) -> PathBuf {
        server_dir(self.dir.path(), server)
    }

    /// Sends a signal to one server.
    pub fn signal(&self, server: usize, signal: Signal) {
        let entry = self.registry().find(NAME).unwrap();
        let process = entry.servers[server].process();
        assert!(process.is_alive(), "server {server} is there");
        kill_process(pid(process.pid), signal).unwrap();
        if signal == Signal::KILL {
            assert!(until(|| !process.is_alive()), "a killed server ends");
        }
        if signal == Signal::STOP {
            assert!(until(|| is_stopped(process.pid)), "a stopped server stops");
        }
    }

    /// Running servers that were started with this fixture's directories.
    fn servers(&self) -> Vec<u32> {
        let Ok(Some(entry)) = self.registry().get(NAME) else { return Vec::new() };
        entry.servers.iter().filter(|server| server.process().is_alive()).map(|server| server.pid).collect()
    }
}

fn server_dir(base: &Path, server: usize) -> PathBuf {
    base.join(format!("data/{server}"))
}

/// The kernel's state of a process (`R`, `S`, `T` for stopped, …); `None`: there is none.
pub fn state_of(process: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether every thread of a process is stopped: each thread stops at its own time.
pub fn is_stopped(process: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return false };
    let state = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    };
    // A thread that ended meanwhile has no state.
    threads.map_while(Result::ok).all(|thread| state(thread).is_none_or(|state| state == 'T'))
}

pub fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).unwrap()).unwrap()
}

impl Drop for Stage {
    fn drop(&mut self) {
        for server in self.servers() {
            let _ = kill_process(pid(server), Signal::KILL);
        }
        until(|| self.servers().is_empty());
    }
}

/// A program of a test.
pub struct Program {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Program {
    /// Starts this binary again as the "test" `entry`, which calls [`job`].
    pub fn start(stage: &Stage, entry: &str, job: &str) -> Program {
        Program::start_with(stage, entry, job, &[])
    }

    /// The same, with additional environment variables.
    pub fn start_with(stage: &Stage, entry: &str, job: &str, more: &[(&str, &std::ffi::OsStr)]) -> Program {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.envs(more.iter().copied());
        command.args(["--exact", entry, "--nocapture"]).env(JOB, job);
        command.env("PARIO_REGISTRY", stage.registry().path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Program { child, lines }
    }

    /// The next number that it printed; `None` when it has ended.
    pub fn number(&mut self) -> Option<u64> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // The test harness prints lines of its own.
            if let Some(number) = line.strip_prefix("said ") {
                return number.trim_end().parse().ok();
            }
        }
    }

    /// All its output until it ends.
    pub fn lines(mut self) -> Vec<String> {
        self.lines.by_ref().lines().map(Result::unwrap).collect()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end; the last number that it printed, at least `known`, and its exit status.
    pub fn end(mut self, known: u64) -> (u64, std::process::ExitStatus) {
        let mut last = known;
        while let Some(number) = self.number() {
            last = number;
        }
        (last, self.child.wait().unwrap())
    }

    /// Kills it immediately and returns the last number that it had printed, at least `known`.
    pub fn kill(mut self, known: u64) -> u64 {
        kill_process(pid(self.child.id()), Signal::KILL).unwrap();
        let mut last = known;
        while let Some(number) = self.number() {
            last = number;
        }
        self.child.wait().unwrap();
        last
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The work of this process, if it is a program of a test.
pub fn job() -> Option<String> {
    std::env::var(JOB).ok()
}

/// Reports a number to the test; after this returns the test receives it, even if this process dies.
pub fn say(number: u64) {
    // One call of `write`: a line is printed completely or not at all.
    let line = format!("said {number}\n");
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).unwrap();
    out.flush().unwrap();
}

pub fn mounted() -> Partition {
    Partition::mount(NAME).unwrap()
}

pub fn until(mut condition: impl FnMut() -> bool) -> bool {
    let began = MonotonicClock.now();
    while !condition() {
        if PATIENCE < MonotonicClock.now().since(began) {
            return false;
        }
        pause(Duration::from_millis(5));
    }
    true
}

/// Sleeps while others work.
pub fn pause(time: Duration) {
    let time = rustix::event::Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap(),
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    let _ = rustix::event::poll(&mut [], Some(&time));
}

/// Result and duration of a call.
pub fn timed<T>(call: impl FnOnce() -> T) -> (T, Duration) {
    let began: Nanos = MonotonicClock.now();
    let said = call();
    (said, MonotonicClock.now().since(began))
}

/// Asserts that a call fails in time and names the server.
#[track_caller]
pub fn told<T: std::fmt::Debug>(server: usize, call: impl FnOnce() -> pario::Result<T>) -> pario::Error {
    let (said, took) = timed(call);
    let error = said.expect_err("a call that needs a server which is gone fails");
    assert!(error.to_string().contains(&format!("server {server}")), "{error}");
    assert!(took < TOLD_LIMIT, "{took:?}: {error}");
    error
}
