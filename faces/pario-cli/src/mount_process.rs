//! The process that serves a mount: started by `pario mount` and `pario run --mount`, it is the same command with `--served`.
//!
//! Always: it is started when the directory is mounted, or its error is the starter's.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pario_posix::Unmount;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

use crate::context::complain;
use crate::error::{CliError, CliResult};

/// The line that says that the directory is mounted.
pub(crate) const READY: &str = "ready";
/// How long the process of a mount gets to write what it has.
pub(crate) const END_LIMIT: Duration = Duration::from_secs(30);

/// What to mount.
#[derive(Clone, Debug)]
pub(crate) struct MountCommand {
    pub(crate) registry: PathBuf,
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    pub(crate) allow_other: bool,
    pub(crate) nonempty: bool,
    /// File for causes of errors.
    pub(crate) log: Option<PathBuf>,
    /// It ends with this process.
    pub(crate) bound: bool,
}

/// A process that serves a mount.
#[derive(Debug)]
pub(crate) struct MountProcess {
    child: Child,
    dir: PathBuf,
}

impl MountCommand {
    /// Starts the process and waits until the directory is mounted.
    pub(crate) fn start(&self) -> CliResult<MountProcess> {
        let failed = |error: std::io::Error| CliError::failed(format!("cannot start the mount: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("--registry").arg(&self.registry).arg("mount").arg("--served");
        for (flag, is_set) in
            [("--allow-other", self.allow_other), ("--nonempty", self.nonempty), ("--bound", self.bound)]
        {
            command.args(is_set.then_some(flag));
        }
        if let Some(log) = &self.log {
            command.arg("--log").arg(log);
        }
        command.arg("--").arg(&self.name).arg(&self.dir);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(failed)?;
        }
        if line.trim() == READY {
            return Ok(MountProcess { child, dir: self.dir.clone() });
        }
        let mut text = String::new();
        if let Some(mut errors) = child.stderr.take() {
            errors.read_to_string(&mut text).map_err(failed)?;
        }
        let status = child.wait().map_err(failed)?;
        let text = text.lines().last().map(|line| line.strip_prefix("pario: ").unwrap_or(line).to_owned());
        Err(CliError::failed(text.unwrap_or_else(|| format!("the mount ended at its start: {status}"))))
    }
}

impl MountProcess {
    /// Leaves it running; returns the directory.
    pub(crate) fn detach(self) -> PathBuf {
        self.dir
    }

    /// Unmounts and waits for the end of the process; a mount in use is detached.
    pub(crate) fn end(mut self) {
        if let Err(error) = pario_posix::fuse::unmount(&self.dir, Unmount::Now) {
            complain(&CliError::failed(format!("note: {error}; it is detached")));
            if let Err(error) = pario_posix::fuse::unmount(&self.dir, Unmount::Lazy) {
                complain(&CliError::failed(error.to_string()));
            }
            // Processes that still use it would keep it for ever.
            let _ = self.child.kill();
        }
        if !wait_gone(self.child.id(), END_LIMIT) {
            complain(&CliError::failed(format!("the mount in {} did not end in time", self.dir.display())));
            let _ = self.child.kill();
        }
        match self.child.wait() {
            Ok(status) if status.success() => {}
            Ok(status) => complain(&CliError::failed(format!(
                "the mount in {} ended with {status}: writes may be lost",
                self.dir.display()
            ))),
            Err(error) => complain(&CliError::failed(format!("waiting for the mount: {error}"))),
        }
    }
}

/// Waits until a process has ended; false if it runs longer than `limit`.
pub(crate) fn wait_gone(pid: u32, limit: Duration) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return true };
    let Ok(process) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return true };
    let limit = Timespec { tv_sec: i64::try_from(limit.as_secs()).unwrap_or(0), tv_nsec: 0 };
    let mut waiting = [PollFd::new(&process, PollFlags::IN)];
    rustix::event::poll(&mut waiting, Some(&limit)).is_ok_and(|ready| 0 < ready)
}
