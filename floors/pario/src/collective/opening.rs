//! How members of a group come to the same open file: they meet once to see that they want the same, and once when each has opened it;
//! once more where it was not there yet.
//!
//! Never: lets two members go on with different files of one name. Always: only the first member creates or cuts; who came before that
//! tries again.

use std::path::Path;
use std::sync::Arc;

use pario_core::{Code, Fault};

use super::file::GroupFile;
use super::hints::Hints;
use crate::client::{File, OpenOptions};
use crate::error::{Error, Result};
use crate::group::{Call, Group};

impl OpenOptions {
    /// Opens a file together with all other members of `group`; all must say the same.
    pub fn open_all(
        &self,
        group: &Arc<dyn Group>,
        path: impl AsRef<Path>,
        hints: &Hints,
    ) -> Result<GroupFile> {
        let path = path.as_ref();
        let wish = self.wish(path, hints);
        let (own, _) = group.duplicate_if(&[("the path, mode and hints of a file", &wish)], Ok(&[]))?;
        self.open_agreed(own, path, hints, &mut || Ok(()))
    }

    /// [`OpenOptions::open_all`] for members that know already that they want the same, and have a group that is used for nothing else.
    /// `also` is what else a member does for it: once it has the file and before the others hear so, and its error is everybody's.
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

    /// What all members must want alike, as bytes.
    fn wish(&self, path: &Path, hints: &Hints) -> Vec<u8> {
        [self.to_bytes(path), hints.to_bytes()].concat()
    }
}

/// Opens it as all others do. Where it is there already nobody waits for the first member.
fn open(
    group: &dyn Group,
    options: &OpenOptions,
    path: &Path,
    also: &mut dyn FnMut() -> Result<()>,
) -> Result<(File, GroupFacts)> {
    let found = options.clone().create(false).create_new(false).truncate(false);
    let with_all = |file: File, also: &mut dyn FnMut() -> Result<()>| also().map(|()| Some(file));
    let mut mine = match group.rank() {
        0 => options.open(path).and_then(|file| with_all(file, also)),
        _ if options.makes_anew() => Ok(None),
        _ => match found.open(path) {
            Err(error) if error.code() == Code::NotFound && options.creates() => Ok(None),
            other => other.and_then(|file| with_all(file, also)),
        },
    };
    let all = Said::exchange(group, &mine)?;
    if let Some(facts) = facts(&all) {
        return ended(mine, facts);
    }
    if all[group.rank()].inode() != all[0].inode() {
        let had_one = matches!(mine, Ok(Some(_)));
        mine = found.open(path).and_then(|file| match had_one {
            true => Ok(Some(file)),
            false => with_all(file, also),
        });
    }
    let all = Said::exchange(group, &mine)?;
    let other = all.iter().position(|said| said.inode() != all[0].inode()).unwrap_or(0);
    let text = format!("ranks 0 and {other} found different files at {}: it was replaced", path.display());
    ended(mine, facts(&all).ok_or_else(|| Fault::new(Code::NotSame, text))?)
}

fn ended(mine: Result<Option<File>>, facts: GroupFacts) -> Result<(File, GroupFacts)> {
    let file = mine?.expect("a member without a file has said so");
    Ok((file, facts))
}

/// What all members of a group know alike of a file, since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GroupFacts {
    /// All share memory with all servers of the file.
    pub(super) servers_near: bool,
    /// All share memory with the manager.
    pub(super) manager_near: bool,
    /// This opening of the file, told from all others.
    pub(super) opening: u64,
}

impl GroupFacts {
    /// Of a file that every member has opened; collective.
    pub(super) fn find(group: &dyn Group, file: &File) -> Result<GroupFacts> {
        let all = Said::exchange_of(group, Said::of(file))?;
        Ok(together(&all))
    }
}

/// What all know, if all have the same file.
fn facts(all: &[Said]) -> Option<GroupFacts> {
    let same = all.iter().all(|said| said.inode().is_some() && said.inode() == all[0].inode());
    same.then(|| together(all))
}

