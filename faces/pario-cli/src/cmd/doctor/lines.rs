//! Text output of `pario doctor`.

use std::collections::HashSet;

use pario::core::{InodeId, Size};
use pario::health::{AbsentObject, AtRest, Examination, Repaired};

use super::names;
use crate::context::Context;
use crate::error::{CliResult, one_line};
use crate::human;

/// Files without an object that one line lists.
const LISTED_MAX: usize = 20;

/// Results of an examination and a repair.
pub(super) struct DoctorResult<'a> {
    pub(super) examination: &'a Examination,
    pub(super) at_rest: &'a AtRest,
    pub(super) repaired: &'a Repaired,
}

/// Prints problems and warnings, one line each, then the total.
pub(super) fn print(context: &Context, name: &str, found: &DoctorResult<'_>) -> CliResult {
    let DoctorResult { examination, at_rest, repaired } = found;
    for damage in &at_rest.damage {
        context.line(one_line(&damage.to_string()))?;
    }
    let notes = names::notes(&examination.recovery);
    for note in &notes {
        context.line(one_line(&format!("warning: {note}")))?;
    }
    for problem in examination.problems.iter().chain(&examination.leftovers) {
        context.line(one_line(&problem.to_string()))?;
    }
    if let Some(line) = absent(&examination.absent) {
        context.line(one_line(&format!("warning: {line}")))?;
    }
    for path in &repaired.moved {
        context.report(format!("moved to {path}"))?;
    }
    let warnings = notes.len() + usize::from(!examination.absent.is_empty());
    context.report(format!(
        "{name}: {} inodes, {} objects ({}) examined{}: {}",
        examination.inodes,
        examination.objects,
        Size(examination.bytes).rounded(),
        done(repaired),
        verdict(found, warnings)
    ))?;
    compared(at_rest).into_iter().try_for_each(|line| context.report(line))
}

fn verdict(found: &DoctorResult<'_>, warnings: usize) -> String {
    let warned =
        if warnings == 0 { String::new() } else { format!(", {}", human::count(warnings, "warning")) };
    let left = match found.examination.leftovers.len() {
        0 => String::new(),
        left => format!(", {} of unfinished writes", human::count(left, "leftover")),
    };
    let problems = found.examination.problems.len() + found.at_rest.damage.len();
    match (problems, left.is_empty() && warned.is_empty()) {
        (0, true) => "all is well".to_owned(),
        (0, false) => format!("no errors{left}{warned}"),
        (problems, _) => format!("{}{left}{warned}", human::count(problems, "problem")),
    }
}

/// `, 2 orphans moved to lost+found` and so on; empty if nothing was repaired.
fn done(repaired: &Repaired) -> String {
    let mut words = String::new();
    if !repaired.moved.is_empty() {
        words += &format!(", {} moved to lost+found", human::count(repaired.moved.len(), "orphan"));
    }
    if 0 < repaired.removed {
        words += &format!(", {} removed", human::count(repaired.removed, "old object"));
    }
    if 0 < repaired.cut {
        words += &format!(", {} cut", human::count(repaired.cut, "leftover"));
    }
    words
}

/// Lines about compared and skipped checks.
fn compared(at_rest: &AtRest) -> Vec<String> {
    let blocks = |count: u64| human::count(usize::try_from(count).unwrap_or(usize::MAX), "block");
    let mut checked = format!("names against objects, lengths of {} objects", at_rest.compared);
    let mut not = Vec::new();
    if at_rest.compared < at_rest.objects {
        not.push(format!(
            "lengths of {} objects (their file system keeps no attributes)",
            at_rest.objects - at_rest.compared
        ));
    }
    match &at_rest.deep {
        None => not.push("stored bytes (--deep compares them where checksums = \"on\")".to_owned()),
        Some(deep) => {
            checked += &format!(
                ", {} against checksums: {} right, {} wrong",
                Size(deep.bytes).rounded(),
                blocks(deep.right),
                deep.wrong
            );
            if deep.unknown != 0 {
                not.push(format!(
                    "{} without a checksum (written when a process died)",
                    blocks(deep.unknown)
                ));
            }
            if deep.without != 0 {
                not.push("stored bytes (checksums = \"off\")".to_owned());
            }
        }
    }
    let not = if not.is_empty() { "nothing".to_owned() } else { not.join("; ") };
    vec![format!("checked: {checked}"), format!("not checked: {not}")]
}

/// One line about files without an object; `None` if there is none.
fn absent(absent: &[AbsentObject]) -> Option<String> {
    let files: HashSet<InodeId> = absent.iter().map(|absent| absent.inode).collect();
    let (have, their) = if files.len() == 1 { ("has", "its") } else { ("have", "their") };
    let shown = |absent: &AbsentObject| match &absent.path {
        Some(path) => format!("{} (server {})", path.display(), absent.server),
        None => format!("inode {} (server {})", absent.inode, absent.server),
    };
    let mut listed: Vec<String> = absent.iter().take(LISTED_MAX).map(shown).collect();
    listed.sort();
    if LISTED_MAX < absent.len() {
        listed.push(format!("and {} more", absent.len() - LISTED_MAX));
    }
    (!absent.is_empty()).then(|| {
        format!(
            "{} {have} no object on a server where {their} length has blocks: a hole, or a lost object: {}",
            human::count(files.len(), "file"),
            listed.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pario::core::ServerIndex;

    fn one(inode: u64, path: Option<&str>) -> AbsentObject {
        AbsentObject { server: ServerIndex(1), inode: InodeId(inode), bytes: 9, path: path.map(Into::into) }
    }

    #[test]
    fn the_line_counts_files_and_lists_some() {
        assert_eq!(absent(&[]), None);
        let text = absent(&[one(7, Some("/f"))]).unwrap();
        assert!(text.starts_with("1 file has no object on a server where its length has blocks"), "{text}");
        assert!(text.ends_with("a lost object: /f (server 1)"), "{text}");
        let many: Vec<AbsentObject> = (0..25).map(|inode| one(inode, None)).collect();
        let text = absent(&many).unwrap();
        assert!(text.starts_with("25 files have") && text.ends_with("and 5 more"), "{text}");
        assert_eq!(text.matches("(server 1)").count(), LISTED_MAX);
    }
}
