//! Finds the MPI of a command: from the libraries of the programs among its arguments, then from the version of its launcher;
//! then the same for the arguments in scripts that it runs.
//!
//! Never: runs anything but `ldd` and launchers with `--version`; reads scripts that scripts run.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::Abi;

/// Arguments of a command that are examined.
const WORDS_MAX: usize = 64;
/// Arguments of its scripts.
const SCRIPT_WORDS_MAX: usize = 4096;
/// Bytes read of a script.
const SCRIPT_BYTES_MAX: u64 = 256 << 10;
/// Launchers, and possible suffixes of their names.
const LAUNCHERS: [&str; 4] = ["mpiexec", "mpirun", "orterun", "prterun"];
const KINDS: [&str; 7] = ["", "hydra", "mpich", "openmpi", "gforker", "mpich2", "impi"];
/// Timeout of a launcher's version.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Shells: take a script's name, or its text after `-c`.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ksh", "zsh"];
/// Library names that identify an ABI.
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
pub(crate) struct FoundMpi {
    pub(crate) abi: Abi,
    pub(crate) why: String,
}

/// The MPI of a command; `None`: no MPI found.
pub(crate) fn find(words: &[OsString]) -> Option<FoundMpi> {
    let words = &words[..words.len().min(WORDS_MAX)];
    among(words.iter().filter_map(|word| program(word)), words).or_else(|| {
        let told = scripts(words);
        // A word without a path in a script is usually a shell command.
        let paths: BTreeSet<&OsString> = told.iter().filter(|word| word.as_bytes().contains(&b'/')).collect();
        among(paths.into_iter().filter_map(|word| program(word)).take(WORDS_MAX), &told)
    })
}

/// The MPI of the first program linked with one, or of the first launcher.
fn among(programs: impl Iterator<Item = PathBuf>, words: &[OsString]) -> Option<FoundMpi> {
    let mut linked = programs.filter_map(|path| {
        let (abi, name) = linked(&libraries_of(&path))?;
        Some(FoundMpi { abi, why: format!("{} uses {name}", path.display()) })
    });
    linked.next().or_else(|| {
        let launchers: BTreeSet<PathBuf> =
            words.iter().filter(|word| is_launcher(word)).filter_map(|word| program(word)).collect();
        launchers.iter().find_map(|path| self::launcher(path))
    })
}

/// The words of all scripts of a command: files with `#!` or given to a shell, and the text after a shell's `-c`.
fn scripts(words: &[OsString]) -> Vec<OsString> {
    let mut found = Vec::new();
    let mut shell = false;
    let mut is_text = false;
    for word in words {
        let name = Path::new(word).file_name().unwrap_or_default().to_string_lossy().into_owned();
        if std::mem::take(&mut is_text) {
            found.extend(words_of(&word.to_string_lossy()));
        } else if shell && word.as_bytes().starts_with(b"-") {
            is_text = word.as_bytes().ends_with(b"c");
        } else if SHELLS.contains(&name.as_str()) {
            shell = true;
        } else if let Some(text) = script(Path::new(word), std::mem::take(&mut shell)) {
            // The words that follow are its arguments.
            found.extend(words_of(&text));
            break;
        }
    }
    found.truncate(SCRIPT_WORDS_MAX);
    found
}

fn script(path: &Path, given_to_shell: bool) -> Option<String> {
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    File::open(path).ok()?.take(SCRIPT_BYTES_MAX).read_to_end(&mut text).ok()?;
    let is_script = text.starts_with(b"#!") || given_to_shell && !text.starts_with(b"\x7fELF");
    is_script.then(|| String::from_utf8_lossy(&text).into_owned())
}

/// Words outside of comments.
fn words_of(text: &str) -> impl Iterator<Item = OsString> {
    let lines = text.lines().map(|line| if line.trim_start().starts_with('#') { "" } else { line });
    let words =
        lines.flat_map(|line| line.split(|c: char| c.is_whitespace() || ";|&()\"'`<>={}".contains(c)));
    words.filter(|word| !word.is_empty()).map(OsString::from)
}

