//! Views that this mount uses: their shapes are numbered once, and told to each server with the first access that needs them. Where in
//! the file a shape stands goes with each access, so that a box that is moved through an array is told once.
//!
//! Never: tells a server a shape that it knows; gives up a shape while a record that needs it is untaken. Always: views that differ
//! only in their place have one number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pario_core::limits::VIEWS_MAX;
use pario_core::{Code, Fault, ServerIndex};
use pario_net::connection::{Connection, Ticket};
use pario_net::message::Request;
use pario_view::{View, ViewId};

use super::mount::Mount;

/// Kept beside those in use, so that a view that comes back is still known.
const KEPT: usize = VIEWS_MAX / 2;

/// A view, with the number of its shape and how far that is moved.
#[derive(Debug)]
pub(crate) struct NumberedView {
    view: Arc<View>,
    shape: Arc<NumberedShape>,
    moved: u64,
}

/// A shape with its number: a view whose first byte is the file's first.
#[derive(Debug)]
struct NumberedShape {
    number: u32,
    id: ViewId,
    bytes: Vec<u8>,
    /// Per server, the life of the connection over which it was told.
    told: Vec<AtomicU64>,
    /// Position behind the last record that needs it.
    needed_to: AtomicU64,
    used: AtomicU64,
    /// Whether it is the file's own bytes, at their own places, for all that was made of it.
    is_whole: AtomicBool,
}

/// Shapes that a server is being told, and what kept others from being told.
#[derive(Debug)]
pub(super) struct Retelling {
    life: u64,
    begun: Vec<(Arc<NumberedShape>, Ticket)>,
    failed: Result<(), Fault>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Views {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    shapes: HashMap<ViewId, Arc<NumberedShape>>,
    numbers: u32,
    clock: u64,
}

impl NumberedView {
    /// The view.
    pub(crate) fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// What servers know its shape by.
    pub(super) fn number(&self) -> u32 {
        self.shape.number
    }

    /// How far its shape is moved.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    /// A record that needs it ends here.
    pub(super) fn needed_to(&self, position: u64) {
        self.shape.needed_to.fetch_max(position, Ordering::AcqRel);
    }
}

impl Mount {
    /// Gives a view its number; one whose shape is known has that one's.
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
                let text =
                    format!("{VIEWS_MAX} different views are in use at once; close files that need them");
                return Err(Fault::new(Code::TooLarge, text));
            }
            table.numbers += 1;
            let numbered = Arc::new(NumberedShape {
                number: table.numbers,
                id,
                bytes,
                told: (0..self.servers()).map(|_| AtomicU64::new(0)).collect(),
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

    /// The shape that was not used for longest, of those that nobody holds and no record needs.
    fn oldest_free(&self, table: &Table) -> Option<ViewId> {
        let is_free = |shape: &&Arc<NumberedShape>| Arc::strong_count(shape) == 1 && self.is_unneeded(shape);
        let free = table.shapes.values().filter(is_free);
        free.min_by_key(|shape| shape.used.load(Ordering::Relaxed)).map(|shape| shape.id)
    }

    fn is_unneeded(&self, shape: &NumberedShape) -> bool {
        let position = shape.needed_to.load(Ordering::Acquire);
        let Some(outbox) = self.outbox_if_made() else { return true };
        self.server_indices().all(|server| outbox.is_taken(server, position))
    }

    fn forget_shape(&self, shape: &NumberedShape) {
        for server in self.server_indices() {
            let life = shape.told[server.at()].load(Ordering::Acquire);
            if life != 0 && life == self.life(server) {
                // A server that cannot be told has lost its table anyway.
                let _ = self.tell(server, &Request::ForgetView { view: shape.number });
            }
        }
    }

    /// Makes sure that a server knows a view's shape.
    pub(super) fn tell_view(&self, server: ServerIndex, view: &NumberedView) -> Result<(), Fault> {
        let shape = &*view.shape;
        let told = &shape.told[server.at()];
        if self.is_told(server, view) {
            return Ok(());
        }
        self.connection(server)?;
        let life = self.life(server);
        let request = Request::DefineView { view: shape.number };
        let started = self.start(server, &request, &[&shape.bytes])?;
        self.finish(started, None)?;
        self.count_shape(shape);
        told.store(life, Ordering::Release);
        Ok(())
    }

    /// The same for several servers: all are told before the first answer is waited for. What fails is tried again, and told, where the view
    /// is needed.
    pub(super) fn tell_view_together(&self, servers: impl Iterator<Item = ServerIndex>, view: &NumberedView) {
        let untold: Vec<ServerIndex> = servers.filter(|server| !self.is_told(*server, view)).collect();
        // One is told where it is needed.
        if untold.len() < 2 {
            return;
        }
        let shape = &*view.shape;
        let request = Request::DefineView { view: shape.number };
        let begin = |server: ServerIndex| {
            self.connection(server).ok()?;
            let life = self.life(server);
            Some((server, life, self.start(server, &request, &[&shape.bytes]).ok()?))
        };
        let begun: Vec<_> = untold.into_iter().filter_map(begin).collect();
        for (server, life, started) in begun {
            if self.finish(started, None).is_ok() {
                self.count_shape(shape);
                shape.told[server.at()].store(life, Ordering::Release);
            }
        }
    }

    /// Before an outbox is offered again: tells the server all shapes that records from `from` on may need.
    pub(super) fn retell_views(
        &self,
        server: ServerIndex,
        connection: &Connection,
        from: u64,
    ) -> Result<(), Fault> {
        let begun = self.begin_retelling(server, connection, from);
        self.end_retelling(server, connection, begun)
    }

    /// The same without waiting for the answers.
    pub(super) fn begin_retelling(
        &self,
        server: ServerIndex,
        connection: &Connection,
        from: u64,
    ) -> Retelling {
        let needed: Vec<Arc<NumberedShape>> = {
            let table = self.views.table.lock().unwrap_or_else(PoisonError::into_inner);
            // One that somebody holds may be needed by a record that is just being made. No record needs the file's own bytes.
            let needed = |shape: &&Arc<NumberedShape>| {
                let wanted = from < shape.needed_to.load(Ordering::Acquire) || 1 < Arc::strong_count(shape);
                wanted && !shape.is_whole.load(Ordering::Acquire)
            };
            table.shapes.values().filter(needed).map(Arc::clone).collect()
        };
        let life = self.life(server);
        let untold = |shape: &Arc<NumberedShape>| shape.told[server.at()].load(Ordering::Acquire) != life;
        let mut retelling = Retelling { life, begun: Vec::new(), failed: Ok(()) };
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

    /// Waits for all answers; the first that is bad is told.
    pub(super) fn end_retelling(
        &self,
        server: ServerIndex,
        connection: &Connection,
        retelling: Retelling,
    ) -> Result<(), Fault> {
        let Retelling { life, begun, failed } = retelling;
        let mut result = failed;
        for (shape, ticket) in begun {
            let answer = connection.wait(ticket, None).map(|_| ());
            if answer.is_ok() {
                self.count_shape(&shape);
                shape.told[server.at()].store(life, Ordering::Release);
            }
            result = result.and(answer);
        }
        result
    }

    /// Whether a server was told a view's shape in its present life.
    pub(super) fn is_told(&self, server: ServerIndex, view: &NumberedView) -> bool {
        view.shape.told[server.at()].load(Ordering::Acquire) == self.life(server)
    }

    fn count_shape(&self, shape: &NumberedShape) {
        self.counters.views.fetch_add(1, Ordering::Relaxed);
        self.counters.view_bytes.fetch_add(shape.bytes.len() as u64, Ordering::Relaxed);
    }
}
