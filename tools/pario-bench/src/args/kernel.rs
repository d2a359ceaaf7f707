//! Options of `pario bench KERNEL`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args as ClapArgs;
use pario::core::Size;

use super::CommonArgs;
use super::sliding::LinkSpeed;
use crate::kernel::{BtioClass, Flash, KernelKind, KernelPlan, KernelSide, Only, Tile};
use crate::{BenchError, BenchResult};

/// Default seed of random gaps.
const SEED: u64 = 20_090_701;

/// Default link speed between hosts.
const LINK_DEFAULT: LinkSpeed = LinkSpeed(1_000_000_000);

/// Options of every kernel.
#[derive(ClapArgs, Debug)]
pub(super) struct KernelCommon {
    #[command(flatten)]
    common: CommonArgs,
    /// Processes
    #[arg(long, value_name = "N", default_value_t = 4)]
    procs: u64,
    /// Servers of the partition
    #[arg(long, value_name = "N", default_value_t = 4)]
    servers: usize,
    /// Outbox of each process [default: the partition's setting]
    #[arg(long, value_name = "SIZE")]
    outbox: Option<Size>,
    /// What all stores together get through, plain files included, as in 500MB/s [default: no limit]
    #[arg(long, value_name = "RATE")]
    store_limit: Option<Rate>,
    /// Milliseconds of computing on every rank before each step [default: none]
    #[arg(long, value_name = "MS")]
    compute: Option<Millis>,
    /// Only these sides of every comparison, as in two-phase,server-directed [default: all]
    #[arg(long, value_name = "SIDES", value_delimiter = ',')]
    sides: Vec<KernelSide>,
    /// Take memory as the host leaves it: without touching free memory before each pass, for all sides alike
    #[arg(long)]
    no_warm_memory: bool,
    /// Also draw the methods' speeds into this file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

#[derive(ClapArgs, Debug)]
pub(super) struct BtioArgs {
    #[command(flatten)]
    kernel: KernelCommon,
    /// Size of the problem: 12³, 24³, 64³, 102³ or 162³ cells
    #[arg(long, value_enum, default_value = "A", ignore_case = true)]
    class: BtioClass,
    /// Solutions written
    #[arg(long, value_name = "N", default_value_t = 40)]
    dumps: u64,
    /// Deal cells along x in runs of so many bytes [default: one run per box]
    #[arg(long, value_name = "BYTES")]
    run_bytes: Option<u64>,
    /// Only the file cache on a plain file, against the plain file alone
    #[arg(long, conflicts_with = "store_limit")]
    cache: bool,
    /// Only atomic mode, against none
    #[arg(long, conflicts_with = "cache")]
    atomic: bool,
    /// Only data that fits into the outboxes, against memory
    #[arg(long, conflicts_with_all = ["cache", "atomic", "outbox"])]
    within_outboxes: bool,
    /// With 2: only processes on one host and servers on another, as network namespaces (needs root)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    hosts: u8,
    /// Speed of the links of --hosts 2, in both directions, as in 100Mbit [default: 1Gbit]
    #[arg(long, value_name = "RATE")]
    link: Option<LinkSpeed>,
}

#[derive(ClapArgs, Debug)]
pub(super) struct TileArgs {
    #[command(flatten)]
    kernel: KernelCommon,
    /// Bytes of all tiles [default: 1GiB; 128MiB with --quick]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Bytes of a row of a tile
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    run_bytes: Size,
    /// Tiles along x and y, as in 4x2 [default: as equal as can be]
    #[arg(long, value_name = "XxY")]
    grid: Option<Grid>,
    /// Times that all tiles are written
    #[arg(long, value_name = "N", default_value_t = 1)]
    dumps: u64,
}

#[derive(ClapArgs, Debug)]
pub(super) struct FlashArgs {
    #[command(flatten)]
    kernel: KernelCommon,
    /// Cells along each edge of a block: 8 or 16
    #[arg(long, value_name = "N", default_value_t = 8)]
    block: u64,
    /// Guard cells on each side
    #[arg(long, value_name = "N", default_value_t = 4)]
    guards: u64,
    /// Blocks of each process
    #[arg(long, value_name = "N", default_value_t = 80)]
    blocks: u64,
    /// Checkpoints of 24 variables
    #[arg(long, value_name = "N", default_value_t = 1)]
    dumps: u64,
    /// Only the file cache on a plain file, against the plain file alone
    #[arg(long, conflicts_with = "store_limit")]
    cache: bool,
}

#[derive(ClapArgs, Debug)]
pub(super) struct StridedArgs {
    #[command(flatten)]
    kernel: KernelCommon,
    /// Bytes of all processes [default: 512MiB; 64MiB with --quick]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Bytes of a piece [default: 8KiB, then 1MiB]
    #[arg(long, value_name = "SIZE")]
    run_bytes: Option<Size>,
}

#[derive(ClapArgs, Debug)]
pub(super) struct SubarrayArgs {
    #[command(flatten)]
    kernel: KernelCommon,
    /// 3 or 4 [default: both]
    #[arg(long, value_name = "N")]
    dimensions: Option<u32>,
    /// Numbers along each edge [default: 256 in three dimensions, 64 in four]
    #[arg(long, value_name = "N")]
    edge: Option<u64>,
    /// Times that the array is written
    #[arg(long, value_name = "N", default_value_t = 2)]
    dumps: u64,
}

#[derive(ClapArgs, Debug)]
pub(super) struct IrregularArgs {
    #[command(flatten)]
    kernel: KernelCommon,
    /// Pieces of four bytes that a process has in a step
    #[arg(long, value_name = "N", default_value_t = 175_000)]
    extents: u64,
    /// Collective calls
    #[arg(long, value_name = "N", default_value_t = 3)]
    steps: u64,
    /// What random gaps are drawn from
    #[arg(long, value_name = "NUMBER", default_value_t = SEED)]
    seed: u64,
}

#[derive(ClapArgs, Debug)]
pub(super) struct ScaleArgs {
    #[command(flatten)]
    kernel: KernelCommon,
    /// Most servers; from 1 on, doubling
    #[arg(long, value_name = "N", default_value_t = 4)]
    servers_max: usize,
    /// Bytes of each process [default: 128MiB; 16MiB with --quick]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
}

/// Bytes a second, as in `500MB/s`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rate(u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = text.strip_suffix("/s").unwrap_or(text);
        size.parse::<Size>().map(|size| Rate(size.0)).map_err(|error| error.to_string())
    }
}

