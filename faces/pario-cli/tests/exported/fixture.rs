//! Fixture of one test: a partition, and a process that exports it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};

use rustix::process::Signal;

use crate::client::NfsUser;
use crate::support::{CliFixture, kill};

/// Name of the partition.
pub(crate) const NAME: &str = "exported";

/// A process that exports the partition; killed with the fixture.
pub(crate) struct ExportProcess {
    child: Child,
    pub(crate) address: SocketAddr,
}

/// A partition of two servers.
pub(crate) fn partition() -> CliFixture {
    let cli = CliFixture::new();
    cli.up(NAME, 2);
    cli
}

/// A partition that has little space.
pub(crate) fn small_partition() -> CliFixture {
    let cli = CliFixture::new();
    cli.ok(&["up", "--name", NAME, "--servers", "2", "--store", "memory", "--memory", "4MiB"]);
    cli
}

impl ExportProcess {
    /// Starts it and waits until it serves.
    #[track_caller]
    pub(crate) fn start(cli: &CliFixture, address: &str) -> ExportProcess {
        let mut command = cli.command();
        command.args(["export", NAME, "--nfs", address, "--root-squash", "no"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let prefix = format!("{NAME}: exported by NFSv3 on ");
        let address = line.strip_prefix(&prefix).and_then(|rest| rest.split(' ').next());
        let address: SocketAddr = address.and_then(|text| text.parse().ok()).expect(&line);
        let (port, host) = (address.port(), address.ip());
        let how = format!(
            "(mount -t nfs -o vers=3,proto=tcp,port={port},mountport={port},nolock {host}:/{NAME} DIR)"
        );
        assert!(line.contains(&how), "{line}");
        ExportProcess { child, address }
    }

    pub(crate) fn user(&self) -> NfsUser {
        NfsUser::new(self.address, 0, 0, &[])
    }

    /// Sends a signal and waits for the end; returns the exit code, or the negative number of the signal that ended it.
    pub(crate) fn end(mut self, signal: Signal) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        kill(i32::try_from(self.child.id()).unwrap(), signal);
        let status = self.child.wait().unwrap();
        status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))
    }
}

impl Drop for ExportProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
