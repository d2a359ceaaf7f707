//! Headers, Fortran modules and symbols of the library, name by name; every address by its published type.

use std::collections::BTreeSet;
use std::process::Command;

use crate::compilers::{Compiler, face, libpario, source};
use crate::fixture::Workplace;

/// Functions that a header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(face().join("include").join(header)).expect("a header");
    // Inline functions for the program's MPI are not in the library.
    let text = text.split("#ifdef MPI_VERSION").next().unwrap_or_default();
    let mut code = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").expect("a comment ends").1;
    }
    code += rest;
    let lines: Vec<&str> = code.lines().filter(|line| !line.starts_with('#')).collect();
    let statements = lines.join("\n");
    let name = |statement: &str| {
        let (before, _) = statement.split_once('(')?;
        let name = before.rsplit(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?;
        (!name.is_empty()).then(|| name.to_owned())
    };
    statements.split(';').filter_map(name).collect()
}

/// Headers of the library.
fn headers() -> Vec<String> {
    let files = std::fs::read_dir(face().join("include")).expect("headers");
    files.map(|file| file.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

/// Symbols that the library defines.
fn symbols() -> BTreeSet<String> {
    let ran = Command::new("nm").args(["-D", "--defined-only"]).arg(libpario()).output().expect("nm runs");
    let text = String::from_utf8(ran.stdout).expect("names");
    text.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}

#[test]
fn headers_and_symbols_are_equal() {
    let headers = headers();
    assert!(
        headers.contains(&"omp_file.h".to_owned()) && headers.contains(&"pario.h".to_owned()),
        "{headers:?}"
    );
    let declared: BTreeSet<String> = headers.iter().flat_map(|header| declared(header)).collect();
    let symbols = symbols();
    assert!(50 <= declared.len(), "{declared:?}");
    let missing: Vec<&String> = declared.difference(&symbols).collect();
    assert!(missing.is_empty(), "declared, but not in the library: {missing:?}");
    // Names of Fortran compilers are names of C in lower or upper case, with underscores.
    let known: BTreeSet<String> = declared.iter().map(|name| name.to_lowercase()).collect();
    let plain = |symbol: &str| symbol.trim_end_matches('_').to_lowercase();
    let foreign: Vec<&String> = symbols.iter().filter(|symbol| !known.contains(&plain(symbol))).collect();
    assert!(foreign.is_empty(), "in the library, but in no header: {foreign:?}");
}

#[test]
fn the_fortran_module_has_every_function() {
    let functions = declared("omp_file.h");
    let text = std::fs::read_to_string(face().join("fortran/pario_omp_file.f90")).unwrap();
    let public: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("public :: "))
        .flat_map(|names| names.split(", "))
        .collect();
    let bound = text.split("name='").skip(1).filter_map(|rest| rest.split('\'').next());
    let bound: BTreeSet<String> = bound.filter(|name| *name != "strlen").map(str::to_owned).collect();
    assert_eq!(bound, functions, "bound by the module, and declared by the header");
    let missing: Vec<&String> = functions.iter().filter(|name| !public.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "not public in the module: {missing:?}");
    let symbols = symbols();
    for name in &functions {
        for old in [format!("{name}_"), format!("{name}__"), name.to_uppercase()] {
            assert!(symbols.contains(&old), "{old} is not in the library");
        }
    }
}

#[test]
fn every_address_by_its_published_type() {
    let functions = declared("omp_file.h").len() + declared("pario.h").len();
    for compiler in Compiler::OF_C.into_iter().filter(|compiler| compiler.is_here()) {
        let world = Workplace::new();
        let program = world.path("addresses");
        let strict: &[&str] = match compiler {
            Compiler::Gxx => &["-Wpedantic"],
            Compiler::Gcc | Compiler::Clang | Compiler::Gfortran => {
                &["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wpedantic"]
            }
        };
        compiler.compile(&[source("addresses.c")], strict, &program);
        let ran = world.run(&[&program], &[]);
        assert_eq!(ran.out, format!("{functions} functions\n"), "{compiler:?}");
    }
    if Compiler::Gfortran.is_here() {
        let world = Workplace::new();
        let program = world.path("addresses");
        let sources = [face().join("fortran/pario_omp_file.f90"), source("addresses.f90")];
        Compiler::Gfortran.compile(&sources, &["-std=f2018"], &program);
        let ran = world.run(&[&program], &[]);
        assert_eq!(ran.out, format!("{} procedures\n", declared("omp_file.h").len()));
    }
}

/// No runtime, and no MPI, is linked.
#[test]
fn the_library_needs_no_runtime() {
    let ran = Command::new("readelf").arg("-d").arg(libpario()).output().expect("readelf runs");
    let text = String::from_utf8(ran.stdout).expect("names");
    let needed: Vec<&str> = text.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(!needed.is_empty(), "{text}");
    assert!(!needed.iter().any(|line| line.contains("omp") || line.contains("mpi")), "{needed:?}");
    assert!(text.contains("Library soname: [libpario.so]"), "{text}");
}
