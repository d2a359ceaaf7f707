//! Distant I/O: each member of a group is the home of files that all members read and write, without a partition.
//!
//! ```text
//!  DistantFile, DistantFiles, SharedFile ─► file_core (parts, ends, requests) ─► stripe (pure: places)
//!                                                │
//!                                            component ─► own: its own descriptor
//!                                                │      ├► near: a lent descriptor
//!                                                │      └► far: one message ─► home_store in the home's process
//!                                              homes (connections, own server)
//! ```
//! Never: uses leases, locks, intents or records: users keep out of each other's bytes. Always: a completed write is in the home's file; a
//! call that needs a dead or stopped home fails within seconds and names it; nothing is left of a process that is killed.

mod component;
mod counts;
mod file_core;
mod files;
mod home_call;
mod home_store;
mod homes;
mod join;
mod options;
mod request;
mod shared;
mod shared_create;
mod shared_place;
mod stripe;
mod workers;

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pario_core::{Code, Fault};
use rustix::fs::OFlags;

pub use self::counts::DistantCounts;
pub use self::files::{DistantFile, DistantFiles};
pub use self::home_call::DistantOpen;
pub use self::options::{DistantOptions, FilePlace, SharedFileOptions};
pub use self::request::DistantRequest;
pub use self::shared::SharedFile;
pub use self::shared_place::PLACE_VARIABLE;
pub use self::stripe::stripe_bytes;

use self::component::Component;
use self::counts::FileCounters;
use self::file_core::{EndRule, FileCore, FileSpec};
use self::home_call::{FileAccess, FileRef, HomeAnswer, HomeCall};
use self::homes::Homes;
use self::stripe::FileStriping;
use crate::error::{Error, Result};
use crate::group::{CollectiveCall, Group};

/// Longest published name.
const NAME_BYTES_MAX: usize = 4095;
/// Descriptors of homes on this node are fetched at registration up to this number, else at the first access.
const PREPARED_MAX: usize = 32;

/// The distant files of a group, as one member has them.
#[derive(Debug)]
pub struct Distant {
    group: Arc<dyn Group>,
    homes: Arc<Homes>,
    /// Number of the next registration or shared file: equal on all members.
    next: AtomicU64,
}

impl Distant {
    /// Ranks of the homes.
    #[must_use]
    pub fn homes(&self) -> Vec<usize> {
        self.homes.ranks()
    }

