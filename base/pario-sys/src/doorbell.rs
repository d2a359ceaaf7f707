//! An eventfd by which one process wakes another's event loop.
//!
//! Never: carries data. Always: a ring before a wait ends the wait; any number of rings is one. The descriptor's flags are shared with
//! the peer, which is why `take` does not rely on them.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};

use crate::clock::timespec;

/// Wakes a process that polls it.
#[derive(Debug)]
pub struct Doorbell {
    fd: OwnedFd,
}

impl Doorbell {
    /// A silent doorbell.
    pub fn new() -> io::Result<Doorbell> {
        Ok(Doorbell { fd: rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)? })
    }

    /// A doorbell from a peer; refused unless it is an eventfd (a pipe, say, could raise SIGPIPE when rung).
    pub fn from_fd(fd: OwnedFd) -> io::Result<Doorbell> {
        let name = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        if name.to_str() != Some("anon_inode:[eventfd]") {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the descriptor is not an eventfd"));
        }
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        Ok(Doorbell { fd })
    }

    /// Another descriptor of the same doorbell, for a peer.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Rings.
    pub fn ring(&self) -> io::Result<()> {
        match rustix::io::retry_on_intr(|| rustix::io::write(&self.fd, &1u64.to_ne_bytes())) {
            // AGAIN: the counter is at 2^64 - 2, so it is ringing.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Silences it; whether it had been rung.
    #[must_use]
    pub fn take(&self) -> bool {
        let mut count = [0; 8];
        let end = u64::MAX; // -1: not a positioned read
        let taken = rustix::io::retry_on_intr(|| {
            rustix::io::preadv2(&self.fd, &mut [IoSliceMut::new(&mut count)], end, ReadWriteFlags::NOWAIT)
        });
        match taken {
            Ok(bytes) => bytes == 8,
            // A kernel without NOWAIT for eventfds: rely on the descriptor's own flag.
            Err(Errno::OPNOTSUPP) => rustix::io::read(&self.fd, &mut count) == Ok(8),
            Err(_) => false,
        }
    }

    /// Waits until it rings or the time is over; does not silence it.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = timeout.map(timespec);
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(count) => Ok(0 < count),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_once_for_many() {
        let bell = Doorbell::new().unwrap();
        assert!(!bell.take());
        assert!(!bell.wait(Some(Duration::ZERO)).unwrap());
        bell.ring().unwrap();
        bell.ring().unwrap();
        assert!(bell.wait(None).unwrap());
        assert!(bell.take());
        assert!(!bell.take());
    }

    #[test]
    fn wakes_another_holder_and_ignores_its_flags() {
        let bell = Doorbell::new().unwrap();
        let peer = Doorbell::from_fd(bell.duplicate().unwrap()).unwrap();
        let waiting = std::thread::spawn(move || {
            while !peer.wait(Some(Duration::from_secs(20))).unwrap() {}
            peer.take()
        });
        bell.ring().unwrap();
        assert!(waiting.join().unwrap());
        rustix::fs::fcntl_setfl(&bell, OFlags::empty()).unwrap();
        assert!(!bell.take());
    }

    #[test]
    fn refuses_other_descriptors() {
        let (_reader, writer) = std::io::pipe().unwrap();
        assert!(Doorbell::from_fd(writer.into()).is_err());
    }
}
