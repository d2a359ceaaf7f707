//! mpi4py's own tests of files, unchanged; their temporary files are Pario's by `PARIO_MAP`.

use std::path::PathBuf;

use crate::fixture::MpiFixture;
use crate::installations::{MpiInstallation, ranks, target, venv};

fn tests() -> PathBuf {
    let dir = target().parent().unwrap().join("mpi/mpi4py/test");
    assert!(dir.join("test_io.py").exists(), "no {} (./test fetches it)", dir.display());
    dir
}

fn run(installation: MpiInstallation, environment: &str, names: &[&str]) {
    for ranks in ranks() {
        let world = MpiFixture::new(installation);
        let python = venv(environment).join("bin/python").display().to_string();
        let mapped = world.path("mapped");
        std::fs::create_dir(&mapped).unwrap();
        // Python's own temporary files only: those of MPI stay unmapped.
        let script = format!(
            "import tempfile, unittest; tempfile.tempdir = {:?}; unittest.main(module=None, argv=['tests'] + {names:?})",
            mapped.display().to_string()
        );
        let tests = tests().display().to_string();
        let ran = world.run(*ranks, &[python.as_str(), "-c", script.as_str()], &[("PYTHONPATH", &tests)]);
        assert!(ran.ok, "{names:?} with {ranks} ranks: {}\n{}", ran.out, ran.complaints());
        assert_eq!(ran.err.matches("OK").count(), *ranks, "{}", ran.complaints());
        assert!(100 * *ranks as u64 <= ran.served(), "Pario served {} calls", ran.served());
    }
}

#[test]
fn mpi4py_files_on_mpich() {
    run(MpiInstallation::Mpich5, "mpich", &["test_file", "test_io"]);
}

#[test]
fn mpi4py_files_on_open_mpi() {
    run(MpiInstallation::OpenMpi5, "openmpi", &["test_file", "test_io"]);
}
