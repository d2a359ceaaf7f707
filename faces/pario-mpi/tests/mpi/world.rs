//! A partition and a directory for one program; `pario run` brings it up and takes it down.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::installations::{Installation, output, target};

/// A program has this long; MPI ranks that hang are ended by the launcher, which `timeout` ends.
const SECONDS_MAX: &str = "480";

/// See the module.
pub(crate) struct World {
    dir: TempDir,
    pub(crate) installation: Installation,
}

/// What a run said.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) ok: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl World {
    pub(crate) fn new(installation: Installation) -> World {
        let dir = tempfile::Builder::new().prefix("pario-mpi-").tempdir().unwrap();
        World { dir, installation }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Compiles a program of this suite.
    pub(crate) fn compile(&self, compiler: &Path, source: &str, options: &[&str]) -> PathBuf {
        let program = self.path("program");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
        let mut command = Command::new(compiler);
        command.args(options).arg("-o").arg(&program).arg(source).current_dir(self.dir.path());
        output(&mut command);
        program
    }

    /// Runs `mpiexec -n RANKS WORDS` on a partition of its own, which is called `p`.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, ranks: usize, words: &[S], variables: &[(&str, &str)]) -> Ran {
        self.run_with(&[], ranks, words, variables)
    }

    /// The same with further options of `pario run`.
    pub(crate) fn run_with<S: AsRef<OsStr>>(
        &self,
        options: &[&str],
        ranks: usize,
        words: &[S],
        variables: &[(&str, &str)],
    ) -> Ran {
        self.run_all(&[&["--servers", "2"], options].concat(), ranks, words, variables)
    }

    /// The same on servers with directories of their own, separated by commas.
    pub(crate) fn run_on<S: AsRef<OsStr>>(&self, servers: &str, ranks: usize, words: &[S]) -> Ran {
        self.run_all(&["--servers", servers], ranks, words, &[])
    }

    fn run_all<S: AsRef<OsStr>>(
        &self,
        options: &[&str],
        ranks: usize,
        words: &[S],
        variables: &[(&str, &str)],
    ) -> Ran {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", SECONDS_MAX]).arg(target().join("pario"));
        command.args(["run", "--name", "p"]).args(options).arg("--");
        command.arg(self.installation.launcher()).args(["-n", &ranks.to_string()]).args(words);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PARIO_"))
        {
            if name != "PARIO_TEST_RUN" {
                command.env_remove(name);
            }
        }
        let map = format!("{}=pario://p/", self.path("mapped").display());
        command
            .env("PARIO_REGISTRY", self.path("registry"))
            .env("PARIO_MAP", map)
            .env("PARIO_STATS", "1")
            .env("TMPDIR", self.dir.path())
            .envs(variables.iter().copied())
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        self.installation.settings(&mut command);
        Ran::of(&mut command)
    }
}

impl Ran {
    /// What a command said.
    pub(crate) fn of(command: &mut Command) -> Ran {
        let ran = command.output().expect("timeout is a tool of every system");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { ok: ran.status.success(), out: text(&ran.stdout), err: text(&ran.stderr) }
    }

    /// File calls that Pario served, of all ranks and files. Ranks write at the same time: lines may run into each other.
    pub(crate) fn served(&self) -> u64 {
        let counts = self.err.split(": served ").skip(1);
        counts.filter_map(|rest| rest.split(" MPI calls").next()?.parse::<u64>().ok()).sum()
    }

    /// How often Pario served one call.
    pub(crate) fn served_call(&self, call: &str) -> u64 {
        let lines = self.err.split(" MPI calls: ").skip(1);
        let counts = lines.flat_map(|line| line.lines().next().unwrap_or("").split(", "));
        let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok();
        counts.filter_map(|entry| number(entry.strip_prefix(&format!("{call} "))?)).sum()
    }

    /// Bytes of views that were sent to servers, of all ranks and files.
    pub(crate) fn view_bytes(&self) -> u64 {
        let before = self.err.split(" of views, ").map(|text| text.rsplit("; ").next().unwrap_or(""));
        let sizes: Vec<pario::core::Size> = before.filter_map(|text| text.parse().ok()).collect();
        assert!(!sizes.is_empty(), "no report of views: {}", self.err);
        sizes.iter().map(|size| size.0).sum()
    }

    /// What was said, without Pario's reports.
    pub(crate) fn complaints(&self) -> String {
        let lines = self.err.lines().filter(|line| !line.starts_with("pario: rank"));
        lines.collect::<Vec<_>>().join("\n")
    }
}
