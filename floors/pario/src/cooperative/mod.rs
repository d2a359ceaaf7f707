//! The cooperative cache: a group keeps blocks of a plain file, on any file system that its nodes share, in the memory of its nodes.
//!
//! ```text
//!  rank ─► record in the outbox | message ─► server of the group (blocks in memory) ─► plain file
//! ```
//! One process per node runs a server as threads; rank 0's is the manager. Together they are a partition that nobody outside the group
//! knows, so that leases, locks, views, atomic mode and shared pointers are what they are in any partition. Names live in memory.
//!
//! On one node, above a file system of that node, the kernel's own cache is the one that all processes share: there the plain file is lent to
//! them, and the servers keep order only.
//!
//! Blocks have a fixed home, or are kept where they were first touched, or last overwritten: then a member sends every access to the server of its own node, which
//! owns the block or reaches it at its owner (`pario-store/src/shared_file/first_touch.rs`).
//!
//! Never: writes anything but the file; keeps a block at two servers; outlives the last file that it was started for. Always: the
//! same group uses the same servers for all its files; when a file is closed, the plain file has every byte.

#[cfg(doctest)]
#[doc = include_str!("../../../../docs/guide/shared-files.md")]
mod guide {}

mod above;
mod block;
mod companions;
mod options;
mod plain;
mod start;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pario_core::{AttrChange, Code, Fault, InodeId, Layout, PartitionId, ServerIndex};
use pario_server::Server;
use pario_server::store::SharedFileStore;
use pario_server::store::shared_file::Place;
use pario_sys::process::fork_generation;
use serde::{Deserialize, Serialize};

pub(crate) use self::above::Above;
pub use self::options::{CACHE_VARIABLE, Placement, SharedOptions, from_env};
use self::plain::Opened;
use crate::client::{File, Mount, OpenOptions, Through};
use crate::collective::{GroupFile, Hints};
use crate::error::{Error, Result};
use crate::group::{Call, Group};
use crate::partition::choices::Method;
use crate::tier::{decode, encode, exchange};

/// Opens a plain file, on any file system that all nodes of the group share, through a cache in the group's own memory; collective.
/// There need be no partition anywhere.
///
/// ```
/// use pario::{Alone, SharedOptions, open_shared};
///
/// let dir = std::env::temp_dir().join(format!("pario-doc-{}", std::process::id()));
/// std::fs::create_dir_all(&dir)?;
/// let options = SharedOptions { create: true, ..SharedOptions::default() };
/// let file = open_shared(&Alone::group(), dir.join("field"), &options)?;
/// file.write_at_all(0, b"hello")?;
/// file.close()?;                                          // the plain file has it
/// assert_eq!(std::fs::read(dir.join("field"))?, b"hello");
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open_shared(
    group: &Arc<dyn Group>,
    path: impl AsRef<Path>,
    options: &SharedOptions,
) -> Result<GroupFile> {
    let path = path.as_ref();
    let group = group.duplicate()?;
    let said = format!("{} {options:?}", path.display());
    group.same_in(Call::Open, "the path and options of a shared file", said.as_bytes())?;
    options.check(path)?;
    // One creates it; the others find it made.
    let done = |opened: &Option<Result<Opened>>| {
        opened.as_ref().map_or(Ok(()), |opened| opened.as_ref().map(|_| ()).map_err(Clone::clone))
    };
    let first = (group.rank() == 0).then(|| Opened::open(path, options, true));
    group.agree(done(&first))?;
    let cooperation = Cooperation::of(&group, options)?;
    let later = || cooperation.own.as_ref().map(|_| Opened::open(path, options, false));
    let opened = first.or_else(later);
    group.agree(done(&opened))?;
    let mine = opened.transpose()?;
    let facts = Facts::find(&group, path, mine.as_ref(), options)?;
    let (inode, bytes) = cooperation.find_inode(&group, &facts)?;
    // Where there is one server only, every block is cached there in any case.
    let placement = if 1 < cooperation.servers() { options.placement } else { Placement::Home };
    let direct = facts.direct && cooperation.servers() == 1;
    let facts = Facts { bytes, placement, direct, ..facts };
    let served = cooperation.serve(inode, mine, (path, &facts));
    group.agree(served.as_ref().map(|_| ()).map_err(Clone::clone))?;
    let above = served?;
    let name = path.to_string_lossy();
    let through = if placement.is_free() { Some(cooperation.through(&group, &facts)?) } else { None };
    let file = cooperation.options(options).through(through).open_inode(inode, &name);
    group.agree(file.as_ref().map(|_| ()).map_err(Clone::clone))?;
    let file = file?;
    let here = group.node_of(group.rank());
    let near = (0..group.size()).filter(|rank| group.node_of(*rank) == here).count();
    file.join_group(group.rank(), near, group.size());
    let hints = Hints {
        method: Some(Method::ServerDirected),
        cache_bytes: Some(options.cache_bytes),
        stripe_bytes: Some(facts.stripe_bytes),
        ..Hints::default()
    };
    let file = GroupFile::of(group, file, &hints, Some(above))?;
    if options.truncate {
        file.set_len(0)?;
    }
    Ok(file)
}

