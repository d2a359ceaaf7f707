//! Compiles the program with each installed MPI and runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use pario::partition::binary::find_binary;

use super::case::{MpiCase, MpiRunSpec, MpiSide, MpiTimes};
use super::{LIMIT, LIMITED_OUTBOX, LIMITED_ROUNDS, MpiPlan, SERVERS, compute_ms};
use crate::clock::BenchTimer;
use crate::testbed::Testbed;
use crate::{BenchError, backed};

/// The program; the first file is compiled and includes the others.
const SOURCES: [(&str, &str); 4] = [
    ("kernels.c", include_str!("kernels.c")),
    ("patterns.h", include_str!("patterns.h")),
    ("byhand.h", include_str!("byhand.h")),
    ("apart.h", include_str!("apart.h")),
];
/// Preload library that limits an MPI library's own I/O.
const LIMITER_SOURCE: &str = include_str!("pace.c");
/// Memory of a run, in file sizes: data written and read, page cache, outboxes.
const SIZES_TOUCHED: u64 = 5;
/// Time limit of a run, about ten times the slowest; hanging MPI ranks are killed.
const SECONDS_MAX: u64 = 180;
/// For more ranks than cores, on one host, also as root.
const SETTINGS: [(&str, &str); 6] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
    ("HYDRA_IFACE", "lo"),
];
/// MPICH polls; with more ranks than cores, sockets are faster.
const CROWDED: [(&str, &str); 4] = [
    ("MPIR_CVAR_NOLOCAL", "1"),
    ("MPIR_CVAR_CH4_NETMOD", "ofi"),
    ("FI_PROVIDER", "tcp"),
    ("FI_TCP_IFACE", "lo"),
];

/// An MPI with its program.
#[derive(Debug)]
pub(super) struct Installation {
    /// `romio` or `ompio`: I/O implementation of the native side.
    pub(super) io: &'static str,
    launcher: PathBuf,
    program: PathBuf,
}

/// A run and its MPI.
#[derive(Clone, Copy, Debug)]
pub(super) struct MpiRun<'a> {
    pub(super) mpi: &'a Installation,
    pub(super) work: &'a MpiRunSpec,
}

/// The compiled programs.
#[derive(Debug)]
pub(super) struct MpiBench<'a> {
    testbed: &'a Testbed,
    limiter: PathBuf,
    pub(super) installations: Vec<Installation>,
}

