//! [`crate::doorbell`] in a model: a wait that no thread ends is a deadlock, which loom reports.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use loom::sync::{Condvar, Mutex};

use crate::registry::{Named, find, name};

struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

/// Wakes its waiting thread.
pub struct Doorbell {
    bell: Arc<Bell>,
    made: Option<(Named, OwnedFd)>,
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorbell").finish_non_exhaustive()
    }
}

impl Doorbell {
    /// A silent doorbell.
    pub fn new() -> io::Result<Doorbell> {
        let bell = Arc::new(Bell { rung: Mutex::new(false), changed: Condvar::new() });
        let made = name(Arc::clone(&bell))?;
        Ok(Doorbell { bell, made: Some(made) })
    }

    /// A doorbell from a peer.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Doorbell> {
        Ok(Doorbell { bell: find(&fd)?, made: None })
    }

    /// Another descriptor of the same doorbell, for a peer.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        let (_, fd) = self.made.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        fd.try_clone()
    }

    /// Rings.
    pub fn ring(&self) -> io::Result<()> {
        *self.bell.rung.lock().expect("models do not panic under a lock") = true;
        self.bell.changed.notify_all();
        Ok(())
    }

    /// Silences it; whether it had been rung.
    #[must_use]
    pub fn take(&self) -> bool {
        std::mem::take(&mut *self.bell.rung.lock().expect("models do not panic under a lock"))
    }

    /// Waits until it rings, however long: in a model no time helps.
    pub fn wait(&self, _timeout: Option<Duration>) -> io::Result<bool> {
        let mut rung = self.bell.rung.lock().expect("models do not panic under a lock");
        while !*rung {
            rung = self.bell.changed.wait(rung).expect("models do not panic under a lock");
        }
        Ok(true)
    }
}
