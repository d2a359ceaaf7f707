//! Cost of checksums: the same transfers on a partition with and on one without, both running.

use super::super::error::BenchError;
use super::super::figures::Versus;
use super::compare::{Comparison, TransferDirections};
use super::{CALL_BYTES, IoBench, SERVERS};
use pario::partition::Key;

/// Lowest speed with checksums, relative to without.
const GOAL: f64 = 0.8;

impl IoBench<'_> {
    /// Adds `checksum_write_vs_off`, `checksum_read_vs_off` and the warm ones.
    pub(super) fn with_checksums(&mut self) -> Result<(), BenchError> {
        self.testbed.up_with("off", SERVERS, &[(Key::Checksums, "off".to_owned())])?;
        self.testbed.up_with("on", SERVERS, &[(Key::Checksums, "on".to_owned())])?;
        let [off, on] = ["off", "on"].map(|partition| Comparison {
            partition,
            bytes: self.plan.size.0,
            call_bytes: CALL_BYTES,
            variables: &[],
            directions: TransferDirections::Both,
        });
        let mut write = [Versus::default(), Versus::default()];
        let mut read = [Versus::default(), Versus::default()];
        // The first pair is not counted: it touches memory for the first time.
        for pair in 0..=self.plan.pairs {
            self.progress.step("transfers with checksums, pair", pair.saturating_sub(1), self.plan.pairs);
            let without = off.side(&self.testbed, off.pario())?;
            let with = on.side(&self.testbed, on.pario())?;
            for warmth in (0..2).filter(|_| pair != 0) {
                write[warmth].pair(without.write_s[warmth], with.write_s[warmth]);
                read[warmth].pair(without.read_s[warmth], with.read_s[warmth]);
            }
        }
        self.add_versus("checksum_write_vs_off", &write, (off.bytes, GOAL));
        self.add_versus("checksum_read_vs_off", &read, (off.bytes, GOAL));
        self.testbed.down("off")?;
        self.testbed.down("on")
    }
}
