//! POSIX calls that programs make on the paths of the preload: libraries stat and open files before the collective open.
//!
//! Never: handles descriptor numbers or C structures. Always: an error is the POSIX error number.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

pub use pario::posix::{Posix, PosixFile, PosixMode, PosixPath, Whence, report_paths};

use crate::mounts::{is_mounted, partition_of};
use crate::path::{PathTarget, resolve_path};
use crate::problem::Class;

/// `ENOENT`, `EIO`, `EINVAL`.
const NO_ENTRY: i32 = 2;
const INPUT_OUTPUT: i32 = 5;
const INVALID: i32 = 22;

/// Resolves a path; `None`: not Pario's.
pub fn posix_path(name: &str) -> Posix<Option<PosixPath>> {
    // PnetCDF strips the part before a colon before it calls stat.
    let stripped = name.strip_prefix("//").and_then(|rest| rest.split('/').next()).is_some_and(is_mounted);
    let whole = if stripped { format!("pario:{name}") } else { name.to_owned() };
    match resolve_path(&whole) {
        Ok(PathTarget::MpiLibrary | PathTarget::Plain { .. }) => Ok(None),
        Ok(PathTarget::Partition { partition, path }) => {
            let partition = partition_of(&partition).map_err(|problem| {
                if problem.class == Class::NoSuchFile { NO_ENTRY } else { INPUT_OUTPUT }
            })?;
            Ok(Some(PosixPath::new(partition, path)))
        }
        Err(_) => Err(INVALID),
    }
}

/// Reports, once per function, that it is not supported on Pario's paths; the program gets a matching error number.
pub fn refuse(function: &'static str, name: &str, cure: &str) {
    static TOLD: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(function) {
        let line = format!("pario: {function} of {name} is not supported yet: {cure}\n");
        // One write; an error is ignored: standard error may be closed.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}
