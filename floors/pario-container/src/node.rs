//! An object of an open tree: its home, its header, and what is open of it.

use crate::error::Result;
use crate::header::{DataLayout, Header, HeaderRecord, Kind};
use crate::heap::Heap;
use crate::links::LinkTable;
use crate::log::Log;
use crate::names::{LinkName, file_name};
use crate::place::Place;

/// Directory of objects with several names, or none.
pub(crate) const OBJECTS: &str = ".@objects";
/// Dead lines that a header may hold.
const DEAD_MAX: usize = 64;

/// Where the files of an object lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// The tree's own directory.
    Root,
    /// In the directory of its only parent.
    Named { parent: u64, name: LinkName },
    /// In `.@objects`, under its id.
    Shared,
}

/// Paths of an object's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paths {
    /// Directory that holds the object's files, with a final `/` unless it is the tree's.
    pub(crate) dir: String,
    /// File name of the object.
    pub(crate) leaf: String,
    pub(crate) kind: Kind,
}

impl Paths {
    pub(crate) fn shared(id: u64, kind: Kind) -> Paths {
        Paths { dir: format!("{OBJECTS}/"), leaf: id.to_string(), kind }
    }

    pub(crate) fn named(dir: String, name: &LinkName, kind: Kind) -> Paths {
        Paths { dir, leaf: file_name(name), kind }
    }

    /// The data file, or the directory of a group.
    pub(crate) fn main(&self) -> String {
        format!("{}{}", self.dir, self.leaf)
    }

    /// Directory of a group's own files, with a final `/` unless it is the tree's.
    pub(crate) fn inside(&self) -> String {
        if self.leaf.is_empty() { self.dir.clone() } else { format!("{}{}/", self.dir, self.leaf) }
    }

    pub(crate) fn header(&self) -> String {
        match self.kind {
            Kind::Group => format!("{}.@self", self.inside()),
            Kind::Dataset | Kind::Type => format!("{}.{}", self.dir, self.leaf),
        }
    }

    pub(crate) fn links(&self) -> String {
        format!("{}.@links", self.inside())
    }

    /// A part that only some objects have, such as the heap.
    pub(crate) fn part(&self, part: &str) -> String {
        match self.kind {
            Kind::Group => format!("{}.@{part}", self.inside()),
            Kind::Dataset | Kind::Type => format!("{}.{}@{part}", self.dir, self.leaf),
        }
    }

    /// All files of the object that are not inside its directory, data first.
    pub(crate) fn all(&self) -> Vec<String> {
        match self.kind {
            Kind::Group => vec![self.main()],
            Kind::Dataset | Kind::Type => {
                vec![self.main(), self.part("chunks"), self.part("heap"), self.header()]
            }
        }
    }
}

/// An object of an open tree.
#[derive(Debug)]
pub(crate) struct TreeNode {
    pub(crate) home: Home,
    pub(crate) header: Header,
    pub(crate) log: Log,
    /// The links of a group, once needed.
    pub(crate) links: Option<LinkTable>,
    pub(crate) heap: Option<Heap>,
    pub(crate) data: Option<crate::data::OpenData>,
    /// Handles of the user.
    pub(crate) opened: u32,
}

impl TreeNode {
    pub(crate) fn new(home: Home, header: Header, log: Log) -> TreeNode {
        TreeNode { home, header, log, links: None, heap: None, data: None, opened: 0 }
    }

    /// Appends and applies a change of the header.
    pub(crate) fn commit(&mut self, place: &dyn Place, record: HeaderRecord) -> Result<()> {
        self.log.append(place, &record)?;
        self.header.apply(record);
        if self.log.records > self.header.attributes.len() * 2 + DEAD_MAX {
            self.log.rewrite(place, &[HeaderRecord::Object(Box::new(self.header.clone()))])?;
        }
        Ok(())
    }

    /// Closes all files; nothing is held back. They are opened again when needed.
    pub(crate) fn close(&mut self) {
        self.log.close();
        self.data = None;
        self.heap = None;
        if let Some(links) = &mut self.links {
            links.log_mut().close();
        }
    }

    /// The files of an object that is no group were renamed.
    pub(crate) fn renamed(&mut self, paths: &Paths) {
        self.log.renamed(paths.header());
        self.heap = None;
        let contiguous = |dataset: &crate::header::Dataset| dataset.layout == DataLayout::Contiguous;
        if !self.header.dataset().is_some_and(contiguous) {
            self.data = None;
        }
    }

    /// The object's files were renamed.
    pub(crate) fn moved(&mut self, paths: &Paths) {
        self.log.moved(paths.header());
        if let Some(links) = &mut self.links {
            links.log_mut().moved(paths.links());
        }
        self.heap = None;
        self.data = None;
    }
}
