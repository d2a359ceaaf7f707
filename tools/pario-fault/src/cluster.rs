//! The partition under test: server processes started by the real command, signals to them, and their end.
//!
//! Always: processes started by a run end with it, also when it fails.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use pario::core::{Clock, Nanos};
use pario::partition::binary::find_binary;
use pario::partition::entry::ServerProcess;
use pario::partition::{Registry, RegistryEntry};
use pario::{MonotonicClock, Partition};
use rustix::process::{Pid, Signal, kill_process};

/// Name of the partition.
pub const NAME: &str = "fault";

/// What the partition is made of.
#[derive(Clone, clap::Args, Debug)]
pub struct ClusterArgs {
    /// Servers of the partition
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub servers: u16,
    /// Processes that write
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub writers: u64,
    /// Store of the partition: files or direct
    #[arg(long, value_name = "KIND", default_value = "files")]
    pub store: String,
    /// More settings for the partition file, a line each (KEY = VALUE)
    #[arg(long = "set", value_name = "LINE")]
    pub settings: Vec<String>,
    /// Where data and journals go; made, and removed unless a round fails
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// See the module.
#[derive(Debug)]
pub struct Cluster {
    dir: Option<tempfile::TempDir>,
    path: PathBuf,
    pario: PathBuf,
}

impl Cluster {
    /// A partition that is up.
    pub fn start(args: &ClusterArgs) -> Result<Cluster, String> {
        let pario = find_binary().map_err(|error| error.to_string())?;
        let mut builder = tempfile::Builder::new();
        builder.prefix("pario-fault-");
        let dir = match &args.dir {
            Some(dir) => builder.tempdir_in(dir),
            None => builder.tempdir(),
        };
        let dir = dir.map_err(|error| format!("cannot make a directory for the run: {error}"))?;
        let path = dir.path().to_owned();
        let dirs: Vec<String> =
            (0..args.servers).map(|at| path.join(format!("server{at}")).display().to_string()).collect();
        let text = format!(
            "name = \"{NAME}\"\nservers = {dirs:?}\nstripe = \"64KiB\"\nstore = {:?}\n{}\n[cache]\noutbox = \"1MiB\"\n",
            args.store,
            args.settings.join("\n")
        );
        std::fs::write(path.join("fault.toml"), text).map_err(|error| error.to_string())?;
        let cluster = Cluster { dir: Some(dir), path, pario };
        cluster.up()?;
        Ok(cluster)
    }

    /// The directory of the run.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.path
    }

    /// Keeps the directory; returns its path.
    pub fn keep_dir(&mut self) -> &Path {
        if let Some(dir) = self.dir.take() {
            let _ = dir.keep();
        }
        &self.path
    }

    /// `pario up`: starts servers that are not running.
    pub fn up(&self) -> Result<(), String> {
        let file = self.path.join("fault.toml");
        let output = self.command().arg("up").arg(file).output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() || said.contains("is already running") {
            return Ok(());
        }
        Err(format!("pario up: {}: {}", output.status, said.trim()))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.pario);
        command.env("PARIO_REGISTRY", self.registry().path()).stdin(Stdio::null());
        command
    }

    /// The registry of the run.
    #[must_use]
    pub fn registry(&self) -> Registry {
        Registry::open(&self.path.join("registry"))
    }

    /// A separate client.
    pub fn mount(&self) -> Result<Partition, String> {
        Partition::mount_from(&self.registry(), NAME).map_err(|error| error.to_string())
    }

    /// The servers, as the registry has them now.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerProcess> {
        let entry = self.registry().get(NAME).ok().flatten();
        entry.as_ref().map_or(Vec::new(), |entry: &RegistryEntry| {
            entry.servers.iter().map(pario::partition::ServerEntry::process).collect()
        })
    }

    /// Sends a signal to a living server; waits until a killed one has ended.
    pub fn signal(&self, server: u16, signal: Signal) {
        let Some(process) = self.servers().get(usize::from(server)).copied() else { return };
        if !process.is_alive() {
            return;
        }
        signal_process(process.pid, signal);
        if signal == Signal::KILL {
            until(Duration::from_secs(10), || !process.is_alive());
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.servers() {
            if process.is_alive() {
                signal_process(process.pid, Signal::KILL);
            }
        }
        until(Duration::from_secs(10), || self.servers().iter().all(|process| !process.is_alive()));
    }
}

/// Sends a signal; an ended process gets none.
pub fn signal_process(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Waits for a condition; false when `limit` passed first.
pub fn until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let began: Nanos = MonotonicClock.now();
    while !condition() {
        if limit < MonotonicClock.now().since(began) {
            return false;
        }
        pause(Duration::from_millis(5));
    }
    true
}

/// Lets time pass.
pub fn pause(time: Duration) {
    let time = rustix::event::Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    let _ = rustix::event::poll(&mut [], Some(&time));
}
