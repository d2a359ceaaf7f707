//! A connection between two ranks: TCP, in protected records if it leaves the host.
//!
//! Never: raises SIGPIPE. Always: a read waits for a living rank without limit (keep-alive ends the wait for a dead host); a
//! completed write has left this process.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use pario_core::Clock;
use pario_net::protect::Keys;
use pario_net::stream::Stream;
use pario_sys::MonotonicClock;
use pario_sys::socket::{self, Blocking};

/// Interval of polls for a protected record.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a write waits for buffer space before it calls `on_nap`.
pub(crate) const SPACE_WAIT: Duration = Duration::from_millis(100);

/// See the module head. Clones share the connection.
#[derive(Clone, Debug)]
pub(crate) struct RankConnection(Arc<Stream>);

impl RankConnection {
    /// An unprotected connection.
    pub(crate) fn new(stream: TcpStream) -> io::Result<RankConnection> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(false)?;
        Ok(RankConnection(Arc::new(Stream::Tcp(stream))))
    }

    /// The same connection, protected from now on.
    pub(crate) fn protected(self, keys: Keys) -> io::Result<RankConnection> {
        let in_use = |_| io::Error::other("a connection is protected before it is shared");
        Ok(RankConnection(Arc::new(Arc::try_unwrap(self.0).map_err(in_use)?.protected(keys))))
    }

    /// Reads available bytes; waits for the first. 0: the rank has closed the connection.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.0.is_protected() {
            return socket::receive(self.0.as_fd(), buffer, &mut Vec::new(), Blocking::Wait);
        }
        loop {
            if let Some(count) = self.read_now(buffer)? {
                return Ok(count);
            }
            self.0.wait_readable(POLL_INTERVAL)?;
        }
    }

    /// Fills the buffer.
    pub(crate) fn read_exact(&self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => buffer = &mut buffer[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Fills the buffer, or fails after `limit`.
    pub(crate) fn read_within(&self, mut buffer: &mut [u8], limit: Duration) -> io::Result<()> {
        let begin = MonotonicClock.now();
        while !buffer.is_empty() {
            match self.read_now(buffer)? {
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(count) => buffer = &mut buffer[count..],
                None => {
                    let spent = MonotonicClock.now().since(begin);
                    let left = limit.checked_sub(spent).ok_or(io::ErrorKind::TimedOut)?;
                    self.0.wait_readable(left)?;
                }
            }
        }
        Ok(())
    }

    /// Reads what is there without waiting; `None`: nothing is.
    pub(super) fn read_now(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.0.receive(buffer, &mut Vec::new()) {
            Ok(count) => Ok(Some(count)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes all bytes. After each [`SPACE_WAIT`] without buffer space, `on_nap` decides whether to continue.
    pub(crate) fn write_all<E: From<io::Error>>(
        &self,
        mut bytes: &[u8],
        on_nap: &dyn Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        let nap = || match self.0.wait_writable(SPACE_WAIT) {
            Ok(true) => Ok(()),
            Ok(false) => on_nap(),
            Err(error) => Err(error.into()),
        };
        while !bytes.is_empty() {
            match self.0.send_some(&[IoSlice::new(bytes)], &[]) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => nap()?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        while !self.0.flush()? {
            nap()?;
        }
        Ok(())
    }

    /// Writes all bytes, without a time limit.
    pub(crate) fn write_without_limit(&self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes, &|| Ok::<(), io::Error>(()))
    }

    /// Whether the rank has closed the connection and nothing is left to read; does not wait.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.has_ended()
    }

    /// Ends both directions.
    pub(crate) fn shut(&self) {
        self.0.shut();
    }

    /// The socket, for its settings.
    pub(crate) fn socket(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }

    #[cfg(test)]
    pub(crate) fn is_protected(&self) -> bool {
        self.0.is_protected()
    }
}
