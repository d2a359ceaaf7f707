//! Open, close and delete.

use std::ffi::{c_char, c_int};
use std::sync::PoisonError;

use pario_mpi::{
    Class, InfoHints, MpiError, MpiFile, OpenArguments, PathTarget, Result, remove, resolve_open,
    resolve_path,
};

use super::convert::{self, put, text};
use super::info::{self, NULL_DEVICE};
use super::table::{self, OpenHandle};
use super::{api, comm};
use crate::abi::{self, Comm, File, Group, Info};

/// Resolves a path; `None`: a file of the MPI library.
pub(crate) fn ours(name: *const c_char) -> Result<Option<PathTarget>> {
    if name.is_null() {
        return Ok(None);
    }
    match resolve_path(&text(name, "a file's name")?)? {
        PathTarget::MpiLibrary => Ok(None),
        ours @ (PathTarget::Partition { .. } | PathTarget::Plain { .. }) => Ok(Some(ours)),
    }
}

/// The same for a file that is to be opened.
pub(crate) fn ours_to_open(name: *const c_char) -> Result<Option<PathTarget>> {
    if name.is_null() {
        return Ok(None);
    }
    match resolve_open(&text(name, "a file's name")?)? {
        PathTarget::MpiLibrary => Ok(None),
        ours @ (PathTarget::Partition { .. } | PathTarget::Plain { .. }) => Ok(Some(ours)),
    }
}

/// Opens a file of Pario's; collective.
pub(crate) fn open(
    comm: Comm,
    target: PathTarget,
    mode: c_int,
    hints: Info,
    handle: *mut File,
) -> Result<()> {
    put(handle, abi::file_null())?;
    let meeting = comm::meet(comm)?;
    let wish = OpenArguments {
        target,
        amode: convert::amode(mode),
        info_hints: InfoHints::new(info::pairs(hints)?),
    };
    let mut made = None;
    let file = MpiFile::open(meeting.group(), &wish, || {
        made = Some(MpiResources::new(comm)?);
        Ok(())
    })?;
    file.served().note("open");
    let made = made
        .ok_or_else(|| MpiError::new(Class::Intern, "internal error: a file was opened without a handle"))?;
    let (shadow, members) = made.keep();
    table::insert(shadow, OpenHandle::new(file, mode, members, meeting));
    put(handle, shadow)
}

/// Resources that the MPI library creates for an open file; freed unless kept.
struct MpiResources {
    shadow: File,
    members: Group,
}

impl MpiResources {
    fn new(comm: Comm) -> Result<MpiResources> {
        let mut members = abi::group_none();
        api::comm_group(comm, &raw mut members)?;
        match shadow() {
            Ok(shadow) => Ok(MpiResources { shadow, members }),
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

impl Drop for MpiResources {
    fn drop(&mut self) {
        // The open has failed, and its error is more useful than one of these.
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

/// Closes; collective. The handle is invalid afterwards, also after an error.
pub(crate) fn close(handle: *mut File, opened: &OpenHandle) -> Result<()> {
    // SAFETY: the caller found the file by this variable.
    let mut shadow = unsafe { handle.read() };
    if let Some(begun) = opened.split.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
        let text = format!("{}: closed while a split access is in progress: {begun:?}", opened.file.name());
        return Err(MpiError::new(Class::FileInUse, text));
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
pub(crate) fn delete(target: &PathTarget) -> Result<()> {
    match target {
        PathTarget::Partition { partition, path } => remove(partition, path),
        PathTarget::MpiLibrary | PathTarget::Plain { .. } => Err(MpiError::new(
            Class::Intern,
            "internal error: a file of the MPI library reached Pario's delete",
        )),
    }
}
