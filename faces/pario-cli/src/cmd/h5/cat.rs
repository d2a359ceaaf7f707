//! `pario h5 cat`: the elements of a dataset, one line each.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use serde_json::{Value, json};

use super::object::{ShownObject, blob, failed, open};
use crate::context::Context;
use crate::error::{CliError, CliResult};

/// Elements read at once.
const STEP: u64 = 4096;

/// Arguments of `pario h5 cat`.
#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    /// A dataset of a tree
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Number of elements, from the first
    #[arg(short = 'n', long, value_name = "COUNT")]
    count: Option<u64>,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let ShownObject { mut tree, id } = open(&args.path)?;
    let Some(dataset) = tree.header(id).map_err(|error| failed(&error))?.dataset().cloned() else {
        let text = format!("{}: not a dataset", args.path.display());
        return Err(CliError::with_cure(text, "`pario h5 ls` lists groups"));
    };
    let total = dataset.space.elements().min(args.count.unwrap_or(u64::MAX));
    let size = usize::try_from(dataset.element.size).unwrap_or(1).max(1);
    let (mut at, mut facts) = (0, Vec::new());
    while at < total {
        let count = STEP.min(total - at);
        let mut buffer = vec![0; usize::try_from(count).unwrap_or(0) * size];
        tree.read_elements(id, &[(at, count)], &mut buffer).map_err(|error| failed(&error))?;
        for element in buffer.chunks_exact(size) {
            let shown =
                dataset.element.description.shown(element, &mut |element| blob(&mut tree, id, element));
            if context.speech.json {
                facts.push(Value::String(shown));
            } else {
                context.line(shown)?;
            }
        }
        at += count;
    }
    if context.speech.json {
        return context.json(&json!({ "extent": dataset.space.extent(), "elements": facts }));
    }
    Ok(())
}
