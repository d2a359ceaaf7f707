//! Changes of links: second names, soft and external links, moves, removal.
//!
//! Always: a change of several files goes through the journal; removing a name commits with one line.

use crate::error::{Result, TreeError};
use crate::header::{HeaderRecord, Kind};
use crate::journal::{self, JournalStep};
use crate::links::{LinkRecord, LinkRow, LinkTarget, NewLink};
use crate::names::{LinkName, file_name};
use crate::node::{Home, Paths};
use crate::tree::{ROOT_ID, Tree};

impl Tree {
    /// Adds a soft, external or user-defined link.
    pub fn link_other(&mut self, at: NewLink<'_>, target: LinkTarget) -> Result<()> {
        let NewLink { group, name, utf8 } = at;
        self.writable()?;
        self.expect_free(group, name)?;
        self.put_link(group, LinkRow { name: name.clone(), target, order: 0, utf8 })
    }

    fn expect_free(&mut self, group: u64, name: &LinkName) -> Result<()> {
        match self.table(group)?.get(name) {
            Some(_) => Err(TreeError::Exists(name.to_string())),
            None => Ok(()),
        }
    }

    /// Adds a hard link. An object with its second name moves to `.@objects`, its names become symbolic links.
    pub fn link_hard(&mut self, at: NewLink<'_>, id: u64) -> Result<()> {
        let NewLink { group, name, utf8 } = at;
        self.writable()?;
        self.expect_free(group, name)?;
        if id == ROOT_ID {
            return Err(TreeError::Unsupported("a second name for the root group".into()));
        }
        if self.node(id)?.header.links == 0 && !self.is_inside(group, id)? {
            return self.name_first(NewLink { group, name, utf8 }, id);
        }
        let mut steps = self.share_steps(id)?;
        let shared = Paths::shared(id, self.node(id)?.header.kind());
        let links = self.node(id)?.header.links + 1;
        steps.push(JournalStep::Header { id, path: shared.header(), record: HeaderRecord::Links(links) });
        let row = LinkRow {
            name: name.clone(),
            target: LinkTarget::Hard { id, shared: true },
            order: self.table(group)?.next(),
            utf8,
        };
        let inside = self.inside_after_sharing(group, id)?;
        steps.push(JournalStep::Link {
            group,
            table: format!("{inside}.@links"),
            record: LinkRecord::Put(row),
        });
        steps.push(symlink(&inside, name, &shared));
        self.carry_out(&steps, Some((id, Home::Shared)))
    }

    /// Gives an object its first name: its files move to the group's directory.
    fn name_first(&mut self, at: NewLink<'_>, id: u64) -> Result<()> {
        let NewLink { group, name, utf8 } = at;
        let (from, inside) = (self.paths(id)?, self.paths(group)?.inside());
        let to = Paths::named(inside.clone(), name, from.kind);
        self.clear(&to)?;
        if from.kind != Kind::Group {
            return self.name_unlinked(at, id, &from, &to);
        }
        let mut steps = renames(&from, &to);
        steps.push(JournalStep::Header { id, path: to.header(), record: HeaderRecord::Links(1) });
        let row = LinkRow {
            name: name.clone(),
            target: LinkTarget::Hard { id, shared: false },
            order: self.table(group)?.next(),
            utf8,
        };
        steps.push(JournalStep::Link {
            group,
            table: format!("{inside}.@links"),
            record: LinkRecord::Put(row),
        });
        self.carry_out(&steps, Some((id, Home::Named { parent: group, name: name.clone() })))
    }

    /// Gives a dataset or datatype its first name, without a journal: until the line of the link table is written, the object
    /// is a leftover wherever its files lie. The header moves first, since files beside it are removed with it.
    fn name_unlinked(&mut self, at: NewLink<'_>, id: u64, from: &Paths, to: &Paths) -> Result<()> {
        let NewLink { group, name, utf8 } = at;
        let place = self.place.clone();
        self.flush_object(id)?;
        let files: Vec<(String, String)> = from.all().into_iter().zip(to.all()).rev().collect();
        let target = LinkTarget::Hard { id, shared: false };
        let named = files
            .iter()
            .try_for_each(|(from, to)| journal::rename(&*place, from, to))
            .and_then(|()| {
                self.node_mut(id)?.renamed(to);
                self.commit_header(id, HeaderRecord::Links(1))
            })
            .and_then(|()| self.put_link(group, LinkRow { name: name.clone(), target, order: 0, utf8 }));
        let node = self.node_mut(id)?;
        if named.is_ok() {
            node.home = Home::Named { parent: group, name: name.clone() };
            return Ok(());
        }
        // The object goes on without a name; what cannot be moved back is removed by the next writer.
        node.renamed(from);
        node.header.links = 0;
        for (from, to) in &files {
            let _ = journal::rename(&*place, to, from);
        }
        named
    }

