//! What is said between the process that starts a partition and each server it starts: one JSON object a line, orders on
//! the server's standard input, answers on its standard output.
//!
//! ```text
//! starter                                  server
//!    | ---- ServeSpec ----------------------> |   takes its directory, listens
//!    | <--- Ready, or Failed ---------------- |
//!    | ---- Peers (when all are ready) -----> |   connects to them
//!    | <--- Up, or Failed ------------------- |
//!    | ---- Go (when all are up) -----------> |   lets go of the starter and serves
//! ```
//! Never: a secret on a command line or in an environment. Always: a server whose input ends before `Go` undoes what it
//! made and ends, so that a starter that dies leaves nothing behind.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use pario_core::{PartitionId, ServerIndex};
use serde::{Deserialize, Serialize};

use super::entry::{Process, Secret, ServerEntry};
use super::identity::{Hold, Identity, IdentityError, Role, StartMode};
use super::settings::Settings;

/// Longest line of this conversation: settings and peers of 1024 servers fit.
pub const LINE_BYTES_MAX: u64 = 16 << 20;
/// Arguments that make the `pario` command a server that listens to its starter.
pub const SERVE_ARGUMENTS: [&str; 2] = ["serve", "--from-stdin"];
/// With this one besides, it starts the server, passes its answers on, and ends when the server is up.
pub const BACKGROUND_ARGUMENT: &str = "--background";
/// File in the storage directory that a server logs into.
pub const LOG_FILE: &str = "log";

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
    /// Which life of the partition.
    pub epoch: u64,
    /// What clients and servers prove to each other.
    pub secret: Secret,
    /// Whether to make what is missing.
    pub mode: StartMode,
    /// Directories that were missing before any server started, as [`super::identity::count_missing`] counts.
    pub missing_directories: u32,
    /// The server's storage directory.
    pub dir: PathBuf,
    /// Where names and inodes are kept, for the manager alone.
    pub names: Option<NamesPlace>,
    /// Where to listen.
    pub listen: Listen,
    /// The label of the node that it plays; `None`: what `PARIO_NODE` says where it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// Where the manager keeps names and inodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamesPlace {
    /// The directory itself.
    pub dir: PathBuf,
    /// The directory around it that has an identity of its own; `None`: it is in the server's storage directory.
    pub base: Option<PathBuf>,
    /// As in [`ServeSpec`], for `base`.
    pub missing_directories: u32,
}

