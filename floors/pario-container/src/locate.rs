//! From a path or an id to an object.
//!
//! Never: follows a link into another file; the caller opens it and goes on with the rest of the path.

use crate::error::{Result, TreeError};
use crate::header::Kind;
use crate::links::{LinkRow, LinkTable, LinkTarget};
use crate::names::LinkName;
use crate::node::{Home, Paths};
use crate::tree::{ROOT_ID, Tree};

/// Soft and external links followed on one path.
const LINKS_MAX: u32 = 16;

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// An object of this tree.
    Object(u64),
    /// Into another file.
    External {
        /// The file.
        file: LinkName,
        /// The path in it.
        path: LinkName,
    },
}

/// A path with its last name kept apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parent {
    Group { group: u64, name: LinkName },
    External { file: LinkName, path: LinkName },
}

impl Tree {
    /// The object at `path`, seen from `start`; every link is followed.
    pub fn find(&mut self, start: u64, path: &[u8]) -> Result<Found> {
        self.find_counted(start, path, &mut 0)
    }

    fn find_counted(&mut self, start: u64, path: &[u8], followed: &mut u32) -> Result<Found> {
        let mut at = if path.first() == Some(&b'/') { ROOT_ID } else { start };
        let names = parts(path);
        for (position, name) in names.iter().enumerate() {
            let row = self.link(at, name)?;
            at = match row.target {
                LinkTarget::Hard { id, shared } => self.enter(at, name, id, shared)?,
                LinkTarget::Soft(target) => {
                    count(followed, path)?;
                    match self.find_counted(at, &target.0, followed)? {
                        Found::Object(id) => id,
                        Found::External { file, path } => {
                            return Ok(Found::External { file, path: joined(&path, &names[position + 1..]) });
                        }
                    }
                }
                LinkTarget::External { file, path } => {
                    return Ok(Found::External { file, path: joined(&path, &names[position + 1..]) });
                }
                LinkTarget::User { class, .. } => {
                    let what = format!("following `{name}`, a user-defined link of class {class}");
                    return Err(TreeError::Unsupported(what));
                }
            };
        }
        Ok(Found::Object(at))
    }

    /// The group that holds, or would hold, the last name of `path`.
    pub(crate) fn find_parent(&mut self, start: u64, path: &[u8]) -> Result<Parent> {
        let names = parts(path);
        let Some((last, before)) = names.split_last() else {
            return Err(TreeError::Invalid(format!("`{}` names no link", String::from_utf8_lossy(path))));
        };
        let mut dir = if path.first() == Some(&b'/') { b"/".to_vec() } else { Vec::new() };
        dir.extend(joined(&LinkName::default(), before).0);
        match self.find(start, &dir)? {
            Found::Object(group) => {
                self.expect_kind(group, Kind::Group)?;
                Ok(Parent::Group { group, name: last.clone() })
            }
            Found::External { file, path } => {
                Ok(Parent::External { file, path: joined(&path, std::slice::from_ref(last)) })
            }
        }
    }

    /// The group and the last name of a path in this tree.
    pub fn split(&mut self, start: u64, path: &[u8]) -> Result<(u64, LinkName)> {
        match self.find_parent(start, path)? {
            Parent::Group { group, name } => Ok((group, name)),
            Parent::External { file, path } => {
                Err(TreeError::Unsupported(format!("changing links of another file (`{path}` in {file})")))
            }
        }
    }

    pub(crate) fn expect_kind(&self, id: u64, wanted: Kind) -> Result<()> {
        let is = self.node(id)?.header.kind();
        let name = || self.path_of(id).map_or_else(|| format!("object {id}"), |path| path.to_string());
        if is == wanted {
            return Ok(());
        }
        Err(TreeError::WrongKind { name: name(), is: is.word(), wanted: wanted.word() })
    }

