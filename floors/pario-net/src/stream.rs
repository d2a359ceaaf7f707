//! A connection's byte stream: unix socket, TCP, or a pair inside one process, plain or protected. All carry frames; the first
//! and the last also carry descriptors while they are plain.
//!
//! Never: raises SIGPIPE; waits without a limit.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pario_core::Clock;
use pario_core::limits::{CONNECT_MS_MAX, SILENCE_MS_MAX};
use pario_sys::clock::MonotonicClock;
use pario_sys::socket::{self, Blocking};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::frame::DataCheck;
use crate::protect::{Keys, Protected};

/// Interval at which a peer that does not read is checked.
const WRITABLE_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A socket file on this node; or, if the path begins with a zero byte, an abstract name, which disappears with its listener.
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
    /// On this node, to a server that relays to another one, with which no memory is shared.
    Relayed(UnixStream),
    /// Any of these, in protected records.
    Protected(Box<Protected>),
}

impl Stream {
    /// Connects.
    pub fn connect(address: &Address) -> io::Result<Stream> {
        match address {
            Address::Unix(path) => {
                let stream = connect_unix(path).map_err(|error| foreign(path, error))?;
                check_user(&stream)?;
                Ok(Stream::Unix(stream))
            }
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, Duration::from_millis(CONNECT_MS_MAX))?;
                prepare_tcp(&stream)?;
                // A server that does not read because it gets no processor is alive: silence is judged by `Peer`, not by the kernel's
                // clock.
                socket::set_user_timeout(stream.as_fd(), Duration::ZERO)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }

    /// The same connection, to a server that relays to another one.
    #[must_use]
    pub fn relayed(self) -> Stream {
        match self {
            Stream::Unix(stream) => Stream::Relayed(stream),
            Stream::Tcp(_) | Stream::Relayed(_) | Stream::Protected(_) => self,
        }
    }

    /// The same connection, protected from here on in both directions.
    #[must_use]
    pub fn protected(self, keys: Keys) -> Stream {
        Stream::Protected(Box::new(Protected::new(self, keys)))
    }

    /// Whether bytes are encrypted and authenticated in transit.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        matches!(self, Stream::Protected(_))
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

    /// Whether a network is between both ends, which may fail on its own.
    #[must_use]
    pub fn crosses_network(&self) -> bool {
        match self {
            Stream::Unix(_) | Stream::Relayed(_) => false,
            Stream::Tcp(_) => true,
            Stream::Protected(stream) => stream.below().crosses_network(),
        }
    }

    /// Local and remote address, on a network.
    #[must_use]
    pub fn network_addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Stream::Unix(_) | Stream::Relayed(_) => None,
            Stream::Tcp(stream) => Some((stream.local_addr().ok()?, stream.peer_addr().ok()?)),
            Stream::Protected(stream) => stream.below().network_addresses(),
        }
    }

    /// Whether data gets a checksum. A protected connection is authenticated instead.
    #[must_use]
    pub fn data_check(&self) -> DataCheck {
        match self {
            Stream::Unix(_) | Stream::Protected(_) => DataCheck::None,
            Stream::Tcp(_) | Stream::Relayed(_) => DataCheck::Crc,
        }
    }

    /// Makes calls return immediately.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Stream::Unix(stream) | Stream::Relayed(stream) => stream.set_nonblocking(nonblocking),
            Stream::Tcp(stream) => stream.set_nonblocking(nonblocking),
            Stream::Protected(stream) => stream.below().set_nonblocking(nonblocking),
        }
    }

    /// Ends both directions: threads waiting on either end wake up.
    pub fn shut(&self) {
        // The other side may have closed it already; the error does not matter.
        let _ = match self {
            Stream::Unix(stream) | Stream::Relayed(stream) => stream.shutdown(std::net::Shutdown::Both),
            Stream::Tcp(stream) => stream.shutdown(std::net::Shutdown::Both),
            Stream::Protected(stream) => return stream.below().shut(),
        };
    }

    /// Sends all bytes; fails when the peer does not read for longer than a living one could.
    pub fn send_all(&self, parts: &mut [IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_all_while(parts, descriptors, &|waited| {
            let is_over = Duration::from_millis(SILENCE_MS_MAX) <= waited;
            if is_over { Err(not_reading()) } else { Ok(()) }
        })
    }

    /// The same; while the peer does not read, `bear` is called with the time waited and can end the wait by an error.
    pub(crate) fn send_all_while(
        &self,
        mut parts: &mut [IoSlice<'_>],
        descriptors: &[BorrowedFd<'_>],
        bear: &dyn Fn(Duration) -> io::Result<()>,
    ) -> io::Result<()> {
        let (mut descriptors, mut moved) = (descriptors, MonotonicClock.now());
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            match self.send_some(&parts[..parts.len().min(64)], descriptors) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    (descriptors, moved) = (&[], MonotonicClock.now());
                    IoSlice::advance_slices(&mut parts, count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.wait(PollFlags::OUT, WRITABLE_CHECK_INTERVAL)? {
                        bear(MonotonicClock.now().since(moved))?;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        while !self.flush()? {
            if !self.wait(PollFlags::OUT, WRITABLE_CHECK_INTERVAL)? {
                bear(MonotonicClock.now().since(moved))?;
            }
        }
        Ok(())
    }

    /// Sends without waiting; on a protected connection a part may wait for [`Stream::flush`].
    pub fn send_some(&self, parts: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
        match self {
            Stream::Protected(stream) => {
                assert!(descriptors.is_empty(), "descriptors do not travel in protected records");
                stream.send_some(parts)
            }
            Stream::Unix(_) | Stream::Tcp(_) | Stream::Relayed(_) => {
                socket::send(self.as_fd(), parts, descriptors, Blocking::Never)
            }
        }
    }

    /// Sends the bytes left by [`Stream::send_some`]; whether all were sent.
    pub fn flush(&self) -> io::Result<bool> {
        match self {
            Stream::Protected(stream) => stream.flush(),
            Stream::Unix(_) | Stream::Tcp(_) | Stream::Relayed(_) => Ok(true),
        }
    }

    /// Whether [`Stream::flush`] has bytes to send.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        matches!(self, Stream::Protected(stream) if stream.has_unsent())
    }

    /// Whether bytes can be received although the socket itself has none.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        matches!(self, Stream::Protected(stream) if stream.has_pending())
    }

    /// Receives available bytes, without waiting.
    pub fn receive(&self, buffer: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
        match self {
            Stream::Protected(stream) => stream.receive(buffer),
            Stream::Unix(_) | Stream::Tcp(_) | Stream::Relayed(_) => {
                socket::receive(self.as_fd(), buffer, descriptors, Blocking::Never)
            }
        }
    }

    /// Whether the peer has closed the connection and all bytes were read; does not wait.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        if self.has_pending() {
            return false;
        }
        let mut byte = [0u8; 1];
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        match rustix::net::recv(self, &mut byte, flags) {
            Ok((_, count)) => count == 0,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Err(_) => true,
        }
    }

    /// Waits until bytes can be received; false when `limit` passed first.
    pub fn wait_readable(&self, limit: Duration) -> io::Result<bool> {
        if self.has_pending() {
            return Ok(true);
        }
        self.wait(PollFlags::IN, limit)
    }

    /// Waits until bytes can be sent; false when `limit` passed first.
    pub fn wait_writable(&self, limit: Duration) -> io::Result<bool> {
        self.wait(PollFlags::OUT, limit)
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

fn not_reading() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")
}

/// Settings of a TCP connection on either side: no delays, and a host that vanished is noticed.
pub fn prepare_tcp(stream: &TcpStream) -> io::Result<()> {
    socket::set_nodelay(stream.as_fd())?;
    if stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback()) {
        // A pacing congestion control (bbr) costs a third of the speed on an uncongested network.
        let _ = rustix::net::sockopt::set_tcp_congestion(stream, "reno");
    }
    socket::set_keepalive(stream.as_fd(), Duration::from_secs(1), 3)?;
    socket::set_user_timeout(stream.as_fd(), Duration::from_millis(SILENCE_MS_MAX))
}

