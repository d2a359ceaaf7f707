//! `pario cp`: copy files and trees.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use pario::core::Size;
use serde_json::json;

use super::end_of_many;
use crate::clock::Began;
use crate::context::Context;
use crate::copy::{self, Copied, CopyOptions, Pair, Progress};
use crate::error::{CliError, Outcome};
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
  tar c data | pario cp - pario://scratch/t    standard input; - as the target is standard output
Data moves in parallel; holes stay holes. A file gets its name when all of it is there: a copy
that failed or was interrupted leaves nothing that looks whole.")]
pub(crate) struct Args {
    /// What to copy: files, or with -r trees; - is standard input
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<OsString>,
    /// The new name, or the directory that takes the sources; - is standard output
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
    let sources =
        args.sources.iter().map(|source| Place::parse(context, source)).collect::<Outcome<Vec<_>>>()?;
    let target = Place::parse(context, &args.target)?;
    if let Some(pair) = stream_pair(args, &sources, &target)? {
        return run_stream(context, &pair);
    }
    context.stop.catch()?;
    let pairs = copy::pair(sources, &target)?;
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
    let done = copied.files + copied.links;
    tell(context, copied, (began, &failures))?;
    end_of_many(context, failures, usize::try_from(done).unwrap_or(usize::MAX))
}

/// What to do if a stream is among the places: one source, one target.
fn stream_pair(args: &Args, sources: &[Place], target: &Place) -> Outcome<Option<Pair>> {
    let mut streams = copy::is_stream(target)?;
    for source in sources {
        // With -r what is neither file nor directory is refused where it is found; `-` is meant as it is typed.
        streams |= copy::is_stream(source)? && (!args.recursive || source.path.as_os_str() == "-");
    }
    match sources {
        _ if !streams => Ok(None),
        [from] => {
            let named =
                !copy::is_standard_name(from) && !copy::is_stream(target)? && target.is_directory()?;
            let to = match from.name() {
                Some(name) if named => target.child(name),
                Some(_) | None => target.clone(),
            };
            Ok(Some(Pair { from: from.clone(), to }))
        }
        _ => Err(CliError::usage("a stream (-, a pipe, a device) is copied alone: one source, one target")),
    }
}

fn run_stream(context: &Context, pair: &Pair) -> Outcome {
    let (began, progress) = (Began::now(), Progress::new(context.speech, "copying"));
    let copied = copy::copy_stream(pair, &progress, &context.stop);
    progress.end();
    // Facts would mix with the data.
    if copy::is_standard_output(&pair.to) { copied.map(drop) } else { tell(context, copied?, (began, &[])) }
}

fn tell(context: &Context, copied: Copied, (began, failures): (Began, &[CliError])) -> Outcome {
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
    Ok(())
}
