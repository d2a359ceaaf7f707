//! `pario cp`: copy files and trees.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use pario::core::Size;
use pario::transfer::{self, Copied, CopyOptions, CopyPair, LinkPolicy, Observer, Replace, TreePath};
use serde_json::json;

use super::end_of_many;
use crate::clock::Stopwatch;
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::human;
use crate::progress::CopyProgress;
use crate::stream;
use crate::typed_path;

/// Arguments of `pario cp`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario cp results.bin pario://scratch/run1/   into the directory run1, made if it is missing
  pario cp -r pario://scratch/run1 out         a tree, out of the partition
  pario cp -a data/ pario://scratch/data       a tree with owner, times and all permission bits
  pario cp -ru data pario://scratch/           only what is newer or missing there
  pario cp pario://a/x pario://b/x             from one partition to another
  tar c data | pario cp - pario://scratch/t    standard input; - as the target is standard output
Data moves in parallel; holes stay holes. A file gets its name when all of it is there: a copy
that failed or was interrupted leaves nothing that looks whole.")]
pub(crate) struct Args {
    /// What to copy: files, or with -r trees; - is standard input
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<OsString>,
    /// The new name, or the directory for the sources; - is standard output
    #[arg(value_name = "TARGET", required = true)]
    target: OsString,
    /// Directories with what is in them; symbolic links are copied as links
    #[arg(short, long)]
    recursive: bool,
    /// Keep owner (as far as allowed), times, and setuid and setgid bits, too
    #[arg(short, long)]
    preserve: bool,
    /// Trees as they are: the same as -r -p
    #[arg(short, long)]
    archive: bool,
    /// Skip existing files; -v lists them
    #[arg(short, long)]
    no_clobber: bool,
    /// Copy only what is newer than its target, or has none; -n wins
    #[arg(short, long)]
    update: bool,
    /// Pieces in flight at the same time
    #[arg(short, long, value_name = "N", default_value_t = transfer::default_jobs(), value_parser = parse_jobs)]
    jobs: usize,
}

fn parse_jobs(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|jobs| (1..=256).contains(jobs)).ok_or_else(|| "must be 1 to 256".to_owned())
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let sources = args
        .sources
        .iter()
        .map(|source| typed_path::parse(context, source))
        .collect::<CliResult<Vec<_>>>()?;
    let target = typed_path::parse(context, &args.target)?;
    let recursive = args.recursive || args.archive;
    if let Some(pair) = stream_pair(recursive, &sources, &target)? {
        return run_stream(context, &pair, args.no_clobber);
    }
    context.stop.catch()?;
    let pairs = transfer::pair(sources, &target)?;
    let options = CopyOptions {
        recursive,
        preserve: args.preserve || args.archive,
        replace: match (args.no_clobber, args.update) {
            (true, _) => Replace::Never,
            (false, true) => Replace::Older,
            (false, false) => Replace::Always,
        },
        jobs: args.jobs,
        ..CopyOptions::default()
    };
    let (began, progress) =
        (Stopwatch::now(), CopyProgress::new(context.speech, "copying", &context.stop).on_output());
    let copied = transfer::copy(&pairs, options, &progress);
    progress.end();
    let transfer::CopyReport { copied, failures } = context.stop.outcome(copied)?;
    let failures: Vec<CliError> = failures.into_iter().map(CliError::from).collect();
    let done = copied.files + copied.links + copied.skipped;
    report(context, copied, (began, &failures))?;
    end_of_many(context, failures, usize::try_from(done).unwrap_or(usize::MAX))
}

/// The pair to copy if a source or the target is a stream: one source, one target.
fn stream_pair(recursive: bool, sources: &[TreePath], target: &TreePath) -> CliResult<Option<CopyPair>> {
    let mut streams = stream::is_stream(target)?;
    for source in sources {
        // With -r, an entry that is neither file nor directory is refused during the walk; `-` always means the standard stream.
        streams |= stream::is_stream(source)? && (!recursive || source.path.as_os_str() == "-");
    }
    match sources {
        _ if !streams => Ok(None),
        [from] => {
            let named =
                !stream::is_standard_name(from) && !stream::is_stream(target)? && target.is_directory()?;
            let to = match from.name() {
                Some(name) if named => target.child(name),
                Some(_) | None => target.clone(),
            };
            Ok(Some(CopyPair { from: from.clone(), to }))
        }
        _ => Err(CliError::usage("a stream (-, a pipe, a device) is copied alone: one source, one target")),
    }
}

fn run_stream(context: &Context, pair: &CopyPair, no_clobber: bool) -> CliResult {
    let (began, progress) = (Stopwatch::now(), CopyProgress::new(context.speech, "copying", &context.stop));
    if no_clobber && !stream::is_stream(&pair.to)? && pair.to.stat_if_exists(LinkPolicy::Stay)?.is_some() {
        progress.on_output().skipped(&pair.to);
        return report(context, Copied { skipped: 1, ..Copied::default() }, (began, &[]));
    }
    let copied = stream::copy_stream(pair, &progress, &context.stop);
    progress.end();
    // Facts on standard output would mix with the data.
    if stream::is_standard_output(&pair.to) {
        copied.map(drop)
    } else {
        report(context, copied?, (began, &[]))
    }
}

fn report(context: &Context, copied: Copied, (began, failures): (Stopwatch, &[CliError])) -> CliResult {
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
