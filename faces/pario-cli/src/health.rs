//! How partitions are: which servers answer, and what they say of themselves.
//!
//! Never: waits for one server while others could be asked; shows a secret.

use pario::Partition;
use pario::core::{ServerIndex, Space};
use pario::partition::{Entry, Liveness, ServerEntry, State};
use serde_json::{Value, json};

/// How a partition is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    /// All servers answer.
    Running,
    /// Some do not.
    Partly,
    /// It should run, and no server is there.
    Dead,
    /// It is being brought up.
    Starting,
    /// It was taken down.
    Down,
}

impl Condition {
    /// One word.
    pub(crate) fn word(self) -> &'static str {
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
pub(crate) struct ServerHealth {
    /// Which.
    pub(crate) index: ServerIndex,
    /// Where.
    pub(crate) place: String,
    /// What it says, or why it says nothing.
    pub(crate) report: Result<Value, String>,
    gone: bool,
    entry: ServerEntry,
}

impl ServerHealth {
    /// One word.
    pub(crate) fn word(&self) -> &'static str {
        match (&self.report, self.gone) {
            (Ok(_), _) => "ok",
            (Err(_), true) => "dead",
            (Err(_), false) => "unreachable",
        }
    }

    fn facts(&self) -> Value {
        json!({
            "server": self.index,
            "place": self.place,
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
pub(crate) struct PartitionHealth {
    /// Its name.
    pub(crate) name: String,
    /// How it is.
    pub(crate) condition: Condition,
    /// Its servers, in order.
    pub(crate) servers: Vec<ServerHealth>,
    entry: Entry,
}

impl PartitionHealth {
    /// Looks at partitions, at all of them at once.
    pub(crate) fn of_all(entries: &[Entry]) -> Vec<PartitionHealth> {
        std::thread::scope(|scope| {
            let looks: Vec<_> =
                entries.iter().map(|entry| scope.spawn(|| PartitionHealth::of(entry))).collect();
            looks.into_iter().filter_map(|look| look.join().ok()).collect()
        })
    }

    /// Looks at one partition, at all of its servers at once.
    pub(crate) fn of(entry: &Entry) -> PartitionHealth {
        let servers = if entry.state == State::Running { ask(entry) } else { Vec::new() };
        let answers = servers.iter().filter(|server| server.report.is_ok()).count();
        let condition = match entry.state {
            State::Down => Condition::Down,
            State::Starting if entry.starter_is_alive() => Condition::Starting,
            State::Starting => Condition::Dead,
            State::Running if answers == servers.len() => Condition::Running,
            State::Running if entry.liveness(|_| false) == Liveness::Dead && answers == 0 => Condition::Dead,
            State::Running => Condition::Partly,
        };
        PartitionHealth { name: entry.name.clone(), condition, servers, entry: entry.clone() }
    }

    /// Room on the servers that answer.
    pub(crate) fn space(&self) -> Option<Space> {
        let space = |server: &ServerHealth| {
            serde_json::from_value::<Space>(server.report.as_ref().ok()?.get("space")?.clone()).ok()
        };
        let spaces: Vec<Space> = self.servers.iter().filter_map(space).collect();
        (!spaces.is_empty()).then(|| Space::sum(spaces))
    }

    /// What can be done about it, if something should be.
    pub(crate) fn cure(&self) -> Option<String> {
        let name = &self.name;
        match self.condition {
            Condition::Running | Condition::Starting => None,
            Condition::Partly => Some(format!(
                "`pario up {name}` brings it back (all its servers are restarted; running programs reconnect)"
            )),
            Condition::Dead => Some(format!(
                "its servers are gone: `pario up {name}` brings its data back, `pario down {name} --destroy` removes it"
            )),
            Condition::Down => Some(format!("`pario up {name}` brings it back")),
        }
    }

    /// How many servers it has, also while they are down.
    pub(crate) fn size(&self) -> usize {
        self.entry.settings.servers.len()
    }

    /// Who waits for whom, as the manager says.
    pub(crate) fn waiting(&self) -> Vec<Value> {
        let report = self.servers.first().and_then(|manager| manager.report.as_ref().ok());
        report.and_then(|report| report.pointer("/manager/waiting")?.as_array().cloned()).unwrap_or_default()
    }

    /// Everything, for programs.
    pub(crate) fn facts(&self) -> Value {
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

fn ask(entry: &Entry) -> Vec<ServerHealth> {
    let partition = Partition::mount_entry(entry);
    let look = |server: &ServerEntry| {
        let gone = entry.is_here(server) && !server.process().is_alive();
        let report = if gone {
            Err(format!("its process, {}, is gone", server.pid))
        } else {
            report(&partition, server.index)
        };
        let place = match &server.host {
            Some(host) => format!("{host}:{}", server.dir.display()),
            None => server.dir.display().to_string(),
        };
        ServerHealth { index: server.index, place, report, gone, entry: server.clone() }
    };
    std::thread::scope(|scope| {
        let looks: Vec<_> = entry.servers.iter().map(|server| scope.spawn(|| look(server))).collect();
        looks.into_iter().filter_map(|look| look.join().ok()).collect()
    })
}

fn report(partition: &Partition, server: ServerIndex) -> Result<Value, String> {
    let text = partition.mount_handle().server_status(server).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| format!("its report cannot be read: {error}"))
}
