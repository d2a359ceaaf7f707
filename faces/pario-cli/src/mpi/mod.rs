//! Which MPI a command uses, and the library that serves its file calls.
//!
//! Never: guesses from names of directories. Always: what was found is said with how it was found.

mod find;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::ValueEnum;

pub(crate) use find::{Found, find, in_path, launcher};

use crate::error::{CliError, Outcome};

/// The variable by which a library comes before all others.
pub(crate) const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// A family of MPI libraries whose programs can be exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Abi {
    Mpich,
    OpenMpi,
    Standard,
}

impl Abi {
    /// For people.
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

/// What `--mpi` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Choice {
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

impl Choice {
    /// The ABI of a command; `None` if it uses no MPI.
    pub(crate) fn resolve(self, words: &[OsString]) -> Option<Found> {
        let said = |abi| Some(Found { abi, why: "--mpi says so".to_owned() });
        match self {
            Choice::Auto => find(words),
            Choice::Mpich => said(Abi::Mpich),
            Choice::Openmpi => said(Abi::OpenMpi),
            Choice::Abi => said(Abi::Standard),
            Choice::None => None,
        }
    }
}

/// Where the library of an ABI is: beside this command, or in `../lib`.
pub(crate) fn library(abi: Abi) -> Outcome<PathBuf> {
    let own =
        std::env::current_exe().map_err(|error| CliError::failed(format!("where is pario? {error}")))?;
    let dir = own.parent().unwrap_or(Path::new("/"));
    let places = [dir.to_owned(), dir.join("../lib"), dir.join("../lib/pario")];
    let found = places.iter().map(|place| place.join(abi.library())).find(|file| file.is_file());
    found.ok_or_else(|| {
        let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        let text = format!("{} is not in {}", abi.library(), looked.join(", "));
        CliError::with_cure(text, "`cargo build` makes it; or put it beside the pario command")
    })
}

/// What `LD_PRELOAD` becomes: what is there stays in front, so that profilers see the program's calls first.
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
