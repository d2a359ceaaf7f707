//! The journal: a change of several files as a list of steps, written before the first and removed after the last.
//!
//! Always: every step can be repeated, so that the next writer finishes what a dead one began.

use serde::{Deserialize, Serialize};

use crate::error::{Result, TreeError};
use crate::header::HeaderRecord;
use crate::line;
use crate::links::LinkRecord;
use crate::log::Log;
use crate::place::{Place, PlaceEntry};

/// File of the change under way.
pub(crate) const JOURNAL: &str = ".@journal";

/// One step of a change.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JournalStep {
    /// A file or directory gets another name.
    Rename { from: String, to: String },
    /// A line of a link table.
    Link { group: u64, table: String, record: LinkRecord },
    /// A line of a header.
    Header { id: u64, path: String, record: HeaderRecord },
    /// A name that a listing of the directory shows.
    Symlink { target: String, path: String },
    /// Such a name is gone.
    RemoveFile(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct JournalPlan {
    steps: Vec<JournalStep>,
}

/// Writes the journal.
pub(crate) fn begin(place: &dyn Place, steps: &[JournalStep]) -> Result<()> {
    let text = line::encode(&JournalPlan { steps: steps.to_vec() });
    place.write_new(JOURNAL, text.as_bytes())
}

/// Removes the journal.
pub(crate) fn end(place: &dyn Place) -> Result<()> {
    place.remove_file(JOURNAL)
}

/// Finishes the change of a dead writer; returns whether there was one.
pub(crate) fn replay(place: &dyn Place) -> Result<bool> {
    let Some(bytes) = place.read(JOURNAL)? else { return Ok(false) };
    let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let damaged = |cause| TreeError::Damaged { path: JOURNAL.into(), line: 1, cause };
    let plan: JournalPlan = line::decode(text).map_err(damaged)?;
    plan.steps.iter().try_for_each(|step| storage_step(place, step))?;
    end(place)?;
    Ok(true)
}

fn storage_step(place: &dyn Place, step: &JournalStep) -> Result<()> {
    match step {
        JournalStep::Rename { from, to } => rename(place, from, to),
        JournalStep::Link { table, record, .. } => append(place, table, record),
        JournalStep::Header { path, record, .. } => append(place, path, record),
        JournalStep::Symlink { target, path } => place.symlink(target, path),
        JournalStep::RemoveFile(path) => place.remove_file(path),
    }
}

/// Renames an object's file. One that is missing, or that a later step replaced by a symbolic link, was renamed before.
pub(crate) fn rename(place: &dyn Place, from: &str, to: &str) -> Result<()> {
    match place.kind(from)? {
        None | Some(PlaceEntry::Symlink) => Ok(()),
        Some(_) => place.rename(from, to),
    }
}

fn append<T: Serialize>(place: &dyn Place, path: &str, record: &T) -> Result<()> {
    let Some((mut log, _)) = Log::load::<serde_json::Value>(place, path)? else {
        return Err(TreeError::Damaged { path: path.into(), line: 1, cause: "the file is missing".into() });
    };
    log.append(place, record)
}
