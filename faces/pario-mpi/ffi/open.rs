//! Opening, closing and deleting.

use std::ffi::{c_char, c_int};
use std::sync::PoisonError;

use pario_mpi::{Class, OpenFile, OpenWish, Problem, Result, Target, Wishes, opening_of, remove, target_of};

use super::convert::{self, put, text};
use super::info::{self, NULL_DEVICE};
use super::table::{self, Opened};
use super::{api, comm};
use crate::abi::{self, Comm, File, Group, Info};

/// Where a path leads; `None`: to the MPI library.
pub(crate) fn ours(name: *const c_char) -> Result<Option<Target>> {
    if name.is_null() {
        return Ok(None);
    }
    match target_of(&text(name, "a file's name")?)? {
        Target::Theirs => Ok(None),
        ours @ (Target::Ours { .. } | Target::Plain { .. }) => Ok(Some(ours)),
    }
}

/// The same for a file that is to be opened.
pub(crate) fn ours_to_open(name: *const c_char) -> Result<Option<Target>> {
    if name.is_null() {
        return Ok(None);
    }
    match opening_of(&text(name, "a file's name")?)? {
        Target::Theirs => Ok(None),
        ours @ (Target::Ours { .. } | Target::Plain { .. }) => Ok(Some(ours)),
    }
}

/// Opens a file of Pario's; collective.
pub(crate) fn open(comm: Comm, target: Target, mode: c_int, hints: Info, handle: *mut File) -> Result<()> {
    put(handle, abi::file_null())?;
    let meeting = comm::meet(comm)?;
    let wish = OpenWish { target, amode: convert::amode(mode), wishes: Wishes::new(info::pairs(hints)?) };
    let mut made = None;
    let file = OpenFile::open(&meeting.group, &wish, || {
        made = Some(Made::new(comm)?);
        Ok(())
    })?;
    file.served().note("open");
    let made = made.ok_or_else(|| Problem::new(Class::Intern, "a file was opened without a handle"))?;
    let (shadow, members) = made.keep();
    table::insert(shadow, Opened::new(file, mode, members, meeting));
    put(handle, shadow)
}

/// What the MPI library makes for an open file; given back unless it is kept.
struct Made {
    shadow: File,
    members: Group,
}

impl Made {
    fn new(comm: Comm) -> Result<Made> {
        let mut members = abi::group_none();
        api::comm_group(comm, &raw mut members)?;
        match shadow() {
            Ok(shadow) => Ok(Made { shadow, members }),
            Err(problem) => {
                api::group_free(&raw mut members)?;
                Err(problem)
            }
        }
    }

    fn keep(self) -> (File, Group) {
        let made = std::mem::ManuallyDrop::new(self);
        (made.shadow, made.members)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // The open has failed, and why says more than that this did too.
        let _ = api::group_free(&raw mut self.members);
        let _ = api::file_close(&raw mut self.shadow);
    }
}

/// A handle of the MPI library's own, for the null device.
pub(crate) fn shadow() -> Result<File> {
    let mut shadow = abi::file_null();
    let mode = abi::mode::RDWR;
    api::file_open(abi::comm_self(), NULL_DEVICE.as_ptr(), mode, abi::info_null(), &raw mut shadow)?;
    Ok(shadow)
}

/// Closes; collective. Whatever happens, the handle is gone.
pub(crate) fn close(handle: *mut File, opened: &Opened) -> Result<()> {
    // SAFETY: the caller found the file by this variable.
    let mut shadow = unsafe { handle.read() };
    if let Some(begun) = opened.split.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
        let text = format!("{}: closed while a split access is under way: {begun:?}", opened.file.name());
        return Err(Problem::new(Class::FileInUse, text));
    }
    let closed = opened.file.close();
    table::remove(shadow);
    let mut members = opened.members();
    let freed = api::group_free(&raw mut members);
    let gone = api::file_close(&raw mut shadow);
    put(handle, abi::file_null())?;
    closed.and(freed).and(gone)
}

/// Deletes; not collective.
pub(crate) fn delete(target: &Target) -> Result<()> {
    match target {
        Target::Ours { partition, path } => remove(partition, path),
        Target::Theirs | Target::Plain { .. } => {
            Err(Problem::new(Class::Intern, "a file of the MPI library's is deleted as Pario's"))
        }
    }
}
