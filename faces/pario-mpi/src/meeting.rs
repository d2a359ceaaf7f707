//! How the ranks of a communicator become a group of ours: by a hub where all see each other's processes, else over TCP.

use std::fs;

/// What processes of one host and one table of processes have in common; 64 bytes, for an exchange.
pub type HostMark = [u8; 64];

/// The host that this process runs on.
#[derive(Clone, Copy, Debug)]
pub struct Host;

impl Host {
    /// Two processes with equal marks can open each other's descriptors through `/proc`, if they are one user's.
    #[must_use]
    pub fn mark() -> HostMark {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let table = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let user = rustix::process::getuid().as_raw();
        // Processes that play different nodes meet as if they were on them.
        let label = std::env::var(pario::group::NODE_VARIABLE).unwrap_or_default();
        let text = format!("{} {} {user} {label}", boot.trim(), table.display());
        let mut mark: HostMark = [0; 64];
        for (at, byte) in text.bytes().enumerate() {
            // The boot's number alone has 36 characters; what does not fit is folded in.
            let place = &mut mark[at % 64];
            *place = place.rotate_left(1) ^ byte;
        }
        mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_the_same_twice() {
        assert_eq!(Host::mark(), Host::mark());
        assert_ne!(Host::mark(), [0; 64]);
    }
}
