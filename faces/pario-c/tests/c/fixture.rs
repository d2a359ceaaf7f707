//! A directory for one test, programs compiled into it, and their runs with a limit.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::compilers::{Compiler, built, source};

/// Longest time of one program, in seconds.
const SECONDS_MAX: &str = "120";

/// What a program printed.
#[derive(Debug)]
pub(crate) struct ProgramRun {
    pub(crate) ok: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl ProgramRun {
    /// The program found no failure.
    #[track_caller]
    pub(crate) fn check(&self, what: &str) {
        let failed = self.out.lines().filter(|line| line.ends_with(" failures") && *line != "0 failures");
        assert!(
            self.ok && failed.count() == 0 && self.out.contains("0 failures"),
            "{what}: {}\n{}",
            self.out,
            self.err
        );
    }

    /// The sum of a counter over the lines of `PARIO_STATS`.
    pub(crate) fn counted(&self, counter: &str) -> u64 {
        let lines = self.err.lines().filter(|line| line.starts_with("pario: team: "));
        let counts = lines.flat_map(|line| line.split([':', ','])).filter_map(|word| {
            let (name, count) = word.trim().rsplit_once(' ')?;
            (name == counter).then(|| count.parse::<u64>().expect("a number"))
        });
        counts.sum()
    }
}

/// A directory for one test.
#[derive(Debug)]
pub(crate) struct Workplace {
    directory: tempfile::TempDir,
}

impl Workplace {
    pub(crate) fn new() -> Workplace {
        Workplace { directory: tempfile::tempdir().expect("a directory") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Compiles a program with OpenMP.
    pub(crate) fn program(&self, compiler: Compiler, name: &str) -> PathBuf {
        let output = self.path(&format!("{name}-{}", compiler.command()));
        compiler.compile(&[source(name)], &["-fopenmp"], &output);
        output
    }

    /// Runs a program; variables of Pario are those given.
    pub(crate) fn run<I: AsRef<OsStr>>(&self, words: &[I], variables: &[(&str, &str)]) -> ProgramRun {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", SECONDS_MAX]).args(words);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if (text.starts_with("PARIO_") && text != "PARIO_TEST_RUN") || text.starts_with("OMP_") {
                command.env_remove(&name);
            }
        }
        // A thread that does not come is an error of the program, not a test that hangs.
        command.env("PARIO_TEAM_PATIENCE", "60s").env("PARIO_STATS", "1");
        command.env("PARIO_REGISTRY", self.path("registry")).env("TMPDIR", self.directory.path());
        command.env("HOME", self.directory.path()).envs(variables.iter().copied());
        let ran = command
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .output()
            .expect("the program is started");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ProgramRun { ok: ran.status.success(), out: text(&ran.stdout), err: text(&ran.stderr) }
    }

    /// Runs a program under `pario run`, on a partition `p` with two servers.
    pub(crate) fn run_on_partition(
        &self,
        options: &[&str],
        program: &Path,
        words: &[&str],
        variables: &[(&str, &str)],
    ) -> ProgramRun {
        let pario = built().join("pario");
        assert!(pario.exists(), "{} is missing: cargo build --workspace", pario.display());
        let mut all = vec![pario.into_os_string()];
        all.extend(["run", "--name", "p", "--servers", "2"].map(Into::into));
        all.extend(options.iter().map(Into::into));
        all.extend(["--".into(), program.into()]);
        all.extend(words.iter().map(Into::into));
        self.run(&all, variables)
    }
}