impl File {
    /// [`open_shared`]: a plain file of a group, through a cache in its own memory.
    pub fn open_shared(
        group: &Arc<dyn Group>,
        path: impl AsRef<Path>,
        options: &SharedOptions,
    ) -> Result<GroupFile> {
        open_shared(group, path, options)
    }
}

/// What all members must know alike of a file; the first one says it.
#[derive(Clone, Serialize, Deserialize, Debug)]
struct Facts {
    /// By which the group's servers know it: the same file under any path.
    name: String,
    inode: u64,
    bytes: u64,
    block_bytes: u64,
    stripe_bytes: u64,
    locks: bool,
    placement: Placement,
    /// The processes of the only node use the plain file themselves.
    direct: bool,
    mode: u32,
    owner: (u32, u32),
    modified_ns: u64,
}

impl Facts {
    fn find(
        group: &Arc<dyn Group>,
        path: &Path,
        mine: Option<&Opened>,
        options: &SharedOptions,
    ) -> Result<Facts> {
        let own = mine.and_then(|opened| opened.facts(path, options));
        let seen: Vec<Option<Facts>> = exchange(group.as_ref(), &own)?;
        let first = seen.first().cloned().flatten();
        let first = first.ok_or_else(|| Fault::new(Code::NotSame, "rank 0 has no file open"))?;
        let other = |facts: &Option<Facts>| facts.as_ref().is_some_and(|facts| facts.inode != first.inode);
        if let Some(rank) = seen.iter().position(other) {
            let text = format!(
                "{}: ranks 0 and {rank} have different files of that name: the directory is not shared by their nodes",
                path.display()
            );
            return Err(Fault::new(Code::NotSame, text).into());
        }
        let locks = seen.iter().flatten().any(|facts| facts.locks);
        Ok(Facts { locks, direct: first.direct && !locks, ..first })
    }

    /// What [`GroupFile::attr`] is to show of the plain file.
    fn attributes(&self) -> AttrChange {
        AttrChange {
            mode: Some(self.mode),
            uid: Some(self.owner.0),
            gid: Some(self.owner.1),
            accessed_ns: None,
            modified_ns: Some(self.modified_ns),
        }
    }
}

/// Cooperations of this process, as long as a file uses them.
static KNOWN: Mutex<Vec<Weak<Cooperation>>> = Mutex::new(Vec::new());

/// A member's place among those who made a cooperation.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Role {
    family: u64,
    rank: usize,
    /// Where each of them is.
    nodes: Vec<usize>,
}

impl Role {
    fn of(group: &dyn Group) -> Role {
        let nodes = (0..group.size()).map(|rank| group.node_of(rank)).collect();
        Role { family: group.family(), rank: group.rank(), nodes }
    }
}

/// The servers of a group, as one member sees them.
#[derive(Debug)]
pub(crate) struct Cooperation {
    id: PartitionId,
    role: Role,
    /// Ranks whose processes serve, in the order of servers.
    aggregators: Vec<usize>,
    // Before the server: a mount says goodbye while it still listens.
    mount: Arc<Mount>,
    own: Option<Own>,
    /// Files that are open, by the names that servers know them by; kept by the first member.
    open: Mutex<HashMap<String, usize>>,
}

/// The server that this member runs.
#[derive(Debug)]
struct Own {
    index: ServerIndex,
    server: Server,
    store: Arc<SharedFileStore>,
    fork: u64,
}

impl Drop for Own {
    fn drop(&mut self) {
        if self.fork == fork_generation() {
            self.server.stop();
            self.server.wait_finished();
            self.store.shut();
        }
    }
}

