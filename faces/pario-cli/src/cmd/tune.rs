//! `pario tune`: measures a file system, and keeps the settings of teams for it.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pario::core::Size;
use pario::partition::Location;
use pario::team::TeamSettings;
use pario::team::measure::{
    self, FileLayout, MeasureError, MeasureObserver, MeasurePlan, Measurements, SizePoint,
};
use serde_json::{Value, json};

use crate::context::{Context, Speech};
use crate::error::{CliError, CliResult};
use crate::signals::Stop;
use crate::table::Table;

/// Smallest `--size`: one measurement of the smallest call.
const SIZE_MIN: u64 = 8 << 10;
/// Characters of the longest bar.
const BAR_WIDTH: u64 = 30;

/// Arguments of `pario tune`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario tune /scratch                  measure, and print what teams should use there
  pario tune /scratch --write          also keep it in team.toml, for all teams of this user
  pario tune . --size 64MiB --passes 1 a first impression
One thread writes with calls of 8 KiB, doubled up to --size: the smallest one with nearly the best
speed is the saturation size. Then 1, 2, 4 ... threads write with calls of that size into one file,
into a file each, and into a container. Every measurement ends with a sync. The files are removed.")]
pub(crate) struct Args {
    /// A directory on the file system to measure
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Largest call and largest file [default: 1GiB, or what fits]
    #[arg(long, value_name = "SIZE", default_value = "1GiB", hide_default_value = true)]
    size: Size,
    /// Largest number of threads [default: twice the processors, at least 4]
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// How often each measurement is repeated; the fastest counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    passes: u32,
    /// Keep the settings in team.toml, for the file system of DIR
    #[arg(long)]
    write: bool,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let plan = plan(args)?;
    context.stop.catch()?;
    let progress = TuneProgress::new(context.speech, &context.stop);
    let measured = measure::run(&plan, &progress);
    progress.bar.finish_and_clear();
    let measured = measured.map_err(|error| failed(context, &error))?;
    let settings = measure::choose(&measured);
    let path = measure::kept_path(&plan.directory).map_err(|error| failed(context, &error))?;
    let written = match args.write {
        true => Some(measure::keep(&path, &settings).map_err(|error| failed(context, &error))?),
        false => None,
    };
    let found = Tuned { measured: &measured, settings: &settings, path: &path, written: written.as_deref() };
    if context.speech.json { context.json(&found.json(&plan)) } else { found.print(context) }
}

