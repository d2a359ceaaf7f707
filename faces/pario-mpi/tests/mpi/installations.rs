//! The MPI installations of this machine: Debian's packages, and Python's in the target directory.
//!
//! `./test` installs them. `PARIO_TEST_MPI=all` runs the whole matrix; by default each ABI is run once.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An MPI to compile and run with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MpiInstallation {
    /// Debian's MPICH.
    Mpich,
    /// Debian's Open MPI.
    OpenMpi,
    /// The standard ABI, by MPICH 5 from the Python registry.
    Standard,
    /// MPICH 5 from the Python registry.
    Mpich5,
    /// Open MPI 5 from the Python registry.
    OpenMpi5,
    /// Intel MPI from the Python registry, which has no compiler of its own: programs of MPICH 5 run on it.
    Intel,
}

use MpiInstallation::{Intel, Mpich, Mpich5, OpenMpi, OpenMpi5, Standard};

/// The installations to test: one per ABI, or all.
pub(crate) fn chosen() -> &'static [MpiInstallation] {
    match std::env::var("PARIO_TEST_MPI").as_deref() {
        Ok("all") if python("impi").join("bin/mpiexec").exists() => {
            &[Mpich, OpenMpi, Standard, Mpich5, OpenMpi5, Intel]
        }
        Ok("all") => {
            eprintln!("SKIPPED: no Intel MPI; CONTRIBUTING.md says how it is installed");
            &[Mpich, OpenMpi, Standard, Mpich5, OpenMpi5]
        }
        Ok(_) | Err(_) => &[Mpich, OpenMpi, Standard],
    }
}

/// Numbers of ranks to test with.
pub(crate) fn ranks() -> &'static [usize] {
    match std::env::var("PARIO_TEST_MPI").as_deref() {
        Ok("all") => &[1, 2, 4],
        Ok(_) | Err(_) => &[2],
    }
}

/// Cargo's build directory.
pub(crate) fn target() -> PathBuf {
    // target/PROFILE/deps/mpi-HASH
    std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned()
}

fn python(name: &str) -> PathBuf {
    target().parent().unwrap().join("mpi").join(name)
}

/// A Python environment with an MPI and mpi4py in it.
pub(crate) fn venv(name: &str) -> PathBuf {
    let dir = python(name);
    assert!(dir.join("bin/mpiexec").exists(), "no {} (./test makes it)", dir.display());
    dir
}

impl MpiInstallation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mpich => "mpich",
            OpenMpi => "openmpi",
            Standard => "standard",
            Mpich5 => "mpich5",
            OpenMpi5 => "openmpi5",
            Intel => "intel",
        }
    }

    fn tool(self, word: &str) -> PathBuf {
        match self {
            Mpich => format!("/usr/bin/{word}.mpich").into(),
            OpenMpi => format!("/usr/bin/{word}.openmpi").into(),
            Standard | Mpich5 => venv("mpich").join("bin").join(word),
            OpenMpi5 => venv("openmpi").join("bin").join(word),
            Intel => venv("impi").join("bin").join(word),
        }
    }

    pub(crate) fn launcher(self) -> PathBuf {
        existing(self.tool("mpiexec"))
    }

    pub(crate) fn compiler(self) -> PathBuf {
        existing(match self {
            Standard => self.tool("mpicc_abi"),
            Intel => Mpich5.tool("mpicc"),
            Mpich | OpenMpi | Mpich5 | OpenMpi5 => self.tool("mpicc"),
        })
    }

    /// Only Debian's have Fortran.
    pub(crate) fn fortran(self) -> Option<PathBuf> {
        matches!(self, Mpich | OpenMpi).then(|| existing(self.tool("mpif90")))
    }

    /// The library of this MPI that has its file calls.
    pub(crate) fn library(self) -> PathBuf {
        let system = Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
        existing(match self {
            Mpich => system.join("libmpich.so.12"),
            OpenMpi => system.join("libmpi.so.40"),
            Standard => venv("mpich").join("lib/libmpi_abi.so.1"),
            Mpich5 => venv("mpich").join("lib/libmpi.so.12"),
            OpenMpi5 => venv("openmpi").join("lib/libmpi.so.40"),
            Intel => venv("impi").join("lib/libmpi.so.12"),
        })
    }

    /// The library that Pario preloads for it.
    pub(crate) fn preload(self) -> PathBuf {
        existing(target().join(match self {
            Mpich | Mpich5 | Intel => "libpario_mpi_mpich.so",
            OpenMpi | OpenMpi5 => "libpario_mpi_openmpi.so",
            Standard => "libpario_mpi_abi.so",
        }))
    }

    /// Settings for more ranks than cores, as root, on loopback.
    pub(crate) fn settings(self, command: &mut Command) {
        let all: &[(&str, &str)] = &[
            ("HYDRA_IFACE", "lo"),
            ("FI_TCP_IFACE", "lo"),
            ("UCX_NET_DEVICES", "lo"),
            ("MPIR_CVAR_NOLOCAL", "1"),
            ("MPIR_CVAR_CH4_NETMOD", "ofi"),
            ("FI_PROVIDER", "tcp"),
            ("OMPI_MCA_btl_tcp_if_include", "lo"),
            ("OMPI_MCA_oob_tcp_if_include", "lo"),
            ("OMPI_MCA_mpi_yield_when_idle", "1"),
            ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
        ];
        command.envs(all.iter().copied());
        if self == OpenMpi5 {
            command.env("LD_LIBRARY_PATH", venv("openmpi").join("lib"));
        }
        if self == Intel {
            let dir = venv("impi");
            // Before the directory that the compiler recorded in the program.
            command.env("LD_LIBRARY_PATH", dir.join("lib")).env("I_MPI_ROOT", dir);
            command.env("I_MPI_FABRICS", "shm").env_remove("FI_PROVIDER");
        }
    }
}

#[track_caller]
fn existing(path: PathBuf) -> PathBuf {
    assert!(path.exists(), "no {} (./test installs it; `cargo build` makes Pario's own)", path.display());
    path
}

/// Runs a tool and returns its output.
#[track_caller]
pub(crate) fn output(command: &mut Command) -> String {
    let ran = command.output().unwrap_or_else(|error| panic!("{}: {error}", shown(command.get_program())));
    assert!(ran.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

/// Writes an executable script from another process: a child that a test forks meanwhile would inherit the open file, and the
/// script could not be run ("text file busy").
pub(crate) fn install(text: &str, program: &Path) {
    let source = program.with_extension("text");
    std::fs::write(&source, text).unwrap();
    output(Command::new("install").args(["-m", "755"]).args([source.as_path(), program]));
}

fn shown(word: &OsStr) -> String {
    word.to_string_lossy().into_owned()
}
