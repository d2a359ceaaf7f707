//! A file that the ranks of a communicator opened: Pario's file, its mode, and what is under way.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use pario::group::{Call, leave_in_turn};
use pario::view::Datatype;
use pario::{Group, GroupFile, Partition, Seek, SharedOptions};

use crate::access::{Place, Way};
use crate::amode::Amode;
use crate::hints::Wishes;
use crate::mounts::partition_of;
use crate::path::Target;
use crate::problem::{Class, Problem, Result};
use crate::served::Served;
use crate::shared;
use crate::worker::Pool;

/// What a program wants to open.
#[derive(Clone, Debug)]
pub struct OpenWish {
    /// Which file: one of a partition, or a plain one that is cached.
    pub target: Target,
    /// How.
    pub amode: Amode,
    /// Hints of this rank; those of rank 0 count.
    pub wishes: Wishes,
}

impl OpenWish {
    /// What a rank tells the others: which file it wants, and its hints.
    fn told(&self, mounted: Option<&Partition>) -> Vec<u8> {
        let path = self.target.path();
        let name = match mounted {
            Some(mounted) => format!("pario://{}/{}", mounted.name(), path.display()),
            None => path.display().to_string(),
        };
        [name.as_bytes(), &[0], &self.wishes.to_bytes()].concat()
    }
}

/// The file that all ranks want, and the hints of rank 0; fails on all where they want different files.
fn agreed(all: &[Vec<u8>]) -> Result<(String, Wishes)> {
    let parts: Vec<(&[u8], &[u8])> = all.iter().map(|told| at_zero(told)).collect();
    if let Some(rank) = parts.iter().position(|told| told.0 != parts[0].0) {
        let text = format!("ranks 0 and {rank} do not agree on the name of a file, and all must");
        return Err(Problem::new(Class::NotSame, text));
    }
    let (name, wishes) = parts.first().copied().unwrap_or_default();
    Ok((String::from_utf8_lossy(name).into_owned(), Wishes::from_bytes(wishes)))
}

