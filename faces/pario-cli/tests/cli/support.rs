//! Fixture of one test: a directory, a registry in it, and commands that use both.
//!
//! Always: its servers end with the fixture, also after a failed test.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use rustix::time::{ClockId, Timespec};
use tempfile::TempDir;

/// Timeout of a condition.
const TIMEOUT: Duration = Duration::from_secs(30);

/// See the module.
pub(crate) struct CliFixture {
    dir: TempDir,
}

/// Output of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Variables that change the command's behaviour; the mark of a test run stays, so that leftovers of a test can be found.
fn is_setting(variable: &str) -> bool {
    variable.starts_with("PARIO_") && variable != "PARIO_TEST_RUN"
}

impl CliFixture {
    pub(crate) fn new() -> CliFixture {
        let dir = tempfile::Builder::new().prefix("pario-test-").tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("data")).expect("a directory for servers");
        std::fs::create_dir(dir.path().join("tmp")).expect("a directory for temporary files");
        CliFixture { dir }
    }

    /// A path in the world's directory.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The same as text.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("temporary directories have plain names").to_owned()
    }

    pub(crate) fn registry(&self) -> PathBuf {
        self.path("registry")
    }

    /// A command that sees this world alone.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pario"));
        let own: Vec<_> = std::env::vars_os().map(|(name, _)| name).collect();
        for name in own.into_iter().filter(|name| is_setting(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        command
            .env("PARIO_REGISTRY", self.registry())
            .env("TMPDIR", self.path("tmp"))
            .env("HOME", self.dir.path())
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs `pario` with these words.
    pub(crate) fn pario<S: AsRef<OsStr>>(&self, words: &[S]) -> CommandOutput {
        said(&self.command().args(words).output().expect("pario runs"))
    }

    /// Runs it and insists on success; returns its output.
    #[track_caller]
    pub(crate) fn ok<S: AsRef<OsStr>>(&self, words: &[S]) -> String {
        let said = self.pario(words);
        assert_eq!(said.code, 0, "{}: {said:?}", shown(words));
        assert_eq!(said.err, "", "{}", shown(words));
        said.out
    }

    /// Runs it and insists on this exit code and one line of complaint; returns the line.
    #[track_caller]
    pub(crate) fn fails<S: AsRef<OsStr>>(&self, code: i32, words: &[S]) -> String {
        let said = self.pario(words);
        assert_eq!(said.code, code, "{}: {said:?}", shown(words));
        assert_eq!(said.err.lines().count(), 1, "{}: {said:?}", shown(words));
        said.err
            .trim_end()
            .strip_prefix("pario: ")
            .expect("complaints start with the program's name")
            .to_owned()
    }

    /// Runs it with `--json` and reads the answer.
    #[track_caller]
    pub(crate) fn json<S: AsRef<OsStr>>(&self, words: &[S]) -> serde_json::Value {
        let said = said(&self.command().arg("--json").args(words).output().expect("pario runs"));
        assert_eq!(said.code, 0, "{}: {said:?}", shown(words));
        serde_json::from_str(&said.out).expect("--json prints JSON")
    }

    /// Brings a partition up in `data`.
    #[track_caller]
    pub(crate) fn up(&self, name: &str, servers: u16) {
        let (servers, data) = (servers.to_string(), self.text("data"));
        self.ok(&["up", "--name", name, "--servers", &servers, "--dir", &data]);
    }

    /// Brings a partition of one server up in the temporary directory.
    #[track_caller]
    pub(crate) fn up_elsewhere(&self, name: &str) {
        self.ok(&["up", "--name", name, "--servers", "1"]);
    }

    /// Where a server of such a partition keeps its data.
    pub(crate) fn server_dir(&self, name: &str, server: u16) -> PathBuf {
        self.path(format!("data/{name}/server-{server}"))
    }

    /// Process numbers of the servers of a partition, in order.
    pub(crate) fn server_pids(&self, name: &str) -> Vec<i32> {
        let status = self.json(&["status", name]);
        let servers = status[0]["servers"].as_array().expect("a list of servers").clone();
        let pid =
            |server: &serde_json::Value| i32::try_from(server["pid"].as_i64().unwrap_or(0)).unwrap_or(0);
        servers.iter().map(pid).collect()
    }

    /// Living processes that were started with this world's registry.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let mark = format!("PARIO_REGISTRY={}", self.registry().display());
        let has_mark = |pid: &i32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        };
        let all = std::fs::read_dir("/proc").expect("/proc is there").flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(has_mark).collect()
    }

    /// Everything below a directory, as paths from there, sorted.
    pub(crate) fn tree(&self, name: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut left = vec![self.path(name)];
        while let Some(dir) = left.pop() {
            for entry in std::fs::read_dir(&dir).expect("a directory").flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    left.push(path.clone());
                }
                let from = path.strip_prefix(self.path(name)).expect("it was found below");
                found.push(from.to_str().expect("plain names").to_owned());
            }
        }
        found.sort();
        found
    }

    /// No process, no file, no entry.
    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        assert!(until(|| self.processes().is_empty()), "processes are left: {:?}", self.processes());
        assert_eq!(self.tree("data"), Vec::<String>::new());
        assert_eq!(self.tree("tmp"), Vec::<String>::new());
        assert_eq!(self.json(&["status"]), serde_json::json!([]));
    }
}

impl Drop for CliFixture {
    fn drop(&mut self) {
        let _ = self.command().args(["down", "--all", "--destroy"]).output();
        for pid in self.processes() {
            kill(pid, Signal::KILL);
        }
        until(|| self.processes().is_empty());
    }
}

fn shown<S: AsRef<OsStr>>(words: &[S]) -> String {
    words.iter().map(|word| word.as_ref().to_string_lossy()).collect::<Vec<_>>().join(" ")
}

pub(crate) fn said(output: &Output) -> CommandOutput {
    let code = output.status.code().unwrap_or_else(|| -output.status.signal().unwrap_or(0));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    CommandOutput { code, out: text(&output.stdout), err: text(&output.stderr) }
}

/// Sends a signal to one process.
pub(crate) fn kill(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Waits until a condition holds; `false` on timeout.
pub(crate) fn until(mut condition: impl FnMut() -> bool) -> bool {
    let now = || Duration::from_secs(rustix::time::clock_gettime(ClockId::Monotonic).tv_sec.unsigned_abs());
    let began = now();
    while !condition() {
        if TIMEOUT < now().saturating_sub(began) {
            return false;
        }
        let pause = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        let _ = rustix::thread::clock_nanosleep_relative(ClockId::Monotonic, &pause);
    }
    true
}

/// A child that is killed unless the test has reaped it.
pub(crate) struct RunningCommand(Option<Child>);

impl RunningCommand {
    pub(crate) fn start(command: &mut Command) -> RunningCommand {
        RunningCommand(Some(
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pario starts"),
        ))
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.0.as_ref().expect("not collected yet").id()).expect("a process number")
    }

    pub(crate) fn said(mut self) -> CommandOutput {
        said(&self.0.take().expect("not collected yet").wait_with_output().expect("it ends"))
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Bytes that repeat nowhere near.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).flatten().take(bytes).collect()
}