/// A server of another user would only close a connection of this one.
fn check_user(stream: &UnixStream) -> io::Result<()> {
    let user = socket::peer_credentials(stream.as_fd())?.uid;
    if user == rustix::process::geteuid().as_raw() { Ok(()) } else { Err(belongs_to(user)) }
}

/// If a socket file is inaccessible because it belongs to another user, the error says so.
fn foreign(path: &Path, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return error;
    }
    let own = rustix::process::geteuid().as_raw();
    owner_of(path).filter(|user| *user != own).map_or(error, belongs_to)
}

fn belongs_to(user: u32) -> io::Error {
    let own = rustix::process::geteuid().as_raw();
    let text = format!("belongs to user {user}, this is user {own}");
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// The owner of a file; for an inaccessible one, that of the nearest accessible parent directory.
#[must_use]
pub fn owner_of(path: &Path) -> Option<u32> {
    path.ancestors().find_map(|path| std::fs::symlink_metadata(path).ok()).map(|metadata| metadata.uid())
}

/// What follows the zero byte of an address that is no file.
#[must_use]
pub fn nameless(path: &Path) -> Option<&[u8]> {
    path.as_os_str().as_bytes().strip_prefix(b"\0")
}

/// Connects to a socket file. A path too long for a socket address is reached through `/proc`.
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    if let Some(name) = nameless(path) {
        return connect_in_time(&SocketAddrUnix::new_abstract_name(name)?);
    }
    match SocketAddrUnix::new(path) {
        // Longer than an address may be: the same file by a shorter path.
        Err(error) if error == Errno::NAMETOOLONG => {
            let (parent, name) = (path.parent().ok_or(error)?, path.file_name().unwrap_or_default());
            let directory = std::fs::File::open(parent)?;
            let short = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&directory));
            connect_in_time(&SocketAddrUnix::new(Path::new(&short).join(name))?)
        }
        address => connect_in_time(&address?),
    }
}

/// Connects within `CONNECT_MS_MAX`: where as many connections wait as a listener takes, and it accepts none, the kernel would wait for
/// ever. The kernel limits a connect by the time that a send may take.
fn connect_in_time(address: &SocketAddrUnix) -> io::Result<UnixStream> {
    let limit = Duration::from_millis(CONNECT_MS_MAX);
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&fd, Timeout::Send, Some(limit))?;
    loop {
        match rustix::net::connect(&fd, address) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let text = format!("the server accepted no connection within {:.1} s", limit.as_secs_f64());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Err(error) => return Err(error.into()),
        }
    }
    sockopt::set_socket_timeout(&fd, Timeout::Send, None)?;
    Ok(UnixStream::from(fd))
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(stream) | Stream::Relayed(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Protected(stream) => stream.below().as_fd(),
        }
    }
}
