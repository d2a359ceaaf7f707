//! Protocol between the process that starts a partition and each of its servers: one JSON object per line, orders on the
//! server's standard input, answers on its standard output.
//!
//! ```text
//! starter                                  server
//!    | ---- ServeSpec ----------------------> |   holds its directory, listens
//!    | <--- Ready, or Failed ---------------- |
//!    | ---- Peers (when all are ready) -----> |   connects to them
//!    | <--- Up, or Failed ------------------- |
//!    | ---- Go (when all are up) -----------> |   detaches from the starter and serves
//! ```
//! Never: a secret on a command line or in an environment. Always: a server undoes its start and ends if its input closes
//! before `Go`, so that a dead starter leaves nothing behind.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use pario_core::{PartitionId, ServerIndex};
use serde::{Deserialize, Serialize};

use super::entry::{PartitionSecret, ServerEntry, ServerProcess};
use super::identity::{DirectoryRole, HeldDirectory, Identity, IdentityError, StartMode};
use super::server_log::{LogFile, ServerLog};
use super::settings::Settings;

/// Longest line: settings and peers of 1024 servers fit.
pub const LINE_BYTES_MAX: u64 = 16 << 20;
/// Arguments that run `pario` as a server under its starter.
pub const SERVE_ARGUMENTS: [&str; 2] = ["serve", "--from-stdin"];
/// In addition: starts the server, forwards its answers, and ends when the server is up.
pub const BACKGROUND_ARGUMENT: &str = "--background";

/// Everything a server needs to start.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeSpec {
    /// The partition's settings.
    pub settings: Settings,
    /// Which server.
    pub index: ServerIndex,
    /// The partition's identity.
    pub id: PartitionId,
    /// Epoch of the partition.
    pub epoch: u64,
    /// Shared secret of clients and servers.
    pub secret: PartitionSecret,
    /// Whether to make missing directories.
    pub mode: StartMode,
    /// Directories missing before any server started, from [`super::identity::count_missing`].
    pub missing_directories: u32,
    /// The server's storage directory.
    pub dir: PathBuf,
    /// Where names and inodes are kept, for the manager alone.
    pub names: Option<NamesDirectory>,
    /// Where to listen.
    pub listen: Listen,
    /// Its node label; `None`: that of `PARIO_NODE` where it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Missing directories of a complete partition are made again, empty: the user has accepted the loss.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_loss: bool,
    /// The registry that has the partition.
    pub registered: RegistryRecord,
}

/// The registry that a server's partition is in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegistryRecord {
    /// The machine that brought the partition up.
    pub host: String,
    /// The registry's file there.
    pub path: PathBuf,
    /// Whether the registry has just restored the partition from its directories: running servers of it are orphans.
    pub anew: bool,
}

/// Where the manager keeps names and inodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamesDirectory {
    /// The directory itself.
    pub dir: PathBuf,
    /// The separate directory with its own identity; `None`: in the server's storage directory.
    pub base: Option<PathBuf>,
    /// As in [`ServeSpec`], for `base`.
    pub missing_directories: u32,
}

impl ServeSpec {
    /// Holds the server's storage directory, and the manager's separate one, as [`Identity::hold`] does.
    ///
    /// # Errors
    /// [`IdentityError`]; directories made before the error are removed.
    pub fn hold_directories(&self) -> Result<Vec<HeldDirectory>, IdentityError> {
        let hold = |dir: &Path, role, missing| {
            let wanted = Identity::wanted(&self.settings, self.id, self.index, role);
            let mode = if self.accept_loss { StartMode::Fresh } else { self.mode };
            Identity { made_directories: missing, ..wanted }.hold(dir, mode)
        };
        let store = hold(&self.dir, DirectoryRole::Store, self.missing_directories)?;
        let Some(names) = &self.names else { return Ok(vec![store]) };
        let Some(base) = &names.base else { return Ok(vec![store]) };
        match hold(base, DirectoryRole::Names, names.missing_directories) {
            Ok(names) => Ok(vec![store, names]),
            Err(error) => {
                store.undo()?;
                Err(error)
            }
        }
    }
}

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listen {
    /// On a unix socket, at a path chosen by the server.
    pub unix: bool,
    /// On TCP, if at all.
    pub tcp: Option<ListenTcp>,
}

/// Where a server listens with TCP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenTcp {
    /// On the addresses of this host, the server's own; `None`: on loopback only.
    pub host: Option<String>,
    /// On this port; 0: any.
    pub port: u16,
}

/// A server that listens.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// Which server.
    pub index: ServerIndex,
    /// Its unix socket.
    pub unix: Option<PathBuf>,
    /// Its TCP address, as others reach it.
    pub tcp: Option<SocketAddr>,
    /// Its node label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its time namespace, unless that is the initial one of its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_namespace: Option<u64>,
    /// Its process number.
    pub pid: u32,
    /// When that process started.
    pub start_ticks: u64,
}

impl Ready {
    /// This process, listening there.
    #[must_use]
    pub fn own(index: ServerIndex, unix: Option<PathBuf>, tcp: Option<SocketAddr>) -> Ready {
        let ServerProcess { pid, start_ticks } = ServerProcess::own();
        let time_namespace = pario_sys::clock::time_namespace();
        Ready { index, unix, tcp, node: None, time_namespace, pid, start_ticks }
    }

