//! Memory of a server process, from the kernel's counters.

use std::fs;

/// Bytes that a server holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Footprint {
    /// Private memory and own segments.
    pub(crate) own_bytes: u64,
    /// Mapped outboxes of clients, not counted as the server's.
    pub(crate) outbox_bytes: u64,
}

impl Footprint {
    /// Of a process; `None` if it has ended.
    pub(crate) fn of(pid: u32) -> Option<Footprint> {
        fs::read_to_string(format!("/proc/{pid}/smaps")).ok().map(|smaps| parse(&smaps))
    }

    /// The larger of each.
    pub(crate) fn max(self, other: Footprint) -> Footprint {
        Footprint {
            own_bytes: self.own_bytes.max(other.own_bytes),
            outbox_bytes: self.outbox_bytes.max(other.outbox_bytes),
        }
    }

    /// The largest of several processes.
    pub(crate) fn largest(pids: &[u32]) -> Footprint {
        pids.iter().filter_map(|pid| Footprint::of(*pid)).fold(Footprint::default(), Footprint::max)
    }
}

fn parse(smaps: &str) -> Footprint {
    let mut footprint = Footprint::default();
    let mut is_outbox = false;
    for line in smaps.lines() {
        let Some((key, rest)) = line.split_once(':') else { continue };
        let kib = rest.trim().strip_suffix(" kB").and_then(|digits| digits.trim().parse::<u64>().ok());
        match (key, kib) {
            ("Private_Clean" | "Private_Dirty", Some(kib)) if !is_outbox => footprint.own_bytes += kib << 10,
            ("Rss", Some(kib)) if is_outbox => footprint.outbox_bytes += kib << 10,
            // The head of a mapping: addresses, rights, offset, device, inode, name.
            (_, None) if key.contains('-') || key.contains(' ') => {
                is_outbox = line.contains("memfd:pario-outbox")
            }
            _ => {}
        }
    }
    footprint
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outboxes_are_counted_apart() {
        let smaps = "55d0-55e0 r-xp 00000000 fe:00 12   /usr/bin/pario\nRss:      900 kB\nPrivate_Clean:   100 kB\n\
                     Private_Dirty:     4 kB\nVmFlags: rd mr\n\
                     7f00-7f10 r--s 00000000 00:01 99   /memfd:pario-outbox (deleted)\nRss:     8192 kB\n\
                     Private_Clean:  512 kB\n7f20-7f30 rw-s 00000000 00:01 98  /memfd:pario-cursor (deleted)\n\
                     Private_Dirty:    4 kB\n";
        assert_eq!(parse(smaps), Footprint { own_bytes: 108 << 10, outbox_bytes: 8 << 20 });
    }

    #[test]
    fn this_process_has_some() {
        assert!(0 < Footprint::of(std::process::id()).unwrap().own_bytes);
        assert_eq!(Footprint::of(u32::MAX), None);
    }
}
