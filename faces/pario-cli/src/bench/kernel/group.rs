//! How the processes of a kernel find each other: they meet at a hub in the benchmark's process, over a unix socket.
//!
//! Always: when one of them ends or gives up, the others' collectives fail.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use pario::Group;
use pario::core::{Code, Fault};

use super::super::error::BenchError;

/// Most bytes that a member may say in a collective.
const SAYING_BYTES_MAX: u32 = 64 << 20;

/// The group that this process belongs to as `rank`.
pub(super) fn join(hub: &Path, rank: u64, ranks: u64) -> Result<Arc<dyn Group>, BenchError> {
    let mut stream = UnixStream::connect(hub).map_err(BenchError::at("joining the group at", hub))?;
    send(&mut stream, &rank.to_le_bytes()).map_err(BenchError::at("joining the group at", hub))?;
    let index = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let link = Arc::new(Link { stream: Mutex::new(stream), copies: AtomicU32::new(0) });
    Ok(Arc::new(Member { link, copy: 0, rank: index(rank), ranks: index(ranks) }))
}

/// The meeting place of one group.
#[derive(Debug)]
pub(super) struct Hub {
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Hub {
    /// Opens one at a path for so many members.
    pub(super) fn open(path: PathBuf, ranks: usize) -> Result<Hub, BenchError> {
        let listener = UnixListener::bind(&path).map_err(BenchError::at("listening at", &path))?;
        let thread = std::thread::spawn(move || {
            // A member that is gone ends the group; the others see their connections end.
            let _ = meet(&listener, ranks);
        });
        Ok(Hub { path, thread: Some(thread) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // If members never came, this is one that goes at once.
        drop(UnixStream::connect(&self.path));
        let _ = std::fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Lets members in, then carries what each says to all, until one ends.
fn meet(listener: &UnixListener, ranks: usize) -> std::io::Result<()> {
    let mut members: Vec<Option<UnixStream>> = (0..ranks).map(|_| None).collect();
    for _ in 0..ranks {
        let (mut stream, _) = listener.accept()?;
        let rank: [u8; 8] = receive(&mut stream)?.try_into().map_err(|_| broken("no rank"))?;
        let place = usize::try_from(u64::from_le_bytes(rank)).ok().and_then(|rank| members.get_mut(rank));
        *place.ok_or_else(|| broken("a rank beyond the group"))? = Some(stream);
    }
    let mut members: Vec<UnixStream> = members.into_iter().flatten().collect();
    loop {
        let mut all = Vec::new();
        for member in &mut members {
            let said = receive(member)?;
            all.extend_from_slice(&u32::try_from(said.len()).unwrap_or(u32::MAX).to_le_bytes());
            all.extend_from_slice(&said);
        }
        for member in &mut members {
            member.write_all(&all)?;
        }
    }
}

fn send(stream: &mut UnixStream, bytes: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| broken("too long"))?;
    stream.write_all(&[&length.to_le_bytes(), bytes].concat())
}

fn receive(stream: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if SAYING_BYTES_MAX < length {
        return Err(broken("too long"));
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn broken(what: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, what)
}

/// The connection that all copies of a group share.
#[derive(Debug)]
struct Link {
    stream: Mutex<UnixStream>,
    copies: AtomicU32,
}

#[derive(Debug)]
struct Member {
    link: Arc<Link>,
    /// Which copy of the group; all members make them in the same order.
    copy: u32,
    rank: usize,
    ranks: usize,
}

impl Group for Member {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.ranks
    }

    fn node_of(&self, _rank: usize) -> usize {
        0
    }

    fn allgather(&self, bytes: &[u8]) -> pario::Result<Vec<Vec<u8>>> {
        let mut stream = self.link.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let gone =
            |_| pario::Error::from(Fault::new(Code::Unreachable, "a process of the benchmark is gone"));
        send(&mut stream, &[&self.copy.to_le_bytes(), bytes].concat()).map_err(gone)?;
        let all: Result<Vec<_>, _> = (0..self.ranks).map(|_| receive(&mut stream)).collect();
        let mut all = all.map_err(gone)?;
        for said in &mut all {
            if said.get(..4) != Some(&self.copy.to_le_bytes()) {
                return Err(Fault::new(Code::Invalid, "ranks of the benchmark are not in step").into());
            }
            said.drain(..4);
        }
        Ok(all)
    }

    fn check(&self) -> pario::Result<()> {
        Ok(())
    }

    fn duplicate(&self) -> pario::Result<Arc<dyn Group>> {
        let copy = self.link.copies.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Arc::new(Member { link: Arc::clone(&self.link), copy, rank: self.rank, ranks: self.ranks }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_hear_all_and_notice_one_that_goes() {
        let dir = tempfile::tempdir().unwrap();
        let hub = Hub::open(dir.path().join("hub"), 3).unwrap();
        std::thread::scope(|scope| {
            for rank in 0..3u64 {
                let path = hub.path();
                scope.spawn(move || {
                    let group = join(path, rank, 3).unwrap();
                    let all = group.allgather(&rank.to_le_bytes()).unwrap();
                    assert_eq!(all, (0..3u64).map(|rank| rank.to_le_bytes().to_vec()).collect::<Vec<_>>());
                    group.duplicate().unwrap().barrier().unwrap();
                    if rank != 1 {
                        assert!(group.barrier().is_err(), "rank 1 is gone");
                    }
                });
            }
        });
    }

    #[test]
    fn a_hub_that_nobody_comes_to_can_be_closed() {
        let dir = tempfile::tempdir().unwrap();
        drop(Hub::open(dir.path().join("hub"), 2).unwrap());
    }
}