    /// The same, with this node label.
    #[must_use]
    pub fn on(self, node: Option<String>) -> Ready {
        Ready { node, ..self }
    }
}

/// A server that cannot start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failed {
    /// Why, in one line.
    pub text: String,
    /// The identity that its directory has under the same partition name.
    pub found: Option<PartitionId>,
}

/// A note of a starting server to the user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// In one line.
    pub text: String,
}

/// Orders after the [`ServeSpec`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StartOrder {
    /// All servers of the partition are ready: their list, in order.
    Peers(Vec<ServerEntry>),
    /// All servers are up: detach and serve.
    Go,
}

/// A server's answer. It starts with the word `pario`, so that output of a login shell is not parsed as an answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "pario", rename_all = "lowercase")]
pub enum StartAnswer {
    /// It listens.
    Ready(Ready),
    /// A note for the user.
    Note(Note),
    /// It is connected to its peers.
    Up,
    /// It failed.
    Failed(Failed),
}

impl StartAnswer {
    /// The answer in a line; `None` for other output.
    #[must_use]
    pub fn from_line(line: &str) -> Option<StartAnswer> {
        serde_json::from_str(line.trim()).ok()
    }
}

/// A message as a line.
pub(super) fn to_line(message: &impl Serialize) -> Vec<u8> {
    let mut line =
        serde_json::to_vec(message).expect("these types have no maps with odd keys and no failing parts");
    line.push(b'\n');
    line
}

/// The server's side of the protocol.
#[derive(Debug)]
pub struct ServerSide<R, W> {
    input: BufReader<R>,
    output: W,
}

/// Why the protocol ended; the server undoes its start and ends.
#[derive(Debug, thiserror::Error)]
pub enum ConversationError {
    /// The starter ended, or gave up.
    #[error("the process that started this server is gone, or gave up")]
    Ended,
    /// The starter's message cannot be parsed.
    #[error("the process that started this server is of another version: {reason}")]
    NotUnderstood {
        /// What is wrong.
        reason: String,
    },
    /// Reading or writing failed.
    #[error("cannot talk to the process that started this server: {0}")]
    Io(#[from] io::Error),
}

impl<R: Read, W: Write> ServerSide<R, W> {
    /// Over standard input and output, or substitutes.
    pub fn new(input: R, output: W) -> Self {
        ServerSide { input: BufReader::new(input), output }
    }

    /// The first line: what to serve.
    ///
    /// # Errors
    /// [`ConversationError`].
    pub fn spec(&mut self) -> Result<ServeSpec, ConversationError> {
        self.read()
    }

    /// Reports that this server listens.
    ///
    /// # Errors
    /// [`ConversationError::Io`].
    pub fn ready(&mut self, ready: Ready) -> Result<(), ConversationError> {
        self.write(&StartAnswer::Ready(ready))
    }

    /// Reports that this server cannot start; `found` as in [`Failed`].
    ///
    /// # Errors
    /// [`ConversationError::Io`].
    pub fn failed(&mut self, text: &str, found: Option<PartitionId>) -> Result<(), ConversationError> {
        self.write(&StartAnswer::Failed(Failed { text: text.replace('\n', "; "), found }))
    }

    /// Sends a note to the user, before [`ServerSide::up`].
    ///
    /// # Errors
    /// [`ConversationError::Io`].
    pub fn note(&mut self, text: &str) -> Result<(), ConversationError> {
        self.write(&StartAnswer::Note(Note { text: text.replace('\n', "; ") }))
    }

    /// Waits for the list of all servers.
    ///
    /// # Errors
    /// [`ConversationError`].
    pub fn peers(&mut self) -> Result<Vec<ServerEntry>, ConversationError> {
        match self.read()? {
            StartOrder::Peers(peers) => Ok(peers),
            StartOrder::Go => {
                Err(ConversationError::NotUnderstood { reason: "go came before peers".to_owned() })
            }
        }
    }

    /// Reports that this server is connected to its peers, and waits for the order to serve.
    ///
    /// # Errors
    /// [`ConversationError`]: another server failed, or the starter died.
    pub fn up(&mut self) -> Result<(), ConversationError> {
        self.write(&StartAnswer::Up)?;
        match self.read()? {
            StartOrder::Go => Ok(()),
            StartOrder::Peers(_) => {
                Err(ConversationError::NotUnderstood { reason: "peers came twice".to_owned() })
            }
        }
    }

    fn read<T: for<'de> Deserialize<'de>>(&mut self) -> Result<T, ConversationError> {
        let mut line = Vec::new();
        self.input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Err(ConversationError::Ended);
        }
        // The line may hold the secret: the message gives the position of the error, not the text.
        let reason = |error: serde_json::Error| format!("column {}", error.column());
        serde_json::from_slice(&line)
            .map_err(|error| ConversationError::NotUnderstood { reason: reason(error) })
    }

