//! One client's connection: threads take turns in reading records, and answer them at the same time.
//!
//! One thread reads; while it is busy another one reads on, up to [`THREADS_MAX`]. Never: reads on after a record that is not a call, or
//! that is cut or too long; waits more than [`STALL`] for the rest of a record or for a client that does not read its replies.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::dispatch;
use super::export::ExportServer;
use super::replies::CallOrigin;
use super::rpc;

/// Requests of one connection that are carried out at the same time.
const THREADS_MAX: usize = 4;
/// See the module.
const STALL: Duration = Duration::from_secs(30);
/// Silence after which the client's machine is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(60);
/// Small records are read together.
const BUFFER_BYTES: usize = 16 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct ClientConnection {
    pub(super) origin: CallOrigin,
    stream: TcpStream,
    reader: Mutex<BufReader<TcpStream>>,
    replies: Mutex<TcpStream>,
    threads: AtomicUsize,
    /// Threads that wait for a record, or for their turn.
    waiting: AtomicUsize,
    is_over: AtomicBool,
}

impl ClientConnection {
    pub(super) fn new(origin: CallOrigin, stream: TcpStream) -> io::Result<ClientConnection> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STALL))?;
        stream.set_write_timeout(Some(STALL))?;
        // A client that has vanished is noticed.
        rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
        rustix::net::sockopt::set_tcp_keepidle(&stream, SILENCE)?;
        Ok(ClientConnection {
            origin,
            reader: Mutex::new(BufReader::with_capacity(BUFFER_BYTES, stream.try_clone()?)),
            replies: Mutex::new(stream.try_clone()?),
            stream,
            threads: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        })
    }

    /// Ends the reading of calls; replies to those under way are still sent, unless `how` ends both.
    pub(super) fn end(&self, how: Shutdown) {
        self.is_over.store(true, Ordering::Release);
        // It fails if the client has ended the connection.
        let _ = self.stream.shutdown(how);
    }

    /// Starts a further thread, if there may be one.
    pub(super) fn add_thread(self: &Arc<Self>, server: &Arc<ExportServer>) -> io::Result<()> {
        let more = |threads| (threads < THREADS_MAX).then_some(threads + 1);
        if self.threads.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_err() {
            return Ok(());
        }
        let thread = ConnectionThread { connection: Arc::clone(self), server: Arc::clone(server) };
        let run = move || thread.connection.serve(&thread.server);
        // A thread that cannot be started drops what it was given.
        std::thread::Builder::new().name("pario-nfs".into()).spawn(run).map(drop)
    }

    fn serve(self: &Arc<Self>, server: &Arc<ExportServer>) {
        let mut record = Vec::new();
        loop {
            self.waiting.fetch_add(1, Ordering::AcqRel);
            let has_record = self.read(&mut record);
            let was_last = self.waiting.fetch_sub(1, Ordering::AcqRel) == 1;
            if !has_record {
                break;
            }
            if was_last && let Err(error) = self.add_thread(server) {
                tracing::debug!(%error, "no further thread for a client");
            }
            let reply = dispatch::answer(server.exported(), self.origin, &record);
            if !reply.is_some_and(|reply| self.send(&reply)) {
                self.end(Shutdown::Both);
                break;
            }
        }
    }

    /// Reads the next record; false at the end of the connection.
    fn read(&self, record: &mut Vec<u8>) -> bool {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_over.load(Ordering::Acquire) {
            match reader.fill_buf() {
                Ok(_) => {}
                // A client may be silent between two records.
                Err(error) if is_pause(&error) => continue,
                Err(error) => tracing::debug!(%error, "a connection ends"),
            }
            match rpc::read_record(&mut *reader, record) {
                Ok(true) => return true,
                Ok(false) => {}
                Err(error) => tracing::info!(%error, "a connection ends"),
            }
            self.is_over.store(true, Ordering::Release);
        }
        false
    }

    fn send(&self, reply: &[u8]) -> bool {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = replies.write_all(reply);
        if let Err(error) = &sent {
            tracing::debug!(%error, "a reply was not sent");
        }
        sent.is_ok()
    }
}

/// One thread of a connection. Its end is counted also if a procedure has panicked: then the connection ends.
struct ConnectionThread {
    connection: Arc<ClientConnection>,
    server: Arc<ExportServer>,
}

impl Drop for ConnectionThread {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.connection.end(Shutdown::Both);
            self.server.count_panic();
        }
        if self.connection.threads.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.server.forget(&self.connection);
        }
    }
}

fn is_pause(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
