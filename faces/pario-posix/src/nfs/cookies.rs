//! Cookies of directory listings: a cookie is the hash of the entry's name, so it means the same after a restart of the export.
//!
//! A listing goes on behind the name of its cookie. The names of the cookies given last are kept; for another one the directory is searched.
//! Never: more than [`KEPT_MAX`] names in memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use pario::core::InodeId;
use sha2::{Digest, Sha256};

/// The entries `.` and `..`.
pub(super) const SELF: u64 = 1;
pub(super) const PARENT: u64 = 2;
/// Names that are kept.
const KEPT_MAX: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Cookies {
    kept: Mutex<KeptNames>,
}

#[derive(Debug, Default)]
struct KeptNames {
    names: HashMap<(InodeId, u64), Vec<u8>>,
    order: VecDeque<(InodeId, u64)>,
}

/// The cookie of a name. Positive as a signed number, since some clients use it as a position.
pub(super) fn cookie_of(name: &[u8]) -> u64 {
    let hash = Sha256::digest(name);
    let first = hash.first_chunk::<8>().copied().unwrap_or_default();
    (u64::from_be_bytes(first) >> 1).max(PARENT + 1)
}

impl Cookies {
    /// Keeps the name behind which a client will go on.
    pub(super) fn keep(&self, dir: InodeId, name: &[u8]) {
        let key = (dir, cookie_of(name));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.names.insert(key, name.to_vec()).is_none() {
            kept.order.push_back(key);
        }
        if KEPT_MAX < kept.order.len()
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.names.remove(&oldest);
        }
    }

    /// The name of a cookie, if it is kept.
    pub(super) fn find(&self, dir: InodeId, cookie: u64) -> Option<Vec<u8>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).names.get(&(dir, cookie)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_never_change() {
        // Clients keep them across restarts of the export.
        assert_eq!(cookie_of(b"abc"), 0xba78_16bf_8f01_cfea >> 1);
    }

    #[test]
    fn old_names_are_forgotten() {
        let cookies = Cookies::default();
        let name = |number: usize| number.to_string().into_bytes();
        for number in 0..=KEPT_MAX {
            cookies.keep(InodeId(1), &name(number));
        }
        assert_eq!(cookies.find(InodeId(1), cookie_of(&name(0))), None);
        assert_eq!(cookies.find(InodeId(1), cookie_of(&name(KEPT_MAX))), Some(name(KEPT_MAX)));
        assert_eq!(cookies.find(InodeId(2), cookie_of(&name(KEPT_MAX))), None);
        assert_eq!(cookies.kept.lock().unwrap().names.len(), KEPT_MAX);
    }
}