    /// Directory of `group` after `id`, the group itself or one above it, has moved to `.@objects`.
    fn inside_after_sharing(&self, group: u64, id: u64) -> Result<String> {
        if group == id {
            return Ok(Paths::shared(id, Kind::Group).inside());
        }
        match &self.node(group)?.home {
            Home::Named { parent, name } => {
                Ok(Paths::named(self.inside_after_sharing(*parent, id)?, name, Kind::Group).inside())
            }
            Home::Root | Home::Shared => Ok(self.paths(group)?.inside()),
        }
    }

    /// Steps that move an object's files to `.@objects`; none if they are there.
    fn share_steps(&mut self, id: u64) -> Result<Vec<JournalStep>> {
        let Home::Named { parent, name } = self.node(id)?.home.clone() else { return Ok(Vec::new()) };
        let (from, to) = (self.paths(id)?, Paths::shared(id, self.node(id)?.header.kind()));
        let mut steps = renames(&from, &to);
        let mut row = self.link(parent, &name)?;
        row.target = LinkTarget::Hard { id, shared: true };
        let inside = self.paths(parent)?.inside();
        steps.push(JournalStep::Link {
            group: parent,
            table: format!("{inside}.@links"),
            record: LinkRecord::Put(row),
        });
        steps.push(symlink(&inside, &name, &to));
        Ok(steps)
    }

    /// Moves a link, to another group or name.
    pub fn move_link(&mut self, from: (u64, &LinkName), to: (u64, &LinkName)) -> Result<()> {
        self.writable()?;
        let row = self.link(from.0, from.1)?;
        if from == to {
            return Ok(());
        }
        self.expect_free(to.0, to.1)?;
        let mut moved = LinkRow { name: to.1.clone(), order: self.table(to.0)?.next(), ..row.clone() };
        let (here, there) = (self.paths(from.0)?.inside(), self.paths(to.0)?.inside());
        let mut steps = Vec::new();
        let mut home = None;
        match row.target {
            LinkTarget::Hard { id, shared: false } => {
                self.enter(from.0, from.1, id, false)?;
                if self.is_inside(to.0, id)? {
                    // A group that becomes its own descendant is reachable no more by any name; as native HDF5 does it.
                    return Err(TreeError::Invalid(format!("`{}` cannot move into itself", from.1)));
                }
                let kind = self.node(id)?.header.kind();
                steps = renames(&self.paths(id)?, &Paths::named(there.clone(), to.1, kind));
                home = Some((id, Home::Named { parent: to.0, name: to.1.clone() }));
            }
            LinkTarget::Hard { id, shared: true } => {
                self.enter(from.0, from.1, id, true)?;
                let shared = Paths::shared(id, self.node(id)?.header.kind());
                steps.push(JournalStep::RemoveFile(format!("{here}{}", file_name(from.1))));
                steps.push(symlink(&there, to.1, &shared));
            }
            LinkTarget::Soft(_) | LinkTarget::External { .. } | LinkTarget::User { .. } => (),
        }
        if from.0 == to.0 {
            moved.order = row.order;
        }
        steps.push(JournalStep::Link {
            group: to.0,
            table: format!("{there}.@links"),
            record: LinkRecord::Put(moved),
        });
        let record = LinkRecord::Drop(from.1.clone());
        steps.push(JournalStep::Link { group: from.0, table: format!("{here}.@links"), record });
        self.carry_out(&steps, home)
    }

    /// Whether `inner` is `outer` or lies in its directory.
    fn is_inside(&self, inner: u64, outer: u64) -> Result<bool> {
        if inner == outer {
            return Ok(true);
        }
        match &self.node(inner)?.home {
            Home::Named { parent, .. } => self.is_inside(*parent, outer),
            Home::Root | Home::Shared => Ok(false),
        }
    }

