//! A file opened by the ranks of a communicator: Pario's file, its mode, and its accesses in progress.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use pario::collective::OrderedQueue;
use pario::group::CollectiveCall;
use pario::posix::ServedCalls;
use pario::view::Datatype;
use pario::{CacheOptions, Group, GroupFile, Partition, Seek};

use crate::access::{AccessDirection, AccessOrigin};
use crate::amode::Amode;
use crate::hints::{InfoHints, in_force};
use crate::mounts::partition_of;
use crate::path::PathTarget;
use crate::problem::{Class, MpiError, Result};
use crate::shared;

/// Arguments of an open.
#[derive(Clone, Debug)]
pub struct OpenArguments {
    /// The file: of a partition, or a plain one that is cached.
    pub target: PathTarget,
    /// The access mode.
    pub amode: Amode,
    /// Hints of this rank; those of rank 0 are used.
    pub info_hints: InfoHints,
}

impl OpenArguments {
    /// This rank's arguments for the exchange: file name and hints.
    fn exchange_bytes(&self, mounted: Option<&Partition>) -> Vec<u8> {
        let path = self.target.path();
        let name = match mounted {
            Some(mounted) => format!("pario://{}/{}", mounted.name(), path.display()),
            None => path.display().to_string(),
        };
        [name.as_bytes(), &[0], &self.info_hints.to_bytes()].concat()
    }
}

/// The file name, equal on all ranks, and the hints of rank 0; fails on all ranks if the names differ.
fn agreed(all: &[Vec<u8>]) -> Result<(String, InfoHints)> {
    let parts: Vec<(&[u8], &[u8])> = all.iter().map(|told| at_zero(told)).collect();
    if let Some(rank) = parts.iter().position(|told| told.0 != parts[0].0) {
        let text = format!(
            "ranks 0 and {rank} do not agree on the name of a file, which must be equal on all members"
        );
        return Err(MpiError::new(Class::NotSame, text));
    }
    let (name, wishes) = parts.first().copied().unwrap_or_default();
    Ok((String::from_utf8_lossy(name).into_owned(), InfoHints::from_bytes(wishes)))
}

