//! A partition's entry in the registry. File format: docs/formats/registry.md.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use pario_core::{PartitionId, ServerIndex};
use pario_sys::clock::time_namespace;
use pario_sys::process;
use serde::{Deserialize, Serialize};

use super::address::{is_local, own_host};
use super::settings::Settings;

/// State of a partition, as recorded in the registry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionState {
    /// A process is bringing it up.
    Starting,
    /// Its servers were started; [`RegistryEntry::liveness`] tells whether they are alive.
    Running,
    /// It was taken down; its data is kept.
    Down,
}

/// A process, identified so that a later process with the same number is not mistaken for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerProcess {
    /// Its number.
    pub pid: u32,
    /// When it started, in ticks since boot.
    pub start_ticks: u64,
}

impl ServerProcess {
    /// This process.
    #[must_use]
    pub fn own() -> ServerProcess {
        let pid = std::process::id();
        ServerProcess { pid, start_ticks: process::start_ticks(pid).unwrap_or(0) }
    }

    /// Whether it still runs; only valid on its own machine.
    #[must_use]
    pub fn is_alive(self) -> bool {
        process::is_alive(self.pid, self.start_ticks)
    }
}

/// One server of a running partition, and its addresses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerEntry {
    /// Its index in the partition.
    pub index: ServerIndex,
    /// Its host as in the partition file; `None`: the machine that brought the partition up.
    pub host: Option<String>,
    /// Its storage directory.
    pub dir: PathBuf,
    /// Its unix socket, for clients on its host.
    pub unix: Option<PathBuf>,
    /// Its TCP address.
    pub tcp: Option<SocketAddr>,
    /// Its node label; memory is shared only with processes of the same label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its time namespace, unless that is the initial one of its machine: clocks and start times of another namespace are not
    /// comparable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_namespace: Option<u64>,
    /// Its process number.
    pub pid: u32,
    /// When that process started.
    pub start_ticks: u64,
}

impl ServerEntry {
    /// Its process.
    #[must_use]
    pub fn process(&self) -> ServerProcess {
        ServerProcess { pid: self.pid, start_ticks: self.start_ticks }
    }

    /// Whether its address is one of this machine's. Servers listen on loopback only if all servers of a partition are on one
    /// machine; then, and without TCP, the result is true.
    #[must_use]
    pub fn is_at_own_address(&self) -> bool {
        self.tcp.is_none_or(|tcp| is_local(&tcp.ip().to_string()))
    }
}

/// The shared secret of clients and servers of a partition. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct PartitionSecret(pub [u8; 32]);

impl PartitionSecret {
    /// A new one.
    ///
    /// # Panics
    /// If the operating system has no random numbers: nothing secret can be made then.
    #[must_use]
    pub fn random() -> PartitionSecret {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
        PartitionSecret(bytes)
    }
}

impl fmt::Debug for PartitionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Serialize for PartitionSecret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&digits)
    }
}

impl<'de> Deserialize<'de> for PartitionSecret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digits = String::deserialize(deserializer)?;
        // The digits themselves stay out of the message.
        let wrong = || serde::de::Error::custom("a secret has 64 hexadecimal digits");
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(PartitionSecret(bytes))
    }
}

/// A partition that the registry knows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegistryEntry {
    /// Its name; unique in the registry.
    pub name: String,
    /// Its identity, as in its storage directories.
    pub id: PartitionId,
    /// Incremented at each start; distinguishes the epochs of a partition.
    pub epoch: u64,
    /// Its state.
    pub state: PartitionState,
    /// Whether all its directories were made: it was up at least once.
    pub complete: bool,
    /// When it was created, in seconds since 1970.
    pub created_unix_s: u64,
    /// Machine that brought it up last; servers without a host are there.
    pub home: String,
    /// The current epoch's secret.
    pub secret: PartitionSecret,
    /// The process that brings it up, in state [`PartitionState::Starting`].
    pub starter: Option<ServerProcess>,
    /// Its servers, in order, once they are up.
    #[serde(default)]
    pub servers: Vec<ServerEntry>,
    /// Its settings at the last start.
    pub settings: Settings,
}

/// Whether a partition's servers are alive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Liveness {
    /// All of them.
    Live,
    /// Some are; these are not.
    Partly {
        /// Dead servers.
        dead: Vec<ServerIndex>,
    },
    /// None.
    Dead,
}

impl RegistryEntry {
    /// Checks each server: by its process on this machine, by `probe` (such as a connection) on another.
    pub fn liveness(&self, probe: impl Fn(&ServerEntry) -> bool) -> Liveness {
        let alive = |server: &&ServerEntry| match self.is_here(server) {
            true => server.process().is_alive(),
            false => probe(server),
        };
        let dead: Vec<ServerIndex> =
            self.servers.iter().filter(|server| !alive(server)).map(|server| server.index).collect();
        if dead.len() == self.servers.len() {
            Liveness::Dead
        } else if dead.is_empty() {
            Liveness::Live
        } else {
            Liveness::Partly { dead }
        }
    }

