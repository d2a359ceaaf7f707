//! Connections between ranks without shared memory: addresses and tokens are exchanged through the group, then the lower of two
//! ranks connects and each proves that it knows the other's token. Between hosts the tokens are the secret of protected
//! records, and are sent inside them.
//!
//! Never: listens beyond loopback unless ranks are on several hosts; trusts or waits for an unauthenticated peer
//! (`candidates.rs`); waits longer than `LIMIT`. Always: an error names the missing ranks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use pario_core::{Clock, Code, Fault};
use pario_net::greeting::nonce;
use pario_net::protect::{End, Keys};
use pario_sys::MonotonicClock;

use super::candidates::{CandidateStep, Candidates, HELLO_BYTES, UNAUTHENTICATED_MAX};
use super::rank_connection::RankConnection;
use crate::error::Result;
use crate::group::Group;
use crate::partition::choices::ProtectChoice;

const CONNECT: Duration = Duration::from_secs(2);
/// All ranks are already present when connecting begins: a longer wait means a failure.
const LIMIT: Duration = Duration::from_secs(20);
const MAGIC: [u8; 4] = *b"P2PH";
/// Magic of a greeting with a nonce: the following bytes are protected.
const MAGIC_NONCE: [u8; 4] = *b"P2PN";
const TOKEN_BYTES: usize = 32;
/// Addresses tried per host.
const ADDRESSES_MAX: usize = 16;
/// A host is given up after this many timeouts, a second each.
const TIMEOUTS_MAX: u32 = 4;

/// Address and token of a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
struct RankAddress {
    port: u16,
    token: [u8; TOKEN_BYTES],
    addresses: Vec<Ipv4Addr>,
}

