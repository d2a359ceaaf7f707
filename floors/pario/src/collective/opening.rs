//! Collective open: members of a group obtain the same open file. One exchange compares the arguments, one follows each member's
//! open, and one more if the file had to be created.
//!
//! Never: lets two members continue with different files of one name. Always: only rank 0 creates or truncates; a member that
//! opened too early retries.

use std::path::Path;
use std::sync::Arc;

use pario_core::{Code, Fault};

use super::file::GroupFile;
use super::hints::Hints;
use super::report;
use crate::client::{File, OpenOptions};
use crate::error::{Error, Result};
use crate::group::{CollectiveCall, Group};

impl OpenOptions {
    /// Opens a file together with all other members of `group`; all must pass the same arguments.
    pub fn open_all(
        &self,
        group: &Arc<dyn Group>,
        path: impl AsRef<Path>,
        hints: &Hints,
    ) -> Result<GroupFile> {
        let path = path.as_ref();
        let wish = self.argument_bytes(path, hints);
        let (own, _) = group.duplicate_if(&[("the path, mode and hints of a file", &wish)], Ok(&[]))?;
        self.open_agreed(own, path, hints, &mut || Ok(()))
    }

    /// [`OpenOptions::open_all`] for members that have agreed on the arguments, with a group that is used for nothing else.
    /// `also` is further work of a member: it runs after its open and before the others continue, and its error is returned on
    /// all members.
    pub fn open_agreed(
        &self,
        group: Arc<dyn Group>,
        path: impl AsRef<Path>,
        hints: &Hints,
        also: &mut dyn FnMut() -> Result<()>,
    ) -> Result<GroupFile> {
        let mut options = self.clone();
        if let Some(server) = hints.tied_server {
            let tied = options.tied_to(server);
            group.agree(tied.as_ref().map(|_| ()).map_err(Clone::clone))?;
            options = tied?;
        }
        if let Some(bytes) = hints.stripe_bytes {
            options = options.stripe_bytes(bytes);
        }
        if let Some(count) = hints.stripe_count {
            options = options.stripe_count(count);
        }
        let (file, facts) = open(&*group, &options, path.as_ref(), also)?;
        let here = group.node_of(group.rank());
        let near = (0..group.size()).filter(|rank| group.node_of(*rank) == here).count();
        file.join_group(group.rank(), near, group.size());
        GroupFile::with_facts(group, (file, facts), hints, None)
    }

    /// The arguments that must be equal on all members, as bytes.
    fn argument_bytes(&self, path: &Path, hints: &Hints) -> Vec<u8> {
        [self.to_bytes(path), hints.to_bytes()].concat()
    }
}

/// Opens the file on all members. If it exists, no member waits for rank 0.
fn open(
    group: &dyn Group,
    options: &OpenOptions,
    path: &Path,
    also: &mut dyn FnMut() -> Result<()>,
) -> Result<(File, GroupFacts)> {
    let found = options.clone().create(false).create_new(false).truncate(false);
    let with_all = |file: File, also: &mut dyn FnMut() -> Result<()>| also().map(|()| Some(file));
    let mut mine = report::check().and_then(|()| match group.rank() {
        0 => options.open(path).and_then(|file| with_all(file, also)),
        _ if options.creates_or_truncates() => Ok(None),
        _ => match found.open(path) {
            Err(error) if error.code() == Code::NotFound && options.creates() => Ok(None),
            other => other.and_then(|file| with_all(file, also)),
        },
    });
    let all = OpenReport::exchange(group, &mine)?;
    if let Some(facts) = facts(&all) {
        return into_opened(mine, facts);
    }
    if all[group.rank()].inode() != all[0].inode() {
        let had_one = matches!(mine, Ok(Some(_)));
        mine = found.open(path).and_then(|file| match had_one {
            true => Ok(Some(file)),
            false => with_all(file, also),
        });
    }
    let all = OpenReport::exchange(group, &mine)?;
    let other = all.iter().position(|said| said.inode() != all[0].inode()).unwrap_or(0);
    let text = format!("ranks 0 and {other} found different files at {}: it was replaced", path.display());
    into_opened(mine, facts(&all).ok_or_else(|| Fault::new(Code::NotSame, text))?)
}

fn into_opened(mine: Result<Option<File>>, facts: GroupFacts) -> Result<(File, GroupFacts)> {
    let file = mine?.expect("a member without a file has returned its error");
    Ok((file, facts))
}

/// Facts about an open file that are equal on all members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GroupFacts {
    /// All members share memory with all servers of the file.
    pub(super) servers_near: bool,
    /// All members share memory with the manager.
    pub(super) manager_near: bool,
    /// Identifier of this collective open.
    pub(super) opening: u64,
}

impl GroupFacts {
    /// Facts about a file that every member has opened; collective.
    pub(super) fn find(group: &dyn Group, file: &File) -> Result<GroupFacts> {
        let all = OpenReport::exchange_of(group, OpenReport::of(file))?;
        Ok(combine(&all))
    }
}

