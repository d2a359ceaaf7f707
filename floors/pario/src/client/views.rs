//! Views that this mount uses: numbered once, told to each server with the first access that needs them.
//!
//! Never: tells a server a view that it knows; gives up a view while a record that needs it is untaken. Always: equal views have one
//! number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pario_core::limits::VIEWS_MAX;
use pario_core::{Code, Fault, ServerIndex};
use pario_net::connection::Connection;
use pario_net::message::Request;
use pario_view::{View, ViewId};

use super::mount::Mount;

/// Kept beside those in use, so that a view that comes back is still known.
const KEPT: usize = VIEWS_MAX / 2;

/// A view with its number.
#[derive(Debug)]
pub(crate) struct NumberedView {
    pub(super) view: Arc<View>,
    pub(super) number: u32,
    id: ViewId,
    bytes: Vec<u8>,
    /// Per server, the life of the connection over which it was told.
    told: Vec<AtomicU64>,
    /// Position behind the last record that needs it.
    needed_to: AtomicU64,
    used: AtomicU64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Views {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    views: HashMap<ViewId, Arc<NumberedView>>,
    numbers: u32,
    clock: u64,
}

impl NumberedView {
    /// The view.
    pub(crate) fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// A record that needs it ends here.
    pub(super) fn needed_to(&self, position: u64) {
        self.needed_to.fetch_max(position, Ordering::AcqRel);
    }
}

impl Mount {
    /// Gives a view its number; one that is known keeps it.
    pub(crate) fn number_view(&self, view: View) -> Result<Arc<NumberedView>, Fault> {
        let bytes = view.encode().map_err(|error| Fault::new(Code::TooLarge, error.to_string()))?;
        let id = ViewId::of(&bytes);
        let mut forgotten = Vec::new();
        let numbered = {
            let mut table = self.views.table.lock().unwrap_or_else(PoisonError::into_inner);
            table.clock += 1;
            if let Some(known) = table.views.get(&id) {
                known.used.store(table.clock, Ordering::Relaxed);
                return Ok(Arc::clone(known));
            }
            while KEPT <= table.views.len()
                && let Some(oldest) = self.oldest_free(&table)
            {
                forgotten.extend(table.views.remove(&oldest));
            }
            if VIEWS_MAX <= table.views.len() {
                let text =
                    format!("{VIEWS_MAX} different views are in use at once; close files that need them");
                return Err(Fault::new(Code::TooLarge, text));
            }
            table.numbers += 1;
            let numbered = Arc::new(NumberedView {
                view: Arc::new(view),
                number: table.numbers,
                id,
                bytes,
                told: (0..self.servers()).map(|_| AtomicU64::new(0)).collect(),
                needed_to: AtomicU64::new(0),
                used: AtomicU64::new(table.clock),
            });
            table.views.insert(id, Arc::clone(&numbered));
            numbered
        };
        for view in forgotten {
            self.forget_view(&view);
        }
        Ok(numbered)
    }

    /// The view that was not used for longest, of those that nobody holds and no record needs.
    fn oldest_free(&self, table: &Table) -> Option<ViewId> {
        let is_free = |view: &&Arc<NumberedView>| Arc::strong_count(view) == 1 && self.is_unneeded(view);
        let free = table.views.values().filter(is_free);
        free.min_by_key(|view| view.used.load(Ordering::Relaxed)).map(|view| view.id)
    }

    fn is_unneeded(&self, view: &NumberedView) -> bool {
        let position = view.needed_to.load(Ordering::Acquire);
        let Some(outbox) = self.outbox_if_made() else { return true };
        self.server_indices().all(|server| outbox.is_taken(server, position))
    }

    fn forget_view(&self, view: &NumberedView) {
        for server in self.server_indices() {
            let life = view.told[server.at()].load(Ordering::Acquire);
            if life != 0 && life == self.life(server) {
                // A server that cannot be told has lost its table anyway.
                let _ = self.tell(server, &Request::ForgetView { view: view.number });
            }
        }
    }

    /// Makes sure that a server knows a view.
    pub(super) fn tell_view(&self, server: ServerIndex, view: &NumberedView) -> Result<(), Fault> {
        let told = &view.told[server.at()];
        if told.load(Ordering::Acquire) == self.life(server) {
            return Ok(());
        }
        self.connection(server)?;
        let life = self.life(server);
        let request = Request::DefineView { view: view.number };
        let started = self.start(server, &request, &[&view.bytes])?;
        self.finish(started, None)?;
        self.count_view(view);
        told.store(life, Ordering::Release);
        Ok(())
    }

    /// Before an outbox is offered again: tells the server all views that records from `from` on may need.
    pub(super) fn retell_views(
        &self,
        server: ServerIndex,
        connection: &Connection,
        from: u64,
    ) -> Result<(), Fault> {
        let needed: Vec<Arc<NumberedView>> = {
            let table = self.views.table.lock().unwrap_or_else(PoisonError::into_inner);
            // One that somebody holds may be needed by a record that is just being made. No record needs the file's own bytes.
            let needed = |view: &&Arc<NumberedView>| {
                let wanted = from < view.needed_to.load(Ordering::Acquire) || 1 < Arc::strong_count(view);
                wanted && !view.view.is_whole()
            };
            table.views.values().filter(needed).map(Arc::clone).collect()
        };
        let life = self.life(server);
        for view in needed.iter().filter(|view| view.told[server.at()].load(Ordering::Acquire) != life) {
            let request = Request::DefineView { view: view.number };
            let ticket = connection.start_as(self.number(), &request, &[&view.bytes], &[])?;
            connection.wait(ticket, None)?;
            self.count_view(view);
            view.told[server.at()].store(life, Ordering::Release);
        }
        Ok(())
    }

    fn count_view(&self, view: &NumberedView) {
        self.counters.views.fetch_add(1, Ordering::Relaxed);
        self.counters.view_bytes.fetch_add(view.bytes.len() as u64, Ordering::Relaxed);
    }
}