impl Cooperation {
    /// Those of this process in which a member has that role.
    fn known(role: &Role) -> Vec<Arc<Cooperation>> {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|cooperation| 0 < cooperation.strong_count());
        let all = known.iter().filter_map(Weak::upgrade);
        let alive = |one: &Arc<Cooperation>| one.own.as_ref().is_none_or(|own| !own.server.is_finished());
        all.filter(|one| one.role == *role).filter(alive).collect()
    }

    fn remember(self: &Arc<Cooperation>) {
        KNOWN.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(self));
    }

    fn options(&self, options: &SharedOptions) -> OpenOptions {
        OpenOptions::new(&self.mount).read(options.read).write(options.write)
    }

    /// The inode by which the servers know a file, and the file's length; collective, and made by the first member.
    fn find_inode(&self, group: &Arc<dyn Group>, facts: &Facts) -> Result<(InodeId, u64)> {
        let mine = if group.rank() == 0 { self.make_inode(facts).map(Some) } else { Ok(None) };
        group.agree(mine.as_ref().map(|_| ()).map_err(Clone::clone))?;
        let told = group.broadcast(0, &encode(&mine?.map(|(inode, bytes)| (inode.0, bytes)))?)?;
        let found: Option<(u64, u64)> = decode(&told)?;
        let (inode, bytes) = found.ok_or_else(|| Fault::new(Code::NotSame, "rank 0 has no file open"))?;
        Ok((InodeId(inode), bytes))
    }

    fn make_inode(&self, facts: &Facts) -> Result<(InodeId, u64)> {
        let stripe = facts.stripe_bytes;
        let options = OpenOptions::new(&self.mount).read(true).write(true).create(true);
        let options = options.stripe_bytes(stripe).first_server(0).stripe_count(self.servers());
        let file = options.open(&facts.name)?;
        let is_open = self.open.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&facts.name);
        if is_open {
            // The servers know its length; others may have made it longer.
            file.found_length(facts.bytes)?;
        } else if file.len()? != facts.bytes {
            file.set_len(facts.bytes)?;
        }
        self.mount.set_attr(&facts.name, facts.attributes())?;
        let found = (file.inode(), file.len()?);
        file.close()?;
        Ok(found)
    }

    /// Makes the file known to the server in this process, if there is one.
    fn serve(
        self: &Arc<Self>,
        inode: InodeId,
        mine: Option<Opened>,
        (path, facts): (&Path, &Facts),
    ) -> Result<Above> {
        let extends = self.role.rank == 0;
        if let (Some(own), Some(opened)) = (&self.own, &mine) {
            let homes = self.layout(facts)?;
            let layout = if facts.placement.is_free() { self.layout_at(own.index, facts)? } else { homes };
            let place = Place {
                server: own.index,
                layout,
                block_bytes: facts.block_bytes,
                homes: facts.placement.is_free().then_some(homes),
                follows: facts.placement == Placement::LastWriter,
                direct: facts.direct,
            };
            own.store.open(inode, place, opened.for_store(path, facts.locks)?, facts.bytes)?;
        }
        if extends {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            *open.entry(facts.name.clone()).or_default() += 1;
        }
        Ok(Above::new(
            self,
            (inode, &facts.name, facts.placement),
            path,
            mine.filter(|_| extends).map(Opened::into_file),
        ))
    }

    fn servers(&self) -> u16 {
        u16::try_from(self.aggregators.len()).unwrap_or(u16::MAX)
    }

    fn layout(&self, facts: &Facts) -> Result<Layout> {
        let servers = self.servers();
        Layout::new(facts.stripe_bytes, servers, 0, servers)
            .map_err(|error| Error::from(Fault::new(Code::Invalid, error.to_string())))
    }

    /// All of the file at one server.
    fn layout_at(&self, server: ServerIndex, facts: &Facts) -> Result<Layout> {
        Layout::new(facts.stripe_bytes, 1, server.0, self.servers())
            .map_err(|error| Error::from(Fault::new(Code::Invalid, error.to_string())))
    }

    /// How this member reaches a file whose blocks have no fixed place: through the server of its own node.
    fn through(&self, group: &Arc<dyn Group>, facts: &Facts) -> Result<Through> {
        let here = group.node_of(group.rank());
        let near = self.aggregators.iter().position(|rank| group.node_of(*rank) == here);
        // With more nodes than there may be servers some share one.
        let place = near.unwrap_or(here % self.aggregators.len().max(1));
        let server = ServerIndex(u16::try_from(place).unwrap_or(0));
        let near = self.own.as_ref().filter(|own| own.index == server).map(|own| own.server.near());
        let (layout, block_bytes) = (self.layout_at(server, facts)?, facts.block_bytes);
        let follows = facts.placement == Placement::LastWriter;
        Ok(Through { layout, block_bytes, near, follows })
    }
}
