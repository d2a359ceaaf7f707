//! The three Fortran bindings.

use crate::fixture::MpiFixture;
use crate::installations::MpiInstallation;

fn run(installation: MpiInstallation, binding: &str) {
    let world = MpiFixture::new(installation);
    let compiler = installation.fortran().unwrap();
    // Old bindings accept buffers of any type, which newer compilers reject.
    let program = world.compile(&compiler, &format!("fortran/{binding}.f90"), &["-fallow-argument-mismatch"]);
    let ran = world.run(2, &[program.display().to_string().as_str(), "pario://p/fortran"], &[]);
    let name = format!("{binding} on {}", installation.name());
    assert!(ran.ok && ran.out.contains("fortran is well"), "{name}: {}\n{}", ran.out, ran.complaints());
    assert_eq!((ran.served_call("open"), ran.served_call("close")), (2, 2), "{name}: {}", ran.err);
    assert_eq!(ran.served_call("set_view"), 2, "{name}: {}", ran.err);
}

#[test]
fn three_bindings_on_mpich() {
    ["mpif", "mpi", "f08"].iter().for_each(|binding| run(MpiInstallation::Mpich, binding));
}

#[test]
fn three_bindings_on_open_mpi() {
    ["mpif", "mpi", "f08"].iter().for_each(|binding| run(MpiInstallation::OpenMpi, binding));
}