/// The version of a launcher.
pub(crate) fn launcher(path: &Path) -> Option<FoundMpi> {
    let mut command = Command::new(path);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
    let text = answer_of(command.spawn().ok()?)?;
    let abi = abi_in_version(&text)?;
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned();
    Some(FoundMpi { abi, why: format!("{} --version says \"{first}\"", path.display()) })
}

/// Output of a child until it ends; `None` on timeout.
fn answer_of(mut child: Child) -> Option<String> {
    let mut output = child.stdout.take()?;
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        // Partial output is used.
        let _ = output.read_to_end(&mut text);
        let _ = tell.send(text);
    });
    let text = told.recv_timeout(ANSWER_MAX).ok();
    if text.is_none() {
        let _ = child.kill();
    }
    let _ = child.wait();
    text.map(|text| String::from_utf8_lossy(&text).into_owned())
}

fn abi_in_version(text: &str) -> Option<Abi> {
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

/// Whether a word names a launcher of an MPI library. Other names with that prefix are not run.
fn is_launcher(word: &OsStr) -> bool {
    let name = Path::new(word).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (launcher, kind) = name.split_once('.').unwrap_or((&name, ""));
    LAUNCHERS.contains(&launcher) && KINDS.contains(&kind)
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
        assert_eq!(abi_in_version("mpirun (Open MPI) 5.0.11\n"), Some(Abi::OpenMpi));
        assert_eq!(abi_in_version("mpiexec (OpenRTE) 4.1.4\n"), Some(Abi::OpenMpi));
        assert_eq!(abi_in_version("HYDRA build details:\n    Version: 4.0.2\n"), Some(Abi::Mpich));
        assert_eq!(abi_in_version("Intel(R) MPI Library for Linux* OS, Version 2021\n"), Some(Abi::Mpich));
        assert_eq!(abi_in_version("another program"), None);
        for (word, expected) in [
            ("/usr/bin/mpiexec.hydra", true),
            ("mpirun", true),
            ("./mpi", false),
            ("./mpirun_job.sh", false),
            ("mpirun.sh", false),
        ] {
            assert_eq!(is_launcher(OsStr::new(word)), expected, "{word}");
        }
    }

    #[test]
    fn a_command_without_mpi_shows_none() {
        assert_eq!(find(&["sh".into(), "-c".into(), "true".into()]), None);
        assert_eq!(find(&["sh".into(), "-c".into()]), None);
    }

    /// A launcher that prints the version of Open MPI.
    fn launcher_in(dir: &Path) -> PathBuf {
        let launcher = dir.join("mpiexec");
        std::fs::write(&launcher, "#!/bin/sh\necho 'mpiexec (Open MPI) 5.0.11'\n").unwrap();
        launcher
    }

    #[test]
    fn scripts_are_looked_into() {
        let dir = tempfile::tempdir().unwrap();
        let launcher = launcher_in(dir.path()).display().to_string();
        let text = format!("# srun and mpiexec\nset -e; cd work\n\"{launcher}\" -n 4 ./app >log 2>&1\n");
        let expected = ["set", "-e", "cd", "work", &launcher, "-n", "4", "./app", "log", "2", "1"];
        assert_eq!(words_of(&text).collect::<Vec<_>>(), expected);
        let job = dir.path().join("job.sh");
        std::fs::write(&job, &text).unwrap();
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<OsString>>();
        let job = job.display().to_string();
        for command in [words(&["bash", &job]), words(&["env", "A=1", "sh", "-e", &job])] {
            assert_eq!(scripts(&command), expected);
        }
        assert_eq!(scripts(&words(&["bash", "-lc", &text])), expected);
        assert_eq!(scripts(&words(&["cat", &job])), Vec::<OsString>::new(), "not a script for `cat`");
        std::fs::write(dir.path().join("job.sh"), format!("#!/bin/sh\n{text}")).unwrap();
        assert_eq!(scripts(&words(&["nice", &job])), expected);
    }
}
