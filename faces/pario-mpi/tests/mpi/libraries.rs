//! Libraries above MPI-IO: parallel HDF5 and PnetCDF write the same bytes on Pario as on the MPI library's own files; and the POSIX
//! calls that they make beside it.

use std::process::Command;

use crate::installations::{Installation, chosen, output};
use crate::world::{Ran, World};

fn run(installation: Installation, source: &str, options: &[&str], words: &[&str]) -> Ran {
    let world = World::new(installation);
    let all = [&["-std=c99", "-Wno-unused-function"], options].concat();
    let program = world.compile(&installation.compiler(), &format!("c/{source}.c"), &all);
    let (program, dir) = (program.display().to_string(), world.path("").display().to_string());
    let ran = world.run(2, &[&[program.as_str(), "pario://p/", dir.as_str()], words].concat(), &[]);
    let name = format!("{source} on {}", installation.name());
    assert!(ran.ok && ran.out.contains(", 0 failures"), "{name}: {}\n{}", ran.out, ran.complaints());
    ran
}

/// Debian has one HDF5 per MPI.
fn hdf5(installation: Installation, slabs: &str) -> Ran {
    let kind = installation.name();
    let lib = format!("/usr/lib/{}-linux-gnu/hdf5/{kind}", std::env::consts::ARCH);
    let options = [format!("-I/usr/include/hdf5/{kind}"), format!("-L{lib}"), format!("-Wl,-rpath,{lib}")];
    let options: Vec<&str> =
        options.iter().map(String::as_str).chain(["-Wl,--no-as-needed", "-lhdf5"]).collect();
    run(installation, "hdf5", &options, &[slabs])
}

#[test]
fn hdf5_writes_the_same_on_mpich() {
    let ran = hdf5(Installation::Mpich, "20");
    assert!(
        2 * 60 <= ran.served_call("set_view") && 2 * 20 <= ran.served_call("write_at_all"),
        "{}",
        ran.err
    );
}

#[test]
fn hdf5_writes_the_same_on_open_mpi() {
    let ran = hdf5(Installation::OpenMpi, "20");
    assert!(
        2 * 60 <= ran.served_call("set_view") && 2 * 20 <= ran.served_call("write_at_all"),
        "{}",
        ran.err
    );
}

#[test]
fn pnetcdf_writes_the_same() {
    // Debian's is for one MPI: the one that its library names.
    let lib = format!("/usr/lib/{}-linux-gnu/libpnetcdf.so", std::env::consts::ARCH);
    let needs = output(Command::new("ldd").arg(lib));
    let installation =
        if needs.contains("libmpi.so.40") { Installation::OpenMpi } else { Installation::Mpich };
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
