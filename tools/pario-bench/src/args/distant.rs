//! Options of `bench distant` and `bench shared-files`.

use clap::Args as ClapArgs;
use pario::core::Size;

use super::CommonArgs;
use crate::distant::DistantPlan;
use crate::shared_files::SharedFilesPlan;
use crate::{BenchError, BenchResult};

#[derive(ClapArgs, Debug)]
pub(super) struct DistantArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Bytes of the file [default: 1GiB; 128MiB with --quick]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
}

#[derive(ClapArgs, Debug)]
pub(super) struct SharedFilesArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Processes, all on this machine
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4)]
    processes: usize,
    /// Records [default: 4000; 500 with --quick]
    #[arg(long, value_name = "N")]
    records: Option<u64>,
    /// Seed of sizes and order
    #[arg(long, value_name = "N", default_value_t = 1998)]
    seed: u64,
}

impl DistantArgs {
    pub(super) fn plan(&self) -> BenchResult<DistantPlan> {
        let size = self.size.unwrap_or(Size(if self.common.quick { 128 << 20 } else { 1 << 30 }));
        if size.0 < 64 << 20 || !size.0.is_multiple_of(4 << 20) {
            return Err(BenchError::usage(format!("--size {size}: a multiple of 4MiB, at least 64MiB")));
        }
        let bytes = if self.common.quick { 16 << 20 } else { 64 << 20 };
        let idle_seconds = if self.common.quick { 1 } else { 10 };
        let (dir, pairs) = (self.common.dir.clone(), self.common.pairs()?);
        Ok(DistantPlan { dir, size, bytes, pairs, idle_seconds })
    }
}

impl SharedFilesArgs {
    pub(super) fn plan(&self) -> BenchResult<SharedFilesPlan> {
        let records = self.records.unwrap_or(if self.common.quick { 500 } else { 4000 });
        let processes = self.processes;
        if !(1..=256).contains(&processes) {
            return Err(BenchError::usage(format!("--processes {processes}: from 1 to 256")));
        }
        if records < processes as u64 || records.is_multiple_of(7_919) {
            let text = format!("--records {records}: at least one for each process, and no multiple of 7919");
            return Err(BenchError::usage(text));
        }
        let (dir, pairs, seed) = (self.common.dir.clone(), self.common.pairs()?, self.seed);
        Ok(SharedFilesPlan { dir, pairs, processes, records, seed })
    }
}
