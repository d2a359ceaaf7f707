//! The MPI of a command, and the preload library that serves its file calls.
//!
//! Never: guesses from directory names. Always: a result is reported with its evidence.

mod find;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::ValueEnum;

pub(crate) use find::{FoundMpi, find, in_path, launcher};

use crate::error::{CliError, CliResult};

/// Loads a library before all others.
pub(crate) const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// A family of ABI-compatible MPI libraries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Abi {
    Mpich,
    OpenMpi,
    Standard,
}

impl Abi {
    /// Name for messages.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Abi::Mpich => "MPICH",
            Abi::OpenMpi => "Open MPI",
            Abi::Standard => "the standard ABI of MPI",
        }
    }

    /// The library that serves its file calls.
    pub(crate) fn library(self) -> &'static str {
        match self {
            Abi::Mpich => "libpario_mpi_mpich.so",
            Abi::OpenMpi => "libpario_mpi_openmpi.so",
            Abi::Standard => "libpario_mpi_abi.so",
        }
    }
}

/// Value of `--mpi`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum MpiChoice {
    /// Found out from the command
    #[default]
    Auto,
    /// MPICH, Intel MPI, MVAPICH
    Mpich,
    /// Open MPI
    Openmpi,
    /// Programs built for the standard ABI of MPI 5
    Abi,
    /// No MPI: nothing is preloaded
    None,
}

impl MpiChoice {
    /// The ABI of a command; `None` if it uses no MPI.
    pub(crate) fn resolve(self, words: &[OsString]) -> Option<FoundMpi> {
        let said = |abi| Some(FoundMpi { abi, why: "--mpi says so".to_owned() });
        match self {
            MpiChoice::Auto => find(words),
            MpiChoice::Mpich => said(Abi::Mpich),
            MpiChoice::Openmpi => said(Abi::OpenMpi),
            MpiChoice::Abi => said(Abi::Standard),
            MpiChoice::None => None,
        }
    }
}

/// Serves the POSIX calls of a program without MPI.
const POSIX_LIBRARY: &str = "libpario_posix.so";

/// Path of an ABI's library: beside this command, or in `../lib`.
pub(crate) fn library(abi: Abi) -> CliResult<PathBuf> {
    find_library(abi.library())
}

/// Path of the library for programs without MPI.
pub(crate) fn posix_library() -> CliResult<PathBuf> {
    find_library(POSIX_LIBRARY)
}

/// Path of the library for programs in C and Fortran.
pub(crate) fn c_library() -> CliResult<PathBuf> {
    find_library("libpario.so")
}

/// Path of a library of Pario: beside this command, or in `../lib`.
pub(crate) fn find_library(name: &str) -> CliResult<PathBuf> {
    let own = std::env::current_exe()
        .map_err(|error| CliError::failed(format!("cannot find the pario binary: {error}")))?;
    let dir = own.parent().unwrap_or(Path::new("/"));
    let places = [dir.to_owned(), dir.join("../lib"), dir.join("../lib/pario")];
    let found = places.iter().map(|place| place.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| {
        let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        let text = format!("{name} is not in {}", looked.join(", "));
        let release = if dir.ends_with("release") { " --release" } else { "" };
        let cure = format!("`cargo build{release} --workspace` makes it; or put it beside the pario command");
        CliError::with_cure(text, cure)
    })
}

/// New value of `LD_PRELOAD`: existing libraries stay in front, so that profilers see the program's calls first.
pub(crate) fn preload(library: &Path, before: Option<&OsStr>) -> OsString {
    let mut list = OsString::new();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        let known = before.to_string_lossy();
        if known.split([':', ' ']).any(|one| Path::new(one) == library) {
            return before.to_owned();
        }
        list.push(before);
        list.push(":");
    }
    list.push(library);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_preloaded_stays_in_front() {
        let library = Path::new("/p/libpario_mpi_mpich.so");
        assert_eq!(preload(library, None), "/p/libpario_mpi_mpich.so");
        let both = preload(library, Some(OsStr::new("/d/libdarshan.so")));
        assert_eq!(both, "/d/libdarshan.so:/p/libpario_mpi_mpich.so");
        assert_eq!(preload(library, Some(&both)), both);
    }
}
