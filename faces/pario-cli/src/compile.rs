//! Flags to compile and link programs in C and Fortran: `pario env --compile`.
//!
//! Never: names a file that is not there. Always: a program linked so finds the library without `LD_LIBRARY_PATH`.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::error::{CliError, CliResult};
use crate::mpi;

/// Language of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Language {
    /// C and C++
    C,
    /// Fortran: the sources of the modules come first; write the flags in front of the program's sources
    Fortran,
}

/// Where programs are built against: an unpacked package, or the source tree with its build.
struct DevelopmentFiles {
    library: PathBuf,
    include: PathBuf,
    fortran: PathBuf,
}

impl DevelopmentFiles {
    fn find() -> CliResult<DevelopmentFiles> {
        let library = absolute(&mpi::c_library()?)?;
        // PREFIX/lib/libpario.so, or TREE/target/PROFILE/libpario.so.
        let above = |levels: usize| library.ancestors().nth(levels).unwrap_or(Path::new("/")).to_owned();
        let (prefix, tree) = (above(2), above(3).join("faces/pario-c"));
        let places = [
            (prefix.join("include"), prefix.join("share/pario/fortran")),
            (tree.join("include"), tree.join("fortran")),
        ];
        let found = places.iter().find(|(include, _)| include.join("pario.h").is_file());
        let Some((include, fortran)) = found.cloned() else {
            let looked: Vec<String> =
                places.iter().map(|(include, _)| include.display().to_string()).collect();
            let text = format!("the headers of {} are not in {}", library.display(), looked.join(", "));
            let cure = "use the command of an unpacked package, or of target/ in the source tree";
            return Err(CliError::with_cure(text, cure));
        };
        Ok(DevelopmentFiles { library, include, fortran })
    }

    /// Sources of the Fortran modules, in order.
    fn modules(&self) -> CliResult<Vec<PathBuf>> {
        let wrong = |error: std::io::Error| CliError::failed(format!("{}: {error}", self.fortran.display()));
        let mut modules = Vec::new();
        for entry in std::fs::read_dir(&self.fortran).map_err(wrong)? {
            let path = entry.map_err(wrong)?.path();
            if path.extension().is_some_and(|extension| extension == "f90") {
                modules.push(path);
            }
        }
        modules.sort();
        Ok(modules)
    }
}

/// The flags, one word each.
pub(crate) fn flags(language: Language) -> CliResult<Vec<String>> {
    let files = DevelopmentFiles::find()?;
    let directory = files.library.parent().unwrap_or(Path::new("/")).display();
    let mut flags = Vec::new();
    match language {
        Language::C => flags.push(format!("-I{}", files.include.display())),
        Language::Fortran => flags.extend(files.modules()?.iter().map(|path| path.display().to_string())),
    }
    flags.push(format!("-L{directory}"));
    flags.push(format!("-Wl,-rpath,{directory}"));
    // In front of the objects, the library is needed all the same.
    flags.extend(["-Wl,--push-state,--no-as-needed", "-lpario", "-Wl,--pop-state"].map(str::to_owned));
    Ok(flags)
}

fn absolute(path: &Path) -> CliResult<PathBuf> {
    path.canonicalize().map_err(|error| CliError::failed(format!("{}: {error}", path.display())))
}
