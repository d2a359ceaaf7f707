//! The link table of a group: names and what they lead to. Stored as a log; layout: docs/formats/hdf5-tree.md.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bytes::Hex;
use crate::error::Result;
use crate::log::Log;
use crate::names::LinkName;
use crate::place::Place;

/// Dead lines that a table may hold beyond the live ones.
const DEAD_MAX: usize = 256;

/// What a link leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkTarget {
    /// An object of this tree.
    Hard {
        /// Its id.
        id: u64,
        /// It lies in `.@objects`, not in this group's directory.
        #[serde(default)]
        shared: bool,
    },
    /// A path in this tree.
    Soft(LinkName),
    /// A path in another file.
    External {
        /// The file.
        file: LinkName,
        /// The path in it.
        path: LinkName,
    },
    /// A link of the program's own class.
    User {
        /// Number of the class.
        class: i32,
        /// The program's data.
        data: Hex,
    },
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRow {
    /// Its name.
    pub name: LinkName,
    /// What it leads to.
    pub target: LinkTarget,
    /// Number in the order of creation.
    pub order: u64,
    /// The name is UTF-8.
    pub utf8: bool,
}

/// Group and name of a new link.
#[derive(Clone, Copy, Debug)]
pub struct NewLink<'a> {
    /// The group.
    pub group: u64,
    /// The name.
    pub name: &'a LinkName,
    /// The name is UTF-8.
    pub utf8: bool,
}

/// A line of a link table.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LinkRecord {
    /// Number of the next link.
    Next(u64),
    /// A link; it replaces one of the same name.
    Put(LinkRow),
    /// A link is gone.
    Drop(LinkName),
}

/// The links of a group.
#[derive(Debug)]
pub(crate) struct LinkTable {
    log: Log,
    rows: BTreeMap<LinkName, LinkRow>,
    next: u64,
}

impl LinkTable {
    pub(crate) fn create(place: &dyn Place, path: &str) -> Result<LinkTable> {
        let log = Log::create(place, path, &[LinkRecord::Next(0)])?;
        Ok(LinkTable { log, rows: BTreeMap::new(), next: 0 })
    }

    /// The table of a group that has no link yet.
    pub(crate) fn create_unlinked(place: &dyn Place, path: &str) -> Result<LinkTable> {
        let log = Log::create_unlinked(place, path, &[LinkRecord::Next(0)])?;
        Ok(LinkTable { log, rows: BTreeMap::new(), next: 0 })
    }

    pub(crate) fn load(place: &dyn Place, path: &str) -> Result<Option<LinkTable>> {
        let Some((log, records)) = Log::load(place, path)? else { return Ok(None) };
        let mut table = LinkTable { log, rows: BTreeMap::new(), next: 0 };
        records.into_iter().for_each(|record| table.apply(record));
        Ok(Some(table))
    }

    fn apply(&mut self, record: LinkRecord) {
        match record {
            LinkRecord::Next(next) => self.next = self.next.max(next),
            LinkRecord::Put(row) => {
                self.next = self.next.max(row.order + 1);
                self.rows.insert(row.name.clone(), row);
            }
            LinkRecord::Drop(name) => {
                self.rows.remove(&name);
            }
        }
    }

    /// Appends and applies a record; the commit of a change.
    pub(crate) fn commit(&mut self, place: &dyn Place, record: LinkRecord) -> Result<()> {
        self.log.append(place, &record)?;
        self.apply(record);
        if self.log.records > self.rows.len() * 2 + DEAD_MAX {
            self.log.rewrite(place, &self.snapshot())?;
        }
        Ok(())
    }

    pub(crate) fn snapshot(&self) -> Vec<LinkRecord> {
        let rows = self.rows.values().cloned().map(LinkRecord::Put);
        std::iter::once(LinkRecord::Next(self.next)).chain(rows).collect()
    }

    pub(crate) fn get(&self, name: &LinkName) -> Option<&LinkRow> {
        self.rows.get(name)
    }

    /// Rows in the order of their names.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &LinkRow> {
        self.rows.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }
}
