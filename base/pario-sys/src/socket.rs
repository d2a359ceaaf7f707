//! Messages with descriptors over unix sockets, and the same calls on TCP; credentials of the peer; detection of dead hosts.
//!
//! Never: raises SIGPIPE; keeps a descriptor that the caller did not request. Always: received descriptors are close-on-exec.

#![expect(unsafe_code, reason = "peer credentials are read by getsockopt, since a pid of 0 has no safe form")]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, sockopt,
};

/// Descriptors in one message.
pub const DESCRIPTORS_MAX: usize = 4;

/// Whether a call on a socket may sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocking {
    /// Until there is space or data.
    Wait,
    /// [`io::ErrorKind::WouldBlock`] instead.
    Never,
}

/// Process and user that connected a unix socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerCredentials {
    /// Process; 0 if it is outside our pid namespace.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Sends a prefix of the concatenated slices, and all descriptors with the first byte; returns the number of bytes sent.
pub fn send(
    fd: BorrowedFd<'_>,
    pieces: &[IoSlice<'_>],
    fds: &[BorrowedFd<'_>],
    blocking: Blocking,
) -> io::Result<usize> {
    assert!(fds.len() <= DESCRIPTORS_MAX, "{} descriptors in one message", fds.len());
    let flags = match blocking {
        Blocking::Wait => SendFlags::NOSIGNAL,
        Blocking::Never => SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(fds));
        assert!(fits, "the space is made for {DESCRIPTORS_MAX} descriptors");
    }
    Ok(rustix::io::retry_on_intr(|| rustix::net::sendmsg(fd, pieces, &mut control, flags))?)
}

/// Receives into `buffer` and appends descriptors to `fds`; 0 means that the peer closed (or that `buffer` is empty).
///
/// A message with more than [`DESCRIPTORS_MAX`] descriptors is an error and all of them are closed.
pub fn receive(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    blocking: Blocking,
) -> io::Result<usize> {
    let flags = match blocking {
        Blocking::Wait => RecvFlags::CMSG_CLOEXEC,
        Blocking::Never => RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(fd, &mut [IoSliceMut::new(buffer)], &mut control, flags)
    })?;
    let mut arrived: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            arrived.extend(descriptors);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) || DESCRIPTORS_MAX < arrived.len() {
        let text = format!(
            "more than {DESCRIPTORS_MAX} descriptors in one message, or no free descriptors (raise `ulimit -n`)"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    fds.append(&mut arrived);
    Ok(received.bytes)
}

/// Credentials of the peer of a unix socket.
pub fn peer_credentials(fd: BorrowedFd<'_>) -> io::Result<PeerCredentials> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).expect("a small struct");
    // SAFETY: `found` is valid memory of `len` bytes, and any bytes are a valid `ucred`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut len,
        )
    };
    // A socket that was never connected, or is no unix socket, has no peer: uid and gid are all ones then.
    if result != 0 || found.uid == u32::MAX {
        let error = if result == 0 { io::ErrorKind::NotConnected.into() } else { io::Error::last_os_error() };
        return Err(error);
    }
    Ok(PeerCredentials { pid: u32::try_from(found.pid).unwrap_or(0), uid: found.uid, gid: found.gid })
}

/// Makes the kernel probe an idle TCP peer every `every` and close the connection after `count` probes without an answer.
pub fn set_keepalive(fd: BorrowedFd<'_>, every: Duration, count: u32) -> io::Result<()> {
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, every)?;
    sockopt::set_tcp_keepintvl(fd, every)?;
    Ok(sockopt::set_tcp_keepcnt(fd, count)?)
}

/// Makes the kernel close a TCP connection with data unacknowledged for `timeout`.
pub fn set_user_timeout(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<()> {
    let milliseconds = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(fd, milliseconds)?)
}

