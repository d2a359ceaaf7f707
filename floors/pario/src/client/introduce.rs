//! Servers that a write meets for the first time: all are told the views and where the outbox is before the first answer is waited for. A
//! server answers between its rounds of taking, so that one after the other would cost a round of each.
//!
//! Never: is the only way to tell. What fails here is tried again, and its error told, where it is needed. Always: nothing that was begun
//! is left on a connection.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;

use pario_core::{Fault, ServerIndex};
use pario_net::connection::{Connection, Ticket};
use pario_net::message::Request;
use pario_net::outbox::{Cursor, Outbox};

use super::mount::Mount;
use super::views::Retelling;

/// What one server was asked.
struct Begun {
    views: Retelling,
    offer: Result<Ticket, Fault>,
}

impl Mount {
    /// Offers the outbox to those servers of this node that never had it, with all views in use.
    pub(super) fn introduce(&self, servers: impl Iterator<Item = ServerIndex>) {
        let has_it = |server: &ServerIndex| {
            self.outbox_if_made().is_some_and(|outbox| outbox.cursor(*server).is_some())
        };
        let mut links: HashMap<ServerIndex, Arc<Connection>> = HashMap::new();
        for server in servers.filter(|server| !has_it(server)) {
            let near = self.connection(server).ok().filter(|connection| connection.shares_memory());
            links.extend(near.map(|connection| (server, connection)));
        }
        // One is told where it is needed.
        if links.len() < 2 {
            return;
        }
        let Ok(outbox) = self.outbox() else { return };
        let servers: Vec<ServerIndex> = self.server_indices().filter(|one| links.contains_key(one)).collect();
        let begin = |server, from| Ok(self.begin_offer(&outbox, (server, &links[&server]), from));
        let end = |server, begun| self.end_offer((server, &links[&server]), begun);
        for server in outbox.attach_new(&servers, begin, end) {
            self.keep_if_live(&outbox, server, &links[&server]);
        }
    }

    fn begin_offer(&self, outbox: &Outbox, to: (ServerIndex, &Connection), from: u64) -> Begun {
        let (server, connection) = to;
        let views = self.begin_retelling(server, connection, from);
        let request = Request::OfferOutbox { from };
        self.counters.message(&request, 0);
        let descriptor = outbox.descriptor().as_fd();
        let offer = connection.start_as(self.number(), &request, &[], &[descriptor]);
        Begun { views, offer }
    }

    fn end_offer(&self, from: (ServerIndex, &Connection), begun: Begun) -> Result<Cursor, Fault> {
        let (server, connection) = from;
        let told = self.end_retelling(server, connection, begun.views);
        let answer = begun.offer.and_then(|ticket| connection.wait(ticket, None));
        told?;
        Mount::cursor_in(server, answer?)
    }
}