impl RankAddress {
    fn to_bytes(&self) -> Vec<u8> {
        let addresses: Vec<u8> = self.addresses.iter().flat_map(Ipv4Addr::octets).collect();
        [&self.port.to_le_bytes()[..], &self.token, &addresses].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<RankAddress> {
        let (port, rest) = bytes.split_first_chunk::<2>()?;
        let (token, rest) = rest.split_first_chunk::<TOKEN_BYTES>()?;
        let addresses =
            rest.chunks_exact(4).take(ADDRESSES_MAX).map(|at| Ipv4Addr::new(at[0], at[1], at[2], at[3]));
        Some(RankAddress { port: u16::from_le_bytes(*port), token: *token, addresses: addresses.collect() })
    }
}

/// Connects this rank with each of `partners`; collective over the whole group, and partners must be mutual.
pub(crate) fn connect(group: &dyn Group, partners: &[usize]) -> Result<Vec<(usize, RankConnection)>> {
    let hosts = group.allgather(network().as_bytes())?;
    let one_host = hosts.iter().all(|host| *host == hosts[0] && !host.is_empty());
    let protected = agree_on_protection(group, one_host)?;
    connect_as(group, partners, (one_host, protected))
}

fn connect_as(
    group: &dyn Group,
    partners: &[usize],
    (one_host, protected): (bool, bool),
) -> Result<Vec<(usize, RankConnection)>> {
    let addresses = if one_host { vec![Ipv4Addr::LOCALHOST] } else { own_addresses() };
    let bind = if one_host { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
    let listener = TcpListener::bind((bind, 0));
    let port =
        listener.as_ref().ok().and_then(|listener| listener.local_addr().ok()).map_or(0, |at| at.port());
    let own = RankAddress { port, token: nonce(), addresses };
    let cards = group.allgather(&own.to_bytes())?;
    let made = match listener {
        Ok(listener) => RankConnector { group, listener, own, cards, protected }.connect_all(partners),
        Err(error) => Err(Fault::from_io(&error, "listening for other ranks")),
    };
    group.agree(made.as_ref().map(|_| ()).map_err(|fault| fault.clone().into()))?;
    Ok(made?)
}

/// Whether connections are protected: the environment's setting, which must be equal on all ranks.
fn agree_on_protection(group: &dyn Group, one_host: bool) -> Result<bool> {
    let own = ProtectChoice::of_environment();
    let word = own.as_ref().map_or_else(Clone::clone, |choice| choice.word().to_owned());
    let words = group.allgather(word.as_bytes())?;
    let choice = own.map_err(|text| Fault::new(Code::Invalid, text))?;
    if let Some((rank, other)) = words.iter().enumerate().find(|(_, other)| **other != word.as_bytes()) {
        let other = String::from_utf8_lossy(other);
        let text = format!(
            "rank {rank} has PARIO_NETWORK_PROTECT {other:?}, rank {} has {word:?}: start all ranks with the same",
            group.rank()
        );
        return Err(Fault::new(Code::NotSame, text).into());
    }
    Ok(match choice {
        ProtectChoice::Full => !one_host,
        ProtectChoice::None => false,
        ProtectChoice::All => true,
    })
}

struct RankConnector<'a> {
    group: &'a dyn Group,
    listener: TcpListener,
    own: RankAddress,
    cards: Vec<Vec<u8>>,
    protected: bool,
}

impl RankConnector<'_> {
    /// Connects to higher ranks first; the highest has none to connect to and accepts immediately, and so on downwards.
    fn connect_all(&self, partners: &[usize]) -> std::result::Result<Vec<(usize, RankConnection)>, Fault> {
        let me = self.group.rank();
        let mut made = Vec::new();
        for rank in partners.iter().copied().filter(|rank| me < *rank) {
            made.push((
                rank,
                self.call(rank).map_err(|fault| fault.at(format!("connecting to rank {rank}")))?,
            ));
        }
        let mut missing: Vec<usize> = partners.iter().copied().filter(|rank| *rank < me).collect();
        let clock = MonotonicClock;
        let begin = clock.now();
        self.listener
            .set_nonblocking(true)
            .map_err(|error| Fault::from_io(&error, "listening for other ranks"))?;
        let mut candidates = Candidates::default();
        while !missing.is_empty() {
            let most = missing.len() + UNAUTHENTICATED_MAX;
            // An authenticated rank is no longer missing; later connections in its name are refused.
            let mut judge = |line, claimed, said: &[u8; HELLO_BYTES]| {
                let step = self.judge(line, (claimed, said), &missing)?;
                if let CandidateStep::Proved(rank, _) = &step {
                    missing.retain(|other| other != rank);
                }
                Ok(step)
            };
            let proved = candidates.poll_once(&self.listener, most, &mut judge);
            made.extend(proved.map_err(|error| Fault::from_io(&error, "listening for other ranks"))?);
            self.check()?;
            if LIMIT < clock.now().since(begin) {
                let text = format!("ranks {missing:?} did not connect within {} s", LIMIT.as_secs());
                return Err(Fault::new(Code::Unreachable, text));
            }
        }
        for (_, stream) in &made {
            // A greeting has a limit; afterwards a late rank is waited for, and keep-alive ends the wait for a dead host.
            pario_sys::socket::set_keepalive(stream.socket(), Duration::from_secs(1), TIMEOUTS_MAX)
                .map_err(|error| Fault::from_io(&error, "a connection between ranks"))?;
        }
        Ok(made)
    }

    fn check(&self) -> std::result::Result<(), Fault> {
        self.group.check().map_err(|error| Fault::new(error.code(), error.to_string()))
    }

    fn card(&self, rank: usize) -> std::result::Result<RankAddress, Fault> {
        let card = self.cards.get(rank).and_then(|bytes| RankAddress::from_bytes(bytes));
        card.ok_or_else(|| Fault::new(Code::Protocol, "it does not tell how to reach it"))
    }

    fn call(&self, rank: usize) -> std::result::Result<RankConnection, Fault> {
        let card = self.card(rank)?;
        let mut fault = Fault::new(Code::Unreachable, "it has no address that others can reach");
        for address in &card.addresses {
            let place = SocketAddr::new(IpAddr::V4(*address), card.port);
            match TcpStream::connect_timeout(&place, CONNECT) {
                Ok(stream) => match self.greet(stream, &card, rank) {
                    Ok(line) => return Ok(line),
                    Err(found) => fault = found.at(place),
                },
                Err(error) => fault = Fault::new(Code::Unreachable, format!("{place}: {error}")),
            }
            self.check()?;
        }
        Err(fault)
    }

