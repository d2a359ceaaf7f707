//! `pario h5 check`: verification and repair of a tree.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use pario_container::check::check;

use super::object::{failed, place};
use crate::context::Context;
use crate::error::{CliError, CliResult, EXIT_PARTLY, one_line};

/// Arguments of `pario h5 check`.
#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    /// A tree
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Finish changes of a killed program, drop damaged lines, remove what belongs to no object
    #[arg(long)]
    repair: bool,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let report = check(place(&args.path)?, args.repair).map_err(|error| failed(&error))?;
    if context.speech.json {
        context.json(&report)?;
    } else {
        for finding in &report.findings {
            let state = if finding.repaired { "repaired" } else { "found" };
            context.line(format!("{state}: {}: {}", one_line(&finding.path), one_line(&finding.cause)))?;
        }
        let (objects, chunks, problems) = (report.objects, report.chunks, report.findings.len());
        context.report(format!("{objects} objects and {chunks} chunks verified, {problems} problems"))?;
    }
    if report.findings.iter().any(|finding| !finding.repaired) {
        return Err(CliError::Reported { code: EXIT_PARTLY });
    }
    Ok(())
}
