//! Views used by this session: each shape gets a number once, and is sent to a server with the first access that needs it. The
//! displacement of a shape travels with each access, so that a box moved through an array is sent once.
//!
//! Never: sends a server a shape that it knows; frees a shape while an undrained record needs it. Always: views that differ only in their
//! displacement have one number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pario_core::limits::VIEWS_MAX;
use pario_core::{Code, Fault, ServerIndex};
use pario_net::connection::{Connection, Ticket};
use pario_net::message::Request;
use pario_view::{View, ViewId};

use crate::client::session::state::Session;

/// Unused shapes kept, so that a view used again is still known.
const KEPT: usize = VIEWS_MAX / 2;

/// A view, with the number of its shape and its displacement.
#[derive(Debug)]
pub(crate) struct NumberedView {
    view: Arc<View>,
    shape: Arc<NumberedShape>,
    moved: u64,
}

/// A shape with its number: a view with its first byte at offset 0 of the file.
#[derive(Debug)]
struct NumberedShape {
    number: u32,
    id: ViewId,
    bytes: Vec<u8>,
    /// Per server, the epoch of the connection over which the shape was sent.
    sent_epochs: Vec<AtomicU64>,
    /// Position after the last record that needs it.
    needed_to: AtomicU64,
    used: AtomicU64,
    /// Whether it is the identity view (the file's own bytes), for everything made from it.
    is_whole: AtomicBool,
}

/// Shapes being sent to a server, and the first error.
#[derive(Debug)]
pub(in crate::client) struct ShapeResend {
    life: u64,
    begun: Vec<(Arc<NumberedShape>, Ticket)>,
    failed: Result<(), Fault>,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::client) struct ViewRegistry {
    table: Mutex<ShapeTable>,
}

#[derive(Debug, Default)]
struct ShapeTable {
    shapes: HashMap<ViewId, Arc<NumberedShape>>,
    numbers: u32,
    clock: u64,
}

impl NumberedView {
    /// The view.
    pub(crate) fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The number by which servers know its shape.
    pub(in crate::client) fn number(&self) -> u32 {
        self.shape.number
    }

    /// Displacement of its shape, in bytes.
    pub(in crate::client) fn displacement(&self) -> u64 {
        self.moved
    }

    /// A record that needs it ends at `position`.
    pub(in crate::client) fn needed_to(&self, position: u64) {
        self.shape.needed_to.fetch_max(position, Ordering::AcqRel);
    }
}

impl Session {
    /// Gives a view its number; a known shape keeps its number.
    pub(crate) fn number_view(&self, view: View) -> Result<Arc<NumberedView>, Fault> {
        let encoded = view.encode_shape().map_err(|error| Fault::new(Code::TooLarge, error.to_string()));
        let (bytes, moved) = encoded?;
        let is_whole = view.is_whole();
        let shape = self.number_shape(bytes)?;
        if !is_whole {
            shape.is_whole.store(false, Ordering::Release);
        }
        Ok(Arc::new(NumberedView { view: Arc::new(view), shape, moved }))
    }

    fn number_shape(&self, bytes: Vec<u8>) -> Result<Arc<NumberedShape>, Fault> {
        let id = ViewId::of(&bytes);
        let mut forgotten = Vec::new();
        let numbered = {
            let mut table = self.views.table.lock().unwrap_or_else(PoisonError::into_inner);
            table.clock += 1;
            if let Some(known) = table.shapes.get(&id) {
                known.used.store(table.clock, Ordering::Relaxed);
                return Ok(Arc::clone(known));
            }
            while KEPT <= table.shapes.len()
                && let Some(oldest) = self.oldest_free(&table)
            {
                forgotten.extend(table.shapes.remove(&oldest));
            }
            if VIEWS_MAX <= table.shapes.len() {
                let text = format!("{VIEWS_MAX} different views are in use; close files that use them");
                return Err(Fault::new(Code::TooLarge, text));
            }
            table.numbers += 1;
            let numbered = Arc::new(NumberedShape {
                number: table.numbers,
                id,
                bytes,
                sent_epochs: (0..self.servers()).map(|_| AtomicU64::new(0)).collect(),
                needed_to: AtomicU64::new(0),
                used: AtomicU64::new(table.clock),
                is_whole: AtomicBool::new(true),
            });
            table.shapes.insert(id, Arc::clone(&numbered));
            numbered
        };
        for shape in forgotten {
            self.forget_shape(&shape);
        }
        Ok(numbered)
    }

    /// The least recently used shape that no handle holds and no record needs.
    fn oldest_free(&self, table: &ShapeTable) -> Option<ViewId> {
        let is_free = |shape: &&Arc<NumberedShape>| Arc::strong_count(shape) == 1 && self.is_unneeded(shape);
        let free = table.shapes.values().filter(is_free);
        free.min_by_key(|shape| shape.used.load(Ordering::Relaxed)).map(|shape| shape.id)
    }

    fn is_unneeded(&self, shape: &NumberedShape) -> bool {
        let position = shape.needed_to.load(Ordering::Acquire);
        let Some(outbox) = self.outbox_if_made() else { return true };
        self.server_indices().all(|server| outbox.is_drained(server, position))
    }