    /// Says who we are with the other's token, and wants ours back.
    fn greet(
        &self,
        stream: TcpStream,
        card: &RankAddress,
        rank: usize,
    ) -> std::result::Result<RankConnection, Fault> {
        let failed = |error: std::io::Error| Fault::new(Code::Unreachable, error.to_string());
        let me = self.group.rank();
        let mut line = RankConnection::new(stream).map_err(failed)?;
        if self.protected {
            let nonces = self.swap_nonces(&line, me).map_err(failed)?;
            let secret = [self.own.token, card.token].concat();
            line =
                line.protected(Keys::derive(&secret, (&nonces.0, &nonces.1), End::Client)).map_err(failed)?;
        }
        line.write_without_limit(&hello(MAGIC, me, &card.token)).map_err(failed)?;
        let mut answer = [0; HELLO_BYTES];
        line.read_within(&mut answer, LIMIT).map_err(failed)?;
        if answer == hello(MAGIC, rank, &self.own.token) {
            return Ok(line);
        }
        Err(Fault::new(Code::WrongSecret, "another process answers at this address"))
    }

    /// This rank's nonce, then the other's.
    fn swap_nonces(&self, line: &RankConnection, me: usize) -> std::io::Result<([u8; 32], [u8; 32])> {
        let own = nonce();
        line.write_without_limit(&hello(MAGIC_NONCE, me, &own))?;
        let mut answer = [0; HELLO_BYTES];
        line.read_within(&mut answer, LIMIT)?;
        let theirs = nonce_in(&answer).ok_or(std::io::ErrorKind::InvalidData)?.1;
        Ok((own, theirs))
    }

    /// Judges a message; a connection without the right token belongs to no rank.
    fn judge(
        &self,
        line: RankConnection,
        (claimed, said): (Option<usize>, &[u8; HELLO_BYTES]),
        missing: &[usize],
    ) -> std::io::Result<CandidateStep> {
        if self.protected && claimed.is_none() {
            let Some((rank, theirs)) = nonce_in(said).filter(|(rank, _)| missing.contains(rank)) else {
                return Ok(CandidateStep::Unknown);
            };
            let Ok(card) = self.card(rank) else { return Ok(CandidateStep::Unknown) };
            let own = nonce();
            line.write_without_limit(&hello(MAGIC_NONCE, self.group.rank(), &own))?;
            let secret = [card.token, self.own.token].concat();
            let line = line.protected(Keys::derive(&secret, (&theirs, &own), End::Server))?;
            return Ok(CandidateStep::More(rank, line));
        }
        let is_it = |rank: &usize| *said == hello(MAGIC, *rank, &self.own.token);
        let rank = missing
            .iter()
            .copied()
            .find(|rank| claimed.is_none_or(|claimed| claimed == *rank) && is_it(rank));
        let Some((rank, card)) = rank.and_then(|rank| Some((rank, self.card(rank).ok()?))) else {
            return Ok(CandidateStep::Unknown);
        };
        line.write_without_limit(&hello(MAGIC, self.group.rank(), &card.token))?;
        Ok(CandidateStep::Proved(rank, line))
    }
}

/// The rank and nonce of a greeting that carries one.
fn nonce_in(said: &[u8; HELLO_BYTES]) -> Option<(usize, [u8; 32])> {
    let (head, nonce) = said.split_first_chunk::<8>()?;
    let (magic, rank) = head.split_first_chunk::<4>()?;
    let rank = u32::from_le_bytes(rank.try_into().ok()?);
    (*magic == MAGIC_NONCE).then_some((rank as usize, nonce.try_into().ok()?))
}

fn hello(magic: [u8; 4], rank: usize, token: &[u8; TOKEN_BYTES]) -> [u8; HELLO_BYTES] {
    let mut bytes = [0; HELLO_BYTES];
    bytes[..4].copy_from_slice(&magic);
    bytes[4..8].copy_from_slice(&u32::try_from(rank).unwrap_or(u32::MAX).to_le_bytes());
    bytes[8..].copy_from_slice(token);
    bytes
}

/// Identifies this process's network namespace: loopback connects processes with equal values. Empty: unknown.
pub(crate) fn network() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = std::fs::read_link("/proc/thread-self/ns/net")
        .map(|link| link.display().to_string())
        .unwrap_or_default();
    if boot.is_empty() || space.is_empty() { String::new() } else { boot + &space }
}

