//! Applications of the model: who reads or writes which file, in which pieces.

use super::Nanos;
use super::disk::Kind;

/// An application with a file of its own, dealt to its clients round-robin in pieces of the granularity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct App {
    /// For tables.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    /// Bytes of one access of one client.
    pub(crate) granularity: u64,
    /// How many clients; one reads or writes sequentially.
    pub(crate) clients: u64,
    /// When it is started.
    pub(crate) start_ns: Nanos,
}

impl App {
    /// A read of a file that is dealt to clients.
    pub(crate) fn reader(name: &str, bytes: u64, clients: u64, granularity: u64) -> App {
        App { name: name.to_owned(), kind: Kind::Read, bytes, granularity, clients, start_ns: 0 }
    }

    /// A write of one.
    pub(crate) fn writer(name: &str, bytes: u64, clients: u64, granularity: u64) -> App {
        App { kind: Kind::Write, ..App::reader(name, bytes, clients, granularity) }
    }

    /// The same, started later.
    pub(crate) fn starting(self, start_ns: Nanos) -> App {
        App { start_ns, ..self }
    }

    /// Bytes of an access as the network sees them. The client of a sequential application gathers small accesses to requests of
    /// the largest size; if its accesses are larger than that, its read-ahead and write-behind run over their borders.
    fn access_bytes(&self, request_max: u64) -> u64 {
        match self.clients {
            1 if request_max < self.granularity => self.bytes,
            1 => request_max,
            _ => self.granularity,
        }
    }

    /// Where the `number`-th access of a client lies, as start and length; `None` after the last.
    pub(crate) fn access(&self, rank: u64, number: u64, request_max: u64) -> Option<(u64, u64)> {
        let bytes = self.access_bytes(request_max);
        let start = (number * self.clients + rank) * bytes;
        (start < self.bytes).then(|| (start, bytes.min(self.bytes - start)))
    }
}
