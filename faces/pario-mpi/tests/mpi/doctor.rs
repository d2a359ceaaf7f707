//! `pario doctor mpi` and `pario env`, with each MPI first in `PATH`.

use std::path::Path;
use std::process::Command;

use crate::fixture::MpiFixture;
use crate::installations::{MpiInstallation, install, target};

/// A script under another name; a link does not work: launchers look for their helpers beside themselves.
fn stand_in(name: &Path, program: &Path) {
    install(&format!("#!/bin/sh\nexec {} \"$@\"\n", program.display()), name);
}

#[test]
fn the_doctor_proves_that_calls_are_served() {
    for (installation, abi) in [(MpiInstallation::Mpich, "MPICH"), (MpiInstallation::OpenMpi, "Open MPI")] {
        let world = MpiFixture::new(installation);
        // As if this MPI were the only one.
        let bin = world.path("bin");
        std::fs::create_dir(&bin).unwrap();
        stand_in(&bin.join("mpiexec"), &installation.launcher());
        stand_in(&bin.join("mpicc"), &installation.compiler());
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new(target().join("pario"));
        command
            .args(["--json", "doctor", "mpi"])
            .env("PATH", path)
            .env("PARIO_REGISTRY", world.path("registry"));
        command.env("TMPDIR", world.path(""));
        let ran = command.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{abi}: {said}");
        let facts: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(facts["abi"], abi, "{facts}");
        assert_eq!(facts["works"], true, "{facts}");
        // Two ranks: open, set_view, write_all, read_at_all, close.
        assert_eq!(facts["served_calls"], 10, "{facts}");
    }
}

#[test]
fn the_environment_of_a_program_is_printed() {
    let world = MpiFixture::new(MpiInstallation::OpenMpi);
    let program = world.compile(&MpiInstallation::OpenMpi.compiler(), "c/control.c", &["-std=c99"]);
    let pario = |words: &[&str]| {
        let mut command = Command::new(target().join("pario"));
        command.args(words).env("PARIO_REGISTRY", world.path("registry")).env_remove("LD_PRELOAD");
        let ran = command.env("TMPDIR", world.path("")).output().unwrap();
        assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    pario(&["up", "--name", "e", "--servers", "1"]);
    let found = pario(&["env", "e", "--", program.to_str().unwrap()]);
    let none = pario(&["env", "e", "--preload", "--mpi", "none"]);
    let unasked = pario(&["env", "e"]);
    pario(&["down", "e", "--destroy"]);
    assert!(found.contains("export PARIO_PARTITION='e'\n"), "{found}");
    assert!(
        found.contains(&format!("export LD_PRELOAD='{}'", MpiInstallation::OpenMpi.preload().display())),
        "{found}"
    );
    assert!(!none.contains("LD_PRELOAD"), "{none}");
    assert!(!unasked.contains("LD_PRELOAD"), "{unasked}");
}
