//! Connections between ranks that share no memory: addresses and tokens are exchanged through the group, then the lower of two ranks
//! connects and both show that they know the other's token.
//!
//! Never: listens beyond loopback unless ranks are on several hosts; believes a stranger; waits longer than a limit. Always: what
//! cannot be connected is named.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use pario_core::{Clock, Code, Fault};
use pario_net::greeting::nonce;
use pario_sys::MonotonicClock;

use crate::error::Result;
use crate::group::Group;

const CONNECT: Duration = Duration::from_secs(2);
const NAP_MS: i32 = 20;
/// All ranks are here already when connecting begins: it does not take longer unless something is broken.
const LIMIT: Duration = Duration::from_secs(20);
const MAGIC: [u8; 4] = *b"P2PH";
const TOKEN_BYTES: usize = 32;
const HELLO_BYTES: usize = 4 + 4 + TOKEN_BYTES;
/// Addresses of a host that are tried.
const ADDRESSES_MAX: usize = 16;
/// A host is given up after this many silent answers, a second each.
const SILENT_MAX: u32 = 4;

/// How to reach a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Card {
    port: u16,
    token: [u8; TOKEN_BYTES],
    addresses: Vec<Ipv4Addr>,
}

impl Card {
    fn to_bytes(&self) -> Vec<u8> {
        let addresses: Vec<u8> = self.addresses.iter().flat_map(Ipv4Addr::octets).collect();
        [&self.port.to_le_bytes()[..], &self.token, &addresses].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Card> {
        let (port, rest) = bytes.split_first_chunk::<2>()?;
        let (token, rest) = rest.split_first_chunk::<TOKEN_BYTES>()?;
        let addresses =
            rest.chunks_exact(4).take(ADDRESSES_MAX).map(|at| Ipv4Addr::new(at[0], at[1], at[2], at[3]));
        Some(Card { port: u16::from_le_bytes(*port), token: *token, addresses: addresses.collect() })
    }
}

/// Connects this rank with each of `partners`; collective over the whole group, and partners must be so both ways.
pub(crate) fn connect(group: &dyn Group, partners: &[usize]) -> Result<Vec<(usize, TcpStream)>> {
    let hosts = group.allgather(network().as_bytes())?;
    let one_host = hosts.iter().all(|host| *host == hosts[0] && !host.is_empty());
    let addresses = if one_host { vec![Ipv4Addr::LOCALHOST] } else { own_addresses() };
    let bind = if one_host { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
    let listener = TcpListener::bind((bind, 0));
    let port =
        listener.as_ref().ok().and_then(|listener| listener.local_addr().ok()).map_or(0, |at| at.port());
    let own = Card { port, token: nonce(), addresses };
    let cards = group.allgather(&own.to_bytes())?;
    let made = match listener {
        Ok(listener) => Meeting { group, listener, own, cards }.meet(partners),
        Err(error) => Err(Fault::from_io(&error, "listening for other ranks")),
    };
    group.agree(made.as_ref().map(|_| ()).map_err(|fault| fault.clone().into()))?;
    Ok(made?)
}

struct Meeting<'a> {
    group: &'a dyn Group,
    listener: TcpListener,
    own: Card,
    cards: Vec<Vec<u8>>,
}

impl Meeting<'_> {
    /// Connects to higher ranks first; the highest has none to connect to and answers at once, and so on downwards.
    fn meet(&self, partners: &[usize]) -> std::result::Result<Vec<(usize, TcpStream)>, Fault> {
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
        while !missing.is_empty() {
            if let Some((rank, stream)) = self.accept(&missing)? {
                missing.retain(|other| *other != rank);
                made.push((rank, stream));
            }
            self.check()?;
            if LIMIT < clock.now().since(begin) {
                let text = format!("ranks {missing:?} did not connect within {} s", LIMIT.as_secs());
                return Err(Fault::new(Code::Unreachable, text));
            }
        }
        for (_, stream) in &made {
            // A greeting has a limit; a rank that is merely late afterwards is waited for, and keep-alive ends the wait for a host that is gone.
            stream
                .set_read_timeout(None)
                .and_then(|()| {
                    pario_sys::socket::set_keepalive(stream.as_fd(), Duration::from_secs(1), SILENT_MAX)
                })
                .map_err(|error| Fault::from_io(&error, "a connection between ranks"))?;
        }
        Ok(made)
    }

    fn check(&self) -> std::result::Result<(), Fault> {
        self.group.check().map_err(|error| Fault::new(error.code(), error.to_string()))
    }

