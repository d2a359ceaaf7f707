//! The file cache of a group (cooperative cache): blocks of a plain file, on any file system that the nodes share, in the memory
//! of the nodes.
//!
//! ```text
//!  rank ─► record in the outbox | message ─► server of the group (blocks in memory) ─► plain file
//! ```
//! One process per node runs a server as threads; rank 0's is the manager. Together they form a partition that is private to the
//! group, so that leases, locks, views, atomic mode and shared pointers work as in any partition. Names are in memory.
//!
//! On one node, above a file system of that node, all processes share the kernel's page cache: there the plain file is lent to
//! them, and the servers only provide leases and locks.
//!
//! Blocks have a fixed home, or are placed at the node of the first access, or of the last full overwrite: then a member sends
//! every access to the server of its own node, which owns the block or accesses it at its owner
//! (`pario-store/src/plain_cache/placement/first_touch.rs`).
//!
//! Never: writes any other file; keeps a block at two servers; outlives the last file that it was started for. Always: the same
//! group uses the same servers for all its files; when a file is closed, the plain file has every byte.

#[cfg(doctest)]
#[doc = include_str!("../../../../../docs/guide/cached-files.md")]
mod guide {}

mod block;
mod options;
mod peer_servers;
mod plain;
mod plain_backing;
mod start;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pario_core::{AttrChange, Code, Fault, InodeId, Layout, ServerIndex};
use pario_server::store::PlainCacheStore;
use pario_server::store::plain_cache::CachePlacement;
use serde::{Deserialize, Serialize};

pub use self::options::{CACHE_VARIABLE, CacheOptions, Placement, from_env};
use self::plain::OpenedPlainFile;
pub(crate) use self::plain_backing::PlainBacking;
use crate::client::{CacheRoute, File, OpenOptions};
use crate::collective::{GroupFile, Hints, check_environment};
use crate::error::{Error, Result};
use crate::fleet::Fleet;
use crate::group::{CollectiveCall, Group, broadcast_value, exchange_values};
use crate::partition::choices::Method;

/// Opens a plain file, on any file system that all nodes of the group share, through a cache in the group's own memory;
/// collective. No partition is needed.
///
/// ```
/// use pario::{Alone, CacheOptions, open_cached};
///
/// let dir = std::env::temp_dir().join(format!("pario-doc-{}", std::process::id()));
/// std::fs::create_dir_all(&dir)?;
/// let options = CacheOptions { create: true, ..CacheOptions::default() };
/// let file = open_cached(&Alone::group(), dir.join("field"), &options)?;
/// file.write_at_all(0, b"hello")?;
/// file.close()?;                                          // the plain file is complete
/// assert_eq!(std::fs::read(dir.join("field"))?, b"hello");
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open_cached(
    group: &Arc<dyn Group>,
    path: impl AsRef<Path>,
    options: &CacheOptions,
) -> Result<GroupFile> {
    let path = path.as_ref();
    let group = group.duplicate()?;
    let said = format!("{} {options:?}", path.display());
    group.same_in(CollectiveCall::Open, "the path and options of a cached file", said.as_bytes())?;
    options.check(path)?;
    // Rank 0 creates the file; the others open it afterwards.
    let done = |opened: &Option<Result<OpenedPlainFile>>| {
        opened.as_ref().map_or(Ok(()), |opened| opened.as_ref().map(|_| ()).map_err(Clone::clone))
    };
    let first = (group.rank() == 0).then(|| OpenedPlainFile::open(path, options, true));
    group.agree(check_environment().and(done(&first)))?;
    let cooperation = CacheFleet::of(&group, options)?;
    let later = || cooperation.fleet.own.as_ref().map(|_| OpenedPlainFile::open(path, options, false));
    let opened = first.or_else(later);
    group.agree(done(&opened))?;
    let mine = opened.transpose()?;
    let facts = CachedFileFacts::find(&group, path, mine.as_ref(), options)?;
    let (inode, bytes) = cooperation.find_inode(&group, &facts)?;
    let placement = options.placement.with_servers(cooperation.servers());
    let direct = facts.direct && cooperation.servers() == 1;
    let facts = CachedFileFacts { bytes, placement, direct, ..facts };
    let served = cooperation.open_at_server(inode, mine, (path, &facts));
    group.agree(served.as_ref().map(|_| ()).map_err(Clone::clone))?;
    let above = served?;
    let name = path.to_string_lossy();
    let through = if placement.is_movable() { Some(cooperation.through(&group, &facts)?) } else { None };
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
    /// [`open_cached`]: opens a plain file through a cache in the group's own memory.
    pub fn open_cached(
        group: &Arc<dyn Group>,
        path: impl AsRef<Path>,
        options: &CacheOptions,
    ) -> Result<GroupFile> {
        open_cached(group, path, options)
    }
}

