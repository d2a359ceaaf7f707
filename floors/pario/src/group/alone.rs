//! A group of one process.

use std::sync::Arc;

use super::Group;
use crate::error::Result;

/// A process by itself; every collective returns immediately.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Alone {
    /// This process as a group of one, to open files with.
    #[must_use]
    pub fn group() -> Arc<dyn Group> {
        Arc::new(Alone)
    }
}

impl Group for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn node_of(&self, _rank: usize) -> usize {
        0
    }

    fn allgather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(vec![bytes.to_vec()])
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn duplicate(&self) -> Result<Arc<dyn Group>> {
        Ok(Alone::group())
    }
}
