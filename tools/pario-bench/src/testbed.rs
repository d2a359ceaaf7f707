//! The testbed of a benchmark: a directory with its own registry and partitions.
//!
//! A janitor process waits until the benchmark ends, then takes all partitions down and removes the directory: an interrupt, a
//! panic and a kill leave nothing behind.
//!
//! Never: touches the user's registry. Always: the plain baseline file is in the same directory as the partitions' storage.

use std::io::Read;
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pario::partition::launch::START_LIMIT;
use pario::partition::{Key, Layers, PartitionState, Registry};
use pario::start::{DownMode, Up};
use rustix::process::{Pid, Signal};

use super::error::BenchError;
use crate::clock::{BenchTimer, sleep};

/// Time limit for removed files to disappear from the storage directories.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// Servers that were idle for this time are at rest; longer than the kernel's tick.
const IDLE_TIME: Duration = Duration::from_millis(20);
/// Polls for programs that should end, 50 ms apart.
const ENDING_ATTEMPTS: u32 = 80;
/// Processor time of idle servers in that interval, upper bound.
const IDLE_NS_MAX: u64 = 1_000_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Testbed {
    dir: PathBuf,
    janitor: Option<Child>,
}

impl Testbed {
    /// Creates a directory in `dir`, or in the system's temporary directory.
    pub(crate) fn new(dir: Option<&Path>) -> Result<Testbed, BenchError> {
        let base = dir.map_or_else(std::env::temp_dir, Path::to_owned);
        let base = base.canonicalize().map_err(BenchError::at("looking for", &base))?;
        let dir = base.join(format!("pario-bench-{}", std::process::id()));
        std::fs::create_dir(&dir).map_err(BenchError::at("making", &dir))?;
        let janitor = start_janitor(&dir).inspect_err(|_| {
            // It is still empty.
            let _ = std::fs::remove_dir(&dir);
        })?;
        Ok(Testbed { dir, janitor: Some(janitor) })
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The private registry's file.
    pub(crate) fn registry_path(&self) -> PathBuf {
        self.dir.join("registry")
    }

    fn registry(&self) -> Registry {
        Registry::open(&self.registry_path())
    }

    /// Path of the plain baseline file.
    pub(crate) fn plain_file(&self) -> PathBuf {
        self.dir.join("plain")
    }

    /// Brings up a partition of `servers` servers on this machine.
    pub(crate) fn up(&self, name: &str, servers: usize) -> Result<Up, BenchError> {
        self.up_with(name, servers, &[])
    }

    /// The same with settings of the benchmark, which override the environment.
    pub(crate) fn up_with(
        &self,
        name: &str,
        servers: usize,
        options: &[(Key, String)],
    ) -> Result<Up, BenchError> {
        self.up_on(None, name, servers, options)
    }

    /// The same with all servers on another host; `options` tell how to reach it.
    pub(crate) fn up_on(
        &self,
        host: Option<Ipv4Addr>,
        name: &str,
        servers: usize,
        options: &[(Key, String)],
    ) -> Result<Up, BenchError> {
        let setup =
            |error: pario::partition::ConfigError| BenchError::Pario(pario::Error::Setup(error.to_string()));
        let host = host.map_or(String::new(), |host| format!("{host}:"));
        let dirs = (0..servers)
            .map(|index| format!("{host}{}", self.storage(name).join(index.to_string()).display()));
        let layers = Layers::new()
            .environment()
            .map_err(setup)?
            .option(Key::Name, name, "bench")
            .option_list(Key::Servers, dirs.collect(), "bench");
        let settings = options
            .iter()
            .fold(layers, |layers, (key, value)| layers.option(*key, value, "bench"))
            .check()
            .map_err(setup)?;
        Ok(pario::start::up(&self.registry(), &settings, START_LIMIT)?)
    }

    /// Takes a partition down and removes its data.
    pub(crate) fn down(&self, name: &str) -> Result<(), BenchError> {
        pario::start::down(&self.registry(), name, DownMode::Destroy)?;
        Ok(())
    }

    fn storage(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Waits until the servers of a partition have removed unlinked files and are at rest, so that the next run is not slowed:
    /// a name is removed before its memory.
    pub(crate) fn wait_idle(&self, name: &str) -> Result<(), BenchError> {
        let began = BenchTimer::now();
        let mut before = self.busy_ns(name)?;
        loop {
            sleep(IDLE_TIME);
            let now = self.busy_ns(name)?;
            if now.saturating_sub(before) < IDLE_NS_MAX && !has_objects(&self.storage(name)) {
                return Ok(());
            }
            before = now;
            if IDLE_LIMIT < began.elapsed() {
                let text = format!(
                    "the servers of '{name}' are not at rest {IDLE_LIMIT:?} after files were unlinked"
                );
                return Err(BenchError::Late(text));
            }
        }
    }

    /// Processor time of all servers of a partition.
    fn busy_ns(&self, name: &str) -> Result<u64, BenchError> {
        let entry = self.registry().find(name).map_err(|error| pario::Error::Setup(error.to_string()))?;
        Ok(entry.servers.iter().map(|server| busy_ns(server.pid)).sum())
    }

    /// Takes everything down, removes it, and reports failures.
    pub(crate) fn end(mut self) -> Result<(), BenchError> {
        self.dismiss()
    }

    fn dismiss(&mut self) -> Result<(), BenchError> {
        let Some(mut janitor) = self.janitor.take() else { return Ok(()) };
        drop(janitor.stdin.take());
        let status = janitor.wait().map_err(BenchError::when("waiting for the janitor"))?;
        pario::partition::launch::reap();
        if status.success() && !self.dir.exists() {
            return Ok(());
        }
        Err(BenchError::Worker(format!(
            "{} could not be removed: the janitor ended with {status}",
            self.dir.display()
        )))
    }
}

/// Whether an object is left in any storage directory.
fn has_objects(storage: &Path) -> bool {
    let below = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let objects = below(storage.to_owned()).flat_map(|server| below(server.path().join("objects")));
    let mut files = objects.filter(|bucket| bucket.path().is_dir()).flat_map(|bucket| below(bucket.path()));
    files.next().is_some()
}

/// Processor time of a process's threads; 0 if the kernel does not report it.
fn busy_ns(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let spent = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    threads.filter_map(spent).sum()
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if let Err(error) = self.dismiss() {
            tracing::warn!(%error, "the benchmark could not remove all its files");
        }
    }
}

/// Starts the janitor in its own process group, so that the terminal's interrupt does not reach it.
fn start_janitor(dir: &Path) -> Result<Child, BenchError> {
    let program = std::env::current_exe().map_err(BenchError::when("looking for this program"))?;
    Command::new(program)
        .arg("janitor")
        .arg(dir)
        .env_remove("PARIO_TRANSPORT")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(BenchError::when("starting the janitor"))
}

/// Body of the janitor: waits for the end of its input, then takes down and removes everything in `dir`.
pub(crate) fn janitor(dir: &Path) -> Result<(), BenchError> {
    let mut nothing = Vec::new();
    std::io::stdin()
        .read_to_end(&mut nothing)
        .map_err(BenchError::when("waiting for the benchmark's end"))?;
    end_programs(dir);
    let registry = Registry::open(&dir.join("registry"));
    for entry in registry.list().unwrap_or_default() {
        // A starting partition ends with its starter, and its directories are removed below.
        if entry.state != PartitionState::Starting {
            pario::start::down(&registry, &entry.name, DownMode::Destroy)?;
        }
    }
    remove(dir).map_err(BenchError::at("removing", dir))
}

/// Ends programs with the directory on their command line, such as an MPI launcher and its ranks after the benchmark was
/// killed: SIGTERM first, SIGKILL after two seconds.
fn end_programs(dir: &Path) {
    for attempt in 0..ENDING_ATTEMPTS {
        let left = programs_of(dir);
        if left.is_empty() {
            return;
        }
        let signal = if attempt < ENDING_ATTEMPTS / 2 { Signal::TERM } else { Signal::KILL };
        if attempt == 0 || signal == Signal::KILL {
            for pid in left {
                // Ended meanwhile, or another user's.
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

/// Processes with a path in the directory on their command line, except this one and its parent.
fn programs_of(dir: &Path) -> Vec<Pid> {
    let own = [Some(rustix::process::getpid()), rustix::process::getppid()];
    let name = dir.as_os_str().as_bytes();
    let named = |pid: &Pid| {
        let path = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
        let line = std::fs::read(path).unwrap_or_default();
        line.windows(name.len()).any(|part| part == name)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw);
    pids.filter(|pid| !own.contains(&Some(*pid))).filter(named).collect()
}

/// Removes everything in `dir`. Servers that were starting when their starter was killed, and workers, may still write files:
/// retried for a while.
fn remove(dir: &Path) -> std::io::Result<()> {
    for _ in 0..400 {
        if std::fs::remove_dir_all(dir).is_ok() || !dir.exists() {
            return Ok(());
        }
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    }
    std::fs::remove_dir_all(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_where_servers_keep_them() {
        let dir = tempfile::tempdir().unwrap();
        let bucket = dir.path().join("0/objects/ab");
        std::fs::create_dir_all(&bucket).unwrap();
        std::fs::write(dir.path().join("0/objects/probe"), "").unwrap();
        assert!(!has_objects(dir.path()));
        std::fs::write(bucket.join("00000000000102ab-00000003"), "").unwrap();
        assert!(has_objects(dir.path()));
    }

    #[test]
    fn a_process_that_works_is_seen_to() {
        let before = busy_ns(std::process::id());
        let began = BenchTimer::now();
        while busy_ns(std::process::id()) == before {
            assert!(began.elapsed() < Duration::from_secs(30), "the kernel counts no processor time");
        }
    }
}