    /// Whether a server of this entry runs on this machine. The registry may be in a home directory shared by several machines,
    /// so a server without a host is here only if the partition was brought up here. Two machines can have equal names
    /// (containers, network namespaces), so the address decides. A process of another time namespace counts as remote: the
    /// clock in its records is different.
    #[must_use]
    pub fn is_here(&self, server: &ServerEntry) -> bool {
        let at_home = self.home == own_host();
        let by_name = match server.host.as_deref() {
            None => at_home,
            Some(host) if host == "localhost" || host.starts_with("127.") || host == "::1" => at_home,
            Some(host) => is_local(host),
        };
        by_name && server.is_at_own_address() && server.time_namespace == time_namespace()
    }

    /// Whether the process that brings it up is alive. A process on another machine counts as alive: only that machine can tell.
    #[must_use]
    pub fn starter_is_alive(&self) -> bool {
        self.starter.is_some_and(|starter| self.home != own_host() || starter.is_alive())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::partition::config::Layers;
    use std::path::Path;

    /// An entry of a partition with `servers` servers of this very process.
    pub(crate) fn sample(name: &str, servers: u16) -> RegistryEntry {
        let list: Vec<String> = (0..servers).map(|index| format!("\"/tmp/{name}/{index}\"")).collect();
        let text = format!("name = \"{name}\"\nservers = [{}]", list.join(", "));
        let settings = Layers::new().text(&text, Path::new("sample")).unwrap().check().unwrap();
        let own = ServerProcess::own();
        let server = |index| ServerEntry {
            index: ServerIndex(index),
            host: None,
            dir: settings.servers[usize::from(index)].dir.clone(),
            unix: Some("/tmp/socket".into()),
            tcp: Some("127.0.0.1:4000".parse().unwrap()),
            node: None,
            time_namespace: time_namespace(),
            pid: own.pid,
            start_ticks: own.start_ticks,
        };
        RegistryEntry {
            name: name.to_owned(),
            id: PartitionId([7; 16]),
            epoch: 3,
            state: PartitionState::Running,
            complete: true,
            created_unix_s: 1_770_000_000,
            home: own_host(),
            secret: PartitionSecret([0xab; 32]),
            starter: None,
            servers: (0..servers).map(server).collect(),
            settings,
        }
    }

    #[test]
    fn secrets_survive_text_and_are_not_shown() {
        let secret = PartitionSecret::random();
        let text = serde_json::to_string(&secret).unwrap();
        assert_eq!(serde_json::from_str::<PartitionSecret>(&text).unwrap(), secret);
        assert_ne!(secret, PartitionSecret::random());
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        let error = serde_json::from_str::<PartitionSecret>("\"abcé\"").unwrap_err();
        assert!(!error.to_string().contains("abc"), "{error}");
    }

    #[test]
    fn liveness_counts_processes() {
        let mut entry = sample("x", 3);
        let probe = |_: &ServerEntry| panic!("all are local");
        assert_eq!(entry.liveness(probe), Liveness::Live);
        entry.servers[1].start_ticks += 1;
        assert_eq!(entry.liveness(probe), Liveness::Partly { dead: vec![ServerIndex(1)] });
        for server in &mut entry.servers {
            server.pid = u32::MAX;
        }
        assert_eq!(entry.liveness(probe), Liveness::Dead);
    }

    #[test]
    fn servers_on_other_machines_are_probed() {
        let mut entry = sample("x", 2);
        entry.servers[1].host = Some("192.0.2.1".into());
        assert_eq!(entry.liveness(|server| server.index == ServerIndex(1)), Liveness::Live);
        assert_eq!(entry.liveness(|_| false), Liveness::Partly { dead: vec![ServerIndex(1)] });
        entry.home = "another-machine".into();
        assert_eq!(entry.liveness(|_| false), Liveness::Dead);
    }

    #[test]
    fn a_machine_of_the_same_name_is_another_one() {
        let mut entry = sample("x", 2);
        assert!(entry.is_here(&entry.servers[0]));
        for host in [None, Some(own_host())] {
            entry.servers[1].host = host;
            entry.servers[1].tcp = Some("192.0.2.1:4000".parse().unwrap());
            assert!(!entry.is_here(&entry.servers[1]), "its socket file must not be used");
            entry.servers[1].tcp = None;
            assert!(entry.is_here(&entry.servers[1]));
        }
    }

    #[test]
    fn a_starter_on_another_machine_is_not_judged_from_here() {
        let mut entry = sample("x", 1);
        entry.starter = Some(ServerProcess { pid: u32::MAX, start_ticks: 1 });
        assert!(!entry.starter_is_alive());
        entry.home = "another-machine".into();
        assert!(entry.starter_is_alive());
    }
}