    /// The link table of a group.
    pub(crate) fn table(&mut self, group: u64) -> Result<&mut LinkTable> {
        self.expect_kind(group, Kind::Group)?;
        if self.node(group)?.links.is_none() {
            let path = self.paths(group)?.links();
            let missing = || TreeError::Damaged {
                path: path.clone(),
                line: 1,
                cause: "the link table is missing".into(),
            };
            let table = LinkTable::load(&*self.place, &path)?.ok_or_else(missing)?;
            self.node_mut(group)?.links = Some(table);
        }
        Ok(self.node_mut(group)?.links.as_mut().expect("loaded above"))
    }

    /// The link `name` of a group.
    pub fn link(&mut self, group: u64, name: &LinkName) -> Result<LinkRow> {
        let found = self.table(group)?.get(name).cloned();
        found.ok_or_else(|| TreeError::NoObject(name.to_string()))
    }

    /// The links of a group in the order of their names.
    pub fn links(&mut self, group: u64) -> Result<Vec<LinkRow>> {
        Ok(self.table(group)?.rows().cloned().collect())
    }

    /// Number of links of a group.
    pub fn link_count(&mut self, group: u64) -> Result<u64> {
        Ok(crate::bytes::length(self.table(group)?.len()))
    }

    /// Number that the next link of a group gets.
    pub fn next_order(&mut self, group: u64) -> Result<u64> {
        Ok(self.table(group)?.next())
    }

    /// Loads the object behind a hard link.
    pub(crate) fn enter(&mut self, group: u64, name: &LinkName, id: u64, shared: bool) -> Result<u64> {
        if self.nodes.contains_key(&id) {
            return Ok(id);
        }
        let home = if shared { Home::Shared } else { Home::Named { parent: group, name: name.clone() } };
        let kind = Kind::Group;
        let as_group = match &home {
            Home::Named { .. } => Paths::named(self.paths(group)?.inside(), name, kind),
            Home::Shared | Home::Root => Paths::shared(id, kind),
        };
        let is_group = self.place.kind(&as_group.header())?.is_some();
        let kind = if is_group { Kind::Group } else { Kind::Dataset };
        self.load_node(id, home, Paths { kind, ..as_group })?;
        Ok(id)
    }

    /// The object with this id, wherever it is.
    pub fn find_id(&mut self, id: u64) -> Result<u64> {
        if self.nodes.contains_key(&id) {
            return Ok(id);
        }
        let mut groups = vec![ROOT_ID];
        let mut seen = std::collections::HashSet::from([ROOT_ID]);
        while let Some(group) = groups.pop() {
            for row in self.links(group)? {
                let LinkTarget::Hard { id: target, shared } = row.target else { continue };
                if !seen.insert(target) {
                    continue;
                }
                self.enter(group, &row.name, target, shared)?;
                if target == id {
                    return Ok(id);
                }
                if self.node(target)?.header.kind() == Kind::Group {
                    groups.push(target);
                }
            }
        }
        Err(TreeError::NoId(id))
    }

    /// A path to an object that lies in its parent's directory; `None` for objects with several names.
    pub fn path_of(&self, id: u64) -> Option<LinkName> {
        match &self.nodes.get(&id)?.home {
            Home::Root => Some(LinkName::from("/")),
            Home::Shared => None,
            Home::Named { parent, name } => {
                let mut path = self.path_of(*parent)?.0;
                if path != b"/" {
                    path.push(b'/');
                }
                path.extend(&name.0);
                Some(LinkName(path))
            }
        }
    }
}

/// The names of a path; `.` and empty names stand for the group itself.
pub(crate) fn parts(path: &[u8]) -> Vec<LinkName> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.map(|name| LinkName(name.to_vec())).collect()
}

fn joined(path: &LinkName, names: &[LinkName]) -> LinkName {
    let mut all = path.0.clone();
    for name in names {
        if !all.is_empty() && all.last() != Some(&b'/') {
            all.push(b'/');
        }
        all.extend(&name.0);
    }
    LinkName(all)
}

fn count(followed: &mut u32, path: &[u8]) -> Result<()> {
    *followed += 1;
    if *followed <= LINKS_MAX {
        return Ok(());
    }
    let path = String::from_utf8_lossy(path);
    Err(TreeError::Invalid(format!(
        "`{path}`: too many soft links, more than {LINKS_MAX}; they may form a circle"
    )))
}
