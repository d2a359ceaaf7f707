//! The demonstration of `pario run` without a command: four ranks write one field as a checkpoint, through views into the
//! partition and piece by piece into a plain file on the same file system, alternately; read both back with another
//! decomposition; a table shows the speeds.
//!
//! Never: succeeds unless every value of every pass was correct; leaves the plain file's name behind. Always: both sides move
//! the same bytes, and neither syncs them to the disk.

mod field;
pub(crate) mod rank;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::mpsc::Receiver;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pario::core::Size;
use pario::{Counts, Partition};
use serde::{Deserialize, Serialize};

use crate::context::Speech;
use crate::error::{CliError, CliResult};
use crate::table::Table;
use field::{Field, VALUE_BYTES};
use rank::{DemoStep, StepReport};

/// Ranks of the demonstration.
pub(crate) const RANKS: u16 = 4;
/// Passes of each side; the median counts.
const PASSES: usize = 3;
/// 64 MiB of doubles, of which a rank has rows of 1 KiB.
const FIELD: Field = Field { x: 256, y: 256, z: 128 };
const PATH: &str = "checkpoint";

/// Method of writing the field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum DemoSide {
    /// Collective calls through views, on the partition.
    Views,
    /// A call for each piece, on a plain file.
    Plain,
}

impl DemoSide {
    const BOTH: [DemoSide; 2] = [DemoSide::Views, DemoSide::Plain];
}

/// The plain file. It has no name, so it ends with this process.
#[derive(Debug)]
pub(crate) struct DemoPlainFile(File);

impl DemoPlainFile {
    /// Creates it on the file system of `dir`.
    pub(crate) fn within(dir: &Path) -> CliResult<DemoPlainFile> {
        let path = dir.join(format!("pario-demonstration-{}", std::process::id()));
        let made = File::options().write(true).create_new(true).open(&path);
        let file = made.and_then(|file| std::fs::remove_file(&path).map(|()| file));
        file.map(DemoPlainFile).map_err(|error| CliError::local(&path, &error))
    }

    /// The command line of a rank, with the path of the plain file.
    pub(crate) fn words(&self, keep: bool) -> CliResult<Vec<OsString>> {
        let own = std::env::current_exe()
            .map_err(|error| CliError::failed(format!("cannot find the pario binary: {error}")))?;
        let file = format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd());
        let mut words = vec![own.into_os_string(), "demo-rank".into(), file.into()];
        words.extend(keep.then(|| "--keep".into()));
        Ok(words)
    }
}

/// Reads the output of the ranks until all have ended; a bar shows the progress.
pub(crate) fn listen(lines: &Receiver<Vec<u8>>, speech: Speech) -> Vec<StepReport> {
    let steps = u64::from(RANKS) * PASSES as u64 * 4;
    let hidden = speech.quiet || speech.json;
    let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(steps), target);
    if let Ok(style) = ProgressStyle::with_template("writing and reading [{bar:30}] {percent} %") {
        bar.set_style(style.progress_chars("=> "));
    }
    let mut reports = Vec::new();
    for line in lines {
        let told = line.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        reports.extend(told);
        bar.set_position(reports.len() as u64);
    }
    bar.finish_and_clear();
    reports
}

/// Results as JSON.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Demonstration {
    /// The partition's name.
    partition: String,
    /// The file in it.
    file: String,
    /// Ranks that took part.
    processes: u16,
    /// Servers of the partition.
    servers: usize,
    /// Cells along x, y, z.
    cells: [u64; 3],
    /// Bytes of the field.
    bytes: u64,
    /// Times that each side wrote and read it.
    passes: usize,
    /// The checkpoint through views.
    write: StepFacts,
    /// The restart through views.
    read: StepFacts,
    /// The same into and from a plain file.
    plain: PlainFacts,
    /// Speed through views by that of the plain file, open to close.
    write_vs_plain: f64,
    /// The same for the restart.
    read_vs_plain: f64,
    /// Values of the field, all right on both sides in every pass; a demonstration with a wrong one fails.
    verified_values: u64,
}

/// The plain side.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct PlainFacts {
    write: StepFacts,
    read: StepFacts,
}

/// One step of one side: the pass of median time.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct StepFacts {
    /// Calls of all ranks.
    calls: u64,
    /// Bytes of each call.
    call_bytes: u64,
    /// Open to close, the slowest rank.
    seconds: f64,
    /// Inside the calls, the slowest rank.
    calls_seconds: f64,
    /// Bytes of the field in MiB, by `seconds`.
    mib_per_s: f64,
    /// What the ranks counted, by name: requests sent, records, direct transfers, leases.
    counts: Counts,
}

impl StepFacts {
    fn median(reports: &[StepReport], side: DemoSide, step: DemoStep) -> StepFacts {
        let of_pass = |pass| {
            let mine = reports.iter().filter(|of| (of.pass, of.side, of.step) == (pass, side, step));
            StepFacts::of(&mine.collect::<Vec<_>>())
        };
        let mut passes: Vec<StepFacts> = (0..PASSES).map(of_pass).collect();
        passes.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
        passes.swap_remove(PASSES / 2)
    }

