//! Options of a kernel, checked before anything is started.

use std::path::PathBuf;

use pario::core::Size;
use pario::partition::Key;

use super::shapes::{
    Btio, BtioClass, CELL_BYTES, Flash, GapPattern, Irregular, ShapeError, ShapeSpec, Strided, Subarray, Tile,
};
use super::side::KernelSide;

/// Options of every kernel.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct KernelPlan {
    /// Directory; the system\'s temporary directory if `None`.
    pub(crate) dir: Option<PathBuf>,
    /// Counted repetitions.
    pub(crate) rounds: usize,
    pub(crate) procs: u64,
    pub(crate) servers: usize,
    /// Per process; the partition's setting if `None`.
    pub(crate) outbox: Option<Size>,
    /// Limit of all stores together, in bytes per second, plain files included.
    pub(crate) store_limit: Option<u64>,
    /// Computing before each step.
    pub(crate) compute_ms: Option<f64>,
    /// Only these sides of every comparison, if given.
    pub(crate) sides: Vec<KernelSide>,
    /// Whether free memory is touched before each pass, so that the host has backed it.
    pub(crate) backed: bool,
    /// Only one comparison instead of all.
    pub(crate) only: Option<Only>,
    pub(crate) kernel: KernelKind,
}

/// A comparison that can be requested alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Only {
    /// The file cache on a plain file, against the plain file.
    Cache,
    /// Atomic mode, against none.
    Atomic,
    /// Data that fits into the outboxes, against memory.
    Within,
    /// Processes on one host and servers on another, over a link of this speed.
    Hosts { link_bits_s: u64 },
}

/// A kernel with its own options.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum KernelKind {
    Btio { class: BtioClass, dumps: u64, run_bytes: Option<u64> },
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
/// Lowest limit of a server's store.
const STORE_BYTES_PER_S_MIN: u64 = 1 << 20;
/// Most servers that a kernel brings up.
const SERVERS_MAX: usize = 64;

impl KernelKind {
    /// Its word on the command line.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            KernelKind::Btio { .. } => "btio",
            KernelKind::Tile(_) => "tile",
            KernelKind::Flash(_) => "flash",
            KernelKind::Strided { .. } => "strided",
            KernelKind::Subarray { .. } => "subarray",
            KernelKind::Irregular { .. } => "irregular",
            KernelKind::Scale { .. } => "scale",
        }
    }

    /// Its shapes, each with a word; the first is the main one.
    pub(super) fn shapes(&self, procs: u64) -> Result<Vec<(&'static str, ShapeSpec)>, ShapeError> {
        Ok(match *self {
            KernelKind::Btio { class, dumps, run_bytes } => {
                vec![(
                    "",
                    ShapeSpec::Btio(Btio { class, dumps, run_cells: run_bytes.map(run_cells).transpose()? }),
                )]
            }
            KernelKind::Tile(tile) => vec![("", ShapeSpec::Tile(tile))],
            KernelKind::Flash(flash) => vec![("", ShapeSpec::Flash(flash))],
            KernelKind::Strided { run_bytes: Some(bytes), size } => {
                vec![("", ShapeSpec::Strided(Strided::of(bytes, size.0, procs)))]
            }
            KernelKind::Strided { run_bytes: None, size } => vec![
                ("independent", ShapeSpec::Strided(Strided::of(INTERLEAVED_BYTES, size.0, procs))),
                ("contiguous", ShapeSpec::Strided(Strided::of(SEGMENT_BYTES, size.0, procs))),
            ],
            KernelKind::Subarray { dimensions, edge, dumps } => {
                let cube = |word, dimensions, usual| {
                    (word, ShapeSpec::Subarray(Subarray { dimensions, edge: edge.unwrap_or(usual), dumps }))
                };
                match dimensions {
                    None => vec![cube("three", 3, 256), cube("four", 4, 64)],
                    Some(4) => vec![cube("four", 4, 64)],
                    Some(other) => vec![cube("three", other, 256)],
                }
            }
            KernelKind::Irregular { extents, steps, seed } => {
                let shape = |pattern| ShapeSpec::Irregular(Irregular { pattern, extents, steps });
                vec![("vector4", shape(GapPattern::Vector4)), ("gaps", shape(GapPattern::Gaps { seed }))]
            }
            KernelKind::Scale { size, .. } => {
                vec![(
                    "",
                    ShapeSpec::Strided(Strided::of(SEGMENT_BYTES, size.0.saturating_mul(procs), procs)),
                )]
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

impl KernelPlan {
    /// Checks the plan; the error is one line.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (_, spec) in self.kernel.shapes(self.procs).map_err(|error| error.0)? {
            spec.check(self.procs).map_err(|error| error.0)?;
        }
        let servers =
            if let KernelKind::Scale { servers_max, .. } = self.kernel { servers_max } else { self.servers };
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

    /// Whether the published figures apply to this plan.
    pub(super) fn is_promised(&self) -> bool {
        let is_usual = self.procs == 4 && self.servers == 4;
        is_usual
            && match self.kernel {
                KernelKind::Btio { class, dumps, .. } => class == BtioClass::A && dumps == 40,
                KernelKind::Strided { size, .. } => size == Size(512 << 20),
                KernelKind::Irregular { extents, .. } => extents == 175_000,
                KernelKind::Tile(_)
                | KernelKind::Flash(_)
                | KernelKind::Subarray { .. }
                | KernelKind::Scale { .. } => false,
            }
    }

    /// Settings of a partition of `servers` servers, with an outbox and a limit if given.
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
        // Each server's store gets an equal share of the limit.
        let each = limit.map(|limit| limit / servers.max(1) as u64);
        options.extend(each.map(|each| (Key::LimitsStore, each.to_string())));
        options
    }
}
