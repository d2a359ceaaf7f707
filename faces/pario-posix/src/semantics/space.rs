//! Space of the partition, asked at most once a second: `df` and file managers ask often, and every server is asked.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pario::MonotonicClock;
use pario::core::{Clock, Nanos, Space};

use super::FileSystem;
use super::error::{PosixResult, errno_of};

/// How long an answer is used.
const KEPT: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct KnownSpace {
    last: Mutex<Option<(Nanos, Space)>>,
}

impl FileSystem {
    /// `statfs`
    pub fn space(&self) -> PosixResult<Space> {
        let mut last = self.space.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = MonotonicClock.now();
        if let Some((at, space)) = *last
            && now.since(at) < KEPT
        {
            return Ok(space);
        }
        let space = self.partition.space().map_err(|error| errno_of(&error))?;
        *last = Some((now, space));
        Ok(space)
    }
}