    fn carry_out(&mut self, steps: &[JournalStep], home: Option<(u64, Home)>) -> Result<()> {
        let place = self.place.clone();
        if let Some((id, _)) = &home {
            self.flush_inside(*id)?;
        }
        journal::begin(&*place, steps)?;
        for step in steps {
            match step {
                JournalStep::Rename { from, to } => journal::rename(&*place, from, to)?,
                JournalStep::Link { group, record, .. } => {
                    self.table(*group)?.commit(&*place, record.clone())?
                }
                JournalStep::Header { id, record, .. } => {
                    self.node_mut(*id)?.commit(&*place, record.clone())?
                }
                JournalStep::Symlink { target, path } => place.symlink(target, path)?,
                JournalStep::RemoveFile(path) => place.remove_file(path)?,
            }
            // Logs and data of the moved object are opened anew under their new names.
            if let (JournalStep::Rename { .. }, Some((id, home))) = (step, &home)
                && self.node(*id)?.home != *home
            {
                self.node_mut(*id)?.home = home.clone();
                self.moved_inside(*id)?;
            }
        }
        journal::end(&*place)
    }

    /// Objects with files in the directory of `id`, itself included.
    fn inhabitants(&self, id: u64) -> Vec<u64> {
        // Nothing lies inside a dataset; a search through all objects would make many creations slow.
        if self.nodes.get(&id).is_some_and(|node| node.header.kind() != Kind::Group) {
            return vec![id];
        }
        let inside = |node: &&u64| self.is_inside(**node, id).unwrap_or(false);
        self.nodes.keys().filter(inside).copied().collect()
    }

    fn flush_inside(&mut self, id: u64) -> Result<()> {
        self.inhabitants(id).into_iter().try_for_each(|one| self.flush_object(one))
    }

    fn moved_inside(&mut self, id: u64) -> Result<()> {
        for one in self.inhabitants(id) {
            let paths = self.paths(one)?;
            self.node_mut(one)?.moved(&paths);
        }
        Ok(())
    }

    /// Removes a link; an object ends with its last link and its last handle.
    pub fn remove_link(&mut self, group: u64, name: &LinkName) -> Result<()> {
        self.writable()?;
        let row = self.link(group, name)?;
        let LinkTarget::Hard { id, shared } = row.target else {
            return self.drop_row(group, name);
        };
        self.enter(group, name, id, shared)?;
        if !shared {
            self.rescue(id)?;
        }
        let Home::Shared = self.node(id)?.home else {
            self.drop_row(group, name)?;
            return self.remove_object(id);
        };
        let links = self.node(id)?.header.links.saturating_sub(1);
        let inside = self.paths(group)?.inside();
        let steps = [
            JournalStep::Link {
                group,
                table: format!("{inside}.@links"),
                record: LinkRecord::Drop(name.clone()),
            },
            JournalStep::Header { id, path: self.paths(id)?.header(), record: HeaderRecord::Links(links) },
            JournalStep::RemoveFile(format!("{inside}{}", file_name(name))),
        ];
        self.carry_out(&steps, None)?;
        if links == 0 && self.node(id)?.opened == 0 { self.remove_object(id) } else { Ok(()) }
    }

    fn drop_row(&mut self, group: u64, name: &LinkName) -> Result<()> {
        let place = self.place.clone();
        self.table(group)?.commit(&*place, LinkRecord::Drop(name.clone()))
    }

    /// Moves an object with handles, and such objects inside it, out of a directory that is about to be removed.
    fn rescue(&mut self, id: u64) -> Result<()> {
        for one in self.inhabitants(id) {
            if self.node(one)?.opened > 0 && matches!(self.node(one)?.home, Home::Named { .. }) {
                let steps = self.share_steps(one)?;
                self.carry_out(&steps, Some((one, Home::Shared)))?;
            }
        }
        Ok(())
    }

    /// Removes the files of an object without links, and the links of a group.
    pub(crate) fn remove_object(&mut self, id: u64) -> Result<()> {
        if self.node(id)?.header.kind() == Kind::Group {
            for row in self.links(id)? {
                self.remove_link(id, &row.name)?;
            }
        }
        let paths = self.paths(id)?;
        self.nodes.remove(&id);
        match paths.kind {
            Kind::Group => self.place.remove_tree(&paths.main()),
            // The header last: a file is recognised as a leftover by the header beside it.
            Kind::Dataset | Kind::Type => {
                paths.all().iter().try_for_each(|path| self.place.remove_file(path))
            }
        }
    }
}

fn renames(from: &Paths, to: &Paths) -> Vec<JournalStep> {
    let pairs = from.all().into_iter().zip(to.all());
    pairs.map(|(from, to)| JournalStep::Rename { from, to }).collect()
}

/// A name that a listing of the directory shows; the link table is what counts.
fn symlink(inside: &str, name: &LinkName, shared: &Paths) -> JournalStep {
    let up = "../".repeat(inside.matches('/').count());
    JournalStep::Symlink {
        target: format!("{up}{}", shared.main()),
        path: format!("{inside}{}", file_name(name)),
    }
}
