//! A partition and a directory for one program; `pario run` starts and stops it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::installations::{MpiInstallation, output, target};

/// Time limit of a program; hanging MPI ranks are ended by the launcher, which `timeout` ends.
const SECONDS_MAX: &str = "480";

/// See the module head.
pub(crate) struct MpiFixture {
    dir: TempDir,
    pub(crate) installation: MpiInstallation,
}

/// Output of a run.
#[derive(Debug)]
pub(crate) struct ProgramRun {
    pub(crate) ok: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl MpiFixture {
    pub(crate) fn new(installation: MpiInstallation) -> MpiFixture {
        let dir = tempfile::Builder::new().prefix("pario-mpi-").tempdir().unwrap();
        MpiFixture { dir, installation }
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

    /// Runs `mpiexec -n RANKS WORDS` on its own partition, `p`.
    pub(crate) fn run<S: AsRef<OsStr>>(
        &self,
        ranks: usize,
        words: &[S],
        variables: &[(&str, &str)],
    ) -> ProgramRun {
        self.run_with(&[], ranks, words, variables)
    }

    /// The same with further options of `pario run`.
    pub(crate) fn run_with<S: AsRef<OsStr>>(
        &self,
        options: &[&str],
        ranks: usize,
        words: &[S],
        variables: &[(&str, &str)],
    ) -> ProgramRun {
        self.run_all(&[&["--servers", "2"], options].concat(), ranks, words, variables)
    }

    /// The same on servers with the given directories, separated by commas.
    pub(crate) fn run_on<S: AsRef<OsStr>>(&self, servers: &str, ranks: usize, words: &[S]) -> ProgramRun {
        self.run_all(&["--servers", servers], ranks, words, &[])
    }

    fn run_all<S: AsRef<OsStr>>(
        &self,
        options: &[&str],
        ranks: usize,
        words: &[S],
        variables: &[(&str, &str)],
    ) -> ProgramRun {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", SECONDS_MAX]).arg(target().join("pario"));
        command.args(["run", "--name", "p"]).args(options).arg("--");
        command.arg(self.installation.launcher()).args(["-n", &ranks.to_string()]).args(words);
        self.run_here(command, variables)
    }

    /// Runs a command that starts MPI programs itself, on its own partition. These programs have their own time limits.
    pub(crate) fn run_beside<S: AsRef<OsStr>>(&self, words: &[S], variables: &[(&str, &str)]) -> ProgramRun {
        let mut command = Command::new(target().join("pario"));
        command.args(["run", "--name", "p", "--servers", "2", "--"]).args(words);
        self.run_here(command, variables)
    }

    /// The same without Pario.
    pub(crate) fn run_native<S: AsRef<OsStr>>(&self, words: &[S], variables: &[(&str, &str)]) -> ProgramRun {
        let mut command = Command::new("env");
        command.args(words);
        self.run_here(command, variables)
    }

    fn run_here(&self, mut command: Command, variables: &[(&str, &str)]) -> ProgramRun {
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
        ProgramRun::of(&mut command)
    }
}

impl ProgramRun {
    /// Output of a command.
    pub(crate) fn of(command: &mut Command) -> ProgramRun {
        let ran = command.output().expect("timeout is a tool of every system");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ProgramRun { ok: ran.status.success(), out: text(&ran.stdout), err: text(&ran.stderr) }
    }

    /// File calls that Pario served, of all ranks and files. Ranks write concurrently: lines may mix.
    pub(crate) fn served(&self) -> u64 {
        let counts = self.err.split(": served ").skip(1);
        counts.filter_map(|rest| rest.split(" MPI calls").next()?.parse::<u64>().ok()).sum()
    }

    /// Number of served calls of one MPI function.
    pub(crate) fn served_call(&self, call: &str) -> u64 {
        self.served_of(" MPI calls: ", call)
    }

    /// Number of served calls of one POSIX function.
    pub(crate) fn served_posix(&self, call: &str) -> u64 {
        self.served_of(" POSIX calls: ", call)
    }

    fn served_of(&self, kind: &str, call: &str) -> u64 {
        let lines = self.err.split(kind).skip(1);
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

    /// The output without Pario's reports.
    pub(crate) fn complaints(&self) -> String {
        let report = |line: &str| line.starts_with("pario: rank") || line.starts_with("pario: process");
        let lines = self.err.lines().filter(|line| !report(line));
        lines.collect::<Vec<_>>().join("\n")
    }
}
