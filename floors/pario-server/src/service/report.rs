//! What `pario status` shows of a server, as JSON.

use pario_core::Clock;
use serde_json::json;

use super::Service;
use crate::desk::FIFO;

impl Service {
    /// Everything the server counts.
    pub(super) fn status_json(&self) -> String {
        let now = self.clock.now();
        let space = self.spec.store.space().unwrap_or_default();
        let clients: Vec<_> = self
            .links
            .values()
            .filter_map(|link| {
                let hello = link.hello()?;
                Some(json!({
                    "program": hello.program, "application": hello.application, "pid": hello.pid, "host": hello.host, "session": hello.session.to_string(),
                    "purpose": format!("{:?}", hello.purpose).to_lowercase().replace(" {}", ""),
                    "in_flight": link.in_flight(), "shares_memory": link.stream.shares_memory(),
                }))
            })
            .collect();
        let memory = own_memory();
        json!({
            "server": self.spec.index,
            "pid": std::process::id(),
            "incarnation": self.incarnation.to_string(),
            "up_s": now.since(self.started).as_secs_f64(),
            "space": space,
            "requests_open": self.open.len(),
            "counters": self.stats.snapshot(),
            "store": self.spec.store.stats(),
            "scheduler": self.desk.as_ref().map_or_else(|| json!({ "policy": FIFO }), |desk| desk.status()),
            "memory_private_bytes": memory,
            "clients": clients,
            "manager": self.home.as_ref().map(|home| home.status(now)),
        })
        .to_string()
    }
}

/// Private memory of this process in bytes, as the kernel counts it: resident pages that are not shared.
fn own_memory() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut fields = statm.split_whitespace().skip(1).filter_map(|field| field.parse::<u64>().ok());
    let (resident, shared) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
    resident.saturating_sub(shared) * rustix::param::page_size() as u64
}