/// What follows from what members say; the first one's number names the opening.
fn together(all: &[Said]) -> GroupFacts {
    let near = |is_near: fn(&Opened) -> bool| all.iter().all(|said| said.0.as_ref().is_some_and(is_near));
    let opening = all.first().and_then(|said| said.0.as_ref()).map_or(1, |first| first.number);
    GroupFacts {
        servers_near: near(|opened| opened.servers_near),
        manager_near: near(|opened| opened.manager_near),
        opening: opening.max(1),
    }
}

/// What a member says of its file; `None`: it has none yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Said(Option<Opened>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Opened {
    inode: u64,
    servers_near: bool,
    manager_near: bool,
    number: u64,
}

impl Said {
    /// What each member says; an error of one is everybody's.
    fn exchange(group: &dyn Group, mine: &Result<Option<File>>) -> Result<Vec<Said>> {
        let said = match mine {
            Ok(Some(file)) => Said::of(file),
            Ok(None) => Ok(Said(None)),
            Err(error) => Err(error.clone()),
        };
        Said::exchange_of(group, said)
    }

    fn exchange_of(group: &dyn Group, said: Result<Said>) -> Result<Vec<Said>> {
        let bytes = said.map(Said::to_bytes);
        let all = group.exchange(Call::Open, &[], bytes.as_deref().map_err(Clone::clone))?;
        let odd = || Error::from(Fault::new(Code::Protocol, "a member says something else of its file"));
        all.iter().map(|bytes| Said::from_bytes(bytes).ok_or_else(odd)).collect()
    }

    fn of(file: &File) -> Result<Said> {
        let (inode, number) = (file.inode().0, pario_net::greeting::random_number());
        let (servers_near, manager_near) = (file.servers_near()?, file.manager_near()?);
        Ok(Said(Some(Opened { inode, servers_near, manager_near, number })))
    }

    fn inode(&self) -> Option<u64> {
        self.0.map(|opened| opened.inode)
    }

    fn to_bytes(self) -> Vec<u8> {
        let Some(Opened { inode, servers_near, manager_near, number }) = self.0 else { return Vec::new() };
        let near = [u8::from(servers_near), u8::from(manager_near)];
        [&near[..], &inode.to_le_bytes(), &number.to_le_bytes()].concat()
    }

    /// `None`: no member says that.
    fn from_bytes(bytes: &[u8]) -> Option<Said> {
        let Some((near, numbers)) = bytes.split_first_chunk::<2>() else {
            return bytes.is_empty().then_some(Said(None));
        };
        let (inode, number) = numbers.split_first_chunk::<8>()?;
        let number = u64::from_le_bytes(number.try_into().ok()?);
        let [servers_near, manager_near] = near.map(|near| near == 1);
        Some(Said(Some(Opened { inode: u64::from_le_bytes(*inode), servers_near, manager_near, number })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(inode: u64, servers_near: bool, number: u64) -> Said {
        Said(Some(Opened { inode, servers_near, manager_near: true, number }))
    }

    #[test]
    fn members_go_on_only_with_one_file() {
        let known = |all: &[Said]| facts(all).map(|facts| (facts.servers_near, facts.opening));
        assert_eq!(known(&[opened(7, true, 3), opened(7, true, 9)]), Some((true, 3)));
        assert_eq!(known(&[opened(7, true, 0), opened(7, false, 9)]), Some((false, 1)));
        assert_eq!(known(&[opened(7, true, 3), opened(8, true, 9)]), None);
        assert_eq!(known(&[opened(7, true, 3), Said(None)]), None);
        assert_eq!(known(&[Said(None), Said(None)]), None);
    }

    #[test]
    fn what_a_member_says_survives_the_way_and_nothing_else_is_understood() {
        for said in [opened(u64::MAX, true, 5), opened(0, false, 6), Said(None)] {
            assert_eq!(Said::from_bytes(&said.to_bytes()), Some(said));
        }
        assert_eq!(Said::from_bytes(&[1]), None);
        assert_eq!(Said::from_bytes(&[1; 17]), None);
        assert_eq!(Said::from_bytes(&[1; 19]), None);
    }
}
