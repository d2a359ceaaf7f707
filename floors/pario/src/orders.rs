//! Control requests to servers: orders and status, each on a connection with a deadline.
//!
//! Never: waits longer than its [`Deadlines`] for a handshake or an answer, whether the server's process is alive or not.
//! Always: if the process runs and does not answer, the error names server, host, process and cure.

use std::time::Duration;

use pario_core::{Clock, Code, Fault, ServerIndex, Space};
use pario_net::connection::{Connection, ReceivedReply};
use pario_net::deadlines::Deadlines;
use pario_net::frame::PROTOCOL;
use pario_net::greeting::{ConnectionPurpose, Hello, Secret, nonce, random_number};
use pario_net::message::{Reply, Request};
use pario_net::protect::Protect;
use pario_server::Connect;
use pario_sys::clock::MonotonicClock;
use pario_sys::process::{Activity, activity};

use crate::error::Result;
use crate::partition::launch::START_LIMIT;
use crate::partition::{RegistryEntry, ServerEntry};
use crate::start::by_address;

/// A refusal arrives within this time; a slower fault is silence.
const REFUSAL_TIME: Duration = Duration::from_secs(1);

/// For servers just started, possibly on a loaded machine.
pub(crate) const STARTED_DEADLINES: Deadlines = Deadlines { greeting: START_LIMIT, answer: START_LIMIT };

/// All counters of a server, as JSON.
///
/// # Errors
/// The server is gone, cannot be reached, or runs and does not answer in time.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
pub fn status(entry: &RegistryEntry, server: &ServerEntry) -> Result<String> {
    match order(entry, server, &Request::Status {}, Deadlines::ORDER)?.reply {
        Reply::Status { json } => Ok(json),
        other => Err(unexpected_reply(server.index, &other).into()),
    }
}

/// Space of a partition that was just brought up.
///
/// # Errors
/// As [`status`], for the first server that fails.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
pub fn space(entry: &RegistryEntry) -> Result<Space> {
    let ask = |server: &ServerEntry| match order(entry, server, &Request::Space {}, STARTED_DEADLINES)?.reply
    {
        Reply::Space { space } => Ok(space),
        other => Err(unexpected_reply(server.index, &other).into()),
    };
    Ok(Space::sum(entry.servers.iter().map(ask).collect::<Result<Vec<Space>>>()?))
}

pub(crate) fn unexpected_reply(server: ServerIndex, reply: &Reply) -> Fault {
    Fault::new(Code::Protocol, format!("server {server} sent an unexpected reply: {reply:?}"))
}

/// Sends one request on its own connection and waits for the answer.
pub(crate) fn order(
    entry: &RegistryEntry,
    server: &ServerEntry,
    request: &Request,
    deadlines: Deadlines,
) -> std::result::Result<ReceivedReply, Fault> {
    let began = MonotonicClock.now();
    let asked = control(entry, server, deadlines).and_then(|connection| connection.call(request));
    asked.map_err(|fault| named(entry, server, fault, MonotonicClock.now().since(began)))
}

/// A control connection.
pub(crate) fn control(
    entry: &RegistryEntry,
    server: &ServerEntry,
    deadlines: Deadlines,
) -> std::result::Result<Connection, Fault> {
    let refused = |error: crate::error::Error| Fault::new(Code::Invalid, error.to_string());
    let stream = by_address(entry).map_err(refused)?.connect(server.index)?;
    let pid = std::process::id();
    let hello = Hello {
        protocol: PROTOCOL,
        partition: entry.id,
        server: server.index,
        session: pario_core::SessionId(random_number()),
        purpose: ConnectionPurpose::Requests {},
        host: pario_sys::process::host_name(),
        pid,
        start_ticks: pario_sys::process::start_ticks(pid).unwrap_or(0),
        program: "pario".into(),
        application: "pario".into(),
        weight: 1,
        relay: false,
        protect: Protect::from(entry.settings.network.protect).wants(&stream),
        nonce: nonce(),
    };
    Connection::greet_within(stream, entry.name.clone(), &hello, &Secret(entry.secret.0), deadlines)
}

/// The fault of a server that did not answer, with the state of its process.
fn named(entry: &RegistryEntry, server: &ServerEntry, fault: Fault, waited: Duration) -> Fault {
    if fault.code != Code::Unreachable || waited < REFUSAL_TIME {
        return fault;
    }
    let (name, ServerEntry { index, pid, .. }) = (&entry.name, server);
    let host = server.host.as_deref().unwrap_or(&entry.home);
    let process = format!("server {index} of partition '{name}' on {host}, process {pid},");
    let within = format!("does not answer within {:.1} s", waited.as_secs_f64());
    let what = match entry.is_here(server).then(|| activity(*pid, server.start_ticks)) {
        Some(Activity::Running) => format!(
            "{process} runs but {within}: try again, or end it with `pario down {name}`, which kills it if it must"
        ),
        Some(Activity::Stopped) => format!(
            "{process} is stopped and {within}: let it go on with `kill -CONT {pid}`, or end it with `pario down {name}`"
        ),
        Some(Activity::Ended) => return fault,
        None => {
            format!("{process} {within}: look there whether the process is stopped or waits for its disk")
        }
    };
    Fault::new(Code::Unreachable, what)
}

/// Whether a host refuses connections at the server's address: the server is dead, not slow or cut off.
pub(crate) fn is_refused(server: &ServerEntry) -> bool {
    let attempt = |address| std::net::TcpStream::connect_timeout(&address, Duration::from_secs(2));
    let refused = |error: std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
    server.tcp.is_some_and(|address| attempt(address).is_err_and(refused))
}
