//! `pario env --compile`, in the source tree and in a package, and `pario.pc`: programs are built with what they print.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::compilers::{Compiler, built, face, libpario, source};
use crate::fixture::Workplace;

/// Standard output of a command that must succeed.
#[track_caller]
fn output(command: &mut Command) -> String {
    let ran = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(ran.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text").trim().to_owned()
}

/// Compiles as a user does, with printed flags alone, and runs the program.
#[track_caller]
fn build_and_run(world: &Workplace, line: &str) {
    let name = format!("program-{}", line.len());
    let line = format!("{line} -o {name}");
    output(Command::new("sh").args(["-c", &line]).current_dir(world.path("")));
    let file = format!("file-{name}");
    world.run(&[world.path(&name).as_os_str(), file.as_ref()], &[]).check(&line);
}

/// Both languages by the flags of one command.
fn check_flags(world: &Workplace, pario: &Path) {
    let pario = pario.display();
    if Compiler::Gcc.is_here() {
        build_and_run(
            world,
            &format!("gcc -fopenmp {} $({pario} env --compile)", source("calls.c").display()),
        );
    }
    if Compiler::Gfortran.is_here() {
        let program = source("team.f90");
        let program = program.display();
        build_and_run(world, &format!("gfortran -fopenmp $({pario} env --compile=fortran) {program}"));
    }
}

#[test]
fn flags_of_the_source_tree() {
    check_flags(&Workplace::new(), &built().join("pario"));
}

/// The layout of `cargo xtask dist`.
fn package(world: &Workplace) -> PathBuf {
    let package = world.path("package");
    for folder in ["bin", "lib/pkgconfig", "include", "share/pario/fortran"] {
        std::fs::create_dir_all(package.join(folder)).expect("a directory");
    }
    let copy = |from: PathBuf, to: &str| {
        std::fs::copy(from, package.join(to)).expect("copied");
    };
    copy(built().join("pario"), "bin/pario");
    copy(libpario(), "lib/libpario.so");
    copy(face().join("include/omp_file.h"), "include/omp_file.h");
    copy(face().join("include/pario.h"), "include/pario.h");
    copy(face().join("fortran/pario_omp_file.f90"), "share/pario/fortran/pario_omp_file.f90");
    let text = std::fs::read_to_string(face().join("pario.pc.in")).expect("a file");
    std::fs::write(package.join("lib/pkgconfig/pario.pc"), text.replace("@VERSION@", "1.2.3"))
        .expect("written");
    package
}

#[test]
fn flags_of_a_package() {
    let world = Workplace::new();
    let package = package(&world);
    check_flags(&world, &package.join("bin/pario"));
    let mut command = Command::new(package.join("bin/pario"));
    let flags = output(command.args(["env", "--compile", "--json"]));
    assert!(
        flags.contains(&format!("\"-I{}\"", package.join("include").canonicalize().unwrap().display())),
        "{flags}"
    );
    if Command::new("pkg-config").arg("--version").output().is_err() {
        eprintln!("SKIPPING pario.pc: install pkg-config");
        return;
    }
    let search = package.join("lib/pkgconfig");
    let mut version = Command::new("pkg-config");
    assert_eq!(output(version.args(["--modversion", "pario"]).env("PKG_CONFIG_PATH", &search)), "1.2.3");
    if Compiler::Gcc.is_here() {
        let flags = format!("PKG_CONFIG_PATH={} pkg-config --cflags --libs pario", search.display());
        build_and_run(&world, &format!("gcc -fopenmp {} $({flags})", source("calls.c").display()));
    }
}

#[test]
fn headers_that_are_missing_are_named() {
    let world = Workplace::new();
    let package = package(&world);
    std::fs::remove_file(package.join("include/pario.h")).unwrap();
    let ran = Command::new(package.join("bin/pario")).args(["env", "--compile"]).output().unwrap();
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success() && told.contains("headers of") && told.contains("include"), "{told}");
    let ran = Command::new(package.join("bin/pario")).args(["env", "--compile=ada"]).output().unwrap();
    assert_eq!(ran.status.code(), Some(2), "{}", String::from_utf8_lossy(&ran.stderr));
}
