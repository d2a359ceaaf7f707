//! The compilers of this machine.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A compiler with its OpenMP runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compiler {
    /// gcc and libgomp.
    Gcc,
    /// clang and libomp.
    Clang,
    /// g++ and libgomp, for C sources too.
    Gxx,
    /// gfortran and libgomp.
    Gfortran,
}

impl Compiler {
    pub(crate) const OF_C: [Compiler; 3] = [Compiler::Gcc, Compiler::Clang, Compiler::Gxx];

    pub(crate) fn command(self) -> &'static str {
        match self {
            Compiler::Gcc => "gcc",
            Compiler::Clang => "clang",
            Compiler::Gxx => "g++",
            Compiler::Gfortran => "gfortran",
        }
    }

    /// Whether the compiler and its OpenMP runtime are installed.
    pub(crate) fn is_here(self) -> bool {
        let found = self.compiles_openmp();
        if !found {
            let package = match self {
                Compiler::Gcc => "gcc",
                Compiler::Clang => "clang libomp-dev",
                Compiler::Gxx => "g++",
                Compiler::Gfortran => "gfortran",
            };
            eprintln!("SKIPPING programs of {}: install {package}", self.command());
        }
        found
    }

    /// Whether it can link an empty program with OpenMP.
    fn compiles_openmp(self) -> bool {
        let place = tempfile::tempdir().expect("a directory");
        let (name, text) = match self {
            Compiler::Gfortran => ("empty.f90", "end\n"),
            Compiler::Gcc | Compiler::Clang => ("empty.c", "int main(void) { return 0; }\n"),
            Compiler::Gxx => ("empty.cc", "int main() { return 0; }\n"),
        };
        let source = place.path().join(name);
        std::fs::write(&source, text).expect("a file");
        let mut command = Command::new(self.command());
        command.arg("-fopenmp").arg(&source).arg("-o").arg(place.path().join("empty"));
        command.output().is_ok_and(|ran| ran.status.success())
    }

    /// Flags that make C++ of C sources.
    fn language(self) -> &'static [&'static str] {
        match self {
            Compiler::Gxx => &["-x", "c++", "-std=c++11"],
            Compiler::Gcc | Compiler::Clang => &["-std=gnu99"],
            Compiler::Gfortran => &["-fimplicit-none"],
        }
    }

    /// Compiles sources into a program or, with `-shared`, a library.
    pub(crate) fn compile(self, sources: &[PathBuf], options: &[&str], output: &Path) {
        let library = libpario();
        let directory = library.parent().expect("in a directory");
        let mut command = Command::new(self.command());
        command
            .args(["-Wall", "-Wextra", "-Werror", "-O1"])
            .args(self.language())
            .args(options)
            .args(sources);
        // Libraries have no language.
        command.args(if self == Compiler::Gxx { &["-x", "none"][..] } else { &[] });
        command.arg("-I").arg(face().join("include")).arg("-o").arg(output);
        command.arg("-L").arg(directory).arg(format!("-Wl,-rpath,{}", directory.display())).arg("-lpario");
        // Module files of Fortran.
        command.current_dir(output.parent().expect("in a directory"));
        let ran = command.output().expect("the compiler runs");
        assert!(ran.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&ran.stderr));
    }
}

/// The directory of this crate.
pub(crate) fn face() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A source of `tests/programs`.
pub(crate) fn source(name: &str) -> PathBuf {
    face().join("tests/programs").join(name)
}

/// The directory of built programs and libraries.
pub(crate) fn built() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST").to_owned()
}

/// The library, as `cargo build --workspace` made it.
pub(crate) fn libpario() -> PathBuf {
    let library = built().join("libpario.so");
    assert!(library.exists(), "{} is missing: cargo build --workspace", library.display());
    library
}