/// What is before the first zero, and what is behind it: a path has none.
fn at_zero(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

/// The partition that a file is in; `None`: it is a plain one.
fn mount(target: &Target) -> Result<Option<Partition>> {
    match target {
        Target::Ours { partition, .. } => partition_of(partition).map(Some),
        Target::Plain { .. } => Ok(None),
        Target::Theirs => Err(not_ours()),
    }
}

fn not_ours() -> Problem {
    Problem::new(Class::Intern, "a file of the MPI library's is opened as Pario's")
}

/// See the module.
#[derive(Debug)]
pub struct OpenFile {
    file: RwLock<Option<GroupFile>>,
    name: String,
    /// `None`: a plain file.
    partition: Option<Partition>,
    path: PathBuf,
    amode: Amode,
    group: Arc<dyn Group>,
    moving: Mutex<()>,
    line: Pool,
    served: Served,
}

impl OpenFile {
    /// Opens together with all other ranks of the group; `also` makes what else a rank needs for it, once it has the file. Ranks meet once to
    /// see that they want the same, and then as often as opening the file takes.
    pub fn open(
        group: &Arc<dyn Group>,
        wish: &OpenWish,
        mut also: impl FnMut() -> Result<()>,
    ) -> Result<OpenFile> {
        let also = &mut || also().map_err(|problem| problem.to_error());
        let (target, amode) = (&wish.target, wish.amode);
        let mounted = amode.check().and_then(|()| mount(target));
        let told = mounted.as_ref().map(|mounted| wish.told(mounted.as_ref())).map_err(Problem::to_error);
        let told = told.as_deref().map_err(Clone::clone);
        let mode = format!("{amode:?}");
        let kind = target.kind();
        // Files of a partition and plain ones are opened in different ways: members must not set out on both.
        let alike = [("the access mode of a file", mode.as_bytes()), ("where a file lies", kind.as_bytes())];
        let (file, name) = match target {
            Target::Ours { path, .. } => {
                let (own, all) = group.duplicate_if(&alike, told)?;
                let (name, wishes) = agreed(&all)?;
                let Some(mounted) = mounted.as_ref().map_err(Clone::clone)? else { return Err(not_ours()) };
                let options = mounted.options().read(amode.reads()).write(amode.writes());
                let options = options.create(amode.create).create_new(amode.create && amode.exclusive);
                (options.open_agreed(own, path, &wishes.hints(group.size()), also)?, name)
            }
            Target::Plain { path, options } => {
                let (name, wishes) = agreed(&group.exchange(Call::Open, &alike, told)?)?;
                let options = SharedOptions {
                    read: amode.reads(),
                    write: amode.writes(),
                    create: amode.create,
                    create_new: amode.create && amode.exclusive,
                    ..wishes.shared(options)
                };
                let file = pario::open_shared(group, path, &options)?;
                group.agree(also())?;
                (file, name)
            }
            Target::Theirs => return Err(not_ours()),
        };
        let opened = OpenFile {
            name,
            file: RwLock::new(Some(file)),
            partition: mounted?,
            path: target.path().to_owned(),
            amode,
            group: Arc::clone(group),
            moving: Mutex::new(()),
            line: Pool::default(),
            served: Served::by_environment(),
        };
        if amode.append {
            opened.on_file(shared::append)?;
        }
        leave_in_turn(&**group);
        Ok(opened)
    }

    /// Closes, together with all others; removes the file if that was wished at open.
    pub fn close(&self) -> Result<()> {
        let drained = self.line.drain();
        let file = self.file.write().unwrap_or_else(PoisonError::into_inner).take();
        let closed = file.ok_or_else(|| self.gone())?.close().map_err(Problem::from);
        self.served.report(self.group.rank(), &self.name);
        let removed = match self.amode.delete_on_close && self.group.rank() == 0 {
            true => self.remove(),
            false => Ok(()),
        };
        if self.amode.delete_on_close {
            self.group.agree(removed.clone().map_err(|problem| problem.to_error()))?;
        }
        // What the MPI library does for it now comes behind: who sleeps here is in nobody's way, and who has slept runs to the end.
        leave_in_turn(&*self.group);
        drained.and(closed).and(removed)
    }

    fn remove(&self) -> Result<()> {
        match &self.partition {
            Some(partition) => Ok(partition.remove_file(&self.path)?),
            None => std::fs::remove_file(&self.path).map_err(|error| {
                let fault = pario::core::Fault::from_io(&error, self.path.display().to_string());
                Problem::from(pario::Error::from(fault))
            }),
        }
    }

    /// Gives what was written to the servers and lets go of the file, without the others: the program ends and has not closed it.
    pub fn abandon(&self) -> Result<()> {
        let drained = self.line.drain();
        let file = self.file.write().unwrap_or_else(PoisonError::into_inner).take();
        let closed = file.map_or(Ok(()), |file| file.abandon().map_err(Problem::from));
        self.served.report(self.group.rank(), &self.name);
        drained.and(closed)
    }

    /// For people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it was opened.
    pub fn amode(&self) -> &Amode {
        &self.amode
    }

    /// What was served.
    pub fn served(&self) -> &Served {
        &self.served
    }

    /// The ranks that opened it.
    pub fn group(&self) -> &Arc<dyn Group> {
        &self.group
    }

    /// The thread for collective accesses that do not block.
    pub fn line(&self) -> &Pool {
        &self.line
    }

    /// Does something with the file while it is open.
    pub fn on_file<T>(&self, work: impl FnOnce(&GroupFile) -> Result<T>) -> Result<T> {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        work(file.as_ref().ok_or_else(|| self.gone())?)
    }

    fn gone(&self) -> Problem {
        Problem::new(Class::File, format!("{} is closed", self.name))
    }

    /// Pointers are moved by one thread at a time.
    pub(crate) fn moving(&self) -> MutexGuard<'_, ()> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the mode allows an access.
    pub(crate) fn check_way(&self, way: Way, place: Place) -> Result<()> {
        let refused = |class, why: &str| Err(Problem::new(class, format!("{}: {why}", self.name)));
        match way {
            Way::Write if !self.amode.writes() => refused(Class::ReadOnly, "it is open for reading only"),
            Way::Read if !self.amode.reads() => refused(Class::Access, "it is open for writing only"),
            Way::Read | Way::Write => match place {
                Place::At(_) | Place::Individual => self.check_random(),
                Place::Shared | Place::Ordered => Ok(()),
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
        Err(Problem::new(Class::UnsupportedOperation, text))
    }

    /// Cuts or lengthens; collective.
    pub fn set_size(&self, bytes: i64) -> Result<()> {
        self.line.drain()?;
        self.on_file(|file| {
            Ok(file.set_len_if(self.checked_size(bytes).map_err(|problem| problem.to_error()))?)
        })
    }

    /// Makes sure that there is room for `bytes`; collective. The file becomes at least that long.
    pub fn preallocate(&self, bytes: i64) -> Result<()> {
        self.line.drain()?;
        self.on_file(|file| {
            let group = file.group();
            let checked = self.checked_size(bytes);
            let found = checked.as_ref().map_err(Problem::to_error).and_then(|_| file.len());
            group.agree(found.as_ref().map(|_| ()).map_err(Clone::clone))?;
            let bytes = checked?;
            group.same("a size of the file", &bytes.to_le_bytes())?;
            // What one rank sees as too short all lengthen.
            let length = group.reduce(found?, pario::group::Reduce::Min)?;
            if length < bytes { Ok(file.set_len(bytes)?) } else { Ok(()) }
        })
    }

    fn checked_size(&self, bytes: i64) -> Result<u64> {
        self.check_way(Way::Write, Place::Shared)?;
        u64::try_from(bytes)
            .map_err(|_| Problem::new(Class::Arg, format!("{}: a size of {bytes}", self.name)))
    }

    /// Its length.
    pub fn size(&self) -> Result<i64> {
        self.on_file(|file| Ok(i64::try_from(file.len()?).unwrap_or(i64::MAX)))
    }

    /// Changes the hints that can change while a file is open; collective. Those of rank 0 count.
    pub fn set_info(&self, read: Result<Wishes>) -> Result<()> {
        self.line.drain()?;
        self.on_file(|file| {
            file.group().agree(read.as_ref().map(|_| ()).map_err(Problem::to_error))?;
            let wishes = read?;
            let wishes = Wishes::from_bytes(&file.group().broadcast(0, &wishes.to_bytes())?);
            Ok(file.change_hints(&wishes.hints(file.group().size()))?)
        })
    }

    /// On stable storage, and seen by all; collective.
    pub fn sync(&self) -> Result<()> {
        self.line.drain()?;
        self.on_file(|file| Ok(file.sync()?))
    }

    /// Sets the view; collective. `made` is what this rank could make of its datatypes; the representation is named, where it is known.
    pub fn set_view(
        &self,
        displacement: i64,
        made: &Result<(Datatype, Datatype)>,
        representation: &str,
    ) -> Result<()> {
        self.line.drain()?;
        self.on_file(|file| {
            let wished = made.as_ref().map(|(etype, filetype)| (displacement, etype, filetype));
            let alike: &[(&str, &[u8])] = &[("the data representation", representation.as_bytes())];
            Ok(file.set_view_if(wished.map_err(Problem::to_error), alike)?)
        })
    }

    /// Moves the individual pointer.
    pub fn seek(&self, to: Seek) -> Result<()> {
        self.check_random()?;
        let _alone = self.moving();
        self.on_file(|file| {
            file.seek(to)?;
            Ok(())
        })
    }

    /// Where the individual pointer is.
    pub fn position(&self) -> Result<i64> {
        self.check_random()?;
        self.on_file(|file| Ok(i64::try_from(file.position()).unwrap_or(i64::MAX)))
    }

    /// Where the elementary type at an offset of the view lies in the file.
    pub fn byte_offset(&self, offset: i64) -> Result<i64> {
        self.check_random()?;
        let negative = |_| Problem::new(Class::Arg, format!("{}: offset {offset} is negative", self.name));
        let offset = u64::try_from(offset).map_err(negative)?;
        self.on_file(|file| Ok(i64::try_from(file.byte_offset(offset)?).unwrap_or(i64::MAX)))
    }

    /// Moves the shared pointer; collective.
    pub fn seek_shared(&self, to: Seek) -> Result<()> {
        self.on_file(|file| shared::seek_shared(file, to))
    }

    /// Where the shared pointer is.
    pub fn position_shared(&self) -> Result<i64> {
        self.on_file(|file| Ok(i64::try_from(shared::position_shared(file)?).unwrap_or(i64::MAX)))
    }

    /// The byte of the file that the shared pointer is at.
    pub fn shared_byte_offset(&self) -> Result<i64> {
        self.on_file(|file| {
            let offset = file.byte_offset(shared::position_shared(file)?)?;
            Ok(i64::try_from(offset).unwrap_or(i64::MAX))
        })
    }

    /// Switches atomic mode; collective.
    pub fn set_atomicity(&self, atomic: bool) -> Result<()> {
        self.line.drain()?;
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