    /// Rank of this member.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.group.rank()
    }

    /// Number of members.
    #[must_use]
    pub fn size(&self) -> usize {
        self.group.size()
    }

    /// Registers an open file of each member, or none; collective. One handle stands for all; an access names the member. The descriptor is
    /// served as it is: what it does not allow is refused, and its name may change.
    ///
    /// ```
    /// use pario::distant::{Distant, DistantOptions};
    ///
    /// let group = pario::Alone::group();
    /// let distant = Distant::join(&group, &DistantOptions::serving())?;
    /// let mut file = std::fs::OpenOptions::new();
    /// file.read(true).write(true).create_new(true);
    /// # let path = std::env::temp_dir().join(format!("pario-distant-doc-{}", std::process::id()));
    /// let files = distant.register(Some(file.open(&path).expect("a new file")))?;
    /// # std::fs::remove_file(&path).expect("it is there");
    /// files.write_at(0, 4096, b"record")?;
    /// let mut record = [0; 6];
    /// assert_eq!(files.read_at(0, 4096, &mut record)?, 6);
    /// files.unregister(&distant)?;
    /// # assert_eq!(&record, b"record");
    /// # Ok::<(), pario::Error>(())
    /// ```
    ///
    /// # Errors
    /// On all members if one of them cannot: it is no home, or its descriptor is not of a regular file.
    pub fn register(&self, file: Option<File>) -> Result<DistantFiles> {
        self.register_opened(Ok(file))
    }

    /// The same for a member that may have failed to open its file: all members get its error.
    pub fn register_opened(&self, file: Result<Option<File>>) -> Result<DistantFiles> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let adopt = |file: File| self.adopt(number, file).map_err(Error::from);
        let adopted = file.and_then(|file| file.map(adopt).transpose());
        let access = self.exchange("register", number, adopted);
        let access = access.inspect_err(|_| self.forget(number))?;
        let counters = Arc::new(FileCounters::default());
        let mut cores = Vec::with_capacity(access.len());
        for (rank, access) in access.into_iter().enumerate() {
            let core = access.map(|access| {
                let file = FileRef { rank, number, access };
                self.single(format!("registration {number}"), file, &counters)
            });
            cores.push(core.transpose()?);
        }
        let files = DistantFiles { number, cores, homes: Arc::clone(&self.homes) };
        let prepared = self.prepare(files.cores.iter().flatten().flat_map(|core| core.components()));
        // All members have the descriptors before one of them can stop.
        self.group.agree_in(CollectiveCall::Open, prepared)?;
        Ok(files)
    }

    fn adopt(&self, number: u64, file: File) -> std::result::Result<FileAccess, Fault> {
        let own = self.homes.own().ok_or_else(|| {
            let text = format!("rank {} brings a file and joined as a client: join as a home", self.rank());
            Fault::new(Code::Invalid, text)
        })?;
        let found = file.metadata().map_err(|error| Fault::from_io(&error, "examining"))?;
        home_store::check_regular(&found, "the registered file")?;
        let flags = rustix::fs::fcntl_getfl(&file).map_err(|error| Fault::from_io(&error.into(), "flags"))?;
        let mode = flags & OFlags::RWMODE;
        let access = FileAccess { readable: mode != OFlags::WRONLY, writable: mode != OFlags::RDONLY };
        if access.writable && flags.contains(OFlags::APPEND) {
            let text =
                "the registered file is open for appending, which ignores offsets: open it without O_APPEND";
            return Err(Fault::new(Code::Invalid, text));
        }
        own.adopt(number, file, access)?;
        Ok(access)
    }

    fn forget(&self, number: u64) {
        if let Some(own) = self.homes.own() {
            own.forget(number);
        }
    }

    /// Fetches descriptors of near homes.
    fn prepare<'a>(&self, components: impl Iterator<Item = &'a Arc<Component>>) -> Result<()> {
        let near = components.filter(|component| {
            component.home_number().is_some_and(|number| self.homes.home(number).is_near)
        });
        near.take(PREPARED_MAX).try_for_each(|component| component.prepare()).map_err(Error::from)
    }

    /// A file of one component.
    fn single(&self, name: String, file: FileRef, counters: &Arc<FileCounters>) -> Result<Arc<FileCore>> {
        let component = Component::new(&self.homes, file, counters)?;
        Ok(FileCore::new(FileSpec {
            name,
            rank: self.rank(),
            striping: FileStriping::whole(),
            components: vec![Arc::new(component)],
            end_rule: EndRule::Fewer,
            known: 0,
            hard_limit: None,
            counters: Arc::clone(counters),
        }))
    }

    /// Opens a file below the directory of a home; not collective, and without the help of the home's program.
    pub fn open(&self, home: usize, path: impl AsRef<Path>, how: DistantOpen) -> Result<DistantFile> {
        let number = self.homes.number_of(home)?;
        let bytes = path.as_ref().as_os_str().as_bytes().to_vec();
        let answer = self.homes.call(number, HomeCall::Open { path: bytes.clone(), how })?;
        let core = self.single(path.as_ref().display().to_string(), file_of(answer)?, &Arc::default())?;
        Ok(DistantFile { core, homes: Arc::clone(&self.homes), opened: Some((number, bytes)) })
    }

    /// Makes a file known to all members under a name; it stays open at its home until [`Distant::unpublish`].
    pub fn publish(&self, name: &str, file: &DistantFile) -> Result<()> {
        check_name(name)?;
        let component = file.core.components().first();
        let found = component.and_then(|component| Some((component.home_number()?, component.file_ref()?)));
        let (number, file) = found.ok_or_else(|| Fault::from(Code::Invalid))?;
        self.homes.call(number, HomeCall::Retain { number: file.number })?;
        let said = self.homes.call(self.directory()?, HomeCall::Publish { name: name.to_owned(), file });
        if let Err(fault) = said {
            self.homes.call(number, HomeCall::Release { number: file.number })?;
            return Err(fault.into());
        }
        Ok(())
    }

    /// Forgets a name; files that were looked up stay open.
    pub fn unpublish(&self, name: &str) -> Result<()> {
        check_name(name)?;
        let answer = self.homes.call(self.directory()?, HomeCall::Unpublish { name: name.to_owned() })?;
        let file = file_of(answer)?;
        self.homes.call(self.homes.number_of(file.rank)?, HomeCall::Release { number: file.number })?;
        Ok(())
    }

    /// The file that was published under a name.
    pub fn lookup(&self, name: &str) -> Result<DistantFile> {
        check_name(name)?;
        let answer = self.homes.call(self.directory()?, HomeCall::Lookup { name: name.to_owned() })?;
        let file = file_of(answer)?;
        let number = self.homes.number_of(file.rank)?;
        self.homes.call(number, HomeCall::Retain { number: file.number })?;
        let core = self.single(name.to_owned(), file, &Arc::default())?;
        Ok(DistantFile { core, homes: Arc::clone(&self.homes), opened: Some((number, Vec::new())) })
    }

    /// Number of the home that keeps published names.
    fn directory(&self) -> Result<usize> {
        match self.homes.ranks().is_empty() {
            false => Ok(0),
            true => Err(Fault::new(Code::Unsupported, "no member is a home: names have no place").into()),
        }
    }

    /// Removes a file from the directory of a home; members that have it open keep its bytes.
    pub fn remove(&self, home: usize, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref().as_os_str().as_bytes().to_vec();
        self.homes.call(self.homes.number_of(home)?, HomeCall::Remove { path })?;
        Ok(())
    }

    /// Leaves; collective. Homes serve until all members have called it.
    pub fn leave(self) -> Result<()> {
        self.meet()
    }

    /// Waits until all members have called it.
    pub fn meet(&self) -> Result<()> {
        self.homes.check_process()?;
        self.group.barrier()
    }

    /// Values of all members for a collective of this kind.
    fn exchange<T: serde::Serialize + for<'a> serde::Deserialize<'a>>(
        &self,
        call: &str,
        number: u64,
        mine: Result<T>,
    ) -> Result<Vec<T>> {
        self.exchange_alike(CollectiveCall::Open, &[("the call", call.as_bytes())], number, mine)
    }

    fn exchange_alike<T: serde::Serialize + for<'a> serde::Deserialize<'a>>(
        &self,
        call: CollectiveCall,
        alike: &[(&str, &[u8])],
        number: u64,
        mine: Result<T>,
    ) -> Result<Vec<T>> {
        self.homes.check_process()?;
        let number = number.to_le_bytes();
        let mut all: Vec<(&str, &[u8])> = alike.to_vec();
        all.push(("the number of the distant file", &number));
        let bytes = mine.and_then(|mine| home_call::encode(&mine).map_err(Error::from));
        let told = self.group.exchange(call, &all, bytes.as_deref().map_err(Clone::clone))?;
        told.iter().map(|bytes| home_call::decode(bytes).map_err(Error::from)).collect()
    }

    /// The end of a registration or shared file, on all members.
    fn end_collective(&self, call: &str, number: u64) -> Result<()> {
        let alike = [("the call", call.as_bytes())];
        self.exchange_alike(CollectiveCall::Close, &alike, number, Ok(())).map(|_: Vec<()>| ())
    }
}

fn file_of(answer: HomeAnswer) -> Result<FileRef> {
    match answer {
        HomeAnswer::File(file) => Ok(file),
        HomeAnswer::Done => Err(Fault::new(Code::Protocol, "a home answered without a file").into()),
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || NAME_BYTES_MAX < name.len() {
        let text = format!("a published name has 1 to {NAME_BYTES_MAX} bytes, not {}", name.len());
        return Err(Fault::new(Code::Invalid, text).into());
    }
    Ok(())
}
