//! Programs in C and Fortran that use `sf.h` and `dio.h`, under `pario run` and under MPI.
//!
//! Needs `cargo build -p pario-cli -p pario-c -p pario-c-i8` before.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where cargo puts commands and libraries.
fn built() -> PathBuf {
    // target/PROFILE/deps/NAME
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().parent().unwrap().to_owned()
}

fn pario() -> PathBuf {
    let command = std::env::var_os("PARIO_BIN").map_or_else(|| built().join("pario"), PathBuf::from);
    assert!(command.is_file(), "{}: build pario-cli first", command.display());
    command
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether a compiler is installed; a missing one is reported.
fn has(compiler: &str) -> bool {
    let found = Command::new(compiler).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: {compiler} is not installed");
    }
    found
}

/// Compiles a program with a library.
fn compile(compiler: &str, source: &str, library: &str, more: &[&str], dir: &Path) -> PathBuf {
    let libraries = built();
    assert!(
        libraries.join(format!("lib{library}.so")).is_file(),
        "build pario-c and pario-c-i8 first: lib{library}.so is missing in {}",
        libraries.display()
    );
    let program = dir.join(source.replace('.', "_"));
    let output = Command::new(compiler)
        .args(more)
        .arg("-I")
        .arg(here().join("include"))
        .arg(here().join("tests/distant_programs").join(source))
        .arg("-o")
        .arg(&program)
        .arg(format!("-L{}", libraries.display()))
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .args([&format!("-l{library}"), "-lm"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

const C: [&str; 5] = ["-std=c99", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"];

fn succeeded(output: &Output, ranks: usize) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert_eq!(out.matches("0 failures").count(), ranks, "{out}\n{err}");
}

/// Runs a program under `pario run`.
fn run(program: &Path, argument: &Path, ranks: usize, nodes: usize, variables: &[(&str, &str)]) -> Output {
    Command::new(pario())
        .args(["run", "-n", &ranks.to_string(), "--nodes", &nodes.to_string(), "--"])
        .arg(program)
        .arg(argument)
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn nothing_but(dir: &Path, program: &Path) {
    let left: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [program]);
}

#[test]
fn every_function_of_sf() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile("cc", "sf_calls.c", "pario", &C, dir.path());
    for place in ["distant", "filesystem"] {
        for (ranks, nodes) in [(1, 1), (3, 2)] {
            let output = run(&program, &dir.path().join("vectors"), ranks, nodes, &[("PARIO_SF", place)]);
            succeeded(&output, ranks);
            nothing_but(dir.path(), &program);
        }
    }
}

#[test]
fn the_pattern_of_the_test_of_global_arrays() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile("cc", "sf_pattern.c", "pario", &C, dir.path());
    // Tried, not told: all processes see one directory.
    let variables = [("PARIO_EXPLAIN", "1"), ("PARIO_STATS", "1")];
    let output = run(&program, &dir.path().join("pattern"), 4, 2, &variables);
    succeeded(&output, 4);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("one plain file: all 4 members see the directory of rank 0"), "{told}");
    assert_eq!(told.matches("5 reads and 5 writes").count(), 4, "{told}");
    let output = run(&program, &dir.path().join("pattern"), 4, 2, &[("PARIO_SF", "distant"), variables[0]]);
    succeeded(&output, 4);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("on ranks [0, 1, 2, 3]: PARIO_SF says so"), "{told}");
    nothing_but(dir.path(), &program);
}

