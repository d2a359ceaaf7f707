//! The file server: one plain file and its locks, served to any client; a thread per connection.
//!
//! Never: more than [`CONNECTIONS_MAX`] connections. Always: an answer to each request, in order.

use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::locks::{RangeLockTable, RemoteLockKind};
use super::wire::{DATA_BYTES_MAX, RemoteOp, WireRequest, write_reply};

/// Connections in all.
const CONNECTIONS_MAX: usize = 1024;

#[derive(Debug)]
struct ServedFile {
    file: File,
    locks: RangeLockTable,
}

/// Serves a file in the background for the lifetime of this process; returns its address.
pub(in super::super) fn start(path: &Path, at: Ipv4Addr) -> io::Result<SocketAddr> {
    let file = File::options().read(true).write(true).open(path)?;
    let listener = TcpListener::bind((at, 0))?;
    let address = listener.local_addr()?;
    let served = Arc::new(ServedFile { file, locks: RangeLockTable::default() });
    std::thread::Builder::new().name("file-server".to_owned()).spawn(move || {
        for stream in listener.incoming().flatten().take(CONNECTIONS_MAX) {
            let served = Arc::clone(&served);
            let thread = std::thread::Builder::new().name("file-serving".to_owned());
            let started = thread.spawn(move || {
                if let Err(error) = serve(&served, stream) {
                    tracing::warn!(%error, "a host lost its file server");
                }
            });
            if let Err(error) = started {
                tracing::warn!(%error, "a connection to the file server is refused");
            }
        }
    })?;
    Ok(address)
}

fn serve(served: &ServedFile, mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut data = vec![0; DATA_BYTES_MAX];
    while let Some(ask) = WireRequest::read(&mut stream)? {
        stream.read_exact(&mut data[..ask.data_bytes])?;
        let reply = served.carry_out(&ask, &mut data).map_err(|error| error.raw_os_error().unwrap_or(EIO));
        let bytes = match (ask.op, reply) {
            (RemoteOp::Read, Ok(count)) => usize::try_from(count).unwrap_or(0),
            _ => 0,
        };
        write_reply(&mut stream, reply, &data[..bytes])?;
    }
    Ok(())
}

pub(super) const EIO: i32 = rustix::io::Errno::IO.raw_os_error();
const EAGAIN: i32 = rustix::io::Errno::AGAIN.raw_os_error();

impl ServedFile {
    fn carry_out(&self, ask: &WireRequest, data: &mut [u8]) -> io::Result<u64> {
        let range = ask.start..ask.end;
        match ask.op {
            RemoteOp::Length => Ok(self.file.metadata()?.len()),
            RemoteOp::Read => {
                let wanted = usize::try_from(ask.end.saturating_sub(ask.start)).unwrap_or(0);
                self.read(&mut data[..wanted], ask.start)
            }
            RemoteOp::Write => {
                self.file.write_all_at(&data[..ask.data_bytes], ask.start)?;
                Ok(ask.data_bytes as u64)
            }
            RemoteOp::SetLength => self.file.set_len(ask.end).map(|()| 0),
            RemoteOp::Sync => self.file.sync_all().map(|()| 0),
            RemoteOp::LockRead => Ok(self.wait(ask, RemoteLockKind::Read)),
            RemoteOp::LockWrite => Ok(self.wait(ask, RemoteLockKind::Write)),
            RemoteOp::TryRead => self.attempt(ask, RemoteLockKind::Read),
            RemoteOp::TryWrite => self.attempt(ask, RemoteLockKind::Write),
            RemoteOp::Unlock => {
                self.locks.unlock(ask.owner, &range);
                Ok(0)
            }
            RemoteOp::Forget => {
                self.locks.unlock(ask.owner, &(0..u64::MAX));
                Ok(0)
            }
        }
    }

    /// Up to the file's end.
    fn read(&self, target: &mut [u8], offset: u64) -> io::Result<u64> {
        let mut filled = 0;
        while filled < target.len() {
            match self.file.read_at(&mut target[filled..], offset + filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(filled as u64)
    }

    fn wait(&self, ask: &WireRequest, kind: RemoteLockKind) -> u64 {
        self.locks.lock(ask.owner, kind, ask.start..ask.end);
        0
    }

    fn attempt(&self, ask: &WireRequest, kind: RemoteLockKind) -> io::Result<u64> {
        if self.locks.try_lock(ask.owner, kind, ask.start..ask.end) {
            return Ok(0);
        }
        Err(io::Error::from_raw_os_error(EAGAIN))
    }
}
