//! `pario doctor mpi`: finds the installed MPI and checks that Pario serves its file calls.
//!
//! Always: reports success only after two ranks wrote and read a file and Pario counted their calls.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pario::dir::{scratch, temporary_path};
use serde_json::json;

use crate::context::Context;
use crate::error::{CliError, CliResult, EXIT_PARTLY};
use crate::mpi::{self, FoundMpi, in_path};

const PROBE: &str = include_str!("../mpi/probe.c");
/// Variables that let two ranks start on any machine, also as root in a container.
const FRIENDLY: [(&str, &str); 4] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
];

/// The MPI installation.
struct LocalMpi {
    launcher: PathBuf,
    found: FoundMpi,
    library: PathBuf,
    compiler: PathBuf,
}

/// Result of the probe.
struct ProbeResult {
    /// File calls that Pario counted on both ranks.
    served: u64,
    same: bool,
    text: String,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context) -> CliResult {
    let finding = find_installation()?;
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
        shown.text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output").to_owned();
    context.complain(&CliError::failed(format!("the probe failed: {last}")));
    Err(CliError::Reported { code: EXIT_PARTLY })
}

fn find_installation() -> CliResult<LocalMpi> {
    let missing = |what: &str| {
        CliError::with_cure(format!("no {what} in PATH"), "install an MPI, or load its module, and repeat")
    };
    let launcher = in_path(OsStr::new("mpiexec")).ok_or_else(|| missing("mpiexec"))?;
    let compiler = in_path(OsStr::new("mpicc")).ok_or_else(|| missing("mpicc"))?;
    let unknown = || CliError::failed(format!("{} --version names no MPI that is known", launcher.display()));
    let found = mpi::launcher(&launcher).ok_or_else(unknown)?;
    let library = mpi::library(found.abi)?;
    Ok(LocalMpi { launcher, found, library, compiler })
}

/// Compiles the probe and runs it on a partition of its own.
fn probe(context: &Context, finding: &LocalMpi) -> CliResult<ProbeResult> {
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
        let first = text.lines().next().unwrap_or("no output").to_owned();
        return Err(CliError::failed(format!("{} cannot compile: {first}", finding.compiler.display())));
    }
    let own = std::env::current_exe()
        .map_err(|error| CliError::failed(format!("cannot find the pario binary: {error}")))?;
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
        .map_err(|error| CliError::failed(format!("cannot run the probe: {error}")))?;
    let (out, text) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    let same = ran.status.success() && out.contains("the same was read as was written");
    Ok(ProbeResult { served: served(&text), same, text: text.into_owned() })
}

/// Calls that Pario counted, from the reports of the ranks. Ranks print concurrently: lines may run together.
fn served(text: &str) -> u64 {
    let counts = text.split(": served ").skip(1);
    counts.filter_map(|rest| rest.split(" MPI calls").next()?.parse::<u64>().ok()).sum()
}

/// A directory that is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> CliResult<Scratch> {
        Ok(Scratch(scratch("doctor").map_err(|error| CliError::failed(error.to_string()))?))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all::<&Path>(&self.0);
        // Removes the parent if this was its last entry.
        let _ = std::fs::remove_dir(temporary_path());
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
