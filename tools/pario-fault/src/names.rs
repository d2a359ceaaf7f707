//! Files of a journal: possible names, possible absence, allowed contents.

use std::collections::{BTreeMap, BTreeSet};

use crate::journal::{CallResult, JournalContents, JournalEntry, WriterCall, WriterFileId};
use crate::model::FileModel;

/// A file as its journal has it.
#[derive(Clone, Default, Debug)]
pub struct KnownFile {
    /// Paths that it may have: one, or two where a rename did not succeed.
    pub paths: Vec<String>,
    /// It may be absent: its creation or removal did not succeed, or its removal did.
    pub may_be_absent: bool,
    /// Allowed contents.
    pub model: FileModel,
}

/// All files of a journal.
#[must_use]
pub fn known(story: &JournalContents) -> BTreeMap<WriterFileId, KnownFile> {
    let mut files: BTreeMap<WriterFileId, KnownFile> = BTreeMap::new();
    for entry in &story.entries {
        if matches!(entry.outcome, CallResult::Failed { .. }) {
            // The error may be about any write of this session that was not safe yet.
            files.values_mut().for_each(|known| known.model.unsettle_unsynced());
        }
        apply(files.entry(entry.call.file()).or_default(), entry);
    }
    files
}

fn apply(known: &mut KnownFile, entry: &JournalEntry) {
    let done = entry.outcome == CallResult::Done;
    match &entry.call {
        WriterCall::Create { name, .. } => {
            known.paths = vec![name.clone()];
            known.may_be_absent = !done;
        }
        WriterCall::Rename { to, .. } if done => known.paths = vec![to.clone()],
        WriterCall::Rename { to, .. } => known.paths.push(to.clone()),
        WriterCall::Remove { .. } => {
            known.may_be_absent = true;
            if done {
                known.paths.clear();
            }
        }
        WriterCall::Write { offset, bytes, .. } => {
            known.model.wrote(entry.number, *offset..offset + bytes, done)
        }
        WriterCall::Sync { .. } | WriterCall::Close { .. } if done => known.model.synced(),
        WriterCall::Sync { .. }
        | WriterCall::Close { .. }
        | WriterCall::Open { .. }
        | WriterCall::Read { .. } => {}
    }
}

/// Checks the existing paths. Returns the path of each present file, or the violation.
pub fn judge<'a>(
    files: &'a BTreeMap<WriterFileId, KnownFile>,
    present: &BTreeSet<String>,
) -> Result<BTreeMap<&'a str, &'a KnownFile>, String> {
    let mut found = BTreeMap::new();
    for (id, known) in files {
        let here: Vec<&String> = known.paths.iter().filter(|path| present.contains(*path)).collect();
        match here[..] {
            [path] => drop(found.insert(path.as_str(), known)),
            [] if known.may_be_absent => {}
            [] => return Err(format!("file {} is absent; it must be {}", id.0, known.paths.join(" or "))),
            [..] => {
                return Err(format!("file {} is there under two names: {}", id.0, known.paths.join(", ")));
            }
        }
    }
    match present.iter().find(|path| !found.contains_key(path.as_str())) {
        Some(path) => Err(format!("{path} is there; it was removed, renamed or never made")),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, call: WriterCall, outcome: CallResult) -> JournalEntry {
        JournalEntry { number, call, outcome, duration_ms: 0 }
    }

    fn journal_of(rename: CallResult, remove: CallResult) -> JournalContents {
        let file = WriterFileId;
        let name = |name: &str| name.to_owned();
        let entries = vec![
            entry(1, WriterCall::Create { file: file(1), name: name("a") }, CallResult::Done),
            entry(2, WriterCall::Create { file: file(2), name: name("b") }, CallResult::Done),
            entry(3, WriterCall::Rename { file: file(1), to: name("c") }, rename),
            entry(4, WriterCall::Remove { file: file(2) }, remove),
        ];
        JournalContents { entries, violations: Vec::new() }
    }

    #[track_caller]
    fn check(story: &JournalContents, present: &[&str], right: bool) {
        let present = present.iter().map(|path| (*path).to_owned()).collect();
        assert_eq!(judge(&known(story), &present).is_ok(), right, "{present:?}");
    }

    #[test]
    fn what_succeeded_is_certain() {
        let story = journal_of(CallResult::Done, CallResult::Done);
        check(&story, &["c"], true);
        check(&story, &["a"], false);
        check(&story, &["b", "c"], false);
        check(&story, &[], false);
    }

    #[test]
    fn what_did_not_may_have_happened_or_not() {
        let failed = CallResult::Failed { code: "Unreachable".into(), text: String::new() };
        let story = journal_of(failed, CallResult::Open);
        for present in [&["a", "b"][..], &["c", "b"], &["a"], &["c"]] {
            check(&story, present, true);
        }
        check(&story, &["a", "c"], false);
        check(&story, &["b"], false);
        check(&story, &["a", "d"], false);
    }
}
