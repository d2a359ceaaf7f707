//! OpenMP runtimes that were not linked with the program: loaded locally, two at once, by Python.

use std::path::PathBuf;
use std::process::Command;

use crate::compilers::{Compiler, libpario, source};
use crate::fixture::Workplace;

/// A library with parallel regions of a compiler's runtime.
fn region(world: &Workplace, compiler: Compiler) -> PathBuf {
    let output = world.path(&format!("libregion-{}.so", compiler.command()));
    compiler.compile(&[source("region.c")], &["-fopenmp", "-shared", "-fPIC"], &output);
    output
}

#[test]
fn two_runtimes_in_one_process() {
    if !Compiler::Gcc.is_here() || !Compiler::Clang.is_here() {
        return;
    }
    let world = Workplace::new();
    let (gcc, clang) = (region(&world, Compiler::Gcc), region(&world, Compiler::Clang));
    let program = world.path("runtimes");
    Compiler::Gcc.compile(&[source("runtimes.c")], &["-Wno-unknown-pragmas"], &program);
    let cases = [
        (&gcc, &clang, None),
        (&clang, &gcc, None),
        (&gcc, &clang, Some("libgomp")),
        (&clang, &gcc, Some("libomp")),
    ];
    for (at, (one, two, choice)) in cases.into_iter().enumerate() {
        let file = world.path(&format!("file{at}"));
        let words = [program.as_os_str(), file.as_os_str(), one.as_os_str(), two.as_os_str()];
        let variables: Vec<(&str, &str)> = choice.map(|choice| ("PARIO_OMP", choice)).into_iter().collect();
        world.run(&words, &variables).check(&format!("{one:?}, {two:?}, {choice:?}"));
    }
    let file = world.path("other");
    let words = [program.as_os_str(), file.as_os_str(), gcc.as_os_str(), clang.as_os_str()];
    let ran = world.run(&words, &[("PARIO_OMP", "libiomp5")]);
    assert!(
        !ran.ok && ran.err.contains("PARIO_OMP=libiomp5: no such OpenMP runtime is loaded"),
        "{}",
        ran.err
    );
}

#[test]
fn a_runtime_that_python_loads() {
    let has_python = Command::new("python3").arg("--version").output().is_ok_and(|ran| ran.status.success());
    if !has_python {
        eprintln!("SKIPPING a_runtime_that_python_loads: install python3");
    }
    for compiler in [Compiler::Gcc, Compiler::Clang] {
        if !has_python || !compiler.is_here() {
            continue;
        }
        let world = Workplace::new();
        let region = region(&world, compiler);
        let script = source("threads.py");
        let library = libpario();
        let words = ["python3".as_ref(), script.as_os_str(), library.as_os_str(), region.as_os_str()];
        let ran = world.run(&words, &[]);
        ran.check(compiler.command());
        assert_eq!(std::fs::read(world.path("file")).unwrap(), b"<abcd>");
        assert_eq!(ran.counted("calls"), 4, "{}", ran.err);
    }
}