fn plan(args: &Args) -> CliResult<MeasurePlan> {
    if Location::is_one(&args.directory) {
        let text = format!("{}: is a partition; teams tune themselves there", args.directory.display());
        return Err(CliError::usage(format!("{text}, and team.toml may name settings for it")));
    }
    if args.size.0 < SIZE_MIN {
        return Err(CliError::usage(format!("--size {}: at least {}", args.size, Size(SIZE_MIN))));
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let usual = u32::try_from(processors.saturating_mul(2)).unwrap_or(64).clamp(4, 64);
    let threads_max = args.threads.unwrap_or(usual);
    if !(1..=1024).contains(&threads_max) {
        return Err(CliError::usage(format!("--threads {threads_max}: from 1 to 1024")));
    }
    if !(1..=100).contains(&args.passes) {
        return Err(CliError::usage(format!("--passes {}: from 1 to 100", args.passes)));
    }
    Ok(MeasurePlan {
        directory: args.directory.clone(),
        bytes_max: args.size.0,
        threads_max,
        passes: args.passes,
    })
}

fn failed(context: &Context, error: &MeasureError) -> CliError {
    if let (MeasureError::Stopped, Err(stopped)) = (error, context.stop.check()) {
        return stopped;
    }
    if let MeasureError::Local { path, source } = error {
        return CliError::local(path, source);
    }
    CliError::failed(error)
}

/// A bar over the bytes of all measurements.
struct TuneProgress {
    bar: ProgressBar,
    stop: Stop,
}

impl TuneProgress {
    fn new(speech: Speech, stop: &Stop) -> TuneProgress {
        let wanted = !speech.quiet && !speech.json && std::io::stderr().is_terminal();
        let target =
            if wanted { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(0), target).with_message("measuring");
        let style = ProgressStyle::with_template(
            "{msg} [{bar:30}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
        );
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        TuneProgress { bar, stop: stop.clone() }
    }
}

impl MeasureObserver for TuneProgress {
    fn planned(&self, bytes: u64) {
        self.bar.inc_length(bytes);
    }

    fn written(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    fn is_stopped(&self) -> bool {
        self.stop.signal().is_some()
    }
}

/// What was found.
struct Tuned<'a> {
    measured: &'a Measurements,
    settings: &'a TeamSettings,
    /// The files for which the settings hold.
    path: &'a Path,
    written: Option<&'a Path>,
}

impl Tuned<'_> {
    fn json(&self, plan: &MeasurePlan) -> Value {
        let sizes = self.measured.sizes.iter().map(|point| {
            let SizePoint { call_bytes, bytes_s } = point;
            json!({ "call_bytes": call_bytes, "bytes_per_s": bytes_s })
        });
        let threads = self.measured.threads.iter().map(|point| {
            json!({ "threads": point.threads, "layout": point.layout.word(), "bytes_per_s": point.bytes_s })
        });
        let TeamSettings { saturation, active, .. } = self.settings;
        json!({
            "directory": plan.directory.display().to_string(),
            "passes": plan.passes,
            "sizes": sizes.collect::<Vec<_>>(),
            "threads": threads.collect::<Vec<_>>(),
            "settings": {
                "path": self.path.display().to_string(),
                "saturation_bytes": saturation.map(|size| size.0),
                "active": active,
                "target": self.target(),
            },
            "notes": self.measured.notes,
            "written": self.written.map(|file| file.display().to_string()),
        })
    }

    fn target(&self) -> Option<&'static str> {
        self.settings.target.map(pario::team::TargetKind::word)
    }

    fn print(&self, context: &Context) -> CliResult {
        let best = self.measured.sizes.iter().map(|point| point.bytes_s).max().unwrap_or(0);
        let mut table = Table::with_head(&["one thread", "MB/s", "<"]);
        for point in &self.measured.sizes {
            let call = Size(point.call_bytes).to_string();
            table.row(vec![call, speed(point.bytes_s), bar(point.bytes_s, best)]);
        }
        context.print(|out| table.print(out))?;
        context.line("")?;
        let best = self.measured.threads.iter().map(|point| point.bytes_s).max().unwrap_or(0);
        let mut table = Table::with_head(&["threads", "<file", "MB/s", "<"]);
        for layout in FileLayout::ALL {
            for point in self.measured.threads.iter().filter(|point| point.layout == layout) {
                let (threads, word) = (point.threads.to_string(), layout.word().to_owned());
                table.row(vec![threads, word, speed(point.bytes_s), bar(point.bytes_s, best)]);
            }
        }
        context.print(|out| table.print(out))?;
        context.line("")?;
        for note in &self.measured.notes {
            context.line(format!("note: {note}"))?;
        }
        let shown = |value: Option<String>| value.unwrap_or_else(|| "not measured".to_owned());
        context.line(format!(
            "saturation {}, active {}, target {} for {}",
            shown(self.settings.saturation.map(|size| size.to_string())),
            shown(self.settings.active.map(|count| count.to_string())),
            shown(self.target().map(str::to_owned)),
            self.path.display()
        ))?;
        match self.written {
            Some(file) => context.report(format!("kept in {}", file.display())),
            None => context.report("not kept: `--write` keeps it in team.toml"),
        }
    }
}

fn speed(bytes_s: u64) -> String {
    match bytes_s {
        0..10_000_000 => format!("{}.{}", bytes_s / 1_000_000, bytes_s / 100_000 % 10),
        _ => (bytes_s / 1_000_000).to_string(),
    }
}

/// A bar as long as its share of the best speed.
fn bar(bytes_s: u64, best: u64) -> String {
    let share = u128::from(bytes_s) * u128::from(BAR_WIDTH) / u128::from(best.max(1));
    "#".repeat(usize::try_from(share).unwrap_or(0).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_grow_with_the_speed() {
        assert_eq!(bar(100, 100).len(), 30);
        assert_eq!(bar(50, 100).len(), 15);
        assert_eq!((bar(0, 100).len(), bar(0, 0).len()), (1, 1));
        assert_eq!((speed(1_250_000), speed(512_900_000)), ("1.2".into(), "512".into()));
    }
}
