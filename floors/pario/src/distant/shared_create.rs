//! Creation of shared files: components without a name on the homes, or one plain file.
//!
//! Never: leaves a file behind when the creation fails, except one with a suffix. Always: all members get the file, or an error that names
//! the member that could not.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pario_core::{Code, Fault};
use pario_sys::dir::PRIVATE_FILE;
use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use super::Distant;
use super::component::Component;
use super::counts::{FileCounters, is_enabled, print_line};
use super::file_core::{EndRule, FileCore, FileSpec};
use super::home_call::{FileAccess, FileRef};
use super::options::{FilePlace, SharedFileOptions};
use super::shared::SharedFile;
use super::shared_place::{ChosenPlace, PLACE_VARIABLE, split, try_place, unused_name};
use super::stripe::{FileStriping, stripe_bytes};
use crate::environment::{EXPLAIN_VARIABLE, choice};
use crate::error::{Error, Result};
use crate::group::{CollectiveCall, broadcast_value};

/// Attribute of a named component: stripe, number of components, place among them.
const STRIPING_ATTRIBUTE: &str = "user.pario.shared-file";
/// Name of a shared file without a path.
const NAME_DEFAULT: &str = "shared";
const READ_WRITE: FileAccess = FileAccess { readable: true, writable: true };

impl Distant {
    /// Creates a shared file; collective, with equal options.
    ///
    /// # Errors
    /// On all members: different options or calls; a home that cannot create its component; a path that some nodes share and others do not.
    pub fn create(&self, options: &SharedFileOptions) -> Result<SharedFile> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let wished = choice::<FilePlace>(PLACE_VARIABLE).map(|place| match place {
            Some(place) => Some((place, format!("{PLACE_VARIABLE} says so"))),
            None => options.place.map(|place| (place, "the program says so".to_owned())),
        });
        let shown = format!("{options:?} {:?}", wished.as_ref().ok());
        let alike = [("the call", &b"create"[..]), ("the options of the shared file", shown.as_bytes())];
        let told = wished.as_ref().map(|_| ()).map_err(Clone::clone);
        self.exchange_alike(CollectiveCall::Open, &alike, number, told)?;
        let chosen = match (wished?, &options.path) {
            (Some((FilePlace::Filesystem, _)), None) => {
                return Err(Fault::new(Code::Invalid, "a shared file in a file system needs a path").into());
            }
            (Some(chosen), _) => chosen,
            (None, None) => (FilePlace::Distant, "it has no path".to_owned()),
            (None, Some(path)) => try_place(&*self.group, path)?,
        };
        let file = match (chosen.0, &options.path) {
            (FilePlace::Filesystem, Some(path)) => self.create_plain(number, path, options)?,
            (FilePlace::Filesystem | FilePlace::Distant, _) => self.create_striped(number, options)?,
        };
        self.explain(&file, &chosen);
        Ok(file)
    }

    fn explain(&self, file: &SharedFile, (_, why): &ChosenPlace) {
        if self.rank() != 0 || !is_enabled(EXPLAIN_VARIABLE) {
            return;
        }
        let what = match file.place {
            FilePlace::Filesystem => "one plain file".to_owned(),
            FilePlace::Distant => {
                format!("blocks of {} bytes in turn on ranks {:?}", file.stripe, file.homes)
            }
        };
        print_line(&format!("pario: distant: {}: {what}: {why}", file.core.name));
    }

    fn create_striped(&self, number: u64, options: &SharedFileOptions) -> Result<SharedFile> {
        let homes = options.homes.clone().unwrap_or_else(|| self.homes.ranks());
        let striping = FileStriping {
            stripe: stripe_bytes(options.request_bytes, homes.len()),
            components: homes.len(),
        };
        let opened = self.open_component(number, &homes, striping, options);
        let told = opened.as_ref().map(|own| own.as_ref().map(|(_, length)| *length)).map_err(Clone::clone);
        let lengths: Vec<Option<u64>> =
            self.exchange("create", number, told).inspect_err(|_| self.forget(number))?;
        let counters = Arc::new(FileCounters::default());
        let dir = options.path.as_deref().map(split).transpose()?.map(|(dir, _)| dir.display().to_string());
        let component = |rank: &usize| {
            let file = FileRef { rank: *rank, number, access: READ_WRITE };
            let component = Component::new(&self.homes, file, &counters)?;
            Ok(Arc::new(match &dir {
                Some(dir) => component.in_dir(dir),
                None => component,
            }))
        };
        let components: Vec<Arc<Component>> = homes.iter().map(component).collect::<Result<_>>()?;
        let proved = homes
            .iter()
            .enumerate()
            .map(|(place, rank)| striping.end_of(place, lengths.get(*rank).copied().flatten().unwrap_or(0)));
        let known = proved.max().unwrap_or(0);
        let named = opened?.and_then(|(path, _)| path);
        let core = self.core(options, striping, components, (known, counters));
        // All members have the descriptors of their node before one of them can stop.
        let prepared = self.prepare(core.components().iter());
        self.group.agree_in(CollectiveCall::Open, prepared).inspect_err(|_| self.forget(number))?;
        let limits = (options.hard_limit, options.soft_limit);
        let stripe = striping.stripe;
        Ok(SharedFile { core, number, place: FilePlace::Distant, stripe, homes, named, limits })
    }

    /// Opens and serves the component of this member: its name, if it has one, and its length. `None`: this member has none.
    fn open_component(
        &self,
        number: u64,
        homes: &[usize],
        striping: FileStriping,
        options: &SharedFileOptions,
    ) -> Result<Option<(Option<PathBuf>, u64)>> {
        let known = self.homes.ranks();
        if let Some(other) = homes.iter().find(|rank| !known.contains(rank)) {
            let text = format!("rank {other} is not a home: homes are {known:?}");
            return Err(Fault::new(Code::Invalid, text).into());
        }
        let is_twice = homes.iter().enumerate().any(|(at, rank)| homes[..at].contains(rank));
        if homes.is_empty() || is_twice {
            let text = format!("a shared file needs at least one home, each once; given: {homes:?}");
            return Err(Fault::new(Code::Invalid, text).into());
        }
        let place = homes.iter().position(|rank| *rank == self.rank());
        let (Some(place), Some(own)) = (place, self.homes.own()) else { return Ok(None) };
        let (dir, name) = match &options.path {
            Some(path) => split(path)?,
            None => (self.own_dir()?, NAME_DEFAULT.to_owned()),
        };
        let failed =
            |error: std::io::Error| Fault::from_io(&error, format!("a component in {}", dir.display()));
        let (file, path) = match options.suffix {
            None => (unnamed(&dir, &name).map_err(failed)?, None),
            Some(suffix) => {
                let path = dir.join(format!("{name}.{suffix}.{}", self.rank()));
                let file = open_named(&path, OFlags::CREATE).map_err(failed)?;
                check_striping(&file, &path, (striping, place))?;
                (file, Some(path))
            }
        };
        let length = file.metadata().map_err(failed)?.len();
        own.adopt(number, file, READ_WRITE)?;
        Ok(Some((path, length)))
    }

    fn own_dir(&self) -> Result<PathBuf> {
        let dir = self.homes.own().and_then(|own| own.dir_path());
        dir.map(Path::to_owned).ok_or_else(|| {
            let text = format!(
                "rank {} has no directory for a component: join in a directory, or give the shared file a path",
                self.rank()
            );
            Fault::new(Code::Invalid, text).into()
        })
    }

    fn create_plain(&self, number: u64, path: &Path, options: &SharedFileOptions) -> Result<SharedFile> {
        let (dir, name) = split(path)?;
        let made = match options.suffix {
            Some(suffix) => dir.join(format!("{name}.{suffix}.0")),
            None => dir.join(unused_name(&name)),
        };
        let made: PathBuf = PathBuf::from(broadcast_value(&*self.group, &made.display().to_string())?);
        let failed = |error: std::io::Error| {
            Error::from(Fault::from_io(&error, format!("rank {}: {}", self.rank(), made.display())))
        };
        let first = (self.rank() == 0).then(|| open_named(&made, OFlags::CREATE).map_err(failed)).transpose();
        self.group.agree_in(CollectiveCall::Open, first.as_ref().map(|_| ()).map_err(Clone::clone))?;
        let file = match first? {
            Some(file) => Ok(file),
            None => open_named(&made, OFlags::empty()).map_err(failed),
        };
        let agreed =
            self.group.agree_in(CollectiveCall::Open, file.as_ref().map(|_| ()).map_err(Clone::clone));
        if self.rank() == 0 && options.suffix.is_none() {
            std::fs::remove_file(&made).map_err(failed)?;
        }
        agreed?;
        let counters = Arc::new(FileCounters::default());
        let component = Component::plain(&self.homes, file?, &counters);
        let core = self.core(options, FileStriping::whole(), vec![Arc::new(component)], (0, counters));
        let named = (self.rank() == 0 && options.suffix.is_some()).then_some(made);
        let limits = (options.hard_limit, options.soft_limit);
        let stripe = stripe_bytes(options.request_bytes, 1);
        let place = FilePlace::Filesystem;
        Ok(SharedFile { core, number, place, stripe, homes: Vec::new(), named, limits })
    }

    fn core(
        &self,
        options: &SharedFileOptions,
        striping: FileStriping,
        components: Vec<Arc<Component>>,
        (known, counters): (u64, Arc<FileCounters>),
    ) -> Arc<FileCore> {
        let name = options.path.as_ref().map(|path| path.display().to_string());
        FileCore::new(FileSpec {
            name: name.unwrap_or_else(|| NAME_DEFAULT.to_owned()),
            rank: self.rank(),
            striping,
            components,
            end_rule: EndRule::Error,
            known,
            hard_limit: options.hard_limit,
            counters,
        })
    }
}