#[test]
fn every_function_of_dio() {
    let (dir, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program = compile("cc", "dio_calls.c", "pario", &C, programs.path());
    for rank in 0..3 {
        std::fs::create_dir(dir.path().join(rank.to_string())).unwrap();
    }
    for nodes in [1, 3] {
        succeeded(&run(&program, dir.path(), 3, nodes, &[]), 3);
    }
    for rank in 0..3 {
        assert_eq!(std::fs::read_dir(dir.path().join(rank.to_string())).unwrap().count(), 0);
    }
}

#[test]
fn headers_are_for_cxx_too() {
    if !has("c++") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("all.cc");
    std::fs::write(
        &source,
        "#include <sf.h>\n#include <dio.h>\n#include <pario_group.h>\nint main() { return 0; }\n",
    )
    .unwrap();
    let output = Command::new("c++")
        .args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
        .arg(here().join("include"))
        .arg(&source)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn fortran_with_integers_of_both_sizes() {
    if !has("gfortran") {
        return;
    }
    for (library, flags) in [("pario", &["-Wall"][..]), ("pario_i8", &["-Wall", "-fdefault-integer-8"])] {
        let dir = tempfile::tempdir().unwrap();
        let program = compile("gfortran", "sf_names.f90", library, flags, dir.path());
        for place in ["distant", "filesystem"] {
            let output = run(&program, &dir.path().join("vectors"), 2, 2, &[("PARIO_SF", place)]);
            succeeded(&output, 2);
            nothing_but(dir.path(), &program);
        }
    }
}

#[test]
fn fortran_modules_have_every_function() {
    let read = |path: &str| std::fs::read_to_string(here().join(path)).unwrap().to_lowercase();
    for (header, module) in
        [("include/sf.h", "fortran/pario_sf.f90"), ("include/dio.h", "fortran/pario_dio.f90")]
    {
        let (header, module) = (read(header), read(module));
        let lines = header.lines().filter(|line| line.contains('(') && !line.starts_with([' ', '/', '#']));
        let before = lines.filter_map(|line| line.split_once('('));
        let names: Vec<&str> = before.filter_map(|(text, _)| text.rsplit([' ', '*']).next()).collect();
        assert!(12 <= names.len(), "{names:?}");
        for name in names {
            assert!(
                module.contains(&format!("function {name}("))
                    || module.contains(&format!("subroutine {name}(")),
                "{name} is not in the module"
            );
        }
    }
    if !has("gfortran") {
        return;
    }
    let (dir, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    (0..2).for_each(|rank| std::fs::create_dir(dir.path().join(rank.to_string())).unwrap());
    let sources: Vec<String> = ["pario_sf", "pario_dio"]
        .map(|module| here().join(format!("fortran/{module}.f90")).display().to_string())
        .to_vec();
    let modules = format!("-J{}", programs.path().display());
    let flags = ["-Wall", "-Werror", &modules, &sources[0], &sources[1]];
    let program = compile("gfortran", "modules.f90", "pario", &flags, programs.path());
    for place in ["distant", "filesystem"] {
        succeeded(&run(&program, dir.path(), 2, 2, &[("PARIO_SF", place)]), 2);
    }
}

#[test]
fn an_mpi_program_gives_its_exchange() {
    let mut is_found = false;
    for (compiler, launcher) in [("mpicc.mpich", "mpiexec.mpich"), ("mpicc.openmpi", "mpiexec.openmpi")] {
        if !has(compiler) {
            continue;
        }
        is_found = true;
        let dir = tempfile::tempdir().unwrap();
        let program = compile(compiler, "sf_mpi.c", "pario", &["-std=c99", "-D_GNU_SOURCE"], dir.path());
        for place in ["distant", "filesystem"] {
            let output = Command::new(launcher)
                .args(["-n", "2"])
                .arg(&program)
                .arg(dir.path().join("vectors"))
                .env("PARIO_SF", place)
                .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
                .envs([
                    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
                    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
                ])
                .output()
                .unwrap();
            succeeded(&output, 2);
            nothing_but(dir.path(), &program);
        }
    }
    assert!(is_found || !has("mpicc"), "an MPI is installed under other names");
}

#[test]
fn a_group_is_needed_and_named() {
    // A single process is a group of one.
    let dir = tempfile::tempdir().unwrap();
    let program = compile("cc", "sf_pattern.c", "pario", &C, dir.path());
    let output = Command::new(&program).arg(dir.path().join("alone")).output().unwrap();
    succeeded(&output, 1);
    nothing_but(dir.path(), &program);
}