    fn forget_shape(&self, shape: &NumberedShape) {
        for server in self.server_indices() {
            let life = shape.sent_epochs[server.at()].load(Ordering::Acquire);
            if life != 0 && life == self.connection_epoch(server) {
                // A server that cannot be reached has lost its table anyway.
                let _ = self.send_unawaited(server, &Request::ForgetView { view: shape.number });
            }
        }
    }

    /// Makes sure that a server knows a view's shape.
    pub(in crate::client) fn send_view(&self, server: ServerIndex, view: &NumberedView) -> Result<(), Fault> {
        let shape = &*view.shape;
        let told = &shape.sent_epochs[server.at()];
        if self.is_sent(server, view) {
            return Ok(());
        }
        self.connection(server)?;
        let life = self.connection_epoch(server);
        let request = Request::DefineView { view: shape.number };
        let started = self.start(server, &request, &[&shape.bytes])?;
        self.finish(started, None)?;
        self.count_shape(shape);
        told.store(life, Ordering::Release);
        Ok(())
    }

    /// The same for several servers: all requests are sent before the first reply is awaited. What fails is retried, and its error
    /// reported, by the access that needs the view.
    pub(in crate::client) fn send_view_to_all(
        &self,
        servers: impl Iterator<Item = ServerIndex>,
        view: &NumberedView,
    ) {
        let untold: Vec<ServerIndex> = servers.filter(|server| !self.is_sent(*server, view)).collect();
        // A single server gets it at its first use.
        if untold.len() < 2 {
            return;
        }
        let shape = &*view.shape;
        let request = Request::DefineView { view: shape.number };
        let begin = |server: ServerIndex| {
            self.connection(server).ok()?;
            let life = self.connection_epoch(server);
            Some((server, life, self.start(server, &request, &[&shape.bytes]).ok()?))
        };
        let begun: Vec<_> = untold.into_iter().filter_map(begin).collect();
        for (server, life, started) in begun {
            if self.finish(started, None).is_ok() {
                self.count_shape(shape);
                shape.sent_epochs[server.at()].store(life, Ordering::Release);
            }
        }
    }

    /// Before an outbox is offered again: sends the server all shapes that records from `from` on may need.
    pub(in crate::client) fn resend_views(
        &self,
        server: ServerIndex,
        connection: &Connection,
        from: u64,
    ) -> Result<(), Fault> {
        let begun = self.begin_resend(server, connection, from);
        self.end_resend(server, connection, begun)
    }

    /// The same without waiting for the replies.
    pub(in crate::client) fn begin_resend(
        &self,
        server: ServerIndex,
        connection: &Connection,
        from: u64,
    ) -> ShapeResend {
        let needed: Vec<Arc<NumberedShape>> = {
            let table = self.views.table.lock().unwrap_or_else(PoisonError::into_inner);
            // A shape held by a handle may be needed by a record that is being made. No record needs the identity view.
            let needed = |shape: &&Arc<NumberedShape>| {
                let wanted = from < shape.needed_to.load(Ordering::Acquire) || 1 < Arc::strong_count(shape);
                wanted && !shape.is_whole.load(Ordering::Acquire)
            };
            table.shapes.values().filter(needed).map(Arc::clone).collect()
        };
        let life = self.connection_epoch(server);
        let untold =
            |shape: &Arc<NumberedShape>| shape.sent_epochs[server.at()].load(Ordering::Acquire) != life;
        let mut retelling = ShapeResend { life, begun: Vec::new(), failed: Ok(()) };
        for shape in needed.into_iter().filter(untold) {
            let request = Request::DefineView { view: shape.number };
            match connection.start_as(self.number(), &request, &[&shape.bytes], &[]) {
                Ok(ticket) => retelling.begun.push((shape, ticket)),
                Err(fault) => {
                    retelling.failed = Err(fault);
                    break;
                }
            }
        }
        retelling
    }

    /// Waits for all replies; returns the first error.
    pub(in crate::client) fn end_resend(
        &self,
        server: ServerIndex,
        connection: &Connection,
        retelling: ShapeResend,
    ) -> Result<(), Fault> {
        let ShapeResend { life, begun, failed } = retelling;
        let mut result = failed;
        for (shape, ticket) in begun {
            let answer = connection.wait(ticket, None).map(|_| ());
            if answer.is_ok() {
                self.count_shape(&shape);
                shape.sent_epochs[server.at()].store(life, Ordering::Release);
            }
            result = result.and(answer);
        }
        result
    }

    /// Whether a server has received a view's shape on its current connection.
    pub(in crate::client) fn is_sent(&self, server: ServerIndex, view: &NumberedView) -> bool {
        let epoch = self.connection_epoch(server);
        // 0: this session never connected to the server.
        epoch != 0 && view.shape.sent_epochs[server.at()].load(Ordering::Acquire) == epoch
    }

    fn count_shape(&self, shape: &NumberedShape) {
        self.counters.views.fetch_add(1, Ordering::Relaxed);
        self.counters.view_bytes.fetch_add(shape.bytes.len() as u64, Ordering::Relaxed);
    }
}