/// A file without a name: it ends with its last descriptor.
fn unnamed(dir: &Path, name: &str) -> std::io::Result<File> {
    let mode = Mode::from_raw_mode(PRIVATE_FILE);
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::open(dir, flags, mode) {
        Ok(fd) => Ok(File::from(fd)),
        // A file system without unnamed files.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let path = dir.join(unused_name(name));
            let file = open_named(&path, OFlags::CREATE | OFlags::EXCL)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        }
        Err(error) => Err(error.into()),
    }
}

fn open_named(path: &Path, flags: OFlags) -> std::io::Result<File> {
    let flags = flags | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(PRIVATE_FILE))?))
}

/// Refuses the component of a file with other homes or blocks; marks a new one.
fn check_striping(file: &File, path: &Path, (striping, place): (FileStriping, usize)) -> Result<()> {
    let expected = format!("{} {} {place}", striping.stripe, striping.components);
    let mut found = [0u8; 64];
    match rustix::fs::fgetxattr(file, STRIPING_ATTRIBUTE, &mut found[..]) {
        Ok(bytes) if found[..bytes] == *expected.as_bytes() => Ok(()),
        Ok(bytes) => {
            let text = format!(
                "{} belongs to a shared file with other homes or blocks ({:?}, not {expected:?}: block size, homes, place): remove it, or use the same homes and request size",
                path.display(),
                String::from_utf8_lossy(&found[..bytes])
            );
            Err(Fault::new(Code::Invalid, text).into())
        }
        // A file system without attributes cannot tell.
        Err(_) => {
            let _ = rustix::fs::fsetxattr(file, STRIPING_ATTRIBUTE, expected.as_bytes(), XattrFlags::CREATE);
            Ok(())
        }
    }
}