/// Sends small TCP messages immediately.
pub fn set_nodelay(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(fd, true)?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::piece::read_exact_or_end_at;

    fn slice(bytes: &[u8]) -> [IoSlice<'_>; 1] {
        [IoSlice::new(bytes)]
    }

    #[test]
    fn descriptors_travel_with_bytes() {
        let (left, right) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        rustix::io::pwrite(&file, b"inside", 0).unwrap();
        let pieces = [IoSlice::new(b"he"), IoSlice::new(b"llo")];
        let fds = [file.as_fd(), file.as_fd(), file.as_fd(), file.as_fd()];
        assert_eq!(send(left.as_fd(), &pieces, &fds, Blocking::Wait).unwrap(), 5);
        let (mut buffer, mut arrived) = ([0; 16], Vec::new());
        assert_eq!(receive(right.as_fd(), &mut buffer, &mut arrived, Blocking::Wait).unwrap(), 5);
        assert_eq!(&buffer[..5], b"hello");
        assert_eq!(arrived.len(), 4);
        let mut inside = [0; 6];
        read_exact_or_end_at(arrived[3].as_fd(), &mut inside, 0).unwrap();
        assert_eq!(&inside, b"inside");
        let flags = rustix::io::fcntl_getfd(&arrived[0]).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn too_many_descriptors_are_refused_and_closed() {
        for count in [5, 6, 20] {
            let (left, right) = UnixStream::pair().unwrap();
            let (reader, writer) = std::io::pipe().unwrap();
            let fds = vec![writer.as_fd(); count];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(20))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
            rustix::net::sendmsg(&left, &slice(b"x"), &mut control, SendFlags::NOSIGNAL).unwrap();
            let mut arrived = Vec::new();
            let error = receive(right.as_fd(), &mut [0; 4], &mut arrived, Blocking::Wait).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(arrived.is_empty());
            // Once every copy of the writing end is closed the reading end sees the end of the pipe. (A child that another test just
            // forked may hold a copy briefly.)
            drop(writer);
            let limit = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
            let mut ends = [rustix::event::PollFd::new(&reader, rustix::event::PollFlags::IN)];
            assert_eq!(rustix::event::poll(&mut ends, Some(&limit)), Ok(1), "{count}");
            assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0), "{count}");
        }
    }

    #[test]
    fn dead_peer_is_an_error_not_a_signal() {
        // Rust programs ignore SIGPIPE from the start; a preloaded library's host may not.
        // SAFETY: sets a signal to its default, as a C program has it.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let (left, right) = UnixStream::pair().unwrap();
        drop(right);
        let error = send(left.as_fd(), &slice(b"x"), &[], Blocking::Wait).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        // SAFETY: sets a signal back to being ignored.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    }

    #[test]
    fn never_blocking_says_so() {
        let (left, right) = UnixStream::pair().unwrap();
        let error = receive(left.as_fd(), &mut [0; 4], &mut Vec::new(), Blocking::Never).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let block = [0; 65536];
        let error = loop {
            if let Err(error) = send(left.as_fd(), &slice(&block), &[], Blocking::Never) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(left);
        drop(right);
    }

    #[test]
    fn peer_of_a_pair_is_this_process() {
        let (left, _right) = UnixStream::pair().unwrap();
        let peer = peer_credentials(left.as_fd()).unwrap();
        assert_eq!(peer.pid, std::process::id());
        assert_eq!(peer.uid, rustix::process::getuid().as_raw());
        assert!(peer_credentials(File::open("/dev/null").unwrap().as_fd()).is_err());
    }

    #[test]
    fn tcp_takes_the_same_calls() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        set_nodelay(client.as_fd()).unwrap();
        set_keepalive(client.as_fd(), Duration::from_secs(1), 3).unwrap();
        set_user_timeout(client.as_fd(), Duration::from_secs(4)).unwrap();
        assert_eq!(sockopt::tcp_user_timeout(&client).unwrap(), 4000);
        assert!(peer_credentials(client.as_fd()).is_err());
        assert_eq!(send(client.as_fd(), &slice(b"over tcp"), &[], Blocking::Wait).unwrap(), 8);
        let (mut buffer, mut fds) = ([0; 8], Vec::new());
        let mut filled = 0;
        while filled < 8 {
            filled += receive(server.as_fd(), &mut buffer[filled..], &mut fds, Blocking::Wait).unwrap();
        }
        assert_eq!(&buffer, b"over tcp");
        assert!(fds.is_empty());
    }
}
