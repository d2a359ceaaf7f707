//! `pario doctor mpi`: which MPI is here, and does Pario serve its file calls?
//!
//! Always: says that it works only after two ranks wrote and read a file and Pario counted their calls.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::context::Context;
use crate::error::{CliError, EXIT_PARTLY, Outcome};
use crate::mpi::{self, Found, in_path};

const PROBE: &str = include_str!("../mpi/probe.c");
/// So that two ranks start on any machine, also as root, as in a container.
const FRIENDLY: [(&str, &str); 4] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
];

/// What was found.
struct Finding {
    launcher: PathBuf,
    found: Found,
    library: PathBuf,
    compiler: PathBuf,
}

/// What the probe showed.
struct Shown {
    /// File calls that Pario counted, of both ranks.
    served: u64,
    same: bool,
    text: String,
}

/// Carries it out.
pub(crate) fn run(context: &Context) -> Outcome {
    let finding = look()?;
    let shown = probe(context, &finding)?;
    let works = shown.same && 0 < shown.served;
    if context.speech.json {
        context.json(&json!({
            "launcher": finding.launcher, "abi": finding.found.abi.text(), "why": finding.found.why,
            "library": finding.library, "compiler": finding.compiler,
            "served_calls": shown.served, "same": shown.same, "works": works,
        }))?;
    } else {
        context.line(format!("mpiexec    {}", finding.launcher.display()))?;
        context.line(format!("ABI        {}: {}", finding.found.abi.text(), finding.found.why))?;
        context.line(format!("preload    {}", finding.library.display()))?;
        context.line(format!("compiler   {}", finding.compiler.display()))?;
        let verdict = if shown.same { "read what they wrote" } else { "did NOT read what they wrote" };
        context.line(format!(
            "proof      2 ranks {verdict}; Pario served {} of their file calls",
            shown.served
        ))?;
    }
    if works {
        return Ok(());
    }
    context.flush()?;
    let last =
        shown.text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned();
    context.complain(&CliError::failed(format!("the probe failed: {last}")));
    Err(CliError::Told { code: EXIT_PARTLY })
}

fn look() -> Outcome<Finding> {
    let missing = |what: &str| {
        CliError::with_cure(format!("no {what} in PATH"), "install an MPI, or load its module, and repeat")
    };
    let launcher = in_path(OsStr::new("mpiexec")).ok_or_else(|| missing("mpiexec"))?;
    let compiler = in_path(OsStr::new("mpicc")).ok_or_else(|| missing("mpicc"))?;
    let unknown = || CliError::failed(format!("{} --version names no MPI that is known", launcher.display()));
    let found = mpi::launcher(&launcher).ok_or_else(unknown)?;
    let library = mpi::library(found.abi)?;
    Ok(Finding { launcher, found, library, compiler })
}

/// Compiles the probe and runs it on a partition of its own.
fn probe(context: &Context, finding: &Finding) -> Outcome<Shown> {
    let dir = Scratch::new()?;
    let (source, program) = (dir.0.join("probe.c"), dir.0.join("probe"));
    std::fs::write(&source, PROBE).map_err(|error| CliError::local(&source, &error))?;
    let compiled = Command::new(&finding.compiler)
        .arg("-std=c99")
        .arg("-o")
        .args([&program, &source])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| CliError::local(&finding.compiler, &error))?;
    if !compiled.status.success() {
        let text = String::from_utf8_lossy(&compiled.stderr);
        let first = text.lines().next().unwrap_or("it said nothing").to_owned();
        return Err(CliError::failed(format!("{} cannot compile: {first}", finding.compiler.display())));
    }
    let own =
        std::env::current_exe().map_err(|error| CliError::failed(format!("where is pario? {error}")))?;
    let registry = context.registry()?;
    let words: [OsString; 11] = [
        "--registry".into(),
        registry.path().into(),
        "run".into(),
        "--servers".into(),
        "2".into(),
        "--".into(),
        finding.launcher.clone().into(),
        "-n".into(),
        "2".into(),
        program.into(),
        "pario:///probe".into(),
    ];
    let ran = Command::new(own)
        .args(&words)
        .env("PARIO_STATS", "1")
        .envs(FRIENDLY)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| CliError::failed(format!("the probe does not run: {error}")))?;
    let (out, text) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    let same = ran.status.success() && out.contains("the same was read as was written");
    Ok(Shown { served: served(&text), same, text: text.into_owned() })
}

/// Calls that Pario counted, by what each rank reported. Ranks write at the same time: lines may run into each other.
fn served(text: &str) -> u64 {
    let counts = text.split(": served ").skip(1);
    counts.filter_map(|rest| rest.split(" MPI calls").next()?.parse::<u64>().ok()).sum()
}

/// A directory that is gone afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Outcome<Scratch> {
        let dir = std::env::temp_dir().join(format!("pario-doctor-{}", std::process::id()));
        std::fs::create_dir(&dir).map_err(|error| CliError::local(&dir, &error))?;
        Ok(Scratch(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all::<&Path>(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_ranks_are_added() {
        let text =
            "pario: rank 0: f: served 6 MPI calls: open 1pario: rank 1: f: served 5 MPI calls: open 1\n";
        assert_eq!(served(text), 11);
        assert_eq!(served("nothing"), 0);
    }
}
