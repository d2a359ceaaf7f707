//! Helpers of this crate's own tests.

use std::path::PathBuf;
use std::sync::Mutex;

use tempfile::TempDir;

/// Fresh directories that live as long as this does.
#[derive(Default)]
pub(crate) struct TempDirs(Mutex<Vec<TempDir>>);

impl TempDirs {
    pub(crate) fn fresh(&self) -> PathBuf {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        self.0.lock().unwrap().push(dir);
        path
    }
}
