//! A transfer through a partition against the plain one, pair by pair, cold and warm.
//!
//! Cold: the first transfer of a fresh process. Warm: its second. Removing files and waiting until they are gone is outside
//! of every time.

use super::super::error::BenchError;
use super::super::figures::{Goal, Versus};
use super::super::ground::Ground;
use super::super::job::Job;
use super::super::worker::Worker;
use super::Bench;
use super::transfer::{Place, Transfer};

/// Which ways data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Directions {
    /// Write only.
    Write,
    /// Write, then read.
    Both,
}

/// What is compared with a plain file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison<'a> {
    pub(super) partition: &'a str,
    pub(super) bytes: u64,
    pub(super) call_bytes: usize,
    /// Variables of the worker's environment.
    pub(super) variables: &'a [(&'a str, &'a str)],
    pub(super) directions: Directions,
}

/// Times of one side of one pair, cold and warm.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    write_s: [f64; 2],
    read_s: [f64; 2],
}

impl Bench<'_> {
    /// Adds `PREFIXwrite_vs_plain`, `PREFIXread_vs_plain` and the warm ones; `one_` becomes a `_1` behind the name.
    pub(super) fn compare(
        &mut self,
        prefix: &str,
        what: &Comparison<'_>,
        goals: (f64, f64),
    ) -> Result<(), BenchError> {
        let mut write = [Versus::default(), Versus::default()];
        let mut read = [Versus::default(), Versus::default()];
        // The first pair is not counted: it finds memory that nobody has used yet.
        for pair in 0..=self.plan.pairs {
            let named =
                format!("{}transfers with {} servers, pair", prefix.replace('_', " "), what.partition);
            self.progress.step(&named, pair.saturating_sub(1), self.plan.pairs);
            let plain = what.side(&self.ground, what.plain(&self.ground))?;
            let pario = what.side(&self.ground, what.pario())?;
            if pair == 0 {
                continue;
            }
            for warmth in 0..2 {
                write[warmth].pair(plain.write_s[warmth], pario.write_s[warmth]);
                read[warmth].pair(plain.read_s[warmth], pario.read_s[warmth]);
            }
        }
        self.add_versus(&figure_name(prefix, "write"), &write, (what.bytes, goals.0));
        if what.directions == Directions::Both {
            self.add_versus(&figure_name(prefix, "read"), &read, (what.bytes, goals.1));
        }
        Ok(())
    }

    fn add_versus(&mut self, name: &str, versus: &[Versus; 2], (bytes, goal): (u64, f64)) {
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
    pub(super) fn plain(&self, ground: &Ground) -> Transfer {
        self.transfer(Place::Plain { path: ground.plain_file() })
    }

    pub(super) fn pario(&self) -> Transfer {
        self.transfer(Place::Pario { partition: self.partition.to_owned(), path: "transfer".to_owned() })
    }

    fn transfer(&self, place: Place) -> Transfer {
        let bytes = self.bytes - self.bytes % self.call_bytes as u64;
        Transfer { place, bytes, call_bytes: self.call_bytes }
    }

    fn side(&self, ground: &Ground, transfer: Transfer) -> Result<Times, BenchError> {
        let mut times = Times::default();
        let (write, read, remove) =
            (Job::Write(transfer.clone()), Job::Read(transfer.clone()), Job::Remove(transfer));
        let mut writer = self.worker(ground)?;
        times.write_s[0] = writer.ask(&write)?.seconds;
        writer.ask(&remove)?;
        ground.settle(self.partition)?;
        times.write_s[1] = writer.ask(&write)?.seconds;
        drop(writer);
        let mut reader = self.worker(ground)?;
        if self.directions == Directions::Both {
            times.read_s = [reader.ask(&read)?.seconds, reader.ask(&read)?.seconds];
        }
        reader.ask(&remove)?;
        ground.settle(self.partition)?;
        Ok(times)
    }

    /// A fresh process with its buffer touched.
    pub(super) fn worker(&self, ground: &Ground) -> Result<Worker, BenchError> {
        let mut worker = Worker::start(&ground.registry_path(), self.variables)?;
        worker.ask(&Job::Prepare { buffer_bytes: self.call_bytes })?;
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