    #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
    fn of(ranks: &[&StepReport]) -> StepFacts {
        let slowest =
            |time: fn(&StepReport) -> f64| ranks.iter().map(|of| time(of)).fold(f64::MIN_POSITIVE, f64::max);
        let calls: u64 = ranks.iter().map(|of| of.calls).sum();
        let seconds = slowest(|of| of.seconds);
        StepFacts {
            calls,
            call_bytes: FIELD.bytes() / calls.max(1),
            seconds,
            calls_seconds: slowest(|of| of.calls_seconds),
            mib_per_s: FIELD.bytes() as f64 / f64::from(1 << 20) / seconds,
            counts: ranks.iter().fold(Counts::default(), |sum, of| sum.plus(&of.counts)),
        }
    }
}

impl Demonstration {
    /// From what all ranks reported.
    pub(crate) fn of(partition: &Partition, reports: &[StepReport]) -> Demonstration {
        let facts = |side, step| StepFacts::median(reports, side, step);
        let (write, read) = (facts(DemoSide::Views, DemoStep::Write), facts(DemoSide::Views, DemoStep::Read));
        let plain = PlainFacts {
            write: facts(DemoSide::Plain, DemoStep::Write),
            read: facts(DemoSide::Plain, DemoStep::Read),
        };
        Demonstration {
            partition: partition.name().to_owned(),
            file: format!("pario://{}/{PATH}", partition.name()),
            processes: RANKS,
            servers: partition.mount_handle().servers(),
            cells: [FIELD.x, FIELD.y, FIELD.z],
            bytes: FIELD.bytes(),
            passes: PASSES,
            write_vs_plain: plain.write.seconds / write.seconds,
            read_vs_plain: plain.read.seconds / read.seconds,
            write,
            read,
            plain,
            verified_values: FIELD.bytes() / VALUE_BYTES,
        }
    }

    /// As text.
    pub(crate) fn table(&self) -> String {
        let ([x, y, z], size) = (self.cells, Size(self.bytes).rounded());
        let mut text = format!(
            "{} ranks checkpoint a field of {x} × {y} × {z} doubles ({size}), each its own pencil: through a view with one\n\
             collective call into a file on {} servers, and as programs often do, one pwrite per row into a plain file\n\
             on the same file system. Then they restart: each reads a slab across all pencils. Median of {} passes.\n\n",
            self.processes, self.servers, self.passes
        );
        let mut table = Table::with_head(&["<", "calls", "of each", "open to close", "speed"]).indented(2);
        let plain = &self.plain;
        for (name, step) in [
            ("write, Pario through views", &self.write),
            ("write, plain file by pieces", &plain.write),
            ("read, Pario through views", &self.read),
            ("read, plain file", &plain.read),
        ] {
            table.row(vec![
                name.to_owned(),
                step.calls.to_string(),
                Size(step.call_bytes).rounded(),
                format!("{:.1} ms", step.seconds * 1e3),
                format!("{:.0} MiB/s", step.mib_per_s),
            ]);
        }
        let mut rows = Vec::new();
        // Writing into memory does not fail.
        let _ = table.print(&mut rows);
        text.push_str(&String::from_utf8_lossy(&rows));
        let _ = write!(
            text,
            "\nPario writes at {:.1} times the speed of the plain file ({:.0} against {:.0} MiB/s), and reads at {:.1} times.\n\
             verified: all {} values, on both sides, in every pass\n\n\
             what to do next:\n  pario run --stage-out out/ -- ./program   a partition for the life of your program; \
             what it wrote is kept in out/\n  pario up --name scratch --servers 4 --dir /data   a partition that stays; \
             then pario cp, ls, status, down\n  pario bench io   how fast it is against plain files on this machine\n",
            self.write_vs_plain,
            self.write.mib_per_s,
            plain.write.mib_per_s,
            self.read_vs_plain,
            self.verified_values
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_rank_of_the_median_pass_counts() {
        let mut reports = Vec::new();
        for (pass, seconds) in [0.125, 8.0, 1.0].into_iter().enumerate() {
            for slower in [0.5, 1.0] {
                let counts = Counts { records: 3, ..Counts::default() };
                let (seconds, calls_seconds) = (seconds * slower, seconds * slower / 2.0);
                let (side, step) = (DemoSide::Views, DemoStep::Write);
                reports.push(StepReport { pass, side, step, seconds, calls_seconds, calls: 8, counts });
            }
        }
        let facts = StepFacts::median(&reports, DemoSide::Views, DemoStep::Write);
        assert_eq!((facts.seconds, facts.calls_seconds, facts.calls), (1.0, 0.5, 16));
        assert_eq!((facts.counts.records, facts.mib_per_s), (6, 64.0));
        assert_eq!(facts.call_bytes, FIELD.bytes() / 16);
    }
}
