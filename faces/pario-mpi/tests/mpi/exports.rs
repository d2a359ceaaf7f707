//! Every file call of an MPI library is exported by Pario: a missing one would act on the null device.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::installations::{MpiInstallation, output};

const ALL: [MpiInstallation; 5] = [
    MpiInstallation::Mpich,
    MpiInstallation::OpenMpi,
    MpiInstallation::Standard,
    MpiInstallation::Mpich5,
    MpiInstallation::OpenMpi5,
];

/// Functions that a library defines.
fn defined(library: &Path) -> BTreeSet<String> {
    let text = output(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let name = |line: &str| {
        line.split_whitespace().last().map(|name| name.split('@').next().unwrap_or("").to_owned())
    };
    text.lines().filter_map(name).collect()
}

fn is_file_call(name: &str) -> bool {
    let plain = name.strip_prefix('P').unwrap_or(name);
    (plain.starts_with("MPI_File_") || plain.starts_with("MPI_Register_datarep"))
        // Fortran's own entry points call the C ones.
        && !plain.ends_with('_')
        && !plain.contains("_f08")
        && !plain.ends_with("_f")
}

#[test]
fn every_file_call_of_every_library_is_ours() {
    for installation in ALL {
        let (theirs, ours) = (defined(&installation.library()), defined(&installation.preload()));
        let wanted: BTreeSet<&String> = theirs.iter().filter(|name| is_file_call(name)).collect();
        assert!(118 <= wanted.len(), "{}: only {} names: {wanted:?}", installation.name(), wanted.len());
        let missing: Vec<&&String> = wanted.iter().filter(|name| !ours.contains(**name)).collect();
        assert!(missing.is_empty(), "{}: {missing:?}", installation.name());
    }
}

#[test]
fn no_library_of_ours_needs_an_mpi() {
    for installation in ALL {
        let text = output(Command::new("nm").args(["-D", "--undefined-only"]).arg(installation.preload()));
        let needed: Vec<&str> = text.lines().filter(|line| line.contains("MPI")).collect();
        assert!(needed.is_empty(), "{}: {needed:?}", installation.name());
        let names = defined(&installation.preload());
        let both = names.iter().filter(|name| name.starts_with("MPI_"));
        for name in both {
            assert!(names.contains(&format!("P{name}")), "{name} has no profiling name");
        }
    }
}

#[test]
fn the_wrong_library_says_so_at_once() {
    let world = crate::fixture::MpiFixture::new(MpiInstallation::OpenMpi);
    let program = world.compile(&MpiInstallation::OpenMpi.compiler(), "c/control.c", &["-std=c99"]);
    let ran = Command::new(program).env("LD_PRELOAD", MpiInstallation::Mpich.preload()).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.contains("preload libpario_mpi_openmpi.so instead"), "{said}");
}