    fn card(&self, rank: usize) -> std::result::Result<Card, Fault> {
        let card = self.cards.get(rank).and_then(|bytes| Card::from_bytes(bytes));
        card.ok_or_else(|| Fault::new(Code::Protocol, "it does not tell how to reach it"))
    }

    fn call(&self, rank: usize) -> std::result::Result<TcpStream, Fault> {
        let card = self.card(rank)?;
        let mut fault = Fault::new(Code::Unreachable, "it has no address that others can reach");
        for address in &card.addresses {
            let place = SocketAddr::new(IpAddr::V4(*address), card.port);
            match TcpStream::connect_timeout(&place, CONNECT) {
                Ok(mut stream) => match self.greet(&mut stream, &card, rank) {
                    Ok(()) => return Ok(stream),
                    Err(found) => fault = found.at(place),
                },
                Err(error) => fault = Fault::new(Code::Unreachable, format!("{place}: {error}")),
            }
            self.check()?;
        }
        Err(fault)
    }

    /// Says who we are with the other's token, and wants ours back.
    fn greet(&self, stream: &mut TcpStream, card: &Card, rank: usize) -> std::result::Result<(), Fault> {
        let failed = |error: std::io::Error| Fault::new(Code::Unreachable, error.to_string());
        stream.set_read_timeout(Some(LIMIT)).map_err(failed)?;
        stream.write_all(&hello(self.group.rank(), &card.token)).map_err(failed)?;
        let mut answer = [0; HELLO_BYTES];
        stream.read_exact(&mut answer).map_err(failed)?;
        if answer == hello(rank, &self.own.token) {
            return Ok(());
        }
        Err(Fault::new(Code::WrongSecret, "whoever answers is another"))
    }

    /// Waits a little for one of `missing`; strangers are sent away.
    fn accept(&self, missing: &[usize]) -> std::result::Result<Option<(usize, TcpStream)>, Fault> {
        let failed = |error: &std::io::Error| Fault::from_io(error, "listening for other ranks");
        let Some(mut stream) = self.next().map_err(|error| failed(&error))? else { return Ok(None) };
        let greeted = || -> std::io::Result<Option<usize>> {
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(CONNECT))?;
            let mut said = [0; HELLO_BYTES];
            stream.read_exact(&mut said)?;
            let rank = missing.iter().copied().find(|rank| said == hello(*rank, &self.own.token));
            let card = rank.and_then(|rank| self.card(rank).ok());
            let Some(card) = card else { return Ok(None) };
            stream.write_all(&hello(self.group.rank(), &card.token))?;
            Ok(rank)
        }();
        // Who does not know the token, or is silent, is none of ours.
        Ok(greeted.ok().flatten().map(|rank| (rank, stream)))
    }

    fn next(&self) -> std::io::Result<Option<TcpStream>> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
        let nap = Timespec { tv_sec: 0, tv_nsec: i64::from(NAP_MS) * 1_000_000 };
        match poll(&mut fds, Some(&nap)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        match self.listener.accept() {
            Ok((stream, _)) => Ok(Some(stream)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            // Whoever it was has gone again.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn hello(rank: usize, token: &[u8; TOKEN_BYTES]) -> [u8; HELLO_BYTES] {
    let mut bytes = [0; HELLO_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&u32::try_from(rank).unwrap_or(u32::MAX).to_le_bytes());
    bytes[8..].copy_from_slice(token);
    bytes
}

/// Names the network that this process is in: loopback reaches whoever names the same. Empty: not known.
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

/// Local addresses in the kernel's table of routes, where an address comes in the line before the word that it is local.
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
        let card = Card { port: 513, token: [7; TOKEN_BYTES], addresses };
        assert_eq!(Card::from_bytes(&card.to_bytes()), Some(card));
        assert_eq!(Card::from_bytes(&[0; 33]), None);
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
        let partners: [&[usize]; 4] = [&[1, 3], &[0, 3], &[], &[0, 1]];
        std::thread::scope(|scope| {
            for group in threads(4) {
                scope.spawn(move || {
                    let mine = partners[group.rank()];
                    let mut made = connect(&*group, mine).unwrap();
                    made.sort_by_key(|(rank, _)| *rank);
                    assert_eq!(made.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), mine);
                    for (_, stream) in &mut made {
                        stream.write_all(&[u8::try_from(group.rank()).unwrap()]).unwrap();
                    }
                    for (rank, stream) in &mut made {
                        let mut said = [0];
                        stream.read_exact(&mut said).unwrap();
                        assert_eq!(usize::from(said[0]), *rank);
                    }
                    group.leave();
                });
            }
        });
    }
}
