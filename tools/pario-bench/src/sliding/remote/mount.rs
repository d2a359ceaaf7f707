//! A host's side of the network file: mounted by FUSE; the thread that receives a request sends it to the server and returns
//! the answer.
//!
//! Always: more threads than processes that can wait for a lock; each has its own connection.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::FILE;
use super::fuse::{self, FuseRequest, LockWord, NumberedRequest};
use super::server::EIO;
use super::wire::{DATA_BYTES_MAX, RemoteOp, WireRequest, read_reply};

/// More than the processes of a host, each of which may wait for a lock, and the threads of its cache.
const THREADS: usize = 32;
/// A write with its heads.
const MESSAGE_BYTES: usize = DATA_BYTES_MAX + 4096;

/// Mounts the server's file in a directory, for the lifetime of this process. `host` distinguishes lock owners.
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
            let Some(NumberedRequest { unique, request }) = fuse::decode(&message[..count]) else { return };
            if request == FuseRequest::Forget {
                continue;
            }
            let answer = self.answer(&request);
            let reply = fuse::reply(unique, answer.as_deref().map_err(|error| *error));
            if let Err(error) = (&*self.device).write(&reply)
                // The requesting process may have been interrupted or killed meanwhile.
                && errno(&error) != Errno::NOENT
            {
                tracing::warn!(%error, "an answer about the network file is lost");
            }
        }
    }

    fn answer(&mut self, request: &FuseRequest<'_>) -> Result<Vec<u8>, i32> {
        match *request {
            FuseRequest::Init { flags } => Ok(fuse::init(flags, DATA_BYTES_MAX)),
            FuseRequest::Lookup { name } if name == FILE.as_bytes() => {
                Ok(fuse::entry_out(self.request(&WireRequest::new(RemoteOp::Length))?))
            }
            FuseRequest::Lookup { .. } => Err(Errno::NOENT.raw_os_error()),
            FuseRequest::Attributes { node: fuse::ROOT } => Ok(fuse::attributes_out(fuse::ROOT, 0)),
            FuseRequest::Attributes { node } => {
                Ok(fuse::attributes_out(node, self.request(&WireRequest::new(RemoteOp::Length))?))
            }
            FuseRequest::SetAttributes { length } => {
                if let Some(end) = length {
                    self.request(&WireRequest { end, ..WireRequest::new(RemoteOp::SetLength) })?;
                }
                Ok(fuse::attributes_out(fuse::FILE, self.request(&WireRequest::new(RemoteOp::Length))?))
            }
            FuseRequest::Open => Ok(fuse::open_out(true)),
            FuseRequest::OpenDirectory => Ok(fuse::open_out(false)),
            FuseRequest::Read { offset, bytes } => {
                let end = offset.saturating_add(u64::from(bytes));
                let mut data = Vec::with_capacity(bytes as usize);
                self.request_for(
                    &WireRequest { start: offset, end, ..WireRequest::new(RemoteOp::Read) },
                    &[],
                    &mut data,
                )?;
                Ok(data)
            }
            FuseRequest::Write { offset, data } => {
                let ask = WireRequest {
                    start: offset,
                    data_bytes: data.len(),
                    ..WireRequest::new(RemoteOp::Write)
                };
                self.request_for(&ask, data, &mut Vec::new())?;
                Ok(fuse::write_out(data.len()))
            }
            FuseRequest::Sync => self.request(&WireRequest::new(RemoteOp::Sync)).map(|_| Vec::new()),
            FuseRequest::Flush { owner } => self
                .request(&WireRequest { owner: (self.host, owner), ..WireRequest::new(RemoteOp::Forget) })
                .map(|_| Vec::new()),
            FuseRequest::Lock { owner, start, end, kind, waits } => {
                let op = match (kind, waits) {
                    (LockWord::Read, true) => RemoteOp::LockRead,
                    (LockWord::Read, false) => RemoteOp::TryRead,
                    (LockWord::Write, true) => RemoteOp::LockWrite,
                    (LockWord::Write, false) => RemoteOp::TryWrite,
                    (LockWord::Unlock, _) => RemoteOp::Unlock,
                };
                let owner = (self.host, owner);
                self.request(&WireRequest { op, owner, start, end, data_bytes: 0 }).map(|_| Vec::new())
            }
            FuseRequest::Statistics => Ok(fuse::statistics_out()),
            FuseRequest::Ready | FuseRequest::Forget => Ok(Vec::new()),
            FuseRequest::Other => Err(Errno::NOSYS.raw_os_error()),
        }
    }

    fn request(&mut self, ask: &WireRequest) -> Result<u64, i32> {
        self.request_for(ask, &[], &mut Vec::new())
    }

    fn request_for(&mut self, ask: &WireRequest, sent: &[u8], received: &mut Vec<u8>) -> Result<u64, i32> {
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