impl ServeSpec {
    /// Takes the server's storage directory, and the manager's apart from it, as [`Identity::hold`] does.
    ///
    /// # Errors
    /// [`IdentityError`]; what was made before the fault is undone.
    pub fn hold_directories(&self) -> Result<Vec<Hold>, IdentityError> {
        let hold = |dir: &Path, role, missing| {
            let wanted = Identity::wanted(&self.settings, self.id, self.index, role);
            Identity { made_directories: missing, ..wanted }.hold(dir, self.mode)
        };
        let store = hold(&self.dir, Role::Store, self.missing_directories)?;
        let Some(names) = &self.names else { return Ok(vec![store]) };
        let Some(base) = &names.base else { return Ok(vec![store]) };
        match hold(base, Role::Names, names.missing_directories) {
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
    /// On a unix socket, in a place of the server's choice.
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
    /// The label of the node that it plays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its process number.
    pub pid: u32,
    /// When that process started.
    pub start_ticks: u64,
}

impl Ready {
    /// This process, listening there.
    #[must_use]
    pub fn own(index: ServerIndex, unix: Option<PathBuf>, tcp: Option<SocketAddr>) -> Ready {
        let Process { pid, start_ticks } = Process::own();
        Ready { index, unix, tcp, node: None, pid, start_ticks }
    }

    /// The same, on the node of this label.
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

/// What a starter says after the [`ServeSpec`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// All servers of the partition are ready; here they are, in order.
    Peers(Vec<ServerEntry>),
    /// All servers are up: serve on your own.
    Go,
}

/// What a server answers. The word `pario` leads, so that whatever a login shell prints is not taken for an answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "pario", rename_all = "lowercase")]
pub enum Answer {
    /// It listens.
    Ready(Ready),
    /// It knows its peers.
    Up,
    /// It cannot.
    Failed(Failed),
}

impl Answer {
    /// The answer in a line; `None` if the line is something else.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Answer> {
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

/// The server's side of the conversation.
#[derive(Debug)]
pub struct ServerSide<R, W> {
    input: BufReader<R>,
    output: W,
}

/// Why the conversation ended; the server undoes what it made and ends.
#[derive(Debug, thiserror::Error)]
pub enum ConversationError {
    /// The starter is gone, or changed its mind.
    #[error("the process that started this server is gone, or gave up")]
    Ended,
    /// The starter says something that cannot be understood.
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
    /// A conversation over standard input and output, or what stands for them.
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

    /// Tells that this server listens.
    ///
    /// # Errors
    /// [`ConversationError::Io`].
    pub fn ready(&mut self, ready: Ready) -> Result<(), ConversationError> {
        self.write(&Answer::Ready(ready))
    }

    /// Tells that this server cannot start; `found` as in [`Failed`].
    ///
    /// # Errors
    /// [`ConversationError::Io`].
    pub fn failed(&mut self, text: &str, found: Option<PartitionId>) -> Result<(), ConversationError> {
        self.write(&Answer::Failed(Failed { text: text.replace('\n', "; "), found }))
    }

    /// Waits for the list of all servers.
    ///
    /// # Errors
    /// [`ConversationError`].
    pub fn peers(&mut self) -> Result<Vec<ServerEntry>, ConversationError> {
        match self.read()? {
            Order::Peers(peers) => Ok(peers),
            Order::Go => Err(ConversationError::NotUnderstood { reason: "go came before peers".to_owned() }),
        }
    }

    /// Tells that this server knows its peers, and waits until it may serve on its own.
    ///
    /// # Errors
    /// [`ConversationError`]: another server failed, or the starter died.
    pub fn up(&mut self) -> Result<(), ConversationError> {
        self.write(&Answer::Up)?;
        match self.read()? {
            Order::Go => Ok(()),
            Order::Peers(_) => {
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
        // The line may hold the secret: the message says where the fault is, not what stands there.
        let reason = |error: serde_json::Error| format!("column {}", error.column());
        serde_json::from_slice(&line)
            .map_err(|error| ConversationError::NotUnderstood { reason: reason(error) })
    }

    fn write(&mut self, answer: &Answer) -> Result<(), ConversationError> {
        self.output.write_all(&to_line(answer))?;
        Ok(self.output.flush()?)
    }
}

/// Lets go of the starter: a session of its own, no standard input and output, standard error into `log`.
///
/// # Errors
/// If the log cannot be opened, or the descriptors cannot be replaced.
pub fn detach(log: &Path) -> io::Result<()> {
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(log)?;
    let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    // A leader of a process group has no terminal to lose by staying one.
    let _ = rustix::process::setsid();
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stderr(&log)?;
    // Last, since the relay takes the end of the output for the end of the conversation.
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(())
}

/// What the command does with [`BACKGROUND_ARGUMENT`]: starts the server as a child with the same input, passes its answers
/// on, and ends when the server lets go or ends, so that `ssh` and the like return.
///
/// # Errors
/// If the server cannot be started, or nobody takes its answers.
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
        up = Answer::from_line(&String::from_utf8_lossy(&line)) == Some(Answer::Up);
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
        }
    }

    #[test]
    fn a_server_hears_and_answers_in_turn() {
        let peers = sample("x", 2).servers;
        let input = [to_line(&spec()), to_line(&Order::Peers(peers.clone())), to_line(&Order::Go)].concat();
        let mut output = Vec::new();
        let mut side = ServerSide::new(input.as_slice(), &mut output);
        assert_eq!(side.spec().unwrap(), spec());
        let ready = Ready::own(ServerIndex(1), None, Some("127.0.0.1:5".parse().unwrap()));
        side.ready(ready.clone()).unwrap();
        assert_eq!(side.peers().unwrap(), peers);
        side.up().unwrap();
        let answers: Vec<_> = String::from_utf8(output).unwrap().lines().map(Answer::from_line).collect();
        assert_eq!(answers, [Some(Answer::Ready(ready)), Some(Answer::Up)]);
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
        let failed = Answer::Failed(Failed { text: "no".into(), found: None });
        assert_eq!(
            serde_json::to_value(&failed).unwrap(),
            json!({"pario": "failed", "text": "no", "found": null})
        );
        assert_eq!(serde_json::to_value(Answer::Up).unwrap(), json!({"pario": "up"}));
        assert_eq!(serde_json::to_value(Order::Go).unwrap(), json!("go"));
        assert_eq!(serde_json::to_value(Order::Peers(vec![])).unwrap(), json!({"peers": []}));
        assert_eq!(Answer::from_line("Last login: yesterday"), None);
        assert_eq!(Answer::from_line("{\"other\": 1}"), None);
    }
}
