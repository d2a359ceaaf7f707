//! Views defined by clients, by session and number.
//!
//! Never: holds more of one session than the limits allow. Always: a number means one view for as long as its session uses it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pario_core::limits::{VIEW_TABLE_BYTES_MAX, VIEWS_MAX};
use pario_core::{Code, Fault, SessionId};
use pario_view::{View, ViewId};

/// See the module. Cheap to clone; all clones are one table.
#[derive(Clone, Debug, Default)]
pub(crate) struct DefinedViews(Arc<Mutex<HashMap<SessionId, SessionViews>>>);

#[derive(Debug, Default)]
struct SessionViews {
    views: HashMap<u32, DefinedView>,
    memory_bytes: usize,
}

#[derive(Debug)]
struct DefinedView {
    view: Arc<View>,
    id: ViewId,
    /// The view with its last displacement. Shares all lists with it.
    displaced: Option<(u64, Arc<View>)>,
}

impl DefinedViews {
    /// Defines a view. The same bytes under the same number again have no effect.
    pub(crate) fn define(&self, session: SessionId, number: u32, bytes: &[u8]) -> Result<(), Fault> {
        let id = ViewId::of(bytes);
        let known =
            self.lock().get(&session).and_then(|table| table.views.get(&number).map(|known| known.id));
        match known {
            Some(known) if known == id => return Ok(()),
            Some(_) => return Err(refused(number, "the number is in use for another view")),
            None if number == 0 => return Err(refused(number, "that number is the file's own bytes")),
            None => {}
        }
        let view = View::decode(bytes).map_err(|error| refused(number, &error.to_string()))?;
        let mut tables = self.lock();
        let table = tables.entry(session).or_default();
        if table.views.len() == VIEWS_MAX || VIEW_TABLE_BYTES_MAX < table.memory_bytes + view.memory_bytes() {
            return Err(refused(number, "its session has too many views"));
        }
        table.memory_bytes += view.memory_bytes();
        table.views.insert(number, DefinedView { view: Arc::new(view), id, displaced: None });
        Ok(())
    }

    /// A view with a displacement in bytes, if it is known and its first repetition ends within the largest file.
    pub(crate) fn get(&self, session: SessionId, number: u32, moved: u64) -> Option<Arc<View>> {
        let mut tables = self.lock();
        let known = tables.get_mut(&session)?.views.get_mut(&number)?;
        if moved == 0 {
            return Some(Arc::clone(&known.view));
        }
        if let Some((_, view)) = known.displaced.as_ref().filter(|(bytes, _)| *bytes == moved) {
            return Some(Arc::clone(view));
        }
        let view = Arc::new(known.view.displaced(moved).ok()?);
        known.displaced = Some((moved, Arc::clone(&view)));
        Some(view)
    }

    /// The same, or a fault.
    pub(crate) fn find(&self, session: SessionId, number: u32, moved: u64) -> Result<Arc<View>, Fault> {
        let found = self.get(session, number, moved);
        found.ok_or_else(|| {
            refused(number, "it was never defined here, or its displacement exceeds the largest file")
        })
    }

    /// A view is not used any more.
    pub(crate) fn forget(&self, session: SessionId, number: u32) {
        if let Some(table) = self.lock().get_mut(&session)
            && let Some(known) = table.views.remove(&number)
        {
            table.memory_bytes -= known.view.memory_bytes();
        }
    }

    /// A session has ended.
    pub(crate) fn end(&self, session: SessionId) {
        self.lock().remove(&session);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, SessionViews>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(number: u32, why: &str) -> Fault {
    Fault::new(Code::Protocol, format!("view {number}: {why}"))
}

#[cfg(test)]
mod tests {
    use pario_view::{Datatype, ViewAccess};

    use super::*;

    fn every(stride: i64) -> Vec<u8> {
        let byte = Datatype::elementary(1).unwrap();
        View::new(0, &byte, &byte.resized(0, stride).unwrap(), ViewAccess::Write).unwrap().encode().unwrap()
    }

    #[test]
    fn a_number_means_one_view_until_it_is_forgotten() {
        let (views, session) = (DefinedViews::default(), SessionId(7));
        views.define(session, 1, &every(4)).unwrap();
        views.define(session, 1, &every(4)).unwrap();
        assert!(views.define(session, 1, &every(5)).is_err());
        assert!(views.get(SessionId(8), 1, 0).is_none());
        views.forget(session, 1);
        views.define(session, 1, &every(5)).unwrap();
        assert_eq!(views.find(session, 1, 0).unwrap().file_offset(2), Some(10));
        for moved in [7, 100, 100, 7] {
            assert_eq!(views.find(session, 1, moved).unwrap().file_offset(2), Some(10 + moved));
        }
        assert!(views.find(session, 1, i64::MAX.cast_unsigned()).is_err());
        assert!(views.find(session, 1, u64::MAX).is_err());
        views.end(session);
        assert!(views.find(session, 1, 0).is_err());
    }

    #[test]
    fn nonsense_and_too_many_are_refused() {
        let (views, session) = (DefinedViews::default(), SessionId(7));
        assert!(views.define(session, 0, &every(4)).is_err());
        assert!(views.define(session, 1, b"nonsense").is_err());
        for number in 0..VIEWS_MAX {
            views.define(session, u32::try_from(number + 1).unwrap(), &every(number as i64 + 2)).unwrap();
        }
        assert!(views.define(session, u32::MAX, &every(3)).is_err());
    }
}
