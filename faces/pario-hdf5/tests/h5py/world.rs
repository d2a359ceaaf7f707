//! Python with h5py, and the connector in a directory of its own.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// No program here takes longer, on a busy machine too.
const SECONDS_MAX: &str = "300";

/// A directory for files, with the connector beside them.
#[derive(Debug)]
pub(crate) struct World {
    dir: TempDir,
    /// Servers of the partition `h` run until the end.
    pub(crate) served: bool,
}

impl Drop for World {
    fn drop(&mut self) {
        if self.served {
            let down = self.pario(&["down", "h", "--destroy"]).output();
            assert!(down.is_ok_and(|done| done.status.success()) || std::thread::panicking(), "pario down");
        }
    }
}

/// Which HDF5 serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    Native,
    Pario,
}

fn target() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.ancestors().nth(2).unwrap().to_path_buf()
}

/// Python of the environment that `./test` makes.
pub(crate) fn python() -> PathBuf {
    let python = target().parent().unwrap().join("hdf5/venv/bin/python");
    assert!(
        python.exists(),
        "no h5py: run ./test once, or make the environment {} with h5py",
        python.display()
    );
    python
}

impl World {
    pub(crate) fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        // A directory of its own: HDF5 loads every library of a plugin directory.
        let plugins = dir.path().join("plugins");
        std::fs::create_dir(&plugins).unwrap();
        let library = target().join("libpario_hdf5.so");
        assert!(library.exists(), "no {}: run `cargo build --workspace` first", library.display());
        std::os::unix::fs::symlink(library, plugins.join("libpario_hdf5.so")).unwrap();
        World { dir, served: false }
    }

    /// A world with a partition `h` of two servers.
    pub(crate) fn with_partition() -> World {
        let mut world = World::new();
        let data = world.path("data");
        std::fs::create_dir(&data).unwrap();
        let up = world.pario(&["up", "--name", "h", "--servers", "2", "--dir"]).arg(data).output().unwrap();
        assert!(up.status.success(), "{}", shown(&up.stderr));
        world.served = true;
        world
    }

    /// The command `pario` with the registry of this world.
    pub(crate) fn pario(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(target().join("pario"));
        command.args(arguments).env("PARIO_REGISTRY", self.path("registry")).stdin(Stdio::null());
        command
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A command that is ended if it does not end itself.
    pub(crate) fn command(&self, served: Served, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", SECONDS_MAX]).arg(python()).args(["-W", "ignore"]).args(arguments);
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command.env_remove("HDF5_PLUGIN_PATH").env_remove("HDF5_VOL_CONNECTOR").env_remove("PARIO_STATS");
        command.env("PARIO_REGISTRY", self.path("registry")).env("PARIO_PARTITION", "h");
        if served == Served::Pario {
            command.env("HDF5_PLUGIN_PATH", self.path("plugins")).env("HDF5_VOL_CONNECTOR", "pario");
            command.env("PARIO_STATS", "1");
        }
        command
    }

    pub(crate) fn run(&self, served: Served, arguments: &[&str]) -> Output {
        self.command(served, arguments).output().unwrap()
    }

    /// Runs a program that must succeed; returns its output.
    pub(crate) fn script(&self, served: Served, text: &str) -> String {
        let output = self.run(served, &["-c", text]);
        let (out, error) = (shown(&output.stdout), shown(&output.stderr));
        assert!(output.status.success(), "{text}\n{out}{error}");
        out
    }
}

pub(crate) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A count of the line that `PARIO_STATS=1` prints.
pub(crate) fn count(output: &Output, name: &str) -> u64 {
    let error = shown(&output.stderr);
    let line = error
        .lines()
        .find(|line| line.starts_with("pario hdf5: files="))
        .unwrap_or_else(|| panic!("{error}"));
    let value = line.split_whitespace().find_map(|word| word.strip_prefix(&format!("{name}=")));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {line}"))
}
