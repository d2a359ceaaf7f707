//! Fixture of one test: a partition, and mounts of it.
//!
//! Always: mounts are detached with the fixture, before its partition goes down.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::mount::UnmountFlags;

use crate::support::{CliFixture, until};

/// Name of the partition.
pub(crate) const NAME: &str = "mounted";

/// See the module.
pub(crate) struct MountFixture {
    dirs: Vec<PathBuf>,
    pub(crate) cli: CliFixture,
}

impl MountFixture {
    /// A partition of two servers that is mounted `mounts` times, as `m0`, `m1`, …: each has a process, a session and caches of its own,
    /// as on another node.
    pub(crate) fn new(mounts: usize) -> MountFixture {
        let cli = CliFixture::new();
        cli.up(NAME, 2);
        let mut fixture = MountFixture { dirs: Vec::new(), cli };
        for number in 0..mounts {
            fixture.mount(&format!("m{number}"), &[]);
        }
        fixture
    }

    /// Mounts once more, with options.
    #[track_caller]
    pub(crate) fn mount(&mut self, dir: &str, options: &[&str]) -> PathBuf {
        let dir = self.cli.path(dir);
        std::fs::create_dir_all(&dir).unwrap();
        self.dirs.push(dir.clone());
        let words = [&["mount", NAME, dir.to_str().unwrap()], options].concat();
        self.cli.ok(&words);
        dir
    }

    /// A directory in which it is mounted.
    pub(crate) fn dir(&self, number: usize) -> &Path {
        &self.dirs[number]
    }

    /// Takes everything down; nothing may be left.
    #[track_caller]
    pub(crate) fn end(mut self) {
        for dir in &self.dirs {
            self.cli.ok(&["umount", dir.to_str().unwrap()]);
            assert!(!is_mounted(dir));
        }
        self.dirs.clear();
        self.cli.ok(&["down", NAME, "--destroy"]);
        self.cli.assert_nothing_left();
    }
}

impl Drop for MountFixture {
    fn drop(&mut self) {
        for dir in &self.dirs {
            // A mount that the test has ended already is none.
            let _ = rustix::mount::unmount(dir, UnmountFlags::DETACH);
        }
    }
}

/// Whether a directory is a mount.
pub(crate) fn is_mounted(dir: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let place = format!(" {} ", dir.display());
    table.lines().any(|line| line.contains(&place))
}

/// Runs a shell script in a directory and insists on success; returns its output.
#[track_caller]
pub(crate) fn shell(dir: &Path, script: &str) -> String {
    let output: Output =
        Command::new("sh").args(["-ec", script]).current_dir(dir).env("HOME", dir).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}: {}: {out}{err}", output.status);
    out.into_owned()
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(until(condition), "did not happen: {what}");
}