impl<'a> MpiBench<'a> {
    pub(super) fn new(ground: &'a Testbed) -> Result<MpiBench<'a>, BenchError> {
        let dir = ground.dir();
        for (name, text) in SOURCES.into_iter().chain([("pace.c", LIMITER_SOURCE)]) {
            let path = dir.join(name);
            std::fs::write(&path, text).map_err(BenchError::at("writing", &path))?;
        }
        let source = dir.join(SOURCES[0].0);
        let mut bench = MpiBench { testbed: ground, limiter: dir.join("pace.so"), installations: Vec::new() };
        for (exec, cc) in
            [("mpiexec.mpich", "mpicc.mpich"), ("mpiexec.openmpi", "mpicc.openmpi"), ("mpiexec", "mpicc")]
        {
            let (Some(exec), Some(cc)) = (in_path(exec), in_path(cc)) else { continue };
            let io = io_of(&version(&exec));
            // Debian's plain names are links to one of the others.
            if bench.installations.iter().all(|known| known.io != io) {
                let program = dir.join(format!("kernels-{io}"));
                compile(&cc, &["-O2", "-std=gnu99"], (&source, &program), &["-lm"])?;
                if bench.installations.is_empty() {
                    compile(
                        &cc,
                        &["-O2", "-shared", "-fPIC"],
                        (&dir.join("pace.c"), &bench.limiter),
                        &["-ldl"],
                    )?;
                }
                bench.installations.push(Installation { io, launcher: exec, program });
            }
        }
        if bench.installations.is_empty() {
            return Err(BenchError::Worker("no MPI in PATH: mpiexec and mpicc are needed".into()));
        }
        Ok(bench)
    }

    /// Settings of each side.
    pub(super) fn settings(&self, plan: &MpiPlan) -> Vec<String> {
        let mut lines: Vec<String> =
            self.installations.iter().map(|mpi| format!("{}: {}", mpi.io, version(&mpi.launcher))).collect();
        lines.push(format!(
            "files of {} MiB, each time the median of {} rounds, {} of each of {} runs in turn with the other sides; pario: {SERVERS} servers",
            plan.megabytes,
            plan.rounds * plan.passes,
            plan.rounds,
            plan.passes
        ));
        if plan.backed {
            lines.push(
                "free memory is touched before each run, so that no side waits for a host to back it"
                    .to_owned(),
            );
        }
        let crowded: Vec<String> = CROWDED.iter().map(|(name, value)| format!("{name}={value}")).collect();
        lines.push(format!(
            "more ranks than cores: Open MPI yields when idle, MPICH has {}",
            crowded.join(" ")
        ));
        if plan.limited {
            lines.push(format!(
                "limited: {} MB/s for all writes of the node, by the servers' stores or by a preloaded pace; computing between dumps \
                 for as long as that needs for two of them; pario: outboxes of {LIMITED_OUTBOX}",
                LIMIT / 1_000_000
            ));
        }
        lines
    }

    pub(super) fn measure(&self, plan: &MpiPlan, run: &MpiRun<'_>) -> Result<MpiCase, BenchError> {
        let plain = self.testbed.dir().join("file");
        let mut command = self.command(plan, run, &plain)?;
        if plan.backed {
            backed::touch((plan.megabytes << 20).saturating_mul(SIZES_TOUCHED));
        }
        let began = BenchTimer::now();
        let ran = command.output().map_err(BenchError::when("running a kernel"))?;
        let _ = std::fs::remove_file(&plain);
        let text = String::from_utf8_lossy(&ran.stdout);
        let times = text.lines().find_map(MpiTimes::parse).filter(|_| ran.status.success());
        let work = run.work;
        let times = times.ok_or_else(|| {
            let said = why(&String::from_utf8_lossy(&ran.stderr), began.elapsed());
            let (kernel, how, ranks) = (&work.kernel, work.how.word(), work.ranks);
            BenchError::Worker(format!("{kernel} {how} on {}, {ranks} ranks: {said}", run.mpi.io))
        })?;
        Ok(MpiCase { mpi: run.mpi.io, work: work.clone(), times })
    }

    fn command(&self, plan: &MpiPlan, run: &MpiRun<'_>, plain: &Path) -> Result<Command, BenchError> {
        let own = find_binary().map_err(|error| pario::Error::Setup(error.to_string()))?;
        let work = run.work;
        let mut command = Command::new("timeout");
        command.args(["-k", "5", &SECONDS_MAX.to_string()]);
        let file = match work.side {
            MpiSide::Native | MpiSide::Hand => {
                if work.limited {
                    self.slow_down(&mut command)?;
                }
                plain.display().to_string()
            }
            MpiSide::Pario => {
                let servers = self.testbed.dir().join("servers");
                command.arg(own).args(["run", "--servers", &SERVERS.to_string(), "--dir"]).arg(servers);
                if work.limited {
                    let each = LIMIT / u64::from(SERVERS);
                    command.args(["--limit-store", &each.to_string(), "--outbox", LIMITED_OUTBOX]);
                }
                command.arg("--");
                "pario:///file".to_owned()
            }
        };
        let compute = if work.limited { compute_ms(&work.kernel, plan.megabytes) } else { 0 };
        let rounds = if work.limited { plan.rounds.min(LIMITED_ROUNDS) } else { plan.rounds };
        let cache = if work.limited { "warm" } else { "cold" };
        command.arg(&run.mpi.launcher).args(["-n", &work.ranks.to_string()]).arg(&run.mpi.program);
        command.args([file.as_str(), &work.kernel, work.how.word(), &plan.megabytes.to_string()]);
        command.args([&rounds.to_string(), &compute.to_string(), cache]);
        command.envs(SETTINGS).env("PARIO_REGISTRY", self.testbed.registry_path()).stdin(Stdio::null());
        if cores() < usize::from(work.ranks) {
            command.envs(CROWDED);
        }
        Ok(command)
    }

    /// Preloads the limit; each run starts with an idle disk.
    fn slow_down(&self, command: &mut Command) -> Result<(), BenchError> {
        let state = self.testbed.dir().join("pace");
        std::fs::write(&state, [0; 8]).map_err(BenchError::at("writing", &state))?;
        command.env("LD_PRELOAD", &self.limiter);
        command.env("PARIO_BENCH_PACE", state).env("PARIO_BENCH_RATE", LIMIT.to_string());
        Ok(())
    }
}

/// The first meaningful line of a failed program's output.
fn why(said: &str, took: Duration) -> String {
    if Duration::from_secs(SECONDS_MAX) <= took {
        return format!("it did not end within {SECONDS_MAX} s");
    }
    let line = said.lines().find(|line| line.contains(char::is_alphanumeric));
    line.unwrap_or("no output").trim().to_owned()
}

fn compile(
    compiler: &Path,
    options: &[&str],
    (source, made): (&Path, &Path),
    libraries: &[&str],
) -> Result<(), BenchError> {
    let mut command = Command::new(compiler);
    command.args(options).arg("-o").args([made, source]).args(libraries).stdin(Stdio::null());
    let ran = command.output().map_err(BenchError::at("running", compiler))?;
    if ran.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&ran.stderr).lines().next().unwrap_or("").to_owned();
    Err(BenchError::Worker(format!("{}: {why}", compiler.display())))
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// MPI-IO implementation of a launcher's library, from its version line.
fn io_of(version: &str) -> &'static str {
    if ["Open MPI", "OpenRTE", "PRRTE"].iter().any(|name| version.contains(name)) { "ompio" } else { "romio" }
}

/// The version of a launcher, in one line.
fn version(launcher: &Path) -> String {
    let said = Command::new(launcher).arg("--version").stdin(Stdio::null()).output();
    let text = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    let line = |word: &str| text.lines().find(|line| line.contains(word)).map(|line| line.trim().to_owned());
    // MPICH's launcher is named after its build.
    match line("Version:") {
        Some(number) => format!("MPICH {}", number.trim_start_matches("Version:").trim()),
        None => text.lines().next().unwrap_or("unknown").trim().to_owned(),
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_say_which_mpi_they_are_of() {
        assert_eq!(io_of("mpiexec (OpenRTE) 4.1.4"), "ompio");
        assert_eq!(io_of("mpirun (Open MPI) 5.0.11"), "ompio");
        assert_eq!(io_of("MPICH 4.0.2"), "romio");
    }

    #[test]
    fn why_a_program_failed_is_its_first_line_with_a_word() {
        let (soon, late) = (Duration::from_secs(1), Duration::from_secs(180));
        assert_eq!(why("\n-----\n  A process died.\nmore\n", soon), "A process died.");
        assert_eq!(why("----\n", soon), "no output");
        assert_eq!(why("mpiexec: ended", late), "it did not end within 180 s");
    }
}