    fn write(&mut self, answer: &StartAnswer) -> Result<(), ConversationError> {
        self.output.write_all(&to_line(answer))?;
        Ok(self.output.flush()?)
    }
}

/// Detaches from the starter: new session, no standard input and output, standard error and `log` into `file`.
///
/// # Errors
/// If the descriptors cannot be replaced.
pub fn detach(log: &ServerLog, file: LogFile) -> io::Result<()> {
    let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    // A process group leader has no terminal to lose.
    let _ = rustix::process::setsid();
    rustix::stdio::dup2_stdin(&nothing)?;
    log.move_into(file)?;
    // Last: the relay treats the end of the output as the end of the protocol.
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(())
}

/// `pario serve` with [`BACKGROUND_ARGUMENT`]: starts the server as a child with the same input, forwards its answers, and ends
/// when the server detaches or ends, so that `ssh` and similar launchers return.
///
/// # Errors
/// If the server cannot be started, or its answers cannot be forwarded.
pub fn relay(mut server: Command, mut output: impl Write) -> io::Result<ExitCode> {
    let mut child = server.stdin(Stdio::inherit()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
    let mut answers = BufReader::new(child.stdout.take().expect("it was asked to be piped"));
    let mut line = Vec::new();
    let mut up = false;
    loop {
        line.clear();
        answers.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            break;
        }
        up = StartAnswer::from_line(&String::from_utf8_lossy(&line)) == Some(StartAnswer::Up);
        output.write_all(&line)?;
        output.flush()?;
    }
    match child.try_wait()? {
        None if up => Ok(ExitCode::SUCCESS),
        _ => Ok(child
            .wait()?
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .map_or(ExitCode::FAILURE, ExitCode::from)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::entry::tests::sample;
    use serde_json::json;

    fn spec() -> ServeSpec {
        let entry = sample("x", 2);
        ServeSpec {
            settings: entry.settings,
            index: ServerIndex(1),
            id: entry.id,
            epoch: 1,
            secret: entry.secret,
            mode: StartMode::Fresh,
            missing_directories: 2,
            dir: "/tmp/x/1".into(),
            names: None,
            listen: Listen { unix: true, tcp: Some(ListenTcp { host: None, port: 0 }) },
            node: None,
            registered: RegistryRecord { host: "here".into(), path: "/tmp/registry".into(), anew: false },
            accept_loss: false,
        }
    }

    #[test]
    fn a_server_hears_and_answers_in_turn() {
        let peers = sample("x", 2).servers;
        let input =
            [to_line(&spec()), to_line(&StartOrder::Peers(peers.clone())), to_line(&StartOrder::Go)].concat();
        let mut output = Vec::new();
        let mut side = ServerSide::new(input.as_slice(), &mut output);
        assert_eq!(side.spec().unwrap(), spec());
        let ready = Ready::own(ServerIndex(1), None, Some("127.0.0.1:5".parse().unwrap()));
        side.ready(ready.clone()).unwrap();
        assert_eq!(side.peers().unwrap(), peers);
        side.up().unwrap();
        let answers: Vec<_> =
            String::from_utf8(output).unwrap().lines().map(StartAnswer::from_line).collect();
        assert_eq!(answers, [Some(StartAnswer::Ready(ready)), Some(StartAnswer::Up)]);
    }

    #[test]
    fn an_input_that_ends_early_is_an_order_to_go() {
        let whole = to_line(&spec());
        for cut in [0, 1, whole.len() - 1] {
            let mut side = ServerSide::new(&whole[..cut], Vec::new());
            assert!(matches!(side.spec(), Err(ConversationError::Ended)), "{cut}");
        }
        let mut side = ServerSide::new(&whole[..], Vec::new());
        side.spec().unwrap();
        assert!(matches!(side.peers(), Err(ConversationError::Ended)));
        assert!(matches!(side.up(), Err(ConversationError::Ended)));
    }

    #[test]
    fn nonsense_is_told_without_its_words() {
        let line = String::from_utf8(to_line(&spec())).unwrap().replace("epoch", "epoque");
        let error = ServerSide::new(line.as_bytes(), Vec::new()).spec().unwrap_err().to_string();
        assert!(error.contains("another version") && !error.contains("abab"), "{error}");
    }

    #[test]
    fn the_form_of_the_lines_is_fixed() {
        let failed = StartAnswer::Failed(Failed { text: "no".into(), found: None });
        assert_eq!(
            serde_json::to_value(&failed).unwrap(),
            json!({"pario": "failed", "text": "no", "found": null})
        );
        assert_eq!(serde_json::to_value(StartAnswer::Up).unwrap(), json!({"pario": "up"}));
        let note = StartAnswer::Note(Note { text: "so".into() });
        assert_eq!(serde_json::to_value(note).unwrap(), json!({"pario": "note", "text": "so"}));
        assert_eq!(serde_json::to_value(StartOrder::Go).unwrap(), json!("go"));
        assert_eq!(serde_json::to_value(StartOrder::Peers(vec![])).unwrap(), json!({"peers": []}));
        assert_eq!(StartAnswer::from_line("Last login: yesterday"), None);
        assert_eq!(StartAnswer::from_line("{\"other\": 1}"), None);
    }
}
