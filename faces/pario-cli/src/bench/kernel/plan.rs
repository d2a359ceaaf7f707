//! What a kernel is asked for, checked before anything is started.

use std::path::PathBuf;

use pario::core::Size;
use pario::partition::Key;

use super::shapes::{
    Btio, CELL_BYTES, Class, Flash, Irregular, Pattern, ShapeError, Spec, Strided, Subarray, Tile,
};
use super::side::Side;

/// What every kernel can be asked for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Plan {
    /// Where; the system's directory for temporary files if `None`.
    pub(crate) dir: Option<PathBuf>,
    /// Rounds that count.
    pub(crate) rounds: usize,
    pub(crate) procs: u64,
    pub(crate) servers: usize,
    /// Of every process; the partition's setting if `None`.
    pub(crate) outbox: Option<Size>,
    /// What all stores together get through in a second, plain files included.
    pub(crate) store_limit: Option<u64>,
    /// Computing before each step.
    pub(crate) compute_ms: Option<f64>,
    /// Only these sides of every comparison, if any are named.
    pub(crate) sides: Vec<Side>,
    /// Whether free memory is touched before each pass, so that the host has backed it.
    pub(crate) backed: bool,
    /// Only one comparison instead of all.
    pub(crate) only: Option<Only>,
    pub(crate) kernel: Kernel,
}

/// A comparison that a kernel can be asked for alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Only {
    /// The cooperative cache on a plain file, against the plain file.
    Cache,
    /// Atomic mode, against none.
    Atomic,
    /// Data that fits into the outboxes, against memory.
    Within,
    /// Processes on one host and servers on another, joined by links of so many bits a second.
    Hosts { link_bits_s: u64 },
}

/// Which kernel, with its own options.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Kernel {
    Btio { class: Class, dumps: u64, run_bytes: Option<u64> },
    Tile(Tile),
    Flash(Flash),
    Strided { run_bytes: Option<u64>, size: Size },
    Subarray { dimensions: Option<u32>, edge: Option<u64>, dumps: u64 },
    Irregular { extents: u64, steps: u64, seed: u64 },
    Scale { servers_max: usize, size: Size },
}

/// Pieces of the strided kernel: interleaved, and contiguous segments.
pub(super) const INTERLEAVED_BYTES: u64 = 8 << 10;
pub(super) const SEGMENT_BYTES: u64 = 1 << 20;
/// Bytes of a run in btio's short variant.
pub(super) const SHORT_RUN_BYTES: u64 = 240;
/// Slowest store of a server.
const STORE_BYTES_PER_S_MIN: u64 = 1 << 20;
/// Most servers that a kernel brings up.
const SERVERS_MAX: usize = 64;

impl Kernel {
    /// Its word on the command line.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Kernel::Btio { .. } => "btio",
            Kernel::Tile(_) => "tile",
            Kernel::Flash(_) => "flash",
            Kernel::Strided { .. } => "strided",
            Kernel::Subarray { .. } => "subarray",
            Kernel::Irregular { .. } => "irregular",
            Kernel::Scale { .. } => "scale",
        }
    }

    /// The shapes it plays, with a word for each; the first is the main one.
    pub(super) fn shapes(&self, procs: u64) -> Result<Vec<(&'static str, Spec)>, ShapeError> {
        Ok(match *self {
            Kernel::Btio { class, dumps, run_bytes } => {
                vec![(
                    "",
                    Spec::Btio(Btio { class, dumps, run_cells: run_bytes.map(run_cells).transpose()? }),
                )]
            }
            Kernel::Tile(tile) => vec![("", Spec::Tile(tile))],
            Kernel::Flash(flash) => vec![("", Spec::Flash(flash))],
            Kernel::Strided { run_bytes: Some(bytes), size } => {
                vec![("", Spec::Strided(Strided::of(bytes, size.0, procs)))]
            }
            Kernel::Strided { run_bytes: None, size } => vec![
                ("independent", Spec::Strided(Strided::of(INTERLEAVED_BYTES, size.0, procs))),
                ("contiguous", Spec::Strided(Strided::of(SEGMENT_BYTES, size.0, procs))),
            ],
            Kernel::Subarray { dimensions, edge, dumps } => {
                let cube = |word, dimensions, usual| {
                    (word, Spec::Subarray(Subarray { dimensions, edge: edge.unwrap_or(usual), dumps }))
                };
                match dimensions {
                    None => vec![cube("three", 3, 256), cube("four", 4, 64)],
                    Some(4) => vec![cube("four", 4, 64)],
                    Some(other) => vec![cube("three", other, 256)],
                }
            }
            Kernel::Irregular { extents, steps, seed } => {
                let shape = |pattern| Spec::Irregular(Irregular { pattern, extents, steps });
                vec![("vector4", shape(Pattern::Vector4)), ("gaps", shape(Pattern::Gaps { seed }))]
            }
            Kernel::Scale { size, .. } => {
                vec![("", Spec::Strided(Strided::of(SEGMENT_BYTES, size.0.saturating_mul(procs), procs)))]
            }
        })
    }
}

