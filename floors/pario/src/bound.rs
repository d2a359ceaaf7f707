//! Servers that end with this process, however it ends: each holds a connection from it, which the kernel closes.
//!
//! Always: the connections are made before the servers are detached from their starter, so that this process cannot die in between and
//! leave them running.

use pario_core::Fault;
use pario_net::connection::Connection;
use pario_net::message::{Binding, Request};

use crate::error::{Error, Result};
use crate::orders::{STARTED_DEADLINES, control};
use crate::partition::{RegistryEntry, ServerEntry};

/// A partition's servers, bound to this process until this value is dropped.
#[derive(Debug)]
#[must_use = "servers end when it is dropped"]
pub struct Bound {
    connections: Vec<Connection>,
}

impl Bound {
    /// Binds running servers. `destroy`: they remove their data when this process has ended.
    pub(crate) fn to_this_process(
        entry: &RegistryEntry,
        servers: &[ServerEntry],
        destroy: bool,
    ) -> Result<Bound> {
        let how = if destroy { Binding::Destroy {} } else { Binding::End {} };
        let entry = RegistryEntry { servers: servers.to_vec(), ..entry.clone() };
        let bind = |server: &ServerEntry| -> std::result::Result<Connection, Fault> {
            let connection = control(&entry, server, STARTED_DEADLINES)?;
            connection.call(&Request::Bind { how })?;
            Ok(connection)
        };
        let failed = |server: &ServerEntry, fault: Fault| {
            Error::from(fault.at(format!("{}: binding server {} to this process", entry.name, server.index)))
        };
        let bound = std::thread::scope(|scope| {
            let binding: Vec<_> =
                servers.iter().map(|server| (server, scope.spawn(move || bind(server)))).collect();
            let joined = binding.into_iter().map(|(server, thread)| {
                let gone = |_| Err(Fault::new(pario_core::Code::Io, "a thread panicked"));
                thread.join().unwrap_or_else(gone).map_err(|fault| failed(server, fault))
            });
            joined.collect::<Result<Vec<Connection>>>()
        });
        Ok(Bound { connections: bound? })
    }

    /// Lets the servers continue when this process ends.
    pub fn release(self) -> Result<()> {
        for connection in &self.connections {
            connection.call(&Request::Bind { how: Binding::Free {} })?;
        }
        Ok(())
    }
}