/// Facts about a file that must be equal on all members; taken from rank 0.
#[derive(Clone, Serialize, Deserialize, Debug)]
struct CachedFileFacts {
    /// Name of the file at the group's servers: equal for all paths of the same file.
    name: String,
    inode: u64,
    bytes: u64,
    block_bytes: u64,
    stripe_bytes: u64,
    locks: bool,
    placement: Placement,
    /// The processes of the only node access the plain file directly.
    direct: bool,
    mode: u32,
    owner: (u32, u32),
    modified_ns: u64,
}

impl CachedFileFacts {
    fn find(
        group: &Arc<dyn Group>,
        path: &Path,
        mine: Option<&OpenedPlainFile>,
        options: &CacheOptions,
    ) -> Result<CachedFileFacts> {
        let own = mine.and_then(|opened| opened.facts(path, options));
        let seen: Vec<Option<CachedFileFacts>> = exchange_values(group.as_ref(), &own)?;
        let first = seen.first().cloned().flatten();
        let first = first.ok_or_else(|| Fault::new(Code::NotSame, "rank 0 has no file open"))?;
        let other =
            |facts: &Option<CachedFileFacts>| facts.as_ref().is_some_and(|facts| facts.inode != first.inode);
        if let Some(rank) = seen.iter().position(other) {
            let text = format!(
                "{}: ranks 0 and {rank} have different files of that name: the directory is not shared by their nodes",
                path.display()
            );
            return Err(Fault::new(Code::NotSame, text).into());
        }
        let locks = seen.iter().flatten().any(|facts| facts.locks);
        Ok(CachedFileFacts { locks, direct: first.direct && !locks, ..first })
    }

    /// Attributes of the plain file for [`GroupFile::attr`].
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

/// The file caches of this process that are in use by a file.
static FLEETS: Mutex<Vec<Weak<CacheFleet>>> = Mutex::new(Vec::new());

/// A member's role in the group that created a file cache.
#[derive(Clone, PartialEq, Eq, Debug)]
struct FileCacheRole {
    family: u64,
    rank: usize,
    /// Node of each member.
    nodes: Vec<usize>,
}

impl FileCacheRole {
    fn of(group: &dyn Group) -> FileCacheRole {
        let nodes = (0..group.size()).map(|rank| group.node_of(rank)).collect();
        FileCacheRole { family: group.family(), rank: group.rank(), nodes }
    }
}

/// The servers of a group's file cache, as seen by one member.
#[derive(Debug)]
pub(crate) struct CacheFleet {
    role: FileCacheRole,
    fleet: Fleet<PlainCacheStore>,
    /// Open files, by their names at the servers; maintained by rank 0.
    open: Mutex<HashMap<String, usize>>,
}

impl CacheFleet {
    /// The file caches of this process with that role.
    fn known(role: &FileCacheRole) -> Vec<Arc<CacheFleet>> {
        let mut known = FLEETS.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|cooperation| 0 < cooperation.strong_count());
        let all = known.iter().filter_map(Weak::upgrade);
        let alive = |one: &Arc<CacheFleet>| !one.fleet.has_ended();
        all.filter(|one| one.role == *role).filter(alive).collect()
    }

