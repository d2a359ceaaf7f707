//! State of partitions: reachable servers and their status reports.
//!
//! Never: waits for one server while others could be queried, or longer than an order's deadline; shows a secret.

use pario_core::{ServerIndex, Space};
use serde_json::{Value, json};

use crate::partition::{
    Identity, IdentityError, Liveness, PartitionState, RegistryEntry, ServerEntry, StoreKind,
};

/// State of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// All servers answer.
    Running,
    /// Some do not.
    Partly,
    /// It should run, and no server is alive.
    Dead,
    /// It is being brought up.
    Starting,
    /// It was taken down.
    Down,
}

impl Condition {
    /// One word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Condition::Running => "running",
            Condition::Partly => "partly running",
            Condition::Dead => "dead",
            Condition::Starting => "starting",
            Condition::Down => "down",
        }
    }
}

/// One server.
#[derive(Clone, Debug)]
pub struct ServerHealth {
    /// Which.
    pub index: ServerIndex,
    /// Host and directory.
    pub location: String,
    /// Its status report, or why there is none.
    pub report: Result<Value, String>,
    gone: bool,
    /// Its storage directory was removed while it runs.
    lost: bool,
    entry: ServerEntry,
}

impl ServerHealth {
    /// One word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match (&self.report, self.gone) {
            _ if self.lost => "store lost",
            (Ok(_), _) => "ok",
            (Err(_), true) => "dead",
            (Err(_), false) => "unreachable",
        }
    }

    fn facts(&self) -> Value {
        json!({
            "server": self.index,
            "place": self.location,
            "health": self.word(),
            "reason": self.report.as_ref().err(),
            "pid": self.entry.pid,
            "unix": self.entry.unix,
            "tcp": self.entry.tcp,
            "status": self.report.as_ref().ok(),
        })
    }
}

/// One partition.
#[derive(Clone, Debug)]
pub struct PartitionHealth {
    /// Its name.
    pub name: String,
    /// Its state.
    pub condition: Condition,
    /// Its servers, in order.
    pub servers: Vec<ServerHealth>,
    entry: RegistryEntry,
}

impl PartitionHealth {
    /// Queries all partitions concurrently.
    #[must_use]
    pub fn of_all(entries: &[RegistryEntry]) -> Vec<PartitionHealth> {
        std::thread::scope(|scope| {
            let looks: Vec<_> =
                entries.iter().map(|entry| scope.spawn(|| PartitionHealth::of(entry))).collect();
            looks.into_iter().filter_map(|look| look.join().ok()).collect()
        })
    }

    /// Queries all servers of one partition concurrently.
    #[must_use]
    pub fn of(entry: &RegistryEntry) -> PartitionHealth {
        let servers = if entry.state == PartitionState::Running { query_status(entry) } else { Vec::new() };
        let answers = servers.iter().filter(|server| server.report.is_ok()).count();
        let whole = servers.iter().all(|server| server.report.is_ok() && !server.lost);
        let condition = match entry.state {
            PartitionState::Down => Condition::Down,
            PartitionState::Starting if entry.starter_is_alive() => Condition::Starting,
            PartitionState::Starting => Condition::Dead,
            PartitionState::Running if whole => Condition::Running,
            PartitionState::Running if entry.liveness(|_| false) == Liveness::Dead && answers == 0 => {
                Condition::Dead
            }
            PartitionState::Running => Condition::Partly,
        };
        PartitionHealth { name: entry.name.clone(), condition, servers, entry: entry.clone() }
    }

    /// Space on the reachable servers.
    #[must_use]
    pub fn space(&self) -> Option<Space> {
        let space = |server: &ServerHealth| {
            serde_json::from_value::<Space>(server.report.as_ref().ok()?.get("space")?.clone()).ok()
        };
        let spaces: Vec<Space> = self.servers.iter().filter_map(space).collect();
        (!spaces.is_empty()).then(|| Space::sum(spaces))
    }

    /// The cure, if the partition needs one.
    #[must_use]
    pub fn cure(&self) -> Option<String> {
        let name = &self.name;
        match self.condition {
            Condition::Running | Condition::Starting => None,
            Condition::Partly => Some(self.cure_of_part()),
            Condition::Dead if self.in_memory() => Some(format!(
                "its servers are gone, and what they held in memory: `pario down {name}` clears it away"
            )),
            Condition::Dead => Some(format!(
                "its servers are gone: `pario up {name}` brings its data back, `pario down {name} --destroy` removes it"
            )),
            Condition::Down => Some(format!("`pario up {name}` brings it back")),
        }
    }