/// Addresses of this host that others may reach.
pub(crate) fn own_addresses() -> Vec<Ipv4Addr> {
    addresses_in(&std::fs::read_to_string("/proc/thread-self/net/fib_trie").unwrap_or_default())
}

/// Local addresses in the kernel's routing table, where an address precedes the line that marks it as local.
fn addresses_in(table: &str) -> Vec<Ipv4Addr> {
    let mut found: Vec<Ipv4Addr> = Vec::new();
    let mut last = None;
    for line in table.lines() {
        if let Some(address) = line.trim().strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line.contains("/32 host LOCAL")
            && let Some(address) = last.filter(|address| !address.is_loopback() && !found.contains(address))
        {
            found.push(address);
        }
    }
    found.truncate(ADDRESSES_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::threads;

    #[test]
    fn cards_come_back() {
        let addresses = vec![Ipv4Addr::new(10, 0, 0, 7), Ipv4Addr::LOCALHOST];
        let card = RankAddress { port: 513, token: [7; TOKEN_BYTES], addresses };
        assert_eq!(RankAddress::from_bytes(&card.to_bytes()), Some(card));
        assert_eq!(RankAddress::from_bytes(&[0; 33]), None);
    }

    #[test]
    fn local_addresses_are_found() {
        let table = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.1.2.0\n        /24 link UNICAST\n     |-- 10.1.2.3\n        \
                     /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 10.1.2.255\n        /32 link BROADCAST\n\
                     Main:\n     |-- 10.1.2.3\n        /32 host LOCAL\n";
        assert_eq!(addresses_in(table), [Ipv4Addr::new(10, 1, 2, 3)]);
        assert!(addresses_in("").is_empty());
    }

    #[test]
    fn partners_find_each_other() {
        partners_meet(None);
    }

    #[test]
    fn partners_find_each_other_by_protected_connections() {
        partners_meet(Some(true));
    }

    /// `protected`: overrides the environment.
    fn partners_meet(protected: Option<bool>) {
        let partners: [&[usize]; 4] = [&[1, 3], &[0, 3], &[], &[0, 1]];
        std::thread::scope(|scope| {
            for group in threads(4) {
                scope.spawn(move || {
                    let mine = partners[group.rank()];
                    let mut made = match protected {
                        None => connect(&*group, mine).unwrap(),
                        Some(protected) => connect_as(&*group, mine, (true, protected)).unwrap(),
                    };
                    made.sort_by_key(|(rank, _)| *rank);
                    assert_eq!(made.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), mine);
                    for (_, line) in &made {
                        assert_eq!(line.is_protected(), protected.unwrap_or(false));
                        line.write_without_limit(&[u8::try_from(group.rank()).unwrap()]).unwrap();
                    }
                    for (rank, line) in &made {
                        let mut said = [0];
                        line.read_exact(&mut said).unwrap();
                        assert_eq!(usize::from(said[0]), *rank);
                    }
                    group.leave();
                });
            }
        });
    }

    #[test]
    fn silent_strangers_hold_up_no_rank() {
        for protected in [false, true] {
            let listeners: Vec<TcpListener> =
                (0..2).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
            // They are first in the accept queue, and stay until the ranks are connected.
            let place = listeners[1].local_addr().unwrap();
            let strangers: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(place).unwrap()).collect();
            let begin = MonotonicClock.now();
            std::thread::scope(|scope| {
                for (group, listener) in threads(2).into_iter().zip(listeners) {
                    scope.spawn(move || {
                        let port = listener.local_addr().unwrap().port();
                        let own = RankAddress { port, token: nonce(), addresses: vec![Ipv4Addr::LOCALHOST] };
                        let cards = group.allgather(&own.to_bytes()).unwrap();
                        let other = 1 - group.rank();
                        let meeting = RankConnector { group: &*group, listener, own, cards, protected };
                        let made = meeting.connect_all(&[other]).unwrap();
                        assert_eq!(made.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [other]);
                        // A rank that leaves early is missed by the other.
                        group.allgather(&[]).unwrap();
                        group.leave();
                    });
                }
            });
            let took = MonotonicClock.now().since(begin);
            assert!(took < CONNECT, "{took:?} with 8 silent strangers, protected: {protected}");
            drop(strangers);
        }
    }
}
