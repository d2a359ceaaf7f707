//! Verification of a tree, and repair.
//!
//! Never: removes a file that is not the tree's own. Always: a finding names file or object and says what repair does.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;

use crate::error::{Result, TreeError};
use crate::header::{DataLayout, HeaderRecord, Kind};
use crate::journal;
use crate::links::{LinkRecord, LinkTarget};
use crate::log::Log;
use crate::place::Place;
use crate::sweep;
use crate::tree::{OPEN, ROOT_ID, Tree, TreeAccess};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// File or object.
    pub path: String,
    /// What is wrong.
    pub cause: String,
    /// It was repaired.
    pub repaired: bool,
}

/// What was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Objects verified.
    pub objects: u64,
    /// Stored chunks verified.
    pub chunks: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Verifies a tree; repairs it if asked to.
pub fn check(place: Arc<dyn Place>, repair: bool) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let unclean = place.kind(OPEN)?.is_some();
    if place.kind(journal::JOURNAL)?.is_some() && !repair {
        report.add(journal::JOURNAL, "a killed writer left a change unfinished; repair finishes it", false);
        return Ok(report);
    }
    if repair {
        salvage_logs(&place, "", &mut report)?;
    }
    let mut tree = Tree::open(place, TreeAccess { write: repair, lock: true })?;
    let mut walk = CheckWalk { links: HashMap::new(), groups: vec![ROOT_ID], seen: HashSet::from([ROOT_ID]) };
    while let Some(group) = walk.groups.pop() {
        check_group(&mut tree, group, (&mut walk, repair), &mut report)?;
    }
    check_counts(&mut tree, &walk.links, repair, &mut report)?;
    if !repair {
        let cause = if unclean { "left by a killed writer" } else { "belongs to no object" };
        for path in sweep::leftovers(&mut tree).unwrap_or_default() {
            report.add(&path, &format!("{cause}; repair removes it"), false);
        }
        return Ok(report);
    }
    for path in sweep::leftovers(&mut tree)? {
        report.add(&path, "belongs to no object", true);
    }
    sweep::remove_leftovers(&mut tree)?;
    tree.close()?;
    Ok(report)
}

impl CheckReport {
    fn add(&mut self, path: &str, cause: &str, repaired: bool) {
        self.findings.push(Finding { path: path.into(), cause: cause.into(), repaired });
    }
}

struct CheckWalk {
    /// Hard links seen, by object.
    links: HashMap<u64, u32>,
    groups: Vec<u64>,
    seen: HashSet<u64>,
}

fn check_group(
    tree: &mut Tree,
    group: u64,
    (walk, repair): (&mut CheckWalk, bool),
    report: &mut CheckReport,
) -> Result<()> {
    report.objects += 1;
    let rows = match tree.links(group) {
        Ok(rows) => rows,
        Err(error @ TreeError::Damaged { .. }) => {
            report.add(&tree.paths(group)?.links(), &error.to_string(), false);
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for row in rows {
        let LinkTarget::Hard { id, shared } = row.target else { continue };
        *walk.links.entry(id).or_default() += 1;
        if !walk.seen.insert(id) {
            continue;
        }
        match tree.enter(group, &row.name, id, shared) {
            Ok(_) if tree.node(id)?.header.kind() == Kind::Group => walk.groups.push(id),
            Ok(_) => {
                report.objects += 1;
                check_data(tree, id, report)?;
            }
            Err(error @ TreeError::Damaged { .. }) => {
                let path = tree.path_of(group).map(|path| path.to_string()).unwrap_or_default();
                if repair {
                    let place = tree.place.clone();
                    tree.table(group)?.commit(&*place, LinkRecord::Drop(row.name.clone()))?;
                }
                report.add(
                    &format!("{path}/{}", row.name),
                    &format!("{error}; repair removes the link"),
                    repair,
                );
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn check_data(tree: &mut Tree, id: u64, report: &mut CheckReport) -> Result<()> {
    let Some(dataset) = tree.header(id)?.dataset().cloned() else { return Ok(()) };
    let path = tree.paths(id)?.main();
    if dataset.layout == DataLayout::Contiguous {
        let written = dataset.fill.is_none() || dataset.allocated;
        let size = tree.place.read_size(&path)?;
        if written && size != Some(dataset.bytes()) {
            let cause = format!(
                "{} bytes of data expected, {} found; restore the file from a copy",
                dataset.bytes(),
                size.map_or("no file".into(), |size| size.to_string())
            );
            report.add(&path, &cause, false);
        }
        return Ok(());
    }
    let places = match tree.chunk_places(id) {
        Ok(places) => places,
        Err(error) => {
            report.add(&path, &error.to_string(), false);
            return Ok(());
        }
    };
    if matches!(dataset.layout, DataLayout::Indexed { .. }) {
        for (at, place) in places {
            report.chunks += 1;
            if let Err(error) = tree.stored_chunk(id, &at, place) {
                report.add(&path, &error.to_string(), false);
            }
        }
    }
    Ok(())
}

fn check_counts(
    tree: &mut Tree,
    links: &HashMap<u64, u32>,
    repair: bool,
    report: &mut CheckReport,
) -> Result<()> {
    for (id, count) in links {
        let Ok(header) = tree.header(*id) else { continue };
        if header.links == *count {
            continue;
        }
        // More than there are: an object kept by its reference count, or a link that a repair removed.
        let cause =
            format!("its header counts {} links, {count} exist; repair corrects the count", header.links);
        let path = tree.paths(*id)?.header();
        if repair {
            tree.commit_header(*id, HeaderRecord::Links(*count))?;
        }
        report.add(&path, &cause, repair);
    }
    Ok(())
}

/// Rewrites damaged logs with the lines that are intact.
fn salvage_logs(place: &Arc<dyn Place>, dir: &str, report: &mut CheckReport) -> Result<()> {
    for (name, kind) in place.list(dir.trim_end_matches('/'))? {
        let path = format!("{dir}{name}");
        match kind {
            crate::PlaceEntry::Directory => salvage_logs(place, &format!("{path}/"), report)?,
            crate::PlaceEntry::File if name.starts_with('.') && is_log(&**place, &path)? => {
                let (records, damaged) = Log::salvage::<serde_json::Value>(&**place, &path)?;
                let torn_only = Log::load::<serde_json::Value>(&**place, &path).is_ok();
                if !damaged.is_empty() && !torn_only && !records.is_empty() {
                    let cleaned: Vec<serde_json::Value> = records;
                    Log::create(&**place, &path, &cleaned)?;
                    report.add(&path, &format!("lines {damaged:?} are damaged and were removed"), true);
                }
            }
            crate::PlaceEntry::File | crate::PlaceEntry::Symlink | crate::PlaceEntry::Other => (),
        }
    }
    Ok(())
}

fn is_log(place: &dyn Place, path: &str) -> Result<bool> {
    Ok(place.read(path)?.is_some_and(|bytes| bytes.starts_with(b"{\"crc\":\"")))
}

impl dyn Place {
    fn read_size(&self, path: &str) -> Result<Option<u64>> {
        if self.kind(path)?.is_none() {
            return Ok(None);
        }
        self.open(path, false)?.size().map(Some)
    }
}