    fn in_memory(&self) -> bool {
        self.entry.settings.store == StoreKind::Memory
    }

    /// The cure if some servers fail: the worst problem first.
    fn cure_of_part(&self) -> String {
        let name = &self.name;
        let denied =
            |server: &ServerHealth| server.report.as_ref().is_err_and(|why| why.contains("belongs to user"));
        if self.servers.iter().any(denied) {
            return "its servers are another user's: run the command as that user".to_owned();
        }
        if let Some(server) = self.servers.iter().find(|server| server.lost) {
            return format!(
                "server {} has lost its directory, deleted or unmounted: `pario down {name}`, bring the directory back, \
                 `pario up {name}`; or give the partition up with `pario down {name} --destroy`",
                server.index
            );
        }
        let dead: Vec<String> =
            self.servers.iter().filter(|server| server.gone).map(|server| server.index.to_string()).collect();
        let (servers, they) = if dead.len() == 1 { ("server", "it") } else { ("servers", "they") };
        let dead = dead.join(", ");
        if dead.is_empty() {
            return format!(
                "a server does not answer and was not seen to end: continue its process, or `pario down {name}` and \
                 `pario up {name}`; if the process is gone, `pario up {name}` restarts it"
            );
        }
        if self.in_memory() {
            return format!(
                "what {servers} {dead} held in memory is lost: copy out what is left, then `pario down {name}`, and `pario up` as \
                 it was made"
            );
        }
        format!(
            "`pario up {name}` restarts {servers} {dead}; the others go on, and programs wait for what {they} held"
        )
    }

    /// How many servers it has, also while they are down.
    #[must_use]
    pub fn size(&self) -> usize {
        self.entry.settings.servers.len()
    }

    /// Lock waits between clients, as the manager reports.
    #[must_use]
    pub fn waiting(&self) -> Vec<Value> {
        let report = self.servers.first().and_then(|manager| manager.report.as_ref().ok());
        report.and_then(|report| report.pointer("/manager/waiting")?.as_array().cloned()).unwrap_or_default()
    }

    /// As JSON.
    #[must_use]
    pub fn facts(&self) -> Value {
        let entry = &self.entry;
        json!({
            "name": self.name,
            "state": self.condition.word(),
            "cure": self.cure(),
            "id": entry.id,
            "epoch": entry.epoch,
            "home": entry.home,
            "created_unix_s": entry.created_unix_s,
            "space": self.space(),
            "waiting": self.waiting(),
            "settings": entry.settings,
            "servers": self.servers.iter().map(ServerHealth::facts).collect::<Vec<_>>(),
        })
    }
}

fn query_status(entry: &RegistryEntry) -> Vec<ServerHealth> {
    let look = |server: &ServerEntry| {
        let is_gone = || entry.is_here(server) && !server.process().is_alive();
        let report = if is_gone() { Err(String::new()) } else { report(entry, server) };
        // It may end while it is asked.
        let gone = report.is_err() && is_gone();
        let report = if gone { Err(format!("its process, {}, is gone", server.pid)) } else { report };
        let place = match &server.host {
            Some(host) => format!("{host}:{}", server.dir.display()),
            None => server.dir.display().to_string(),
        };
        let said = report.as_ref().is_ok_and(|report| report["store_lost"] == true);
        let lost = !gone && (said || (entry.is_here(server) && is_lost(entry, server)));
        ServerHealth { index: server.index, location: place, report, gone, lost, entry: server.clone() }
    };
    std::thread::scope(|scope| {
        let looks: Vec<_> = entry.servers.iter().map(|server| scope.spawn(|| look(server))).collect();
        looks.into_iter().filter_map(|look| look.join().ok()).collect()
    })
}

/// Whether a storage directory on this machine no longer belongs to the partition.
fn is_lost(entry: &RegistryEntry, server: &ServerEntry) -> bool {
    match Identity::read(&server.dir) {
        Ok(found) => found.is_none_or(|found| found.partition != entry.id),
        Err(error) => matches!(error, IdentityError::NotDirectory { .. }),
    }
}

fn report(entry: &RegistryEntry, server: &ServerEntry) -> Result<Value, String> {
    let text = crate::orders::status(entry, server).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| format!("its report cannot be read: {error}"))
}
