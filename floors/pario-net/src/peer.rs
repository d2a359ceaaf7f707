//! The process at the other end of a stream, and whether a silent one is alive: a process on this node is checked in the kernel, one on
//! another node is probed over a separate connection, where no data delays the answer.
//!
//! Never: declares a process of this node dead by the clock; waits longer than `PROBE_MS_MAX`. Always: distinguishes a stopped process
//! from one without processor time.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pario_core::limits::{CONNECT_MS_MAX, PROBE_AFTER_MS, PROBE_MS_MAX, SILENCE_MS_MAX};
use pario_core::{Clock, Nanos};
use pario_sys::clock::MonotonicClock;
use pario_sys::process::{Activity, activity, start_ticks};
use pario_sys::socket::peer_credentials;

use crate::frame::{self, DataCheck, FrameKind};
use crate::greeting::{Hello, nonce};
use crate::stream::Stream;

/// See the module.
#[derive(Debug)]
pub(crate) enum Peer {
    /// A process of this node.
    Process { pid: u32, started_ticks: u64 },
    /// A server on another node, or reached like one.
    Host { address: SocketAddr, hello: Box<Hello>, failed_ns: AtomicU64 },
    /// Behind a relay, or in another pid namespace: only the clock can tell.
    Unknown,
}

/// Decision about a peer after some silence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Too early to decide.
    Wait,
    /// It answered a probe.
    Answered,
    /// It is alive, but does not get to answer.
    Busy { pid: u32 },
    /// It is declared dead.
    Lost(String),
}

impl Peer {
    /// The peer of a stream; `hello` is sent by probes.
    pub(crate) fn of(stream: &Stream, hello: &Hello) -> Peer {
        match stream {
            Stream::Relayed(_) => Peer::Unknown,
            Stream::Unix(_) | Stream::Tcp(_) | Stream::Protected(_) => match stream.network_addresses() {
                Some((_, address)) => {
                    Peer::Host { address, hello: Box::new(hello.clone()), failed_ns: AtomicU64::new(0) }
                }
                None => Peer::process_of(stream).unwrap_or(Peer::Unknown),
            },
        }
    }

    /// The process that listened; if it has ended since, its socket was inherited by an unknown process.
    fn process_of(stream: &Stream) -> Option<Peer> {
        let pid = peer_credentials(std::os::fd::AsFd::as_fd(stream)).ok()?.pid;
        Some(Peer::Process { pid, started_ticks: start_ticks(pid)? })
    }

    /// Decides about a peer after this silence.
    pub(crate) fn judge(&self, silent: Duration) -> Verdict {
        let is_over = Duration::from_millis(SILENCE_MS_MAX) <= silent;
        let by_clock = || Verdict::Lost(format!("no sign of life for {:.1} s", silent.as_secs_f64()));
        match self {
            Peer::Process { pid, started_ticks } if is_over => match activity(*pid, *started_ticks) {
                Activity::Running => Verdict::Busy { pid: *pid },
                Activity::Stopped => Verdict::Lost(format!(
                    "no sign of life for {:.1} s: process {pid} is stopped; let it go on with `kill -CONT {pid}`",
                    silent.as_secs_f64()
                )),
                Activity::Ended => by_clock(),
            },
            Peer::Host { address, hello, failed_ns } if Duration::from_millis(PROBE_AFTER_MS) <= silent => {
                let heard = MonotonicClock.now().since(Nanos(0)).saturating_sub(silent);
                let has_failed = heard < Duration::from_nanos(failed_ns.load(Ordering::Relaxed));
                if has_failed {
                    return if is_over { by_clock() } else { Verdict::Wait };
                }
                if probe(*address, hello).is_ok() {
                    return Verdict::Answered;
                }
                failed_ns.store(MonotonicClock.now().0, Ordering::Relaxed);
                Verdict::Wait
            }
            Peer::Unknown if is_over => by_clock(),
            Peer::Process { .. } | Peer::Host { .. } | Peer::Unknown => Verdict::Wait,
        }
    }

    /// The same where a wait may only end by an error.
    pub(crate) fn tolerate_silence(&self, silent: Duration) -> io::Result<()> {
        match self.judge(silent) {
            Verdict::Lost(why) => Err(io::Error::new(io::ErrorKind::TimedOut, why)),
            Verdict::Wait | Verdict::Answered | Verdict::Busy { .. } => Ok(()),
        }
    }

    /// The same during the greeting, which a peer that is not a process of this node answers within `CONNECT_MS_MAX`.
    pub(crate) fn bear_greeting(&self, waited: Duration) -> io::Result<()> {
        match self {
            Peer::Process { .. } => self.tolerate_silence(waited),
            Peer::Host { .. } | Peer::Unknown if waited < Duration::from_millis(CONNECT_MS_MAX) => Ok(()),
            Peer::Host { .. } | Peer::Unknown => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not answer the greeting"))
            }
        }
    }

    /// Whether it is a process of this node that runs: it can be asked again at once.
    pub(crate) fn runs(&self) -> bool {
        match self {
            Peer::Process { pid, started_ticks } => activity(*pid, *started_ticks) == Activity::Running,
            Peer::Host { .. } | Peer::Unknown => false,
        }
    }
}

/// Probes liveness by a fresh connection: any answer to a greeting is from the thread that serves requests.
fn probe(address: SocketAddr, hello: &Hello) -> io::Result<()> {
    let limit = Duration::from_millis(PROBE_MS_MAX);
    let began = MonotonicClock.now();
    let stream = Stream::Tcp(TcpStream::connect_timeout(&address, limit)?);
    let hello = Hello { nonce: nonce(), ..hello.clone() };
    let message = frame::seal(FrameKind::Hello, 0, &hello, &[], DataCheck::None);
    stream.send_all(&mut [IoSlice::new(&message)], &[])?;
    let left = limit.saturating_sub(MonotonicClock.now().since(began));
    let heard = stream.wait_readable(left)? && !stream.has_ended();
    if heard { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(100);

    #[test]
    fn a_process_is_judged_by_what_it_does() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let peer = Peer::Process { pid, started_ticks: start_ticks(pid).unwrap() };
        assert_eq!(peer.judge(LONG), Verdict::Busy { pid });
        let signal = |signal| {
            let process = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(process, signal).unwrap();
        };
        signal(rustix::process::Signal::STOP);
        while peer.runs() {
            std::thread::yield_now();
        }
        assert_eq!(peer.judge(Duration::from_secs(1)), Verdict::Wait, "1 s of silence is tolerated");
        let Verdict::Lost(why) = peer.judge(LONG) else { panic!("a stopped process does not answer") };
        assert!(why.contains("stopped") && why.contains(&pid.to_string()), "{why}");
        signal(rustix::process::Signal::CONT);
        while !peer.runs() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(peer.judge(LONG), Verdict::Lost(_)));
        assert_eq!(Peer::Unknown.judge(Duration::from_secs(3)), Verdict::Wait);
        assert!(matches!(Peer::Unknown.judge(LONG), Verdict::Lost(_)));
    }
}
