//! Attaches the servers of a write in one exchange: all servers get the views and the outbox before the first reply is awaited. A server
//! replies between two drain rounds; one server after the other would cost one drain round each.
//!
//! Never: is the only path. What fails here is retried, and its error reported, at the first access that needs the server. Always: waits
//! for every request that was started on a connection.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;

use pario_core::{Fault, ServerIndex};
use pario_net::connection::{Connection, Ticket};
use pario_net::message::Request;
use pario_net::outbox::{Cursor, Outbox};

use crate::client::session::state::Session;
use crate::client::session::views::ShapeResend;

/// Requests sent to one server.
struct StartedOffer {
    views: ShapeResend,
    offer: Result<Ticket, Fault>,
}

impl Session {
    /// Offers the outbox to the servers of this node that never had it, with all views in use.
    pub(in crate::client) fn attach_servers(&self, servers: impl Iterator<Item = ServerIndex>) {
        let has_it = |server: &ServerIndex| {
            self.outbox_if_made().is_some_and(|outbox| outbox.cursor(*server).is_some())
        };
        let mut links: HashMap<ServerIndex, Arc<Connection>> = HashMap::new();
        for server in servers.filter(|server| !has_it(server)) {
            let near = self.connection(server).ok().filter(|connection| connection.shares_memory());
            links.extend(near.map(|connection| (server, connection)));
        }
        // A single server is attached at its first use.
        if links.len() < 2 {
            return;
        }
        let Ok(outbox) = self.outbox() else { return };
        let servers: Vec<ServerIndex> = self.server_indices().filter(|one| links.contains_key(one)).collect();
        let begin = |server, from| Ok(self.begin_offer(&outbox, (server, &links[&server]), from));
        let end = |server, begun| self.end_offer((server, &links[&server]), begun);
        for server in outbox.attach_new(&servers, begin, end) {
            self.keep_cursor_if_live(&outbox, server, &links[&server]);
        }
    }

    fn begin_offer(&self, outbox: &Outbox, to: (ServerIndex, &Connection), from: u64) -> StartedOffer {
        let (server, connection) = to;
        let views = self.begin_resend(server, connection, from);
        let request = Request::OfferOutbox { from };
        self.counters.message(&request, 0);
        let descriptor = outbox.descriptor().as_fd();
        let offer = connection.start_as(self.number(), &request, &[], &[descriptor]);
        StartedOffer { views, offer }
    }

    fn end_offer(&self, from: (ServerIndex, &Connection), begun: StartedOffer) -> Result<Cursor, Fault> {
        let (server, connection) = from;
        let told = self.end_resend(server, connection, begun.views);
        let answer = begun.offer.and_then(|ticket| connection.wait(ticket, None));
        told?;
        Session::cursor_in(server, answer?)
    }
}
