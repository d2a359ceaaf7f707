//! Paths on the command line: `pario://NAME/path`, or a path of this machine.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use pario::Partition;
use pario::partition::Location;
use pario::transfer::TreePath;

use crate::context::Context;
use crate::error::{CliError, CliResult};

/// Parses a path; mounts its partition.
pub(crate) fn parse(context: &Context, text: &OsStr) -> CliResult<TreePath> {
    if text.is_empty() {
        return Err(CliError::usage("an empty path names nothing"));
    }
    if !Location::is_one(text) {
        let path = Path::new(text);
        let there = |path: &Path| !path.as_os_str().is_empty() && path.symlink_metadata().is_ok();
        if !there(path)
            && !path.parent().is_some_and(there)
            && let Some(hint) = hint(context, text)?
        {
            return Err(hint);
        }
        return Ok(TreePath::local(path));
    }
    let location = Location::parse(text)?;
    let partition = context.mount(&location.partition)?;
    Ok(TreePath::in_partition(&partition, OsString::from_vec(location.path)))
}

/// The path of a location in its partition.
pub(crate) fn of(partition: &Partition, path: &[u8]) -> TreePath {
    TreePath::in_partition(partition, OsStr::from_bytes(path))
}

/// A hint for a word that looks like a path of a partition but is not: `pario:/NAME/path`, `NAME:/path`.
pub(crate) fn hint(context: &Context, text: &OsStr) -> CliResult<Option<CliError>> {
    let Some(word) = text.to_str().filter(|word| !Location::is_one(word)) else { return Ok(None) };
    let meant = match word.split_once(':') {
        Some(("pario", rest)) => rest.trim_start_matches('/').to_owned(),
        Some((name, rest)) if !name.is_empty() && context.registry()?.get(name)?.is_some() => {
            format!("{name}/{}", rest.trim_start_matches('/'))
        }
        Some(_) | None => return Ok(None),
    };
    Ok((!meant.is_empty())
        .then(|| CliError::usage(format!("'{word}' is not in a partition: did you mean pario://{meant}?"))))
}