/// Cells of a run.
fn run_cells(bytes: u64) -> Result<u64, ShapeError> {
    if bytes.is_multiple_of(CELL_BYTES) && 0 < bytes {
        return Ok(bytes / CELL_BYTES);
    }
    Err(ShapeError(format!("--run-bytes {bytes}: must be a multiple of a cell's {CELL_BYTES} bytes")))
}

impl Plan {
    /// Whether it can be done, told in one line if not.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (_, spec) in self.kernel.shapes(self.procs).map_err(|error| error.0)? {
            spec.check(self.procs).map_err(|error| error.0)?;
        }
        let servers =
            if let Kernel::Scale { servers_max, .. } = self.kernel { servers_max } else { self.servers };
        if servers == 0 || SERVERS_MAX < servers {
            return Err(format!("--servers {servers}: must be from 1 to {SERVERS_MAX}"));
        }
        if let Some(Only::Hosts { link_bits_s: ..1_000_000 }) = self.only {
            return Err("--link: at least 1Mbit".to_owned());
        }
        if self.compute_ms.is_some_and(|ms| !(0.0..=60_000.0).contains(&ms)) {
            return Err("--compute: must be from 0 to 60000 milliseconds".to_owned());
        }
        if self.store_limit.is_some_and(|limit| limit / (servers as u64) < STORE_BYTES_PER_S_MIN) {
            let least = Size(STORE_BYTES_PER_S_MIN);
            return Err(format!(
                "--store-limit: each of {servers} servers must get {least} a second through"
            ));
        }
        Ok(())
    }

    /// Whether it is what the promised figures are promised for.
    pub(super) fn is_promised(&self) -> bool {
        let is_usual = self.procs == 4 && self.servers == 4;
        is_usual
            && match self.kernel {
                Kernel::Btio { class, dumps, .. } => class == Class::A && dumps == 40,
                Kernel::Strided { size, .. } => size == Size(512 << 20),
                Kernel::Irregular { extents, .. } => extents == 175_000,
                Kernel::Tile(_) | Kernel::Flash(_) | Kernel::Subarray { .. } | Kernel::Scale { .. } => false,
            }
    }

    /// Settings of a partition of so many servers, with an outbox and a limit where one is wanted.
    pub(super) fn options(
        &self,
        servers: usize,
        outbox: Option<Size>,
        limit: Option<u64>,
    ) -> Vec<(Key, String)> {
        let mut options = Vec::new();
        if let Some(outbox) = self.outbox.or(outbox) {
            options.push((Key::CacheOutbox, outbox.to_string()));
        }
        // Each server's store is slowed so that all together get the limit through.
        let each = limit.map(|limit| limit / servers.max(1) as u64);
        options.extend(each.map(|each| (Key::LimitsStore, each.to_string())));
        options
    }
}
