//! The drain thread as a store sees it.

use crate::drain::{DrainTask, Drainer};

/// Handle by which a store announces that its permission to write files back has changed.
#[derive(Clone)]
pub struct DrainHandle(pub(super) Drainer);

impl std::fmt::Debug for DrainHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Taking")
    }
}

impl DrainHandle {
    /// Asks the store again which files may be written back, then waits until all records committed before are drained: later commits
    /// already see the permission revoked. Returns immediately when the server has ended.
    pub fn drain_all(&self) {
        let (done, over) = crossbeam_channel::bounded(1);
        self.0.post(DrainTask::DrainAll {
            done: Box::new(move |_| {
                let _ = done.send(());
            }),
        });
        let _ = over.recv();
    }

    /// Asks the store again which files may be written back.
    pub fn grant(&self) {
        self.0.post(DrainTask::Grant);
    }
}