/// Splits at the first zero byte: a path contains none.
fn at_zero(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

/// The partition of a file; `None`: a plain file.
fn mount(target: &PathTarget) -> Result<Option<Partition>> {
    match target {
        PathTarget::Partition { partition, .. } => partition_of(partition).map(Some),
        PathTarget::Plain { .. } => Ok(None),
        PathTarget::MpiLibrary => Err(not_ours()),
    }
}

fn not_ours() -> MpiError {
    MpiError::new(Class::Intern, "internal error: a file of the MPI library reached Pario's open")
}

/// See the module head.
#[derive(Debug)]
pub struct MpiFile {
    file: RwLock<Option<GroupFile>>,
    name: String,
    /// `None`: a plain file.
    partition: Option<Partition>,
    path: PathBuf,
    amode: Amode,
    /// Hints in force, those of rank 0.
    info_hints: Mutex<InfoHints>,
    group: Arc<dyn Group>,
    pointer_lock: Mutex<()>,
    queue: Arc<OrderedQueue>,
    served: ServedCalls,
}

impl MpiFile {
    /// Collective open; `also` creates further resources of a rank, after its open. One exchange compares the arguments, further
    /// ones depend on the kind of file.
    pub fn open(
        group: &Arc<dyn Group>,
        wish: &OpenArguments,
        mut also: impl FnMut() -> Result<()>,
    ) -> Result<MpiFile> {
        let also = &mut || also().map_err(|problem| problem.to_error());
        let (target, amode) = (&wish.target, wish.amode);
        let mounted = amode.check().and_then(|()| mount(target));
        let told =
            mounted.as_ref().map(|mounted| wish.exchange_bytes(mounted.as_ref())).map_err(MpiError::to_error);
        let told = told.as_deref().map_err(Clone::clone);
        let mode = format!("{amode:?}");
        let kind = target.kind();
        // Files of a partition and plain files are opened by different protocols, so the ranks must agree on the kind first.
        let alike = [
            ("the access mode of a file", mode.as_bytes()),
            ("the kind of a file (partition or plain)", kind.as_bytes()),
        ];
        let (file, name, wishes) = match target {
            PathTarget::Partition { path, .. } => {
                let (own, all) = group.duplicate_if(&alike, told)?;
                let (name, wishes) = agreed(&all)?;
                let Some(mounted) = mounted.as_ref().map_err(Clone::clone)? else { return Err(not_ours()) };
                let options = mounted.options().read(amode.reads()).write(amode.writes());
                let options = options.create(amode.create).create_new(amode.create && amode.exclusive);
                let hints = wishes.hints(group.size(), Some(mounted.mount_handle().servers()));
                (options.open_agreed(own, path, &hints, also)?, name, wishes)
            }
            PathTarget::Plain { path, options } => {
                let (name, wishes) = agreed(&group.exchange(CollectiveCall::Open, &alike, told)?)?;
                let options = CacheOptions {
                    read: amode.reads(),
                    write: amode.writes(),
                    create: amode.create,
                    create_new: amode.create && amode.exclusive,
                    ..wishes.cache_options(options)
                };
                let file = pario::open_cached(group, path, &options)?;
                group.agree(also())?;
                (file, name, wishes)
            }
            PathTarget::MpiLibrary => return Err(not_ours()),
        };
        let queue = Arc::clone(file.collective_queue());
        let opened = MpiFile {
            name,
            file: RwLock::new(Some(file)),
            partition: mounted?,
            path: target.path().to_owned(),
            amode,
            info_hints: Mutex::new(wishes),
            group: Arc::clone(group),
            pointer_lock: Mutex::new(()),
            queue,
            served: ServedCalls::by_environment()?,
        };
        if amode.append {
            opened.on_file(shared::append)?;
        }
        Ok(opened)
    }

    /// Collective close; removes the file if the mode demands it.
    pub fn close(&self) -> Result<()> {
        let drained = self.queue.wait_earlier().map_err(MpiError::from);
        let file = self.file.write().unwrap_or_else(PoisonError::into_inner).take();
        let closed = file.ok_or_else(|| self.closed_error())?.close().map_err(MpiError::from);
        self.served.report(self.group.rank(), &self.name);
        let removed = match self.amode.delete_on_close && self.group.rank() == 0 {
            true => self.remove(),
            false => Ok(()),
        };
        if self.amode.delete_on_close {
            self.group.agree(removed.clone().map_err(|problem| problem.to_error()))?;
        }
        drained.and(closed).and(removed)
    }

    fn remove(&self) -> Result<()> {
        match &self.partition {
            Some(partition) => Ok(partition.remove_file(&self.path)?),
            None => std::fs::remove_file(&self.path).map_err(|error| {
                let fault = pario::core::Fault::from_io(&error, self.path.display().to_string());
                MpiError::from(pario::Error::from(fault))
            }),
        }
    }

    /// Flushes this rank's writes to the servers without the other ranks: the program ends and has not closed the file yet.
    /// False: the file cannot stay open afterwards.
    pub fn flush_alone(&self) -> Result<bool> {
        self.queue.wait_earlier()?;
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        let given = file.as_ref().map_or(Ok(true), |file| file.sync_alone().map_err(MpiError::from))?;
        if given {
            self.served.report(self.group.rank(), &self.name);
        }
        Ok(given)
    }

    /// Flushes this rank's writes to the servers and releases the file without the other ranks: the program ends and has not
    /// closed it.
    pub fn abandon(&self) -> Result<()> {
        let drained = self.queue.wait_earlier().map_err(MpiError::from);
        let file = self.file.write().unwrap_or_else(PoisonError::into_inner).take();
        let closed = file.map_or(Ok(()), |file| file.abandon().map_err(MpiError::from));
        self.served.report(self.group.rank(), &self.name);
        drained.and(closed)
    }

    /// Name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The access mode.
    pub fn amode(&self) -> &Amode {
        &self.amode
    }

    /// Counts of served calls.
    pub fn served(&self) -> &ServedCalls {
        &self.served
    }

    /// The ranks that opened it.
    pub fn group(&self) -> &Arc<dyn Group> {
        &self.group
    }

    /// The thread for non-blocking collective accesses.
    pub fn queue(&self) -> &OrderedQueue {
        &self.queue
    }

    /// Runs `work` with the open file.
    pub fn on_file<T>(&self, work: impl FnOnce(&GroupFile) -> Result<T>) -> Result<T> {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        work(file.as_ref().ok_or_else(|| self.closed_error())?)
    }

    fn closed_error(&self) -> MpiError {
        MpiError::new(Class::File, format!("{} is closed", self.name))
    }

    /// Serialises the moves of pointers.
    pub(crate) fn lock_pointer(&self) -> MutexGuard<'_, ()> {
        self.pointer_lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the mode allows an access.
    pub(crate) fn check_direction(&self, way: AccessDirection, place: AccessOrigin) -> Result<()> {
        let refused = |class, why: &str| Err(MpiError::new(class, format!("{}: {why}", self.name)));
        match way {
            AccessDirection::Write if !self.amode.writes() => {
                refused(Class::ReadOnly, "it is open for reading only")
            }
            AccessDirection::Read if !self.amode.reads() => {
                refused(Class::Access, "it is open for writing only")
            }
            AccessDirection::Read | AccessDirection::Write => match place {
                AccessOrigin::At(_) | AccessOrigin::Individual => self.check_random(),
                AccessOrigin::Shared | AccessOrigin::Ordered => Ok(()),
            },
        }
    }

    /// Files opened with `MPI_MODE_SEQUENTIAL` have the shared pointer only.
    pub fn check_random(&self) -> Result<()> {
        if !self.amode.sequential {
            return Ok(());
        }
        let text =
            format!("{}: it is open for sequential access, which has the shared pointer only", self.name);
        Err(MpiError::new(Class::UnsupportedOperation, text))
    }

    /// Truncates or extends; collective.
    pub fn set_size(&self, bytes: i64) -> Result<()> {
        self.queue.wait_earlier()?;
        self.on_file(|file| {
            Ok(file.set_len_if(self.checked_size(bytes).map_err(|problem| problem.to_error()))?)
        })
    }

    /// Reserves space for `bytes`; collective. The file becomes at least that long.
    pub fn preallocate(&self, bytes: i64) -> Result<()> {
        self.queue.wait_earlier()?;
        self.on_file(|file| {
            let group = file.group();
            let checked = self.checked_size(bytes);
            let found = checked.as_ref().map_err(MpiError::to_error).and_then(|_| file.len());
            group.agree(found.as_ref().map(|_| ()).map_err(Clone::clone))?;
            let bytes = checked?;
            group.same("a size of the file", &bytes.to_le_bytes())?;
            // Extended by all ranks if any rank sees it as too short.
            let length = group.reduce(found?, pario::group::Reduce::Min)?;
            if length < bytes { Ok(file.set_len(bytes)?) } else { Ok(()) }
        })
    }

    fn checked_size(&self, bytes: i64) -> Result<u64> {
        self.check_direction(AccessDirection::Write, AccessOrigin::Shared)?;
        u64::try_from(bytes)
            .map_err(|_| MpiError::new(Class::Arg, format!("{}: size {bytes} is negative", self.name)))
    }

    /// The file's length.
    pub fn size(&self) -> Result<i64> {
        self.on_file(|file| Ok(i64::try_from(file.len()?).unwrap_or(i64::MAX)))
    }

    /// Changes the hints that can change while a file is open; collective. Those of rank 0 are used.
    pub fn set_info(&self, read: Result<InfoHints>) -> Result<()> {
        self.queue.wait_earlier()?;
        self.on_file(|file| {
            file.group().agree(read.as_ref().map(|_| ()).map_err(MpiError::to_error))?;
            let wishes = read?;
            let wishes = InfoHints::from_bytes(&file.group().broadcast(0, &wishes.to_bytes())?);
            file.change_hints(&wishes.hints(file.group().size(), None))?;
            self.info_hints.lock().unwrap_or_else(PoisonError::into_inner).add(wishes);
            Ok(())
        })
    }

    /// The hints that are in force.
    pub fn info(&self) -> Result<Vec<(&'static str, String)>> {
        let wishes = self.info_hints.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.on_file(|file| Ok(in_force(file, &wishes)))
    }

    /// Writes to stable storage, and makes all writes visible to all ranks; collective.
    pub fn sync(&self) -> Result<()> {
        self.queue.wait_earlier()?;
        self.on_file(|file| Ok(file.sync()?))
    }

    /// Sets the view; collective. `made` is the result of decoding this rank's datatypes; `representation` names the data
    /// representation.
    pub fn set_view(
        &self,
        displacement: i64,
        made: &Result<(Datatype, Datatype)>,
        representation: &str,
    ) -> Result<()> {
        self.queue.wait_earlier()?;
        self.on_file(|file| {
            let wished = made.as_ref().map(|(etype, filetype)| (displacement, etype, filetype));
            let alike: &[(&str, &[u8])] = &[("the data representation", representation.as_bytes())];
            Ok(file.set_view_if(wished.map_err(MpiError::to_error), alike)?)
        })
    }

    /// Moves the individual pointer.
    pub fn seek(&self, to: Seek) -> Result<()> {
        self.check_random()?;
        let _alone = self.lock_pointer();
        self.on_file(|file| {
            file.seek(to)?;
            Ok(())
        })
    }

    /// The individual pointer.
    pub fn position(&self) -> Result<i64> {
        self.check_random()?;
        self.on_file(|file| Ok(i64::try_from(file.position()).unwrap_or(i64::MAX)))
    }

    /// File offset of the elementary type at an offset of the view.
    pub fn byte_offset(&self, offset: i64) -> Result<i64> {
        self.check_random()?;
        let negative = |_| MpiError::new(Class::Arg, format!("{}: offset {offset} is negative", self.name));
        let offset = u64::try_from(offset).map_err(negative)?;
        self.on_file(|file| Ok(i64::try_from(file.byte_offset(offset)?).unwrap_or(i64::MAX)))
    }

    /// Moves the shared pointer; collective.
    pub fn seek_shared(&self, to: Seek) -> Result<()> {
        self.on_file(|file| shared::seek_shared(file, to))
    }

    /// The shared pointer.
    pub fn position_shared(&self) -> Result<i64> {
        self.on_file(|file| Ok(i64::try_from(shared::position_shared(file)?).unwrap_or(i64::MAX)))
    }

    /// File offset of the shared pointer.
    pub fn shared_byte_offset(&self) -> Result<i64> {
        self.on_file(|file| {
            let offset = file.byte_offset(shared::position_shared(file)?)?;
            Ok(i64::try_from(offset).unwrap_or(i64::MAX))
        })
    }

    /// Switches atomic mode; collective.
    pub fn set_atomicity(&self, atomic: bool) -> Result<()> {
        self.queue.wait_earlier()?;
        self.on_file(|file| shared::set_atomicity(file, atomic))
    }

    /// Whether atomic mode is on.
    pub fn atomicity(&self) -> Result<bool> {
        self.on_file(|file| Ok(shared::atomicity(file)))
    }

    /// The path in its partition.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
