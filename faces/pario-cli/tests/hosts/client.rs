//! A program that links Pario, keeps a partition mounted and files open, and executes orders, one per line.
//!
//! It is this test binary again: [`child_client`]. Each order is answered by `ok MILLISECONDS` or `failed MILLISECONDS REASON`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use pario::{File, Partition};
use rustix::time::{ClockId, clock_gettime};

use crate::support::CliFixture;

const PARTITION: &str = "PARIO_TEST_CLIENT";
/// Upper bound of any order, also of a failing one.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Words that run [`child_client`] in this binary.
pub(crate) const CHILD: [&str; 2] = ["--exact", "client::child_client"];

/// Such a program, running.
pub(crate) struct ClientProcess {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
}

/// Result and duration of an order.
#[derive(Debug)]
pub(crate) struct OrderResult {
    pub(crate) took: Duration,
    pub(crate) fault: Option<String>,
}

impl OrderResult {
    #[track_caller]
    pub(crate) fn ok(self) {
        assert_eq!(self.fault, None);
    }

    #[track_caller]
    pub(crate) fn fault(self) -> String {
        self.fault.expect("it should have failed")
    }
}

/// This binary as a program of a fixture; arguments select one of its children.
pub(crate) fn program(world: &CliFixture) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    for (name, value) in world.command().get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

impl ClientProcess {
    /// Runs a command that executes [`CHILD`] of this binary, with `partition` mounted.
    pub(crate) fn start(command: &mut Command, partition: &str) -> ClientProcess {
        let command = command.env(PARTITION, partition).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let (orders, lines) = (child.stdin.take(), child.stderr.take().expect("it is piped"));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            BufReader::new(lines).lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
        });
        ClientProcess { child, orders, answers }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process number")
    }

    /// Gives an order without waiting.
    pub(crate) fn send(&mut self, order: &str) {
        writeln!(self.orders.as_mut().expect("it listens"), "{order}").expect("it listens");
    }

    /// Waits for an answer.
    #[track_caller]
    pub(crate) fn receive(&mut self) -> OrderResult {
        let line = self.answers.recv_timeout(ANSWER_LIMIT).expect("an answer");
        let mut parts = line.splitn(3, ' ');
        let (word, millis) = (parts.next(), parts.next().and_then(|millis| millis.parse().ok()));
        let took = Duration::from_millis(millis.unwrap_or_else(|| panic!("no answer, but: {line}")));
        let fault = (word != Some("ok")).then(|| parts.next().unwrap_or_default().to_owned());
        OrderResult { took, fault }
    }

    #[track_caller]
    pub(crate) fn execute(&mut self, order: &str) -> OrderResult {
        self.send(order);
        self.receive()
    }

    /// Ends it; its exit code, or the signal that killed it as a negative number.
    pub(crate) fn end(mut self) -> i32 {
        drop(self.orders.take());
        let status = self.child.wait().expect("it ends");
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        status.code().unwrap_or_else(|| -signal.unwrap_or(0))
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test of its own: the program behind [`ClientProcess`].
#[test]
fn child_client() {
    let Some(name) = std::env::var_os(PARTITION) else { return };
    let partition = Partition::mount(name.to_str().unwrap()).unwrap();
    let mut files = HashMap::new();
    for order in std::io::stdin().lines() {
        let (order, began) = (order.unwrap(), now());
        let outcome = execute_order(&partition, &mut files, &order);
        let millis = now().saturating_sub(began).as_millis();
        let line = match outcome {
            Ok(()) => format!("ok {millis}"),
            Err(reason) => format!("failed {millis} {}", reason.replace('\n', " ")),
        };
        // Not the macro: the test harness would keep it.
        writeln!(std::io::stderr(), "{line}").unwrap();
    }
}

fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

/// `create PATH COUNT FIRST`, `write PATH SEED BYTES`, `check PATH SEED BYTES`, `sync PATH`, `close PATH`, `stat PATH`.
fn execute_order(
    partition: &Partition,
    files: &mut HashMap<String, File>,
    order: &str,
) -> Result<(), String> {
    let words: Vec<&str> = order.split_whitespace().collect();
    let (verb, path) = (words[0], words[1]);
    let number = |at: usize| -> usize { words[at].parse().unwrap() };
    let file = || files.get(path).ok_or_else(|| format!("{path} is not open"));
    match verb {
        "create" => {
            let count = |at| u16::try_from(number(at)).unwrap();
            let options = partition.options().create(true).read(true).write(true);
            let opened = options.stripe_count(count(2)).first_server(count(3)).open(path).map_err(text)?;
            files.insert(path.to_owned(), opened);
            Ok(())
        }
        "write" => file()?.write_at(0, &pattern(number(2), number(3))).map_err(text),
        "check" => {
            let mut found = vec![0; number(3)];
            file()?.read_exact_at(0, &mut found).map_err(text)?;
            let same = found == pattern(number(2), number(3));
            same.then_some(()).ok_or_else(|| format!("{path} reads wrong"))
        }
        "sync" => file()?.sync().map_err(text),
        "close" => files.remove(path).ok_or("not open")?.close().map_err(text),
        "stat" => partition.metadata(path).map(drop).map_err(text),
        other => Err(format!("no such order: {other}")),
    }
}

fn text(error: pario::Error) -> String {
    error.to_string()
}

/// Bytes that differ from seed to seed and from block to block.
fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(31) ^ (at >> 12) ^ seed.wrapping_mul(97)).to_le_bytes()[0]).collect()
}
