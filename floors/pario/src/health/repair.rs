//! Repair of a partition: a plan that can be printed, then its steps.
//!
//! Never: deletes an object that a file may claim after its name is restored: orphans are moved to `lost+found` of their
//! server. Always: checks again before each step; refuses as a whole if more than a tenth of the objects would be moved, since
//! then names are lost rather than objects.

use serde_json::Value;

use super::questions::{self, named};
use super::watch::check_stopped;
use super::{Examination, FoundObject, HealthProblem, Watch};
use crate::handle::Partition;
use crate::transfer::{TransferError, TransferResult};

/// One in this many objects may be moved without `--force`.
const GOING_SHARE: u64 = 10;

/// Extent of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepairExtent {
    /// No change if more than a tenth of the objects would be moved.
    Careful,
    /// Any number of objects.
    Force,
}

/// Result of a repair.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Repaired {
    /// Orphans that were moved, and where to.
    pub moved: Vec<String>,
    /// Objects from before a truncation that were removed.
    pub removed: usize,
    /// Leftovers of unfinished writes that were cut.
    pub cut: usize,
}

/// One step of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RepairStep {
    SetAside(FoundObject),
    Remove(FoundObject),
    Cut { found: FoundObject, keep: u64 },
}

impl RepairStep {
    fn of(problem: &HealthProblem) -> Option<RepairStep> {
        match problem {
            HealthProblem::Orphan(found) => Some(RepairStep::SetAside(*found)),
            HealthProblem::Old { found, .. } => Some(RepairStep::Remove(*found)),
            HealthProblem::Leftover { found, keep, .. } => {
                Some(RepairStep::Cut { found: *found, keep: *keep })
            }
            HealthProblem::Unreachable { .. } | HealthProblem::New { .. } | HealthProblem::Misplaced(_) => {
                None
            }
        }
    }

    fn removes_object(self) -> bool {
        !matches!(self, RepairStep::Cut { .. })
    }

    fn describe(self) -> String {
        match self {
            RepairStep::SetAside(found) => {
                format!("{found}: move to lost+found of its server, no file claims it")
            }
            RepairStep::Remove(found) => format!("{found}: remove, it is left from before a truncation"),
            RepairStep::Cut { found, keep } => {
                format!("{found}: cut to {keep} bytes, the rest is of an unfinished write")
            }
        }
    }
}

/// Steps of a repair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RepairPlan {
    steps: Vec<RepairStep>,
}

impl RepairPlan {
    /// Steps for the problems of an examination.
    #[must_use]
    pub fn of(examination: &Examination) -> RepairPlan {
        let all = examination.problems.iter().chain(&examination.leftovers);
        RepairPlan { steps: all.filter_map(RepairStep::of).collect() }
    }

    /// One line for each step.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.steps.iter().map(|step| step.describe()).collect()
    }
}

/// Runs the plan; removes solved problems from the examination.
pub fn repair(
    partition: &Partition,
    examination: &mut Examination,
    extent: RepairExtent,
    watch: &dyn Watch,
) -> TransferResult<Repaired> {
    let going = RepairPlan::of(examination).steps.iter().filter(|step| step.removes_object()).count() as u64;
    if extent != RepairExtent::Force && examination.objects < going * GOING_SHARE {
        return Err(refusal(partition.name(), going, examination.objects));
    }
    let mut repaired = Repaired::default();
    let busy = open_files(partition)?;
    let problems = std::mem::take(&mut examination.problems);
    for problem in problems.into_iter().chain(std::mem::take(&mut examination.leftovers)) {
        check_stopped(watch)?;
        let Some(step) = RepairStep::of(&problem) else {
            examination.add(problem);
            continue;
        };
        if let Err(error) = carry_out(partition, step, busy, &mut repaired) {
            watch.failed(error);
            examination.add(problem);
        }
    }
    Ok(repaired)
}

/// Files that clients have open, as the manager counts.
fn open_files(partition: &Partition) -> TransferResult<u64> {
    let report = named(partition, questions::manager_report(partition))?;
    // Without a count, all files count as open.
    Ok(report.pointer("/manager/open_files").and_then(Value::as_u64).unwrap_or(u64::MAX))
}

fn refusal(name: &str, going: u64, objects: u64) -> TransferError {
    let text = format!(
        "{name}: {going} of {objects} objects are claimed by no file: more than a tenth, so names are missing rather than objects too many; nothing was changed"
    );
    let cure = format!(
        "`pario doctor {name} --names import FILE` brings names back; `--repair --force` moves the objects to lost+found all the same"
    );
    TransferError::with_cure(text, cure)
}

fn carry_out(partition: &Partition, step: RepairStep, busy: u64, repaired: &mut Repaired) -> TransferResult {
    match step {
        RepairStep::SetAside(found) => {
            check(partition, found, busy)?;
            let path = named(partition, questions::set_aside(partition, found.server, found.object))?;
            repaired.moved.push(path);
        }
        RepairStep::Remove(found) => {
            check(partition, found, busy)?;
            named(partition, questions::remove_orphan(partition, found.server, found.object))?;
            repaired.removed += 1;
        }
        RepairStep::Cut { found, keep } => {
            let now = named(partition, questions::inode(partition, found.object.inode))?;
            let same = now.is_some_and(|attr| {
                attr.generation == found.object.generation
                    && attr.layout.local_length(found.server, attr.size) == keep
            });
            if busy != 0 || !same {
                return Err(in_use(partition, found, busy));
            }
            named(partition, questions::cut_leftover(partition, found, keep))?;
            repaired.cut += 1;
        }
    }
    Ok(())
}

/// Whether the object may be moved: a removed open file looks like an orphan.
fn check(partition: &Partition, found: FoundObject, busy: u64) -> TransferResult {
    let FoundObject { server, object, .. } = found;
    match named(partition, questions::inode(partition, object.inode))? {
        None if busy != 0 => Err(in_use(partition, found, busy)),
        Some(attr) if attr.generation <= object.generation => {
            let text = format!("{}: object {object} on server {server} is in use by now", partition.name());
            Err(TransferError::refused(text))
        }
        None | Some(_) => Ok(()),
    }
}

fn in_use(partition: &Partition, found: FoundObject, busy: u64) -> TransferError {
    let FoundObject { server, object, .. } = found;
    let text = format!("{}: object {object} on server {server} is left as it is", partition.name());
    let files = if busy == 1 { "file" } else { "files" };
    TransferError::with_cure(text, format!("{busy} {files} open: repeat when no program uses the partition"))
}