/// The common facts, if all members have the same file.
fn facts(all: &[OpenReport]) -> Option<GroupFacts> {
    let same = all.iter().all(|said| said.inode().is_some() && said.inode() == all[0].inode());
    same.then(|| combine(all))
}

/// Combines the members' reports; rank 0's number identifies the open.
fn combine(all: &[OpenReport]) -> GroupFacts {
    let near =
        |is_near: fn(&OpenedFacts) -> bool| all.iter().all(|said| said.0.as_ref().is_some_and(is_near));
    let opening = all.first().and_then(|said| said.0.as_ref()).map_or(1, |first| first.number);
    GroupFacts {
        servers_near: near(|opened| opened.servers_near),
        manager_near: near(|opened| opened.manager_near),
        opening: opening.max(1),
    }
}

/// A member's report of its file; `None`: not opened yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OpenReport(Option<OpenedFacts>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OpenedFacts {
    inode: u64,
    servers_near: bool,
    manager_near: bool,
    number: u64,
}

impl OpenReport {
    /// The reports of all members; an error of one is returned on all.
    fn exchange(group: &dyn Group, mine: &Result<Option<File>>) -> Result<Vec<OpenReport>> {
        let said = match mine {
            Ok(Some(file)) => OpenReport::of(file),
            Ok(None) => Ok(OpenReport(None)),
            Err(error) => Err(error.clone()),
        };
        OpenReport::exchange_of(group, said)
    }

    fn exchange_of(group: &dyn Group, said: Result<OpenReport>) -> Result<Vec<OpenReport>> {
        let bytes = said.map(OpenReport::to_bytes);
        let all = group.exchange(CollectiveCall::Open, &[], bytes.as_deref().map_err(Clone::clone))?;
        let odd =
            || Error::from(Fault::new(Code::Protocol, "a member sent an invalid report of its open file"));
        all.iter().map(|bytes| OpenReport::from_bytes(bytes).ok_or_else(odd)).collect()
    }

    fn of(file: &File) -> Result<OpenReport> {
        let (inode, number) = (file.inode().0, pario_net::greeting::random_number());
        let (servers_near, manager_near) = (file.servers_are_local()?, file.manager_is_local()?);
        Ok(OpenReport(Some(OpenedFacts { inode, servers_near, manager_near, number })))
    }

    fn inode(&self) -> Option<u64> {
        self.0.map(|opened| opened.inode)
    }

    fn to_bytes(self) -> Vec<u8> {
        let Some(OpenedFacts { inode, servers_near, manager_near, number }) = self.0 else {
            return Vec::new();
        };
        let near = [u8::from(servers_near), u8::from(manager_near)];
        [&near[..], &inode.to_le_bytes(), &number.to_le_bytes()].concat()
    }

    /// `None`: invalid encoding.
    fn from_bytes(bytes: &[u8]) -> Option<OpenReport> {
        let Some((near, numbers)) = bytes.split_first_chunk::<2>() else {
            return bytes.is_empty().then_some(OpenReport(None));
        };
        let (inode, number) = numbers.split_first_chunk::<8>()?;
        let number = u64::from_le_bytes(number.try_into().ok()?);
        let [servers_near, manager_near] = near.map(|near| near == 1);
        Some(OpenReport(Some(OpenedFacts {
            inode: u64::from_le_bytes(*inode),
            servers_near,
            manager_near,
            number,
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(inode: u64, servers_near: bool, number: u64) -> OpenReport {
        OpenReport(Some(OpenedFacts { inode, servers_near, manager_near: true, number }))
    }

    #[test]
    fn members_go_on_only_with_one_file() {
        let known = |all: &[OpenReport]| facts(all).map(|facts| (facts.servers_near, facts.opening));
        assert_eq!(known(&[opened(7, true, 3), opened(7, true, 9)]), Some((true, 3)));
        assert_eq!(known(&[opened(7, true, 0), opened(7, false, 9)]), Some((false, 1)));
        assert_eq!(known(&[opened(7, true, 3), opened(8, true, 9)]), None);
        assert_eq!(known(&[opened(7, true, 3), OpenReport(None)]), None);
        assert_eq!(known(&[OpenReport(None), OpenReport(None)]), None);
    }

    #[test]
    fn what_a_member_says_survives_the_way_and_nothing_else_is_understood() {
        for said in [opened(u64::MAX, true, 5), opened(0, false, 6), OpenReport(None)] {
            assert_eq!(OpenReport::from_bytes(&said.to_bytes()), Some(said));
        }
        assert_eq!(OpenReport::from_bytes(&[1]), None);
        assert_eq!(OpenReport::from_bytes(&[1; 17]), None);
        assert_eq!(OpenReport::from_bytes(&[1; 19]), None);
    }
}
