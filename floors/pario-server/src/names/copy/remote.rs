//! Names files on another server, by message.
//!
//! Always: a connection that ended is made anew at the next call; a server that is gone, or that runs and does not answer, fails it
//! within half a minute and is named. So the end of this server does not wait for a wedged one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pario_core::{Code, Fault, ServerIndex};
use pario_net::connection::{Connection, ReceivedReply};
use pario_net::deadlines::Deadlines;
use pario_net::greeting::{Hello, Secret, nonce};
use pario_net::message::{Reply, Request};
use pario_net::protect::Protect;

use super::{CopyLocation, Finish};
use crate::peers::Connect;

/// An answer may take a sync of a disk that has much to do; the end of a server, which waits for it, has 60 s.
const DEADLINES: Deadlines = Deadlines { answer: Duration::from_secs(30), ..Deadlines::ORDER };

/// See the module.
pub struct RemoteCopies {
    connect: Arc<dyn Connect>,
    hello: Hello,
    secret: Secret,
    protect: Protect,
    connection: Mutex<Option<Arc<Connection>>>,
}

impl std::fmt::Debug for RemoteCopies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RemotePlace({})", self.hello.server)
    }
}

impl RemoteCopies {
    /// The names files that server `server` keeps; `hello` identifies the requester.
    #[must_use]
    pub fn new(connect: Arc<dyn Connect>, server: ServerIndex, hello: Hello, secret: Secret) -> RemoteCopies {
        let (hello, protect) = (Hello { server, ..hello }, Protect::default());
        RemoteCopies { connect, hello, secret, protect, connection: Mutex::default() }
    }

    /// The same over connections that are protected as the partition's are.
    #[must_use]
    pub fn protected(self, protect: Protect) -> RemoteCopies {
        RemoteCopies { protect, ..self }
    }

    fn connection(&self) -> Result<Arc<Connection>, Fault> {
        let mut kept = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = kept.as_ref().filter(|connection| !connection.is_dead()) {
            return Ok(Arc::clone(connection));
        }
        let stream = self.connect.connect(self.hello.server)?;
        let protect = self.protect.wants(&stream);
        let hello = Hello { nonce: nonce(), protect, ..self.hello.clone() };
        let greeted = Connection::greet_within(stream, "peer".into(), &hello, &self.secret, DEADLINES)?;
        let connection = Arc::new(greeted);
        *kept = Some(Arc::clone(&connection));
        Ok(connection)
    }

    fn call(&self, request: &Request, data: &[u8]) -> Result<ReceivedReply, Fault> {
        let connection = self.connection()?;
        let data: &[&[u8]] = if data.is_empty() { &[] } else { &[data] };
        let ticket = connection.start(request, data, &[])?;
        connection.wait(ticket, None)
    }

    fn unexpected_reply(&self) -> Fault {
        Fault::new(Code::Protocol, format!("server {} sent an unexpected reply", self.hello.server))
    }
}

impl CopyLocation for RemoteCopies {
    fn describe(&self) -> String {
        format!("server {}", self.hello.server)
    }

    fn files(&self) -> Result<Vec<(u64, u64)>, Fault> {
        let Reply::CopyFiles { files } = self.call(&Request::CopyFiles {}, &[])?.reply else {
            return Err(self.unexpected_reply());
        };
        Ok(files)
    }

    fn write(&self, number: u64, at: u64, bytes: &[u8], finish: Finish) -> Result<(), Fault> {
        // A frame has room for some MiB; the changes of 250 ms may be more.
        let mut parts = bytes.chunks(super::READ_BYTES as usize).peekable();
        let mut at = at;
        while let Some(part) = parts.next() {
            let now = if parts.peek().is_none() { finish } else { Finish::More };
            self.call(&Request::CopyWrite { number, at, finish: now.code() }, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn read(&self, number: u64, at: u64, bytes: u32) -> Result<Vec<u8>, Fault> {
        let answer = self.call(&Request::CopyRead { number, at, bytes }, &[])?;
        if answer.reply == (Reply::Data {}) { Ok(answer.data) } else { Err(self.unexpected_reply()) }
    }
}
