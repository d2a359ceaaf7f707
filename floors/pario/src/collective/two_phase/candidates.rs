//! Unauthenticated connections to a rank's listening socket: polled together, each with its own deadline, so that silent peers
//! delay no rank.
//!
//! Never: waits for one connection while another has data; holds more than its bound: when full, the oldest is closed. Always:
//! available bytes are read before a deadline is checked, and before a new connection replaces an old one.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::time::Duration;

use pario_core::{Clock, Nanos};
use pario_sys::MonotonicClock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::rank_connection::RankConnection;

/// Bytes of each message of a proof.
pub(super) const HELLO_BYTES: usize = 4 + 4 + 32;
/// Unauthenticated connections held at a time, beside the missing ranks.
pub(super) const UNAUTHENTICATED_MAX: usize = 64;
/// Time limit of each message.
const MESSAGE: Duration = Duration::from_secs(2);
/// Poll timeout, so that the caller can check other conditions.
const POLL_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Connections accepted before the held ones are read again.
const ACCEPTS_PER_TURN: usize = 16;

/// Result of a candidate's message.
pub(super) enum CandidateStep {
    /// The rank is authenticated.
    Proved(usize, RankConnection),
    /// This rank must prove itself by the next message.
    More(usize, RankConnection),
    /// Not a rank of the group.
    Unknown,
}

/// Judges a connection by the rank that it claims and its message.
type CandidateJudge<'a> =
    dyn FnMut(RankConnection, Option<usize>, &[u8; HELLO_BYTES]) -> io::Result<CandidateStep> + 'a;

/// An unauthenticated connection.
struct Candidate {
    line: RankConnection,
    /// The rank claimed by its first message.
    claimed: Option<usize>,
    message: [u8; HELLO_BYTES],
    filled: usize,
    since: Nanos,
}

impl Candidate {
    fn new(line: RankConnection, claimed: Option<usize>) -> Candidate {
        Candidate { line, claimed, message: [0; HELLO_BYTES], filled: 0, since: MonotonicClock.now() }
    }

    /// Reads available bytes; true when the message is complete.
    fn read(&mut self) -> io::Result<bool> {
        while self.filled < HELLO_BYTES {
            match self.line.read_now(&mut self.message[self.filled..])? {
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(count) => self.filled += count,
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// See the module; oldest first.
#[derive(Default)]
pub(super) struct Candidates(VecDeque<Candidate>);

impl Candidates {
    /// Polls once, and returns the ranks that have authenticated. `judge` gets a connection, its claimed rank and its message;
    /// its error closes the connection.
    pub(super) fn poll_once(
        &mut self,
        listener: &TcpListener,
        most: usize,
        judge: &mut CandidateJudge<'_>,
    ) -> io::Result<Vec<(usize, RankConnection)>> {
        self.wait(listener)?;
        let proved = self.read_all(judge);
        for _ in 0..ACCEPTS_PER_TURN {
            match listener.accept() {
                Ok((stream, _)) => self.enter(RankConnection::new(stream), most),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The peer closed the connection before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(proved)
    }

    fn wait(&self, listener: &TcpListener) -> io::Result<()> {
        let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
        let sockets: Vec<_> = self.0.iter().map(|candidate| candidate.line.socket()).collect();
        fds.extend(sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)));
        match poll(&mut fds, Some(&POLL_WAIT)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A connection that fails during setup is dropped.
    fn enter(&mut self, line: io::Result<RankConnection>, most: usize) {
        let Ok(line) = line else { return };
        while most.max(1) <= self.0.len() {
            self.0.pop_front();
        }
        self.0.push_back(Candidate::new(line, None));
    }

    fn read_all(&mut self, judge: &mut CandidateJudge<'_>) -> Vec<(usize, RankConnection)> {
        let mut proved = Vec::new();
        for mut candidate in std::mem::take(&mut self.0) {
            match candidate.read() {
                Ok(true) => match judge(candidate.line, candidate.claimed, &candidate.message) {
                    Ok(CandidateStep::Proved(rank, line)) => proved.push((rank, line)),
                    Ok(CandidateStep::More(rank, line)) => self.0.push_back(Candidate::new(line, Some(rank))),
                    Ok(CandidateStep::Unknown) | Err(_) => {}
                },
                Ok(false) if MonotonicClock.now().since(candidate.since) < MESSAGE => {
                    self.0.push_back(candidate)
                }
                Ok(false) | Err(_) => {}
            }
        }
        proved
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_flood_pushes_out_the_oldest_only() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let most = 4;
        let mut strangers: Vec<TcpStream> =
            (0..=most).map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap()).collect();
        let mut candidates = Candidates::default();
        let limit = MonotonicClock.now();
        let is_gone = |stream: &mut TcpStream| {
            stream.set_nonblocking(true).unwrap();
            !stream.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        while !is_gone(&mut strangers[0]) {
            let proved =
                candidates.poll_once(&listener, most, &mut |_, _, _| Ok(CandidateStep::Unknown)).unwrap();
            assert!(proved.is_empty() && candidates.0.len() <= most);
            assert!(MonotonicClock.now().since(limit) < MESSAGE, "the bound ends it, not its deadline");
        }
        assert_eq!(candidates.0.len(), most);
        assert!(!strangers[1..].iter_mut().any(is_gone), "the younger ones stay");
    }
}
