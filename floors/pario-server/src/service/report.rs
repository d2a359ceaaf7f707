//! `pario status`: the service lists its connections, the manager's thread adds its part, a thread of the pool reads the store.
//!
//! Never: reads the disk on the service thread.

use std::sync::Arc;

use pario_core::{Clock, Incarnation, ServerIndex};
use pario_net::message::Reply;
use pario_store::Store;
use serde_json::{Value, json};

use super::{LinkId, Service};
use crate::drain::RestartLogSpec;
use crate::io_queue::{FIFO, IoQueue};
use crate::manager::ManagerTask;
use crate::stats::ServerStats;

/// The service's part of a report, and the sources of the rest.
struct Report {
    server: ServerIndex,
    incarnation: Incarnation,
    up_s: f64,
    requests_open: usize,
    clients: Vec<Value>,
    stats: Arc<ServerStats>,
    store: Arc<dyn Store>,
    io_queue: Option<Arc<IoQueue>>,
    restart_log: Option<RestartLogSpec>,
}

impl Service {
    /// Answers with all counters of the server.
    pub(super) fn report(&self, link: LinkId, request: u64) {
        let report = Report {
            server: self.spec.index,
            incarnation: self.incarnation,
            up_s: self.clock.now().since(self.started).as_secs_f64(),
            requests_open: self.open.len(),
            clients: self.clients(),
            stats: Arc::clone(&self.stats),
            store: Arc::clone(&self.spec.store),
            io_queue: self.io_queue.clone(),
            restart_log: self.spec.restart_log.clone(),
        };
        let (pool, answer) = (self.pool.clone(), self.answer_with(link, request));
        let finish = move |manager: Option<Value>| {
            pool.run(move || Ok((Reply::Status { json: report.json(manager) }, Vec::new())), answer);
        };
        match &self.manager {
            Some(manager) => {
                manager.post(ManagerTask::Status(Box::new(move |manager| finish(Some(manager)))))
            }
            None => finish(None),
        }
    }

    fn clients(&self) -> Vec<Value> {
        let greeted = self.links.values().filter_map(|link| Some((link, link.hello()?)));
        greeted
            .map(|(link, hello)| {
                json!({
                    "program": hello.program, "application": hello.application, "pid": hello.pid, "host": hello.host, "session": hello.session.to_string(),
                    "purpose": format!("{:?}", hello.purpose).to_lowercase().replace(" {}", ""),
                    "in_flight": link.in_flight(), "shares_memory": link.stream.shares_memory(),
                    "protected": link.stream.is_protected(),
                })
            })
            .collect()
    }
}

impl Report {
    fn json(self, manager: Option<Value>) -> String {
        json!({
            "server": self.server,
            "pid": std::process::id(),
            "incarnation": self.incarnation.to_string(),
            "up_s": self.up_s,
            "space": self.store.space().unwrap_or_default(),
            "requests_open": self.requests_open,
            "counters": self.stats.snapshot(),
            "store": self.store.stats(),
            "scheduler": self.io_queue.as_ref().map_or_else(|| json!({ "policy": FIFO }), |desk| desk.status()),
            "memory_private_bytes": own_memory(),
            "store_lost": self.store_is_lost(),
            "clients": self.clients,
            "manager": manager,
        })
        .to_string()
    }

    /// Whether the storage directory was removed, or its disk unmounted. The restart log cannot be found by the successor then.
    fn store_is_lost(&self) -> bool {
        self.restart_log.as_ref().is_some_and(|log| matches!(log.disk.length(&log.path), Ok(None)))
    }
}

/// Private memory of this process in bytes, as the kernel counts it: resident pages that are not shared.
fn own_memory() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut fields = statm.split_whitespace().skip(1).filter_map(|field| field.parse::<u64>().ok());
    let (resident, shared) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
    resident.saturating_sub(shared) * rustix::param::page_size() as u64
}
