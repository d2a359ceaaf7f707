//! Libraries above MPI-IO: parallel HDF5 and PnetCDF write the same bytes on Pario as on the MPI library's own files; and their
//! POSIX calls.

use std::process::Command;

use crate::fixture::{MpiFixture, ProgramRun};
use crate::installations::{MpiInstallation, chosen, output};

fn run(installation: MpiInstallation, source: &str, options: &[&str], words: &[&str]) -> ProgramRun {
    let world = MpiFixture::new(installation);
    let all = [&["-std=c99", "-Wno-unused-function"], options].concat();
    let program = world.compile(&installation.compiler(), &format!("c/{source}.c"), &all);
    let (program, dir) = (program.display().to_string(), world.path("").display().to_string());
    let ran = world.run(2, &[&[program.as_str(), "pario://p/", dir.as_str()], words].concat(), &[]);
    let name = format!("{source} on {}", installation.name());
    assert!(ran.ok && ran.out.contains(", 0 failures"), "{name}: {}\n{}", ran.out, ran.complaints());
    ran
}

/// Debian has one HDF5 per MPI.
fn hdf5(installation: MpiInstallation, words: &[&str]) -> ProgramRun {
    let kind = installation.name();
    let lib = format!("/usr/lib/{}-linux-gnu/hdf5/{kind}", std::env::consts::ARCH);
    let options = [format!("-I/usr/include/hdf5/{kind}"), format!("-L{lib}"), format!("-Wl,-rpath,{lib}")];
    let options: Vec<&str> =
        options.iter().map(String::as_str).chain(["-Wl,--no-as-needed", "-lhdf5"]).collect();
    run(installation, "hdf5", &options, words)
}

#[test]
fn hdf5_writes_the_same_on_mpich() {
    let ran = hdf5(MpiInstallation::Mpich, &["20"]);
    assert!(
        2 * 60 <= ran.served_call("set_view") && 2 * 20 <= ran.served_call("write_at_all"),
        "{}",
        ran.err
    );
}

#[test]
fn hdf5_writes_the_same_on_open_mpi() {
    let ran = hdf5(MpiInstallation::OpenMpi, &["20"]);
    assert!(
        2 * 60 <= ran.served_call("set_view") && 2 * 20 <= ran.served_call("write_at_all"),
        "{}",
        ran.err
    );
}

/// HDF5 makes a file type for every transfer; boxes that differ only in their offset have one shape, which is sent once.
#[test]
fn a_thousand_hyperslabs_ship_the_view_bytes_of_one() {
    for installation in [MpiInstallation::Mpich, MpiInstallation::OpenMpi] {
        let one = hdf5(installation, &["1", "boxes"]);
        let many = hdf5(installation, &["1000", "boxes"]);
        assert!(2 * 1000 <= many.served_call("write_at_all"), "{}", many.err);
        let (one, many) = (one.view_bytes(), many.view_bytes());
        assert!(0 < one && many <= 2 * one, "{}: {one} bytes, then {many}", installation.name());
    }
}

#[test]
fn pnetcdf_writes_the_same() {
    // Debian's is for one MPI: the one that its library names.
    let lib = format!("/usr/lib/{}-linux-gnu/libpnetcdf.so", std::env::consts::ARCH);
    let needs = output(Command::new("ldd").arg(lib));
    let installation =
        if needs.contains("libmpi.so.40") { MpiInstallation::OpenMpi } else { MpiInstallation::Mpich };
    let ran = run(installation, "pnetcdf", &["-Wl,--no-as-needed", "-lpnetcdf"], &[]);
    assert!(2 * 2 <= ran.served_call("open"), "{}", ran.err);
}

#[test]
fn posix_calls_on_the_same_paths() {
    for installation in chosen() {
        let ran = run(*installation, "posix", &[], &[]);
        assert_eq!(ran.served_call("open"), 2, "{}", ran.err);
    }
}
