//! The manager's part of `pario status`.

use pario_core::Nanos;
use serde_json::{Value, json};

use super::Manager;
use crate::coherence::Waiter;

impl Manager {
    /// Names, leases, waiters and holders.
    pub(crate) fn status(&self, now: Nanos) -> Value {
        let waiting: Vec<Value> = self
            .leases
            .waiting(now)
            .map(|line| {
                let waiter = match line.waiter {
                    Waiter::Session(session) => self.describe_session(session),
                    Waiter::Barrier(kind) => format!("{kind:?}").to_lowercase(),
                };
                let holders: Vec<String> = line.holders.iter().map(|holder| self.describe_session(*holder)).collect();
                json!({ "inode": line.inode, "waiter": waiter, "waited_s": line.waited.as_secs_f64(), "for": holders })
            })
            .collect();
        let unsettled: Vec<Value> = self
            .unrecovered
            .iter()
            .map(|((inode, session), (_, fault))| {
                json!({ "inode": inode, "session": session.to_string(), "because": fault.text })
            })
            .collect();
        json!({
            "partition": self.name,
            "names": self.names.stats(),
            "recovery": self.names.recovery(),
            "open_files": self.users.open_files(),
            "waiting": waiting,
            "locks": self.lock_status(now),
            "shared_pointers": self.pointers.len(),
            "unsettled": unsettled,
            "unfinished_truncations": self.unfinished.len(),
            "unremoved_files": self.unremoved.len(),
            "ghosts": self.ghosts.values().map(super::recover_writer::Ghost::describe).collect::<Vec<_>>(),
        })
    }
}
