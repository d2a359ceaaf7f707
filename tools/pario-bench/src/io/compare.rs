//! A transfer through a partition against a plain file, pair by pair, cold and warm.
//!
//! Cold: the first transfer of a fresh process. Warm: its second. Removing files and waiting for it is not timed.

use super::super::error::BenchError;
use super::super::figures::{Goal, Versus};
use super::super::job::BenchJob;
use super::super::testbed::Testbed;
use super::super::worker::Worker;
use super::IoBench;
use super::transfer::{Transfer, TransferFile};

/// Directions of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TransferDirections {
    /// Write only.
    Write,
    /// Write, then read.
    Both,
}

/// A comparison with a plain file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison<'a> {
    pub(super) partition: &'a str,
    pub(super) bytes: u64,
    pub(super) call_bytes: usize,
    /// Variables of the worker's environment.
    pub(super) variables: &'a [(&'a str, &'a str)],
    pub(super) directions: TransferDirections,
}

/// Times of one side of one pair, cold and warm.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TransferTimes {
    pub(super) write_s: [f64; 2],
    pub(super) read_s: [f64; 2],
}

impl IoBench<'_> {
    /// Adds `PREFIXwrite_vs_plain`, `PREFIXread_vs_plain` and the warm ones; `one_` becomes a `_1` behind the name.
    pub(super) fn compare(
        &mut self,
        prefix: &str,
        what: &Comparison<'_>,
        goals: (f64, f64),
    ) -> Result<(), BenchError> {
        let mut write = [Versus::default(), Versus::default()];
        let mut read = [Versus::default(), Versus::default()];
        // The first pair is not counted: it touches memory for the first time.
        for pair in 0..=self.plan.pairs {
            let named =
                format!("{}transfers with {} servers, pair", prefix.replace('_', " "), what.partition);
            self.progress.step(&named, pair.saturating_sub(1), self.plan.pairs);
            let plain = what.side(&self.testbed, what.plain(&self.testbed))?;
            let pario = what.side(&self.testbed, what.pario())?;
            if pair == 0 {
                continue;
            }
            for warmth in 0..2 {
                write[warmth].pair(plain.write_s[warmth], pario.write_s[warmth]);
                read[warmth].pair(plain.read_s[warmth], pario.read_s[warmth]);
            }
        }
        self.add_versus(&figure_name(prefix, "write"), &write, (what.bytes, goals.0));
        if what.directions == TransferDirections::Both {
            self.add_versus(&figure_name(prefix, "read"), &read, (what.bytes, goals.1));
        }
        Ok(())
    }

    pub(super) fn add_versus(&mut self, name: &str, versus: &[Versus; 2], (bytes, goal): (u64, f64)) {
        let [cold, warm] = versus;
        self.figures.add(
            name,
            cold.ratio(),
            Goal::AtLeast(goal),
            format!("{}; fresh process", cold.speeds(bytes)),
        );
        self.figures.add(format!("{name}_warm"), warm.ratio(), Goal::None, warm.speeds(bytes));
    }
}

fn figure_name(prefix: &str, direction: &str) -> String {
    match prefix {
        "one_" => format!("{direction}_vs_plain_1"),
        _ => format!("{prefix}{direction}_vs_plain"),
    }
}

impl Comparison<'_> {
    pub(super) fn plain(&self, ground: &Testbed) -> Transfer {
        self.transfer(TransferFile::Plain { path: ground.plain_file() })
    }

    pub(super) fn pario(&self) -> Transfer {
        self.transfer(TransferFile::Pario {
            partition: self.partition.to_owned(),
            path: "transfer".to_owned(),
        })
    }

    fn transfer(&self, place: TransferFile) -> Transfer {
        let bytes = self.bytes - self.bytes % self.call_bytes as u64;
        Transfer { location: place, bytes, call_bytes: self.call_bytes }
    }

    pub(super) fn side(&self, ground: &Testbed, transfer: Transfer) -> Result<TransferTimes, BenchError> {
        let mut times = TransferTimes::default();
        let (write, read, remove) =
            (BenchJob::Write(transfer.clone()), BenchJob::Read(transfer.clone()), BenchJob::Remove(transfer));
        let mut writer = self.worker(ground)?;
        times.write_s[0] = writer.run_job(&write)?.seconds;
        writer.run_job(&remove)?;
        ground.wait_idle(self.partition)?;
        times.write_s[1] = writer.run_job(&write)?.seconds;
        drop(writer);
        let mut reader = self.worker(ground)?;
        if self.directions == TransferDirections::Both {
            times.read_s = [reader.run_job(&read)?.seconds, reader.run_job(&read)?.seconds];
        }
        reader.run_job(&remove)?;
        ground.wait_idle(self.partition)?;
        Ok(times)
    }

    /// A fresh process with its buffer touched.
    pub(super) fn worker(&self, ground: &Testbed) -> Result<Worker, BenchError> {
        let mut worker = Worker::start(&ground.registry_path(), self.variables)?;
        worker.run_job(&BenchJob::Prepare { buffer_bytes: self.call_bytes })?;
        Ok(worker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_names_that_are_promised() {
        assert_eq!(figure_name("", "write"), "write_vs_plain");
        assert_eq!(figure_name("one_", "read"), "read_vs_plain_1");
        assert_eq!(figure_name("small_", "write"), "small_write_vs_plain");
        assert_eq!(figure_name("tcp_", "read"), "tcp_read_vs_plain");
    }
}
