//! Fortran: the module, and the old external names.

use crate::compilers::{Compiler, face, source};
use crate::fixture::Workplace;

#[test]
fn every_procedure_of_the_module() {
    if !Compiler::Gfortran.is_here() {
        return;
    }
    let world = Workplace::new();
    let program = world.path("team");
    let sources = [face().join("fortran/pario_omp_file.f90"), source("team.f90")];
    Compiler::Gfortran.compile(&sources, &["-fopenmp", "-std=f2018", "-Wno-function-elimination"], &program);
    let ran = world.run(&[program.as_os_str(), "file".as_ref()], &[]);
    ran.check("team.f90");
    assert_eq!(ran.counted("calls"), 31, "{}", ran.err);
    world.run_on_partition(&[], &program, &["pario://p/file"], &[]).check("team.f90 on a partition");
}

#[test]
fn old_external_names() {
    if !Compiler::Gfortran.is_here() {
        return;
    }
    let world = Workplace::new();
    let program = world.path("external");
    Compiler::Gfortran.compile(
        &[source("external.f90")],
        &["-fopenmp", "-Wno-function-elimination"],
        &program,
    );
    let ran = world.run(&[program.as_os_str(), "file".as_ref()], &[]);
    ran.check("external.f90");
    assert_eq!(ran.counted("calls"), 9, "{}", ran.err);
}
