//! Applications of the model: their file, direction and access pattern.

use super::VirtualNanos;
use super::disk::DiskDirection;

/// An application with a file of its own, dealt to its clients round-robin in pieces of the granularity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct App {
    /// Name in tables.
    pub(crate) name: String,
    pub(crate) kind: DiskDirection,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    /// Bytes of one access of one client.
    pub(crate) granularity: u64,
    /// How many clients; one reads or writes sequentially.
    pub(crate) clients: u64,
    /// When it is started.
    pub(crate) start_ns: VirtualNanos,
}

impl App {
    /// A read of a file that is dealt to clients.
    pub(crate) fn reader(name: &str, bytes: u64, clients: u64, granularity: u64) -> App {
        App { name: name.to_owned(), kind: DiskDirection::Read, bytes, granularity, clients, start_ns: 0 }
    }

    /// A write of one.
    pub(crate) fn writer(name: &str, bytes: u64, clients: u64, granularity: u64) -> App {
        App { kind: DiskDirection::Write, ..App::reader(name, bytes, clients, granularity) }
    }

    /// The same, started later.
    pub(crate) fn starting(self, start_ns: VirtualNanos) -> App {
        App { start_ns, ..self }
    }

    /// Bytes of an access on the network. The client of a sequential application gathers small accesses into requests of the
    /// largest size; for larger accesses, its read-ahead and write-behind cross their boundaries.
    fn access_bytes(&self, request_max: u64) -> u64 {
        match self.clients {
            1 if request_max < self.granularity => self.bytes,
            1 => request_max,
            _ => self.granularity,
        }
    }

    /// Start and length of a client's `number`-th access; `None` after the last.
    pub(crate) fn access(&self, rank: u64, number: u64, request_max: u64) -> Option<(u64, u64)> {
        let bytes = self.access_bytes(request_max);
        let start = (number * self.clients + rank) * bytes;
        (start < self.bytes).then(|| (start, bytes.min(self.bytes - start)))
    }
}
