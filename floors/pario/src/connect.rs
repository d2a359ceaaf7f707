//! Connections to a partition's servers: by address, or inside this process.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{PoisonError, RwLock, Weak};

use pario_core::{Code, Fault, ServerIndex};
use pario_net::stream::{Address, Stream};
use pario_server::{Connect, Server};

/// Servers by address; of several addresses the first that accepts is used, shared memory first.
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
                // Another address would not change the server's user.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    let text = format!("server {server} ({address}): {error}");
                    return Err(Fault::new(Code::Denied, text));
                }
                Err(error) => why.push(format!("{address}: {error}")),
            }
        }
        if why.is_empty() {
            why.push("it has no address that can be used from here: it is on another machine or node, or in another time namespace, and not on TCP".into());
        }
        Err(Fault::new(Code::Unreachable, format!("server {server} is unreachable: {}", why.join("; "))))
    }
}

/// No server: the environment has a value that forbids to choose an address.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) Fault);

impl Connect for Refused {
    fn connect(&self, _: ServerIndex) -> Result<Stream, Fault> {
        Err(self.0.clone())
    }
}

/// The peers of a server: by address; a restarted peer may have a new one.
#[derive(Debug)]
pub(crate) struct PeerAddresses(pub(crate) RwLock<ByAddress>);

impl Connect for PeerAddresses {
    fn connect(&self, server: ServerIndex) -> Result<Stream, Fault> {
        let addresses = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        addresses.connect(server)
    }

    fn moved(&self, server: ServerIndex, tcp: SocketAddr) {
        let mut addresses = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = addresses.servers.get_mut(server.at()) else { return };
        known.retain(|address| matches!(address, Address::Unix(_)));
        known.push(Address::Tcp(tcp));
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
