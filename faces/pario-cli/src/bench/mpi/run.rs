//! Compiles the program with each MPI at hand and runs it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::case::{Case, Side, Times, Work};
use super::{LIMIT, LIMITED_OUTBOX, LIMITED_ROUNDS, MpiPlan, SERVERS, compute_ms};
use crate::bench::ground::Ground;
use crate::bench::{BenchError, backed};
use crate::clock::Began;
use crate::mpi::{Abi, in_path, launcher};

/// The program; the first is compiled, it includes the others.
const SOURCES: [(&str, &str); 4] = [
    ("kernels.c", include_str!("../../mpi/kernels.c")),
    ("patterns.h", include_str!("../../mpi/patterns.h")),
    ("byhand.h", include_str!("../../mpi/byhand.h")),
    ("apart.h", include_str!("../../mpi/apart.h")),
];
/// What slows an MPI library's own I/O down.
const PACE: &str = include_str!("../../mpi/pace.c");
/// Memory that a run needs, in sizes of its file: what ranks write and read, the page cache, outboxes.
const SIZES_TOUCHED: u64 = 5;
/// A run may take so long, some ten times what the slowest takes; MPI ranks that hang are ended.
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
/// MPICH polls; with more ranks than cores it is quicker over sockets.
const CROWDED: [(&str, &str); 4] = [
    ("MPIR_CVAR_NOLOCAL", "1"),
    ("MPIR_CVAR_CH4_NETMOD", "ofi"),
    ("FI_PROVIDER", "tcp"),
    ("FI_TCP_IFACE", "lo"),
];

/// An MPI with its program.
#[derive(Debug)]
pub(super) struct Installation {
    /// `romio` or `ompio`: whose I/O the native side is.
    pub(super) io: &'static str,
    launcher: PathBuf,
    program: PathBuf,
}

/// What is run, by which MPI.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) mpi: &'a Installation,
    pub(super) work: &'a Work,
}

/// The programs, in a directory that is gone afterwards.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    ground: &'a Ground,
    pace: PathBuf,
    pub(super) installations: Vec<Installation>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(ground: &'a Ground) -> Result<Bench<'a>, BenchError> {
        let dir = ground.dir();
        for (name, text) in SOURCES.into_iter().chain([("pace.c", PACE)]) {
            let path = dir.join(name);
            std::fs::write(&path, text).map_err(BenchError::at("writing", &path))?;
        }
        let source = dir.join(SOURCES[0].0);
        let mut bench = Bench { ground, pace: dir.join("pace.so"), installations: Vec::new() };
        for (exec, cc) in
            [("mpiexec.mpich", "mpicc.mpich"), ("mpiexec.openmpi", "mpicc.openmpi"), ("mpiexec", "mpicc")]
        {
            let (Some(exec), Some(cc)) = (in_path(OsStr::new(exec)), in_path(OsStr::new(cc))) else {
                continue;
            };
            let Some(found) = launcher(&exec) else { continue };
            let io = if found.abi == Abi::OpenMpi { "ompio" } else { "romio" };
            // Debian's plain names are one of the others.
            if bench.installations.iter().all(|known| known.io != io) {
                let program = dir.join(format!("kernels-{io}"));
                compile(&cc, &["-O2", "-std=gnu99"], (&source, &program), &["-lm"])?;
                if bench.installations.is_empty() {
                    compile(
                        &cc,
                        &["-O2", "-shared", "-fPIC"],
                        (&dir.join("pace.c"), &bench.pace),
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

    /// How each side was set.
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

    pub(super) fn measure(&self, plan: &MpiPlan, run: &Run<'_>) -> Result<Case, BenchError> {
        let plain = self.ground.dir().join("file");
        let mut command = self.command(plan, run, &plain)?;
        if plan.backed {
            backed::touch((plan.megabytes << 20).saturating_mul(SIZES_TOUCHED));
        }
        let began = Began::now();
        let ran = command.output().map_err(BenchError::when("running a kernel"))?;
        let _ = std::fs::remove_file(&plain);
        let text = String::from_utf8_lossy(&ran.stdout);
        let times = text.lines().find_map(Times::parse).filter(|_| ran.status.success());
        let work = run.work;
        let times = times.ok_or_else(|| {
            let said = why(&String::from_utf8_lossy(&ran.stderr), began.elapsed());
            let (kernel, how, ranks) = (&work.kernel, work.how.word(), work.ranks);
            BenchError::Worker(format!("{kernel} {how} on {}, {ranks} ranks: {said}", run.mpi.io))
        })?;
        Ok(Case { mpi: run.mpi.io, work: work.clone(), times })
    }

    fn command(&self, plan: &MpiPlan, run: &Run<'_>, plain: &Path) -> Result<Command, BenchError> {
        let own = std::env::current_exe().map_err(BenchError::when("finding pario"))?;
        let work = run.work;
        let mut command = Command::new("timeout");
        command.args(["-k", "5", &SECONDS_MAX.to_string()]);
        let file = match work.side {
            Side::Native | Side::Hand => {
                if work.limited {
                    self.slow_down(&mut command)?;
                }
                plain.display().to_string()
            }
            Side::Pario => {
                let servers = self.ground.dir().join("servers");
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
        command.envs(SETTINGS).env("PARIO_REGISTRY", self.ground.registry_path()).stdin(Stdio::null());
        if cores() < usize::from(work.ranks) {
            command.envs(CROWDED);
        }
        Ok(command)
    }

    /// Preloads the pace; each run begins with an idle disk.
    fn slow_down(&self, command: &mut Command) -> Result<(), BenchError> {
        let state = self.ground.dir().join("pace");
        std::fs::write(&state, [0; 8]).map_err(BenchError::at("writing", &state))?;
        command.env("LD_PRELOAD", &self.pace);
        command.env("PARIO_BENCH_PACE", state).env("PARIO_BENCH_RATE", LIMIT.to_string());
        Ok(())
    }
}

/// What a program that failed said, in a line: the first with a word in it.
fn why(said: &str, took: Duration) -> String {
    if Duration::from_secs(SECONDS_MAX) <= took {
        return format!("it did not end within {SECONDS_MAX} s");
    }
    let line = said.lines().find(|line| line.contains(char::is_alphanumeric));
    line.unwrap_or("it said nothing").trim().to_owned()
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

/// What a launcher says of itself, in one line.
fn version(launcher: &Path) -> String {
    let said = Command::new(launcher).arg("--version").stdin(Stdio::null()).output();
    let text = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    let line = |word: &str| text.lines().find(|line| line.contains(word)).map(|line| line.trim().to_owned());
    // MPICH's launcher is called after its build.
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
    fn why_a_program_failed_is_its_first_line_with_a_word() {
        let (soon, late) = (Duration::from_secs(1), Duration::from_secs(180));
        assert_eq!(why("\n-----\n  A process died.\nmore\n", soon), "A process died.");
        assert_eq!(why("----\n", soon), "it said nothing");
        assert_eq!(why("mpiexec: ended", late), "it did not end within 180 s");
    }
}
