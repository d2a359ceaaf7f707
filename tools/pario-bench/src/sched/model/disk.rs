//! The modelled disk: time of one command, from the positions of head and platter.
//!
//! ```text
//! rotation        = 60 s / 7200                                                       8.33 ms
//! track           = bandwidth · rotation                                              475 kB
//! seek(d)         = 0                                            if d < track
//!                   t₁ + (t̄ − t₁) · 15/8 · √(d / capacity)       else                  2 … 15 ms, 9 ms on average
//! wait            = where the platter stands is drawn evenly                          0 … 8.33 ms
//! positioned      = now + command + seek(|start − at|) + wait + length / bandwidth
//! streamed        = max(now + command + length / interface, passed + (start + length − at) / bandwidth)
//! end             = min(positioned, streamed), where `streamed` is possible
//! ```
//! `at` is the byte after the last command, `passed` the time when the head was there. The mean of √(d/capacity) over two
//! random places is 8/15, hence the factor. A disk of the time goes on reading after a command, into its buffer: a read that
//! starts at `at` or a little further on finds its bytes there, or joins the stream; if the buffer filled up before it came, only
//! what is in the buffer can be had so. A write joins only the write that it continues (the disk's write cache), and only
//! without a gap. Tracks are skewed so that a stream runs over their ends without a loss.
//!
//! Never: chooses the next command; knows files. Always: the same answer to the same calls.

use super::random::ModelRandom;
use super::{NS, VirtualNanos};

/// Parameters of a disk.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct DiskParams {
    /// Bytes a second off the platter.
    pub(crate) bandwidth: u64,
    /// Bytes a second out of the buffer.
    pub(crate) interface: u64,
    /// Bytes.
    pub(crate) capacity: u64,
    /// One rotation.
    pub(crate) rotation_ns: VirtualNanos,
    /// Seek to the next track.
    pub(crate) seek_min_ns: VirtualNanos,
    /// Mean seek between two random positions.
    pub(crate) seek_average_ns: VirtualNanos,
    /// Fixed cost of each command.
    pub(crate) command_ns: VirtualNanos,
    /// Bytes that the disk prefetches after a read.
    pub(crate) buffer: u64,
}

impl DiskParams {
    /// The paper's: an IDE disk of 80 GB, 57 MB/s, head movements of about 9 ms.
    pub(crate) const PAPER: DiskParams = DiskParams {
        bandwidth: 57_000_000,
        interface: 100_000_000,
        capacity: 80_000_000_000,
        rotation_ns: 8_333_333,
        seek_min_ns: 2_000_000,
        seek_average_ns: 9_000_000,
        command_ns: 300_000,
        buffer: 512 << 10,
    };
}

/// Direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DiskDirection {
    Read,
    Write,
}

/// A command: range of bytes on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DiskCommand {
    pub(crate) kind: DiskDirection,
    /// First byte.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) length: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct ModelDisk {
    params: DiskParams,
    at: u64,
    passed: VirtualNanos,
    last: DiskDirection,
    platter: ModelRandom,
}

impl ModelDisk {
    /// Its head rests at byte 0; the seed is for the platter.
    pub(crate) fn new(params: DiskParams, seed: u64) -> ModelDisk {
        ModelDisk { params, at: 0, passed: 0, last: DiskDirection::Write, platter: ModelRandom::new(seed) }
    }

    /// The byte after the last command.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Executes a command issued at `now`; returns its end.
    pub(crate) fn serve(&mut self, now: VirtualNanos, command: DiskCommand) -> VirtualNanos {
        let positioned = self.positioned(now, command);
        let end = self.streamed(now, command).map_or(positioned, |streamed| streamed.min(positioned));
        self.at = command.start + command.length;
        self.passed = end;
        self.last = command.kind;
        end
    }

    fn positioned(&mut self, now: VirtualNanos, command: DiskCommand) -> VirtualNanos {
        let wait = self.platter.below(self.params.rotation_ns);
        let there = now + self.params.command_ns + self.seek(self.at.abs_diff(command.start));
        there + wait + span(command.length, self.params.bandwidth)
    }

    /// End of a command that continues the last one; `None` if it cannot.
    fn streamed(&self, now: VirtualNanos, command: DiskCommand) -> Option<VirtualNanos> {
        let reach = if command.kind == DiskDirection::Read { self.params.buffer } else { 0 };
        let ahead = command.start.checked_sub(self.at).filter(|gap| *gap <= reach)?;
        let filled = self.passed + span(self.params.buffer, self.params.bandwidth);
        if self.last != command.kind || (filled < now && self.params.buffer < ahead + command.length) {
            return None;
        }
        let off_platter = self.passed + span(ahead + command.length, self.params.bandwidth);
        Some(off_platter.max(now + self.params.command_ns + span(command.length, self.params.interface)))
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "milliseconds, to the nanosecond"
    )]
    fn seek(&self, distance: u64) -> VirtualNanos {
        if distance < self.track() {
            return 0;
        }
        let beyond = (self.params.seek_average_ns - self.params.seek_min_ns) as f64 * 15.0 / 8.0;
        let share = distance as f64 / self.params.capacity as f64;
        self.params.seek_min_ns + (beyond * share.sqrt()) as VirtualNanos
    }

    fn track(&self) -> u64 {
        scale(self.params.bandwidth, self.params.rotation_ns, NS)
    }
}

/// Duration of `bytes` at `bandwidth`.
pub(crate) fn span(bytes: u64, bandwidth: u64) -> VirtualNanos {
    scale(bytes, NS, bandwidth)
}

fn scale(value: u64, by: u64, of: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(by) / u128::from(of);
    u64::try_from(scaled).expect("spans of a model fit in 64 bits")
}
