//! Transfers over TCP on loopback, protected against unprotected: the cost of encryption and authentication on the fastest network.

use pario::partition::Key;

use super::super::error::BenchError;
use super::super::figures::{Goal, Versus};
use super::compare::{Comparison, TransferDirections};
use super::{CALL_BYTES, IoBench, SERVERS};

/// Lowest speed, relative to unprotected TCP.
const GOAL: f64 = 0.5;

impl IoBench<'_> {
    /// Adds `tcp_protected_vs_tcp`, writing and reading together, and each alone; `plain` is up already.
    pub(super) fn protected(&mut self, plain: &str) -> Result<(), BenchError> {
        let guarded = "guarded";
        self.testbed.up_with(guarded, SERVERS, &[(Key::NetworkProtect, "all".to_owned())])?;
        let side = |partition| Comparison {
            partition,
            bytes: self.plan.size.0,
            call_bytes: CALL_BYTES,
            variables: &[("PARIO_TRANSPORT", "tcp")],
            directions: TransferDirections::Both,
        };
        let (without, with) = (side(plain), side(guarded));
        let [mut both, mut write, mut read] = [Versus::default(), Versus::default(), Versus::default()];
        for pair in 0..=self.plan.pairs {
            self.progress.step("protected transfers over TCP, pair", pair.saturating_sub(1), self.plan.pairs);
            let without = without.side(&self.testbed, without.pario())?;
            let with = with.side(&self.testbed, with.pario())?;
            // The first pair is not counted: it touches memory for the first time.
            if pair == 0 {
                continue;
            }
            let (before, after) = (without.write_s[1] + without.read_s[1], with.write_s[1] + with.read_s[1]);
            both.pair(before, after);
            write.pair(without.write_s[1], with.write_s[1]);
            read.pair(without.read_s[1], with.read_s[1]);
        }
        let bytes = self.plan.size.0;
        let note = format!("{}; write and read, `network.protect` all against full", both.speeds(2 * bytes));
        self.figures.add("tcp_protected_vs_tcp", both.ratio(), Goal::AtLeast(GOAL), note);
        self.figures.add("tcp_protected_write_vs_tcp", write.ratio(), Goal::None, write.speeds(bytes));
        self.figures.add("tcp_protected_read_vs_tcp", read.ratio(), Goal::None, read.speeds(bytes));
        self.testbed.down(guarded)
    }
}
