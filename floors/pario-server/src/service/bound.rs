//! Later orders of the process that started this server: to end, to end with that process, and new addresses of peers.
//!
//! Never: ends because a network failed; that requires the end of the connection itself, as the kernel reports it for a process that died.

use pario_core::{Code, Fault, ServerIndex};
use pario_net::message::{Binding, Reply, Request};

use super::{LinkId, Service};
use crate::manager::ManagerTask;

impl Service {
    /// An order of the process that supervises this server.
    #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is an order")]
    pub(super) fn ordered(&mut self, id: LinkId, number: u64, order: Request) -> Result<(), Fault> {
        match order {
            Request::Shutdown { destroy } => {
                self.destroy |= destroy;
                self.begin_stop(Some((id, number)));
                return Ok(());
            }
            Request::AddressChanged { server, tcp } => self.peer_moved(server, &tcp)?,
            Request::Bind { how } => self.bind(id, how),
            other => return Err(Fault::new(Code::Protocol, format!("{other:?} is no order"))),
        }
        self.reply(id, number, Reply::Done {});
        Ok(())
    }

    /// A peer was restarted at another address.
    fn peer_moved(&self, server: ServerIndex, text: &str) -> Result<(), Fault> {
        let odd =
            || Fault::new(Code::Protocol, format!("server {server} cannot be at '{}'", text.escape_debug()));
        let tcp = text.parse().map_err(|_| odd())?;
        if self.spec.servers <= server.at() {
            return Err(odd());
        }
        if let Some(connect) = &self.connect {
            connect.moved(server, tcp);
        }
        if let Some(manager) = &self.manager {
            manager.post(ManagerTask::PeerRestarted(server));
        }
        tracing::info!("server {server} was restarted and listens on {tcp}");
        Ok(())
    }

    /// From now on this server ends with a connection, or no more.
    fn bind(&mut self, id: LinkId, how: Binding) {
        self.bound = match how {
            Binding::Free {} => None,
            Binding::End {} | Binding::Destroy {} => Some((id, how)),
        };
    }

    /// A connection has ended; `fault` is the cause if the peer did not close it.
    pub(super) fn bound_link_ended(&mut self, id: LinkId, fault: Option<&str>) {
        let Some((_, how)) = self.bound.take_if(|(bound, _)| *bound == id) else { return };
        if self.stopping.is_some() {
            return;
        }
        if let Some(fault) = fault {
            tracing::warn!(
                "the process that this server ends with cannot be reached ({fault}): the server continues without it"
            );
            return;
        }
        tracing::info!("the process that this server ends with has ended");
        self.bound_ended = true;
        self.destroy |= how == (Binding::Destroy {});
        self.begin_stop(None);
    }
}
