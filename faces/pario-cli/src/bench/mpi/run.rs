//! Compiles the kernels with each MPI at hand and runs them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{COMPUTE_MS, Case, KERNELS, LIMIT, MpiPlan, Side, Times};
use crate::bench::BenchError;
use crate::mpi::{Abi, in_path, launcher};

/// A run may take so long; MPI ranks that hang are ended.
const SECONDS_MAX: &str = "600";
/// Servers of Pario's side.
const SERVERS: u32 = 2;
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

/// What is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) mpi: &'a Installation,
    pub(super) kernel: &'a str,
    pub(super) side: Side,
    pub(super) how: &'static str,
    pub(super) ranks: u16,
    pub(super) limited: bool,
}

/// A directory that is gone afterwards.
#[derive(Debug)]
pub(super) struct Ground {
    dir: PathBuf,
    pub(super) installations: Vec<Installation>,
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Ground {
    pub(super) fn new(plan: &MpiPlan) -> Result<Ground, BenchError> {
        let base = plan.dir.clone().unwrap_or_else(std::env::temp_dir);
        let dir = base.join(format!("pario-bench-mpi-{}", std::process::id()));
        std::fs::create_dir_all(&dir).map_err(BenchError::at("making", &dir))?;
        let mut ground = Ground { dir, installations: Vec::new() };
        let source = ground.dir.join("kernels.c");
        std::fs::write(&source, KERNELS).map_err(BenchError::at("writing", &source))?;
        for (exec, cc) in
            [("mpiexec.mpich", "mpicc.mpich"), ("mpiexec.openmpi", "mpicc.openmpi"), ("mpiexec", "mpicc")]
        {
            let (Some(exec), Some(cc)) = (in_path(OsStr::new(exec)), in_path(OsStr::new(cc))) else {
                continue;
            };
            let Some(found) = launcher(&exec) else { continue };
            let io = if found.abi == Abi::OpenMpi { "ompio" } else { "romio" };
            // Debian's plain names are one of the others.
            if ground.installations.iter().all(|known| known.io != io) {
                let program = ground.compile(&cc, &source, io)?;
                ground.installations.push(Installation { io, launcher: exec, program });
            }
        }
        if ground.installations.is_empty() {
            return Err(BenchError::Worker("no MPI in PATH: mpiexec and mpicc are needed".into()));
        }
        Ok(ground)
    }

    fn compile(&self, compiler: &Path, source: &Path, io: &str) -> Result<PathBuf, BenchError> {
        let program = self.dir.join(format!("kernels-{io}"));
        let made = Command::new(compiler)
            .args(["-O2", "-std=gnu99", "-o"])
            .args([&program, source])
            .arg("-lm")
            .stdin(Stdio::null())
            .output()
            .map_err(BenchError::at("running", compiler))?;
        match made.status.success() {
            true => Ok(program),
            false => {
                let why = String::from_utf8_lossy(&made.stderr).lines().next().unwrap_or("").to_owned();
                Err(BenchError::Worker(format!("{}: {why}", compiler.display())))
            }
        }
    }

    /// How each side was set.
    pub(super) fn settings(&self, plan: &MpiPlan) -> Vec<String> {
        let mut lines: Vec<String> =
            self.installations.iter().map(|mpi| format!("{}: {}", mpi.io, mpi.launcher.display())).collect();
        lines.push(format!(
            "files of {} MB in {}, best of {} rounds",
            plan.megabytes,
            self.dir.display(),
            plan.rounds
        ));
        let crowded: Vec<String> = CROWDED.iter().map(|(name, value)| format!("{name}={value}")).collect();
        lines.push(format!(
            "more ranks than cores: Open MPI yields when idle, MPICH has {}",
            crowded.join(" ")
        ));
        lines.push(format!(
            "limited: {:.0} MB/s for the store, {COMPUTE_MS} ms of computing between dumps",
            LIMIT / 1e6
        ));
        lines
    }

    pub(super) fn measure(&self, plan: &MpiPlan, run: &Run<'_>) -> Result<Case, BenchError> {
        let own = std::env::current_exe().map_err(BenchError::when("finding pario"))?;
        let plain = self.dir.join("file");
        let mut command = Command::new("timeout");
        command.args(["-k", "5", SECONDS_MAX]);
        let file = match run.side {
            Side::Native | Side::Hand => plain.display().to_string(),
            Side::Pario => {
                command
                    .arg(own)
                    .args(["run", "--servers", &SERVERS.to_string(), "--dir"])
                    .arg(self.dir.join("servers"));
                if run.limited {
                    command.args(["--limit-store", &format!("{:.0}MB", LIMIT / 1e6 / f64::from(SERVERS))]);
                }
                command.arg("--");
                "pario:///file".to_owned()
            }
        };
        let compute = if run.limited { COMPUTE_MS } else { 0 };
        let (ranks, size) = (run.ranks.to_string(), plan.megabytes.to_string());
        command.arg(&run.mpi.launcher).args(["-n", &ranks]).arg(&run.mpi.program);
        command.args([
            file.as_str(),
            run.kernel,
            run.how,
            &size,
            &plan.rounds.to_string(),
            &compute.to_string(),
        ]);
        command.envs(SETTINGS).env("PARIO_REGISTRY", self.dir.join("registry")).stdin(Stdio::null());
        if cores() < usize::from(run.ranks) {
            command.envs(CROWDED);
        }
        let ran = command.output().map_err(BenchError::when("running a kernel"))?;
        let _ = std::fs::remove_file(&plain);
        let text = String::from_utf8_lossy(&ran.stdout);
        let times = text.lines().find_map(times).filter(|_| ran.status.success());
        let times = times.ok_or_else(|| {
            let said = String::from_utf8_lossy(&ran.stderr);
            let said =
                said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned();
            BenchError::Worker(format!(
                "{} {} on {}, {} ranks: {said}",
                run.kernel, run.how, run.mpi.io, run.ranks
            ))
        })?;
        let Run { mpi, kernel, side, how, ranks, limited } = *run;
        Ok(Case { mpi: mpi.io, kernel: kernel.to_owned(), side, how, ranks, limited, times })
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn times(line: &str) -> Option<Times> {
    let facts: Value = serde_json::from_str(line.trim()).ok()?;
    let number = |name: &str| facts[name].as_f64();
    Some(Times {
        bytes: number("bytes")?,
        open: number("open_s")?,
        write: number("write_s")?,
        total: number("total_s")?,
        read: number("read_s")?,
    })
}
