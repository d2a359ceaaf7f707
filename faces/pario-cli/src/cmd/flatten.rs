//! `pario flatten`: plain files of containers.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use pario::containers::{self, LogOptions};
use pario::core::Size;
use serde_json::json;

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, CliResult};

/// Arguments of `pario flatten`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario flatten results/field          a plain file of the container, under the same name
  pario cp results/field elsewhere     the same bytes, and the container stays
The plain file is written beside the container, synced, and then takes its name atomically. It
needs room for all bytes; without it the container stays as it was.")]
pub(crate) struct Args {
    /// Containers, on this machine
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (mut failures, mut facts) = (Vec::new(), Vec::new());
    for path in &args.paths {
        match containers::flatten(&LogOptions::default(), path) {
            Ok(bytes) if context.speech.json => {
                facts.push(json!({ "path": path.display().to_string(), "bytes": bytes }));
            }
            Ok(bytes) => {
                context.report(format!("{}: {}", path.display(), Size(bytes).rounded()))?;
                facts.push(json!(null));
            }
            Err(error) => failures.push(CliError::failed(error)),
        }
    }
    let done = facts.len();
    if context.speech.json {
        context.json(&facts)?;
    }
    end_of_many(context, failures, done)
}
