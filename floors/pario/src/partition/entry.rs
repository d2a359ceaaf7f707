//! One partition's entry in the registry. Layout of the file: docs/formats/registry.md.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use pario_core::{PartitionId, ServerIndex};
use pario_sys::process;
use serde::{Deserialize, Serialize};

use super::address::{is_local, own_host};
use super::settings::Settings;

/// What a partition is doing, as far as the registry was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// A process is bringing it up.
    Starting,
    /// Its servers were up; whether they still are, [`Entry::liveness`] says.
    Running,
    /// It was taken down; its data is there.
    Down,
}

/// A process, named so that a later one with the same number is not taken for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in ticks since boot.
    pub start_ticks: u64,
}

impl Process {
    /// This process.
    #[must_use]
    pub fn own() -> Process {
        let pid = std::process::id();
        Process { pid, start_ticks: process::start_ticks(pid).unwrap_or(0) }
    }

    /// Whether it still runs, asked on the machine it is on.
    #[must_use]
    pub fn is_alive(self) -> bool {
        process::is_alive(self.pid, self.start_ticks)
    }
}

/// One server of a partition that is up, and how to reach it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerEntry {
    /// Its place in the partition's list.
    pub index: ServerIndex,
    /// Its host as the partition file has it; `None`: where the partition was brought up.
    pub host: Option<String>,
    /// Its storage directory.
    pub dir: PathBuf,
    /// Its unix socket, for clients on its host.
    pub unix: Option<PathBuf>,
    /// Its TCP address.
    pub tcp: Option<SocketAddr>,
    /// The label of the node that it plays; memory is shared with processes of the same label only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its process number.
    pub pid: u32,
    /// When that process started.
    pub start_ticks: u64,
}

impl ServerEntry {
    /// Its process.
    #[must_use]
    pub fn process(&self) -> Process {
        Process { pid: self.pid, start_ticks: self.start_ticks }
    }

    /// Whether the address at which it can be reached is one of this machine's. Servers listen on loopback only if all
    /// of a partition are on one machine; then, and without TCP, the address tells nothing against it.
    #[must_use]
    pub fn is_at_own_address(&self) -> bool {
        self.tcp.is_none_or(|tcp| is_local(&tcp.ip().to_string()))
    }
}

/// The secret that clients and servers of a partition prove to each other. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl Secret {
    /// A fresh one.
    ///
    /// # Panics
    /// If the operating system has no random numbers: nothing secret can be made then.
    #[must_use]
    pub fn random() -> Secret {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
        Secret(bytes)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&digits)
    }
}

impl<'de> Deserialize<'de> for Secret {
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
        Ok(Secret(bytes))
    }
}

/// A partition that the registry knows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name; unique in the registry.
    pub name: String,
    /// Its identity, as in its storage directories.
    pub id: PartitionId,
    /// Grows by one at each start; tells one life of the partition from the next.
    pub epoch: u64,
    /// What it is doing.
    pub state: State,
    /// Whether all its directories were made: it was up at least once.
    pub complete: bool,
    /// When it was created, in seconds since 1970.
    pub created_unix_s: u64,
    /// Name of the machine that brought it up last; servers without a host are there.
    pub home: String,
    /// The current life's secret.
    pub secret: Secret,
    /// Who is bringing it up, in state [`State::Starting`].
    pub starter: Option<Process>,
    /// Its servers, in order, once they are up.
    #[serde(default)]
    pub servers: Vec<ServerEntry>,
    /// Its settings at the last start.
    pub settings: Settings,
}

/// Whether a partition's servers are there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Liveness {
    /// All of them.
    Live,
    /// Some are; these are not.
    Partly {
        /// Servers that are gone.
        dead: Vec<ServerIndex>,
    },
    /// None.
    Dead,
}

impl Entry {
    /// Looks at each server: by its process if it is on this machine, by `probe` (say, a connection) if it is on another.
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

    /// Whether a server of this entry runs on this machine. The registry may lie in a home directory that several
    /// machines share, so a server without a host is here only if the partition was brought up here. Names can be alike
    /// on two machines (containers and network namespaces often have one name), so the address has the last word.
    #[must_use]
    pub fn is_here(&self, server: &ServerEntry) -> bool {
        let at_home = self.home == own_host();
        let by_name = match server.host.as_deref() {
            None => at_home,
            Some(host) if host == "localhost" || host.starts_with("127.") || host == "::1" => at_home,
            Some(host) => is_local(host),
        };
        by_name && server.is_at_own_address()
    }

    /// Whether the process that is bringing it up is still there. One on another machine counts as there: only that
    /// machine can tell.
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
    pub(crate) fn sample(name: &str, servers: u16) -> Entry {
        let list: Vec<String> = (0..servers).map(|index| format!("\"/tmp/{name}/{index}\"")).collect();
        let text = format!("name = \"{name}\"\nservers = [{}]", list.join(", "));
        let settings = Layers::new().text(&text, Path::new("sample")).unwrap().check().unwrap();
        let own = Process::own();
        let server = |index| ServerEntry {
            index: ServerIndex(index),
            host: None,
            dir: settings.servers[usize::from(index)].dir.clone(),
            unix: Some("/tmp/socket".into()),
            tcp: Some("127.0.0.1:4000".parse().unwrap()),
            node: None,
            pid: own.pid,
            start_ticks: own.start_ticks,
        };
        Entry {
            name: name.to_owned(),
            id: PartitionId([7; 16]),
            epoch: 3,
            state: State::Running,
            complete: true,
            created_unix_s: 1_770_000_000,
            home: own_host(),
            secret: Secret([0xab; 32]),
            starter: None,
            servers: (0..servers).map(server).collect(),
            settings,
        }
    }

    #[test]
    fn secrets_survive_text_and_are_not_shown() {
        let secret = Secret::random();
        let text = serde_json::to_string(&secret).unwrap();
        assert_eq!(serde_json::from_str::<Secret>(&text).unwrap(), secret);
        assert_ne!(secret, Secret::random());
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        let error = serde_json::from_str::<Secret>("\"abcé\"").unwrap_err();
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
        entry.starter = Some(Process { pid: u32::MAX, start_ticks: 1 });
        assert!(!entry.starter_is_alive());
        entry.home = "another-machine".into();
        assert!(entry.starter_is_alive());
    }
}
