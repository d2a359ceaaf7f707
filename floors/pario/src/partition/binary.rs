//! Finds the `pario` command that starts servers.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const COMMAND: &str = "pario";

/// No `pario` command was found.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BinaryError {
    /// `PARIO_BIN` is not an executable.
    #[error("PARIO_BIN is {}, which is not a program that can be run", .path.display())]
    Variable {
        /// Its value.
        path: PathBuf,
    },
    /// The command was not found.
    #[error("cannot find the `pario` command that servers are started with; looked at: {}; set PARIO_BIN to it", .looked.join(", "))]
    Nowhere {
        /// The paths tried.
        looked: Vec<String>,
    },
}

/// Inputs of the search.
struct Surroundings {
    variable: Option<OsString>,
    executable: Option<PathBuf>,
    library: Option<PathBuf>,
    path: Option<OsString>,
}

/// The command: `PARIO_BIN`, this program if it is `pario`, beside this program, beside this library, in `PATH`.
///
/// # Errors
/// [`BinaryError`] with the paths tried.
pub fn find_binary() -> Result<PathBuf, BinaryError> {
    search(&Surroundings {
        variable: std::env::var_os("PARIO_BIN").filter(|value| !value.is_empty()),
        executable: std::env::current_exe().ok(),
        library: own_library(),
        path: std::env::var_os("PATH"),
    })
}

fn search(around: &Surroundings) -> Result<PathBuf, BinaryError> {
    if let Some(variable) = &around.variable {
        let path = std::path::absolute(variable).unwrap_or_else(|_| variable.into());
        return if is_program(&path) { Ok(path) } else { Err(BinaryError::Variable { path }) };
    }
    if let Some(own) = around.executable.as_ref().filter(|own| own.file_name() == Some(OsStr::new(COMMAND))) {
        return Ok(own.clone());
    }
    let mut looked = vec!["PARIO_BIN (not set)".to_owned()];
    let mut candidates = Vec::new();
    for (what, file) in [("this program", &around.executable), ("this library", &around.library)] {
        let Some(dir) = file.as_deref().and_then(Path::parent) else { continue };
        looked.push(format!("beside {what}, {}", dir.display()));
        candidates.push(dir.join(COMMAND));
        // Cargo puts tests and examples one directory below the programs.
        if ["deps", "examples"].iter().any(|name| dir.ends_with(name)) {
            candidates.extend(dir.parent().map(|above| above.join(COMMAND)));
        }
    }
    looked.push("PATH".to_owned());
    let path = around.path.as_deref().unwrap_or_default();
    candidates
        .extend(std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(COMMAND)));
    candidates.into_iter().find(|path| is_program(path)).ok_or(BinaryError::Nowhere { looked })
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The file of this code: a program, or a shared library in one.
fn own_library() -> Option<PathBuf> {
    let here = own_library as *const () as usize;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| mapped_file(line, here))
}

/// The file of a line of `/proc/self/maps`, if `address` is in it.
fn mapped_file(line: &str, address: usize) -> Option<PathBuf> {
    let (from, to) = line.split_whitespace().next()?.split_once('-')?;
    let number = |digits| usize::from_str_radix(digits, 16).ok();
    let file = line.find('/').map(|at| PathBuf::from(&line[at..]))?;
    (number(from)? <= address && address < number(to)?).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(dir: &Path, mode: u32) -> PathBuf {
        fs::create_dir_all(dir).unwrap();
        let path = dir.join(COMMAND);
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn looks_in_order() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let mut around = Surroundings {
            variable: Some(program(&at("variable"), 0o755).into()),
            executable: Some(at("bin/pario")),
            library: Some(at("lib/libpario.so")),
            path: Some(std::env::join_paths([at("empty"), at("path")]).unwrap()),
        };
        let expect = |around: &Surroundings, dir: &str| assert_eq!(search(around), Ok(at(dir).join(COMMAND)));
        let in_path = program(&at("path"), 0o755);
        expect(&around, "variable");
        around.variable = None;
        expect(&around, "bin");
        around.executable = Some(at("target/deps/app"));
        expect(&around, "path");
        program(&at("lib"), 0o755);
        expect(&around, "lib");
        program(&at("target"), 0o755);
        expect(&around, "target");
        program(&at("target/deps"), 0o644);
        expect(&around, "target");
        around.executable = None;
        around.library = None;
        assert_eq!(search(&around), Ok(in_path));
    }

    #[test]
    fn says_where_it_looked() {
        let around = Surroundings {
            variable: None,
            executable: Some("/nowhere/bin/app".into()),
            library: Some("/nowhere/lib/libx.so".into()),
            path: None,
        };
        let message = search(&around).unwrap_err().to_string();
        for part in ["PARIO_BIN", "/nowhere/bin", "/nowhere/lib", "PATH"] {
            assert!(message.contains(part), "{message}");
        }
        let around = Surroundings { variable: Some("/nowhere/pario".into()), ..around };
        assert!(search(&around).unwrap_err().to_string().contains("PARIO_BIN is /nowhere/pario"));
    }

    #[test]
    fn knows_the_file_it_was_loaded_from() {
        assert_eq!(own_library(), std::env::current_exe().ok());
        let line = "7f00-7f10 r-xp 00000000 fe:00 12  /usr/lib/a b.so";
        assert_eq!(mapped_file(line, 0x7f08), Some("/usr/lib/a b.so".into()));
        assert_eq!(mapped_file(line, 0x7f10), None);
    }
}
