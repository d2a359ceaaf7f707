//! Ways to a partition's servers: by address, or inside this process.

use std::sync::Weak;

use pario_core::{Code, Fault, ServerIndex};
use pario_net::stream::{Address, Stream};
use pario_server::{Connect, Server};

/// Servers by address; of several addresses the first that answers is taken, shared memory first.
#[derive(Clone, Debug)]
pub struct ByAddress {
    /// Addresses of each server, best first.
    pub servers: Vec<Vec<Address>>,
}

impl Connect for ByAddress {
    fn connect(&self, server: ServerIndex) -> Result<Stream, Fault> {
        let addresses = self.servers.get(server.at()).map_or(&[][..], Vec::as_slice);
        let mut why = Vec::new();
        for address in addresses {
            match Stream::connect(address) {
                Ok(stream) => return Ok(stream),
                Err(error) => why.push(format!("{address}: {error}")),
            }
        }
        if why.is_empty() {
            why.push("it has no address that can be used from here: it is on another machine or node, and not on TCP".into());
        }
        Err(Fault::new(Code::Unreachable, format!("server {server} is unreachable: {}", why.join("; "))))
    }
}

/// Servers that are threads of this process.
pub(crate) struct InProcess {
    pub(crate) servers: Weak<Vec<Server>>,
}

impl Connect for InProcess {
    fn connect(&self, server: ServerIndex) -> Result<Stream, Fault> {
        let gone = || Fault::new(Code::Unreachable, format!("server {server} of this process has ended"));
        let servers = self.servers.upgrade().ok_or_else(gone)?;
        let server = servers.get(server.at()).filter(|server| !server.is_finished()).ok_or_else(gone)?;
        server.connect().map_err(|error| Fault::from_io(&error, "connecting inside the process"))
    }
}