    fn remember(self: &Arc<CacheFleet>) {
        FLEETS.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(self));
    }

    fn options(&self, options: &CacheOptions) -> OpenOptions {
        OpenOptions::new(&self.fleet.session).read(options.read).write(options.write)
    }

    /// The inode of a file at the servers, and the file's length; collective, created by rank 0.
    fn find_inode(&self, group: &Arc<dyn Group>, facts: &CachedFileFacts) -> Result<(InodeId, u64)> {
        let mine = if group.rank() == 0 { self.make_inode(facts).map(Some) } else { Ok(None) };
        group.agree(mine.as_ref().map(|_| ()).map_err(Clone::clone))?;
        let mine = mine?.map(|(inode, bytes)| (inode.0, bytes));
        let found: Option<(u64, u64)> = broadcast_value(group.as_ref(), &mine)?;
        let (inode, bytes) = found.ok_or_else(|| Fault::new(Code::NotSame, "rank 0 has no file open"))?;
        Ok((InodeId(inode), bytes))
    }

    fn make_inode(&self, facts: &CachedFileFacts) -> Result<(InodeId, u64)> {
        let stripe = facts.stripe_bytes;
        let options = OpenOptions::new(&self.fleet.session).read(true).write(true).create(true);
        let options = options.stripe_bytes(stripe).first_server(0).stripe_count(self.servers());
        let file = options.open(&facts.name)?;
        let is_open = self.open.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&facts.name);
        if is_open {
            // The servers know its length; other members may have extended it.
            file.found_length(facts.bytes)?;
        } else if file.len()? != facts.bytes {
            file.set_len(facts.bytes)?;
        }
        self.fleet.session.set_attr(&facts.name, facts.attributes())?;
        let found = (file.inode(), file.len()?);
        file.close()?;
        Ok(found)
    }

    /// Opens the file at the server in this process, if there is one.
    fn open_at_server(
        self: &Arc<Self>,
        inode: InodeId,
        mine: Option<OpenedPlainFile>,
        (path, facts): (&Path, &CachedFileFacts),
    ) -> Result<PlainBacking> {
        let extends = self.role.rank == 0;
        if let (Some(own), Some(opened)) = (&self.fleet.own, &mine) {
            let homes = self.layout(facts)?;
            let layout = if facts.placement.is_movable() { self.layout_at(own.index, facts)? } else { homes };
            let place = CachePlacement {
                server: own.index,
                layout,
                block_bytes: facts.block_bytes,
                homes: facts.placement.is_movable().then_some(homes),
                follows_writers: facts.placement == Placement::LastWriter,
                direct: facts.direct,
            };
            own.store.open(inode, place, opened.for_store(path, facts.locks)?, facts.bytes)?;
        }
        if extends {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            *open.entry(facts.name.clone()).or_default() += 1;
        }
        Ok(PlainBacking::new(
            self,
            (inode, &facts.name, facts.placement),
            path,
            mine.filter(|_| extends).map(OpenedPlainFile::into_file),
        ))
    }

    fn servers(&self) -> u16 {
        u16::try_from(self.fleet.ranks.len()).unwrap_or(u16::MAX)
    }

    fn layout(&self, facts: &CachedFileFacts) -> Result<Layout> {
        let servers = self.servers();
        Layout::new(facts.stripe_bytes, servers, 0, servers)
            .map_err(|error| Error::from(Fault::new(Code::Invalid, error.to_string())))
    }

    /// Layout with the whole file at one server.
    fn layout_at(&self, server: ServerIndex, facts: &CachedFileFacts) -> Result<Layout> {
        Layout::new(facts.stripe_bytes, 1, server.0, self.servers())
            .map_err(|error| Error::from(Fault::new(Code::Invalid, error.to_string())))
    }

    /// How this member accesses a file with movable blocks: through the server of its own node.
    fn through(&self, group: &Arc<dyn Group>, facts: &CachedFileFacts) -> Result<CacheRoute> {
        let here = group.node_of(group.rank());
        let near = self.fleet.ranks.iter().position(|rank| group.node_of(*rank) == here);
        // With more nodes than the limit of servers, some nodes share a server.
        let place = near.unwrap_or(here % self.fleet.ranks.len().max(1));
        let server = ServerIndex(u16::try_from(place).unwrap_or(0));
        let near = self.fleet.own.as_ref().filter(|own| own.index == server).map(|own| own.server.near());
        let (layout, block_bytes) = (self.layout_at(server, facts)?, facts.block_bytes);
        let follows = facts.placement == Placement::LastWriter;
        Ok(CacheRoute { layout, block_bytes, local_server: near, moves_to_writer: follows })
    }
}
