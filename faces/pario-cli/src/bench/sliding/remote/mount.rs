//! A host's side of the network file: mounted by FUSE, each request carried to the server and back by the thread that took it.
//!
//! Always: as many threads as there are processes that can wait for a lock, and some more; each has a connection of its own.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::FILE;
use super::fuse::{self, Asked, LockWord, Request};
use super::server::EIO;
use super::wire::{Ask, DATA_BYTES_MAX, Op, read_reply};

/// More than processes of a host, each of which may wait for a lock, and threads of a cache on it.
const THREADS: usize = 32;
/// A write with its heads.
const MESSAGE_BYTES: usize = DATA_BYTES_MAX + 4096;

/// Mounts the server's file in a directory, for as long as this process lives. `host` tells owners of locks apart.
pub(in super::super) fn start(server: SocketAddr, at: &Path, host: u64) -> io::Result<()> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    let options = std::ffi::CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("pario-bench", at, "fuse", flags, Some(options.as_c_str()))?;
    let device = Arc::new(device);
    for _ in 0..THREADS {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        let carrier = Carrier { device: Arc::clone(&device), stream, host };
        std::thread::Builder::new().name("file-mount".to_owned()).spawn(move || carrier.run())?;
    }
    Ok(())
}

/// One thread of a mount.
struct Carrier {
    device: Arc<File>,
    stream: TcpStream,
    host: u64,
}

impl Carrier {
    fn run(mut self) {
        let mut message = vec![0; MESSAGE_BYTES];
        loop {
            let count = match (&*self.device).read(&mut message) {
                Ok(count) => count,
                Err(error) if [Errno::INTR, Errno::NOENT].contains(&errno(&error)) => continue,
                // Unmounted.
                Err(_) => return,
            };
            let Some(Asked { unique, request }) = fuse::decode(&message[..count]) else { return };
            if request == Request::Forget {
                continue;
            }
            let answer = self.answer(&request);
            let reply = fuse::reply(unique, answer.as_deref().map_err(|error| *error));
            if let Err(error) = (&*self.device).write(&reply)
                // Whoever asked may have been interrupted or killed meanwhile.
                && errno(&error) != Errno::NOENT
            {
                tracing::warn!(%error, "an answer about the network file is lost");
            }
        }
    }

    fn answer(&mut self, request: &Request<'_>) -> Result<Vec<u8>, i32> {
        match *request {
            Request::Init { flags } => Ok(fuse::init(flags, DATA_BYTES_MAX)),
            Request::Lookup { name } if name == FILE.as_bytes() => {
                Ok(fuse::entry_out(self.ask(&Ask::new(Op::Length))?))
            }
            Request::Lookup { .. } => Err(Errno::NOENT.raw_os_error()),
            Request::Attributes { node: fuse::ROOT } => Ok(fuse::attributes_out(fuse::ROOT, 0)),
            Request::Attributes { node } => Ok(fuse::attributes_out(node, self.ask(&Ask::new(Op::Length))?)),
            Request::SetAttributes { length } => {
                if let Some(end) = length {
                    self.ask(&Ask { end, ..Ask::new(Op::SetLength) })?;
                }
                Ok(fuse::attributes_out(fuse::FILE, self.ask(&Ask::new(Op::Length))?))
            }
            Request::Open => Ok(fuse::open_out(true)),
            Request::OpenDirectory => Ok(fuse::open_out(false)),
            Request::Read { offset, bytes } => {
                let end = offset.saturating_add(u64::from(bytes));
                let mut data = Vec::with_capacity(bytes as usize);
                self.ask_for(&Ask { start: offset, end, ..Ask::new(Op::Read) }, &[], &mut data)?;
                Ok(data)
            }
            Request::Write { offset, data } => {
                let ask = Ask { start: offset, data_bytes: data.len(), ..Ask::new(Op::Write) };
                self.ask_for(&ask, data, &mut Vec::new())?;
                Ok(fuse::write_out(data.len()))
            }
            Request::Sync => self.ask(&Ask::new(Op::Sync)).map(|_| Vec::new()),
            Request::Flush { owner } => {
                self.ask(&Ask { owner: (self.host, owner), ..Ask::new(Op::Forget) }).map(|_| Vec::new())
            }
            Request::Lock { owner, start, end, kind, waits } => {
                let op = match (kind, waits) {
                    (LockWord::Read, true) => Op::LockRead,
                    (LockWord::Read, false) => Op::TryRead,
                    (LockWord::Write, true) => Op::LockWrite,
                    (LockWord::Write, false) => Op::TryWrite,
                    (LockWord::Unlock, _) => Op::Unlock,
                };
                let owner = (self.host, owner);
                self.ask(&Ask { op, owner, start, end, data_bytes: 0 }).map(|_| Vec::new())
            }
            Request::Room => Ok(fuse::room_out()),
            Request::Ready | Request::Forget => Ok(Vec::new()),
            Request::Other => Err(Errno::NOSYS.raw_os_error()),
        }
    }

    fn ask(&mut self, ask: &Ask) -> Result<u64, i32> {
        self.ask_for(ask, &[], &mut Vec::new())
    }

    fn ask_for(&mut self, ask: &Ask, sent: &[u8], received: &mut Vec<u8>) -> Result<u64, i32> {
        let said = ask.write(&mut self.stream, sent).and_then(|()| read_reply(&mut self.stream, received));
        said.unwrap_or_else(|error| {
            tracing::warn!(%error, "the file server is lost");
            Err(EIO)
        })
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
