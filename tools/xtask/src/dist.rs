//! `cargo xtask dist`: a package of the command, its benchmarks, the libraries for MPI, C and Fortran programs, headers, the guide and a
//! module file, as
//! `target/pario-VERSION-ARCH.tar.gz`. It works wherever it is unpacked.
//!
//! Always: built with the profile `dist` (link-time optimisation, no debug information).

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::direction;

/// Libraries that `pario run` preloads, and the one of C and Fortran programs, beside the command in `lib`.
const LIBRARIES: [&str; 6] = [
    "libpario_mpi_mpich.so",
    "libpario_mpi_openmpi.so",
    "libpario_mpi_abi.so",
    "libpario_posix.so",
    "libpario.so",
    "libpario_i8.so",
];
/// What programs in C and Fortran are compiled with: folder of the tree, ending, folder of the package.
const SOURCES: [(&str, &str, &str); 2] =
    [("faces/pario-c/include", "h", "include"), ("faces/pario-c/fortran", "f90", "share/pario/fortran")];
/// The description for `pkg-config`.
const PKG_CONFIG: &str = "faces/pario-c/pario.pc.in";
/// Programs, in `bin`.
const PROGRAMS: [&str; 2] = ["pario", "pario-bench"];
/// Documents that go along.
const DOCUMENTS: [&str; 5] = ["README.md", "CHANGELOG.md", "GLOSSARY.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Builds and packs.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let root = direction::metadata()?.workspace_root;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    ran(Command::new("cargo").args(["build", "--profile", "dist", "--workspace"]).current_dir(&root))?;
    let name = format!("pario-{}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let package = target.join("dist-package").join(&name);
    if package.exists() {
        fs::remove_dir_all(&package)?;
    }
    fill(&root, &target.join("dist"), &package)?;
    let archive = target.join(format!("{name}.tar.gz"));
    let above = package.parent().ok_or("a package has a directory above it")?;
    ran(Command::new("tar").arg("-C").arg(above).arg("-czf").arg(&archive).arg(&name))?;
    let bytes = fs::metadata(&archive)?.len();
    writeln!(std::io::stdout(), "{} ({:.1} MB)", archive.display(), bytes as f64 / 1e6)?;
    Ok(())
}

fn fill(root: &Path, built: &Path, package: &Path) -> Result<(), Box<dyn Error>> {
    for folder in ["bin", "lib/pkgconfig", "share/doc", "share/completions", "modulefiles"] {
        fs::create_dir_all(package.join(folder))?;
    }
    let copy = |from: PathBuf, to: PathBuf| {
        fs::copy(&from, to).map(drop).map_err(|error| format!("{}: {error}", from.display()))
    };
    for program in PROGRAMS {
        copy(built.join(program), package.join("bin").join(program))?;
    }
    for library in LIBRARIES {
        copy(built.join(library), package.join("lib").join(library))?;
    }
    for document in DOCUMENTS {
        copy(root.join(document), package.join("share/doc").join(document))?;
    }
    for entry in fs::read_dir(root.join("docs/guide"))? {
        let entry = entry?;
        copy(entry.path(), package.join("share/doc").join(entry.file_name()))?;
    }
    for (from, ending, to) in SOURCES {
        fs::create_dir_all(package.join(to))?;
        for entry in fs::read_dir(root.join(from)).map_err(|error| format!("{from}: {error}"))? {
            let path = entry?.path();
            if let Some(name) =
                path.file_name().filter(|_| path.extension().is_some_and(|found| found == ending))
            {
                copy(path.clone(), package.join(to).join(name))?;
            }
        }
    }
    let text = fs::read_to_string(root.join(PKG_CONFIG)).map_err(|error| format!("{PKG_CONFIG}: {error}"))?;
    let text = text.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    fs::write(package.join("lib/pkgconfig/pario.pc"), text)?;
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(package.join("bin/pario")).args(["completions", shell]).output()?;
        fs::write(package.join(format!("share/completions/pario.{shell}")), output.stdout)?;
    }
    Ok(fs::write(package.join("modulefiles/pario"), MODULE)?)
}

fn ran(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}

/// For Environment Modules and Lmod: finds the package relative to the module file.
const MODULE: &str = r#"#%Module1.0
module-whatis "Pario: an ad-hoc parallel file system"
set root [file dirname [file dirname [file normalize $ModulesCurrentModulefile]]]
conflict pario
prepend-path PATH $root/bin
prepend-path PKG_CONFIG_PATH $root/lib/pkgconfig
"#;

#[cfg(test)]
mod tests {
    use super::*;

    /// Placeholder files instead of a cargo build: the package layout is checked.
    #[test]
    fn a_package_has_what_a_user_needs() {
        let dir = std::env::temp_dir().join(format!("pario-xtask-dist-{}", std::process::id()));
        let (root, built, package) = (dir.join("root"), dir.join("built"), dir.join("package"));
        fs::create_dir_all(root.join("docs/guide")).unwrap();
        fs::create_dir_all(&built).unwrap();
        for document in DOCUMENTS {
            fs::write(root.join(document), "text").unwrap();
        }
        fs::write(root.join("docs/guide/mpi.md"), "text").unwrap();
        for program in PROGRAMS.map(|program| built.join(program)) {
            fs::write(&program, "#!/bin/sh\necho completions of $2\n").unwrap();
            fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        for (folder, name) in [("include", "pario.h"), ("fortran", "m.f90"), ("", "pario.pc.in")] {
            let folder = root.join("faces/pario-c").join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(name), "Version: @VERSION@").unwrap();
        }
        let missing = fill(&root, &built, &package).unwrap_err().to_string();
        assert!(missing.contains(LIBRARIES[0]), "{missing}");
        for library in LIBRARIES {
            fs::write(built.join(library), "elf").unwrap();
        }
        fill(&root, &built, &package).unwrap();
        let found = fs::read_to_string(package.join("share/completions/pario.zsh")).unwrap();
        let described = fs::read_to_string(package.join("lib/pkgconfig/pario.pc")).unwrap();
        let has_sources =
            package.join("include/pario.h").is_file() && package.join("share/pario/fortran/m.f90").is_file();
        fs::remove_dir_all(&dir).unwrap();
        assert!(has_sources);
        assert_eq!(described, format!("Version: {}", env!("CARGO_PKG_VERSION")));
        assert_eq!(found, "completions of zsh\n");
    }
}
