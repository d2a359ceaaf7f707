//! Looks at a command: at the libraries of the programs among its words, then at what its launcher says of itself.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Abi;

/// Words of a command that are looked at.
const WORDS_MAX: usize = 64;
/// Names of libraries that tell an ABI.
const LIBRARIES: [(&str, Abi); 7] = [
    ("libmpi_abi.so", Abi::Standard),
    ("libmpi.so.40", Abi::OpenMpi),
    ("libmpi.so.80", Abi::OpenMpi),
    ("libmpi.so.12", Abi::Mpich),
    ("libmpich.so", Abi::Mpich),
    ("libmpi_cray.so", Abi::Mpich),
    ("libmpich.so.12", Abi::Mpich),
];

/// An ABI and how it was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) abi: Abi,
    pub(crate) why: String,
}

/// Which MPI a command uses; `None` if it shows none.
pub(crate) fn find(words: &[OsString]) -> Option<Found> {
    let programs = words.iter().take(WORDS_MAX).filter_map(|word| program(word));
    let linked = programs.filter_map(|path| {
        let (abi, name) = linked(&libraries_of(&path))?;
        Some(Found { abi, why: format!("{} uses {name}", path.display()) })
    });
    linked.into_iter().next().or_else(|| {
        let launcher = words.iter().take(WORDS_MAX).find(|word| is_launcher(word))?;
        self::launcher(&program(launcher)?)
    })
}

/// What a launcher says of itself.
pub(crate) fn launcher(path: &Path) -> Option<Found> {
    let output =
        Command::new(path).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let abi = told(&text)?;
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned();
    Some(Found { abi, why: format!("{} --version says \"{first}\"", path.display()) })
}

fn told(text: &str) -> Option<Abi> {
    let words = [
        ("Open MPI", Abi::OpenMpi),
        ("OpenRTE", Abi::OpenMpi),
        ("prterun", Abi::OpenMpi),
        ("PRRTE", Abi::OpenMpi),
        ("HYDRA", Abi::Mpich),
        ("MPICH", Abi::Mpich),
        ("Intel(R) MPI", Abi::Mpich),
    ];
    words.iter().find(|(word, _)| text.contains(word)).map(|(_, abi)| *abi)
}

fn is_launcher(word: &OsStr) -> bool {
    let name = Path::new(word).file_name().unwrap_or_default().to_string_lossy().into_owned();
    ["mpiexec", "mpirun", "orterun", "prterun"].iter().any(|launcher| name.starts_with(launcher))
}

/// The file of a word that is a program: a path, or a name in `PATH`.
fn program(word: &OsStr) -> Option<PathBuf> {
    let path = if word.as_bytes().contains(&b'/') { PathBuf::from(word) } else { in_path(word)? };
    is_program(&path).then_some(path)
}

/// A name in `PATH`.
pub(crate) fn in_path(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| is_program(file))
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Libraries that the loader would load, one line each, as `ldd` prints them.
fn libraries_of(path: &Path) -> String {
    let mut magic = [0; 4];
    let elf =
        File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && &magic == b"\x7fELF";
    if !elf {
        return String::new();
    }
    let output = Command::new("ldd").arg(path).stdin(Stdio::null()).stderr(Stdio::null()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

fn linked(libraries: &str) -> Option<(Abi, &'static str)> {
    let uses = |name: &str| {
        libraries.lines().any(|line| {
            let first = line.split_whitespace().next().unwrap_or_default();
            first == name || first.starts_with(&format!("{name}."))
        })
    };
    LIBRARIES.iter().find(|(name, _)| uses(name)).map(|(name, abi)| (*abi, *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_tell_the_abi() {
        let line = |name: &str| format!("\tlinux-vdso.so.1 (0x1)\n\t{name} => /usr/lib/{name} (0x2)\n");
        for (name, abi) in [
            ("libmpi.so.12", Some(Abi::Mpich)),
            ("libmpich.so.12", Some(Abi::Mpich)),
            ("libmpi.so.40", Some(Abi::OpenMpi)),
            ("libmpi_abi.so.1", Some(Abi::Standard)),
            ("libmpifort.so.12", None),
            ("libc.so.6", None),
        ] {
            assert_eq!(linked(&line(name)).map(|(abi, _)| abi), abi, "{name}");
        }
    }

    #[test]
    fn launchers_tell_the_abi() {
        assert_eq!(told("mpirun (Open MPI) 5.0.11\n"), Some(Abi::OpenMpi));
        assert_eq!(told("mpiexec (OpenRTE) 4.1.4\n"), Some(Abi::OpenMpi));
        assert_eq!(told("HYDRA build details:\n    Version: 4.0.2\n"), Some(Abi::Mpich));
        assert_eq!(told("Intel(R) MPI Library for Linux* OS, Version 2021\n"), Some(Abi::Mpich));
        assert_eq!(told("something else"), None);
        assert!(is_launcher(OsStr::new("/usr/bin/mpiexec.hydra")) && !is_launcher(OsStr::new("./mpi")));
    }

    #[test]
    fn a_command_without_mpi_shows_none() {
        assert_eq!(find(&["sh".into(), "-c".into(), "true".into()]), None);
    }
}