/// Milliseconds, as in `8` or `8ms`.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Millis(f64);

impl FromStr for Millis {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix("ms").unwrap_or(text).trim();
        number.parse().map(Millis).map_err(|_| "must be a number of milliseconds, as in 8".to_owned())
    }
}

/// Two numbers, as in `4x2`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Grid([u64; 2]);

impl FromStr for Grid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('x').and_then(|(x, y)| Some([x.parse().ok()?, y.parse().ok()?]));
        parsed.map(Grid).ok_or_else(|| "must be two numbers, as in 4x2".to_owned())
    }
}

/// A kernel's plan and the path of its plot.
pub(super) struct KernelRequest {
    pub(super) plan: KernelPlan,
    pub(super) plot: Option<PathBuf>,
}

impl KernelCommon {
    fn size(&self, given: Option<Size>, usual: u64, quick: u64) -> Size {
        given.unwrap_or(Size(if self.common.quick { quick } else { usual }))
    }

    fn asked(&self, kernel: KernelKind, only: Option<Only>) -> BenchResult<KernelRequest> {
        let plan = KernelPlan {
            dir: self.common.dir.clone(),
            rounds: self.common.pairs()?,
            procs: self.procs,
            servers: self.servers,
            outbox: self.outbox,
            store_limit: self.store_limit.map(|rate| rate.0),
            compute_ms: self.compute.map(|millis| millis.0),
            sides: self.sides.clone(),
            backed: !self.no_warm_memory,
            only,
            kernel,
        };
        plan.check().map_err(BenchError::usage)?;
        Ok(KernelRequest { plan, plot: self.plot.clone() })
    }
}

impl BtioArgs {
    pub(super) fn asked(&self) -> BenchResult<KernelRequest> {
        let BtioArgs { class, dumps, run_bytes, .. } = *self;
        self.kernel.asked(KernelKind::Btio { class, dumps, run_bytes }, self.only()?)
    }

    fn only(&self) -> BenchResult<Option<Only>> {
        let link_bits_s = self.link.unwrap_or(LINK_DEFAULT).0;
        if self.link.is_some() && self.hosts < 2 {
            return Err(BenchError::usage("--link: on one host there is none; add --hosts 2"));
        }
        let choices = [
            (self.cache, Only::Cache),
            (self.atomic, Only::Atomic),
            (self.within_outboxes, Only::Within),
            (1 < self.hosts, Only::Hosts { link_bits_s }),
        ];
        let mut asked = choices.iter().filter(|(is_asked, _)| *is_asked).map(|(_, only)| *only);
        let first = asked.next();
        if asked.next().is_some() {
            return Err(BenchError::usage("--cache, --atomic, --within-outboxes and --hosts 2: one of them"));
        }
        Ok(first)
    }
}

impl TileArgs {
    pub(super) fn asked(&self) -> BenchResult<KernelRequest> {
        let total_bytes = self.kernel.size(self.size, 1 << 30, 128 << 20).0;
        let grid = self.grid.map(|grid| grid.0);
        let tile = Tile { row_bytes: self.run_bytes.0, total_bytes, grid, dumps: self.dumps };
        self.kernel.asked(KernelKind::Tile(tile), None)
    }
}

impl FlashArgs {
    pub(super) fn asked(&self) -> BenchResult<KernelRequest> {
        let FlashArgs { block, guards, blocks, dumps, cache, .. } = *self;
        let flash = KernelKind::Flash(Flash { edge: block, guards, blocks, checkpoints: dumps });
        self.kernel.asked(flash, cache.then_some(Only::Cache))
    }
}

impl StridedArgs {
    pub(super) fn asked(&self) -> BenchResult<KernelRequest> {
        let size = self.kernel.size(self.size, 512 << 20, 64 << 20);
        self.kernel.asked(KernelKind::Strided { run_bytes: self.run_bytes.map(|size| size.0), size }, None)
    }
}

impl SubarrayArgs {
    pub(super) fn asked(&self) -> BenchResult<KernelRequest> {
        let SubarrayArgs { dimensions, edge, dumps, .. } = *self;
        self.kernel.asked(KernelKind::Subarray { dimensions, edge, dumps }, None)
    }
}

impl IrregularArgs {
    pub(super) fn asked(&self) -> BenchResult<KernelRequest> {
        let IrregularArgs { extents, steps, seed, .. } = *self;
        self.kernel.asked(KernelKind::Irregular { extents, steps, seed }, None)
    }
}

impl ScaleArgs {
    pub(super) fn asked(&self) -> BenchResult<KernelRequest> {
        let size = self.kernel.size(self.size, 128 << 20, 16 << 20);
        self.kernel.asked(KernelKind::Scale { servers_max: self.servers_max, size }, None)
    }
}
