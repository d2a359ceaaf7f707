//! Termination signals as a descriptor: a process that must end in order waits for them instead of being interrupted.
//!
//! Always: the signals are blocked in the calling thread and in every thread that it starts afterwards.

#![expect(unsafe_code, reason = "signal sets and signalfd have no safe form")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Termination signals of this process.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Blocks the given signals in this thread and makes them readable. Call it before starting threads.
    pub fn catch(numbers: &[i32]) -> io::Result<Signals> {
        // SAFETY: all zeros is a valid `sigset_t`, and `sigemptyset` below sets it up in any case.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `set` points to valid memory for a signal set.
        unsafe { libc::sigemptyset(&raw mut set) };
        for number in numbers {
            // SAFETY: `set` was made by `sigemptyset`; a wrong number is an error, not undefined.
            if unsafe { libc::sigaddset(&raw mut set, *number) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: `set` is a valid set, and the old one is not requested.
        let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if blocked != 0 {
            return Err(io::Error::from_raw_os_error(blocked));
        }
        // SAFETY: `set` is a valid set; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `signalfd` returned a fresh descriptor without another owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Signals { fd })
    }

    /// Waits for one of the signals and returns its number.
    pub fn wait(&self) -> io::Result<i32> {
        let mut bytes = [0u8; size_of::<libc::signalfd_siginfo>()];
        let count = rustix::io::read(&self.fd, &mut bytes)?;
        let number =
            bytes.first_chunk::<4>().filter(|_| count == bytes.len()).map(|word| u32::from_ne_bytes(*word));
        number
            .and_then(|number| i32::try_from(number).ok())
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caught_signal_is_read_and_does_not_kill() {
        let signals = Signals::catch(&[libc::SIGUSR2]).unwrap();
        // SAFETY: the signal is blocked in this very thread, so raising it only makes it readable.
        unsafe { libc::raise(libc::SIGUSR2) };
        assert_eq!(signals.wait().unwrap(), libc::SIGUSR2);
    }
}
