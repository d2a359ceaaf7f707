//! A connection's byte stream: unix socket, TCP, or a pair inside one process. All three carry frames; the first and the last
//! also carry descriptors.
//!
//! Never: raises SIGPIPE; waits without a limit.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pario_core::limits::{CONNECT_MS_MAX, SILENCE_MS_MAX};
use pario_sys::socket::{self, Blocking};
use rustix::event::{PollFd, PollFlags, poll};

use crate::frame::DataCheck;

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A socket file on this node; or, if the path begins with a zero byte, a name that no file system knows and that is gone with
    /// whoever listens there.
    Unix(PathBuf),
    /// A host and port.
    Tcp(SocketAddr),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Unix(path) => match nameless(path) {
                Some(name) => write!(f, "unix:@{}", String::from_utf8_lossy(name)),
                None => write!(f, "unix:{}", path.display()),
            },
            Address::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// An open connection.
#[derive(Debug)]
pub enum Stream {
    /// On this node, or inside this process.
    Unix(UnixStream),
    /// Across the network, or on loopback when forced.
    Tcp(TcpStream),
    /// On this node, to a server that passes everything on to another one: no memory is shared with that.
    Relayed(UnixStream),
}

impl Stream {
    /// Connects.
    pub fn connect(address: &Address) -> io::Result<Stream> {
        match address {
            Address::Unix(path) => connect_unix(path).map(Stream::Unix),
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, Duration::from_millis(CONNECT_MS_MAX))?;
                prepare_tcp(&stream)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }

    /// The same connection, to a server that passes everything on to another one.
    #[must_use]
    pub fn relayed(self) -> Stream {
        match self {
            Stream::Unix(stream) => Stream::Relayed(stream),
            Stream::Tcp(_) | Stream::Relayed(_) => self,
        }
    }

    /// Both ends of a connection inside this process.
    pub fn pair() -> io::Result<(Stream, Stream)> {
        let (a, b) = UnixStream::pair()?;
        Ok((Stream::Unix(a), Stream::Unix(b)))
    }

    /// Whether descriptors can be passed, that is: whether the peer shares memory with us.
    #[must_use]
    pub fn shares_memory(&self) -> bool {
        matches!(self, Stream::Unix(_))
    }

    /// This end's and the other end's address, on a network.
    #[must_use]
    pub fn network_addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Stream::Unix(_) | Stream::Relayed(_) => None,
            Stream::Tcp(stream) => Some((stream.local_addr().ok()?, stream.peer_addr().ok()?)),
        }
    }

    /// Whether data gets a checksum on it.
    #[must_use]
    pub fn data_check(&self) -> DataCheck {
        match self {
            Stream::Unix(_) => DataCheck::None,
            Stream::Tcp(_) | Stream::Relayed(_) => DataCheck::Crc,
        }
    }

    /// Makes calls return at once.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Stream::Unix(stream) | Stream::Relayed(stream) => stream.set_nonblocking(nonblocking),
            Stream::Tcp(stream) => stream.set_nonblocking(nonblocking),
        }
    }

    /// Ends both directions: whoever waits on either end wakes up.
    pub fn shut(&self) {
        // The other side may have ended it already; either way it is over.
        let _ = match self {
            Stream::Unix(stream) | Stream::Relayed(stream) => stream.shutdown(std::net::Shutdown::Both),
            Stream::Tcp(stream) => stream.shutdown(std::net::Shutdown::Both),
        };
    }

    /// Sends everything; gives up when the peer takes nothing for as long as a living one never would.
    pub fn send_all(&self, mut parts: &mut [IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut descriptors = descriptors;
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            match socket::send(self.as_fd(), &parts[..parts.len().min(64)], descriptors, Blocking::Never) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    descriptors = &[];
                    IoSlice::advance_slices(&mut parts, count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_writable()?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives what is there, without waiting.
    pub fn receive(&self, buffer: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
        socket::receive(self.as_fd(), buffer, descriptors, Blocking::Never)
    }

    /// Whether the peer has hung up and nothing is left to read; does not wait.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut byte = [0u8; 1];
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        match rustix::net::recv(self, &mut byte, flags) {
            Ok((_, count)) => count == 0,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Err(_) => true,
        }
    }

    /// Waits until there is something to receive; false when `limit` passed first.
    pub fn wait_readable(&self, limit: Duration) -> io::Result<bool> {
        self.wait(PollFlags::IN, limit)
    }

    fn wait_writable(&self) -> io::Result<()> {
        if self.wait(PollFlags::OUT, Duration::from_millis(SILENCE_MS_MAX))? {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing"))
    }

    fn wait(&self, what: PollFlags, limit: Duration) -> io::Result<bool> {
        let limit = rustix::event::Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        let mut fds = [PollFd::new(self, what)];
        match poll(&mut fds, Some(&limit)) {
            Ok(count) => Ok(0 < count),
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

/// Settings of a TCP connection on either side: no delays, and a host that vanished is noticed.
pub fn prepare_tcp(stream: &TcpStream) -> io::Result<()> {
    socket::set_nodelay(stream.as_fd())?;
    if stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback()) {
        // A congestion control that paces what it sends (bbr) costs a third of the speed where nothing can congest.
        let _ = rustix::net::sockopt::set_tcp_congestion(stream, "reno");
    }
    socket::set_keepalive(stream.as_fd(), Duration::from_secs(1), 3)?;
    socket::set_user_timeout(stream.as_fd(), Duration::from_millis(SILENCE_MS_MAX))
}

/// What follows the zero byte of an address that is no file.
#[must_use]
pub fn nameless(path: &Path) -> Option<&[u8]> {
    path.as_os_str().as_bytes().strip_prefix(b"\0")
}

/// Connects to a socket file. One in a directory whose path is too long for a socket address is reached through `/proc`.
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    if let Some(name) = nameless(path) {
        return UnixStream::connect_addr(&unix::net::SocketAddr::from_abstract_name(name)?);
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let (parent, name) = (path.parent().ok_or(error)?, path.file_name().unwrap_or_default());
            let directory = std::fs::File::open(parent)?;
            let short = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&directory));
            UnixStream::connect(Path::new(&short).join(name))
        }
        other => other,
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(stream) | Stream::Relayed(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
        }
    }
}
