//! `pario cp`: copy files and trees.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use pario::core::Size;
use serde_json::json;

use super::end_of_many;
use crate::clock::Began;
use crate::context::Context;
use crate::copy::{self, CopyOptions, Progress};
use crate::error::Outcome;
use crate::human;
use crate::place::Place;

/// What can be said to `pario cp`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario cp results.bin pario://scratch/run1/   into the directory run1, made if it is missing
  pario cp -r pario://scratch/run1 out         a tree, out of the partition
  pario cp -rp data/ pario://scratch/data      with owner and times
  pario cp pario://a/x pario://b/x             from one partition to another
Data moves in parallel; holes stay holes. A file gets its name when all of it is there: a copy
that failed or was interrupted leaves nothing that looks whole.")]
pub(crate) struct Args {
    /// What to copy: files, or with -r trees
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<OsString>,
    /// The new name, or the directory that takes the sources
    #[arg(value_name = "TARGET", required = true)]
    target: OsString,
    /// Directories with what is in them; symbolic links are copied as links
    #[arg(short, long)]
    recursive: bool,
    /// Keep owner (as far as allowed) and times, too
    #[arg(short, long)]
    preserve: bool,
    /// Pieces under way at the same time
    #[arg(short, long, value_name = "N", default_value_t = copy::default_jobs(), value_parser = parse_jobs)]
    jobs: usize,
}

fn parse_jobs(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|jobs| (1..=256).contains(jobs)).ok_or_else(|| "must be 1 to 256".to_owned())
}

/// Carries it out.
pub(crate) fn run(context: &Context, args: &Args) -> Outcome {
    context.stop.catch()?;
    let sources =
        args.sources.iter().map(|source| Place::parse(context, source)).collect::<Outcome<Vec<_>>>()?;
    let pairs = copy::pair(sources, &Place::parse(context, &args.target)?)?;
    let options = CopyOptions {
        recursive: args.recursive,
        preserve: args.preserve,
        jobs: args.jobs,
        ..CopyOptions::default()
    };
    let (began, progress) = (Began::now(), Progress::new(context.speech, "copying"));
    let copied = copy::copy(&pairs, options, &progress, &context.stop);
    progress.end();
    let (copied, failures) = copied?;
    let took = began.elapsed();
    if context.speech.json {
        let failed: Vec<String> = failures.iter().map(ToString::to_string).collect();
        context.json(&json!({ "copied": copied, "seconds": took.as_secs_f64(), "failed": failed }))?;
    } else if 0 < context.speech.verbose {
        let files = usize::try_from(copied.files).unwrap_or(usize::MAX);
        context.report(format!(
            "{}, {} in {} ({})",
            human::count(files, "file"),
            Size(copied.bytes).rounded(),
            human::duration(took),
            human::rate(copied.bytes, took)
        ))?;
    }
    let done = copied.files + copied.links;
    end_of_many(context, failures, usize::try_from(done).unwrap_or(usize::MAX))
}
