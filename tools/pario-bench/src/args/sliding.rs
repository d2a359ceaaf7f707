//! Options of `pario bench sliding`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args as ClapArgs;
use pario::core::Size;

use super::CommonArgs;
use crate::sliding::{self, SlidingPlan, SlidingSide};
use crate::{BenchError, BenchResult};

#[derive(ClapArgs, Debug)]
pub(super) struct SlidingArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Processes, from 2 to 16; several numbers, separated by commas, are compared with each other
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', default_value = "4")]
    processes: Vec<u64>,
    /// Bytes of the file; several sizes, separated by commas, are compared with each other [default: 256MB; 32MB with --quick]
    #[arg(long, value_name = "SIZE", value_delimiter = ',')]
    bytes: Option<Vec<Size>>,
    /// Bytes of a page, of which a window has two
    #[arg(long, value_name = "SIZE", default_value = "256KiB")]
    page: Size,
    /// How often every process goes through all windows of a segment before the next
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: u64,
    /// Hosts: 1, or more as network namespaces, with the file on one more host (needs root)
    #[arg(long, value_name = "N", default_value_t = 1)]
    hosts: usize,
    /// Speed of each host's link, in both directions, as in 1Gbit or 100Mbit
    #[arg(long, value_name = "RATE", default_value = "1Gbit")]
    link: LinkSpeed,
    /// Memory of the file cache on each node
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    cache: Size,
    /// Only these sides, as in cache,range-locks [default: all]
    #[arg(long, value_name = "SIDES", value_delimiter = ',')]
    sides: Vec<SlidingSide>,
    /// Also draw the speeds of all sides into this file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// Bits a second, as in `1Gbit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LinkSpeed(pub(super) u64);

impl FromStr for LinkSpeed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.trim().to_ascii_lowercase();
        let lower = lower.strip_suffix("/s").unwrap_or(&lower);
        let units = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1000), ("bit", 1)];
        let found = units.iter().find_map(|(unit, factor)| Some((lower.strip_suffix(unit)?, factor)));
        let bits = found.and_then(|(number, factor)| number.trim().parse::<u64>().ok()?.checked_mul(*factor));
        bits.map(LinkSpeed)
            .ok_or_else(|| "must be a whole number with a unit, as in 1Gbit or 100Mbit".to_owned())
    }
}

impl SlidingArgs {
    fn plan(&self) -> BenchResult<SlidingPlan> {
        let usual = if self.common.quick { 32_000_000 } else { 256_000_000 };
        let plan = SlidingPlan {
            dir: self.common.dir.clone(),
            pairs: self.common.pairs()?,
            processes: self.processes.clone(),
            bytes: self.bytes.clone().unwrap_or_else(|| vec![Size(usual)]),
            page: self.page,
            rounds: self.rounds,
            hosts: self.hosts,
            link_bits_s: self.link.0,
            cache: self.cache,
            sides: self.sides.clone(),
        };
        plan.check().map_err(BenchError::usage)?;
        Ok(plan)
    }
}

/// Runs the benchmark and prints the result.
pub(super) fn show(cli: &super::Cli, args: &SlidingArgs) -> BenchResult {
    let report = sliding::run(&args.plan()?)?;
    if let Some(path) = &args.plot {
        report.plot(path)?;
    }
    super::print(&if cli.json { report.json() } else { report.table() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_units() {
        let cases = [("1Gbit", 1_000_000_000), ("100 Mbit/s", 100_000_000), ("64kbit", 64_000), ("5bit", 5)];
        for (text, bits) in cases {
            assert_eq!(text.parse(), Ok(LinkSpeed(bits)), "{text}");
        }
        for text in ["1", "fast", "1.5Gbit", "99999999999Gbit"] {
            assert!(text.parse::<LinkSpeed>().is_err(), "{text}");
        }
    }
}
