//! Calls on paths.

use std::ffi::{c_char, c_int, c_uint};

use pario::core::{FileAttr, FileKind};
use pario_mpi::posix::{Posix, PosixMode};

use super::{describe, done, failed, libc_call, ours};

/// `NAME(path, arguments)`, served by the first part for Pario's paths.
macro_rules! on_path {
    ($($name:ident $symbol:literal ($($arg:ident: $ty:ty),*) |$place:ident| $work:expr;)*) => { $(
        /// See POSIX.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(path: *const c_char $(, $arg: $ty)*) -> c_int {
            match ours(path) {
                Some(Ok($place)) => return $work,
                Some(Err(number)) => return failed(number),
                None => {}
            }
            let Some(real) = libc_call!($symbol, fn(*const c_char $(, $ty)*) -> c_int) else { return failed(libc::ENOSYS) };
            // SAFETY: the program's arguments as they came.
            unsafe { real(path $(, $arg)*) }
        }
    )* };
}

fn mode(flags: c_int, permissions: c_uint) -> PosixMode {
    let has = |flag: c_int| flags & flag == flag;
    let way = flags & libc::O_ACCMODE;
    PosixMode {
        read: way != libc::O_WRONLY,
        write: way != libc::O_RDONLY,
        create: has(libc::O_CREAT),
        exclusive: has(libc::O_EXCL),
        truncate: has(libc::O_TRUNC),
        append: has(libc::O_APPEND),
        permissions: permissions & 0o7777,
    }
}

pub(super) fn open_with(place: &pario_mpi::posix::PosixPath, flags: c_int, permissions: c_uint) -> c_int {
    let opened = super::protected(|| Ok(place.open(mode(flags, permissions)).and_then(describe)));
    opened.unwrap_or(Err(libc::EIO)).unwrap_or_else(failed)
}

/// Converts attributes to C's structure.
pub(super) fn fill(to: *mut libc::stat, attr: &FileAttr) -> Posix<()> {
    if to.is_null() {
        return Err(libc::EFAULT);
    }
    let kind = match attr.kind {
        FileKind::File => libc::S_IFREG,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::Socket => libc::S_IFSOCK,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::BlockDevice => libc::S_IFBLK,
    };
    // SAFETY: a structure of numbers; all bits zero is one of its values.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let time = |ns: u64| (signed(ns / 1_000_000_000), signed(ns % 1_000_000_000));
    stat.st_ino = attr.inode.0;
    stat.st_mode = kind | (attr.mode & 0o7777);
    stat.st_nlink = attr.links.into();
    stat.st_uid = attr.uid;
    stat.st_gid = attr.gid;
    stat.st_size = signed(attr.size);
    stat.st_blksize = signed(attr.layout.stripe_bytes());
    stat.st_blocks = signed(attr.size.div_ceil(512));
    (stat.st_atime, stat.st_atime_nsec) = time(attr.accessed_ns);
    (stat.st_mtime, stat.st_mtime_nsec) = time(attr.modified_ns);
    (stat.st_ctime, stat.st_ctime_nsec) = time(attr.changed_ns);
    // SAFETY: the program passes the address of such a structure.
    unsafe { to.write(stat) };
    Ok(())
}

on_path! {
    open "open" (flags: c_int, permissions: c_uint) |place| open_with(&place, flags, permissions);
    open64 "open64" (flags: c_int, permissions: c_uint) |place| open_with(&place, flags, permissions);
    // Variants that compilers emit for `open` without permissions.
    __open_2 "__open_2" (flags: c_int) |place| open_with(&place, flags, 0);
    __open64_2 "__open64_2" (flags: c_int) |place| open_with(&place, flags, 0);
    creat "creat" (permissions: c_uint) |place| open_with(&place, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, permissions);
    stat "stat" (to: *mut libc::stat) |place| done(|| fill(to, &place.stat(true)?));
    stat64 "stat64" (to: *mut libc::stat) |place| done(|| fill(to, &place.stat(true)?));
    lstat "lstat" (to: *mut libc::stat) |place| done(|| fill(to, &place.stat(false)?));
    lstat64 "lstat64" (to: *mut libc::stat) |place| done(|| fill(to, &place.stat(false)?));
    // A user with access to the partition has access to its files.
    access "access" (_how: c_int) |place| done(|| place.stat(true).map(|_| ()));
    unlink "unlink" () |place| done(|| place.unlink());
    remove "remove" () |place| done(|| place.remove());
    truncate "truncate" (bytes: i64) |place| done(|| place.truncate(bytes));
    truncate64 "truncate64" (bytes: i64) |place| done(|| place.truncate(bytes));
    mkdir "mkdir" (_permissions: c_uint) |place| done(|| place.mkdir());
    rmdir "rmdir" () |place| done(|| place.rmdir());
    rename "rename" (to: *const c_char) |place| match ours(to) {
        Some(Ok(target)) => done(|| place.rename(&target)),
        Some(Err(number)) => failed(number),
        None => failed(libc::EXDEV),
    };
}

/// Entry points of older C libraries, with a version argument in front.
macro_rules! versioned {
    ($($name:ident $symbol:literal, $follow:expr;)*) => { $(
        /// See POSIX.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(version: c_int, path: *const c_char, to: *mut libc::stat) -> c_int {
            match ours(path) {
                Some(Ok(place)) => return done(|| fill(to, &place.stat($follow)?)),
                Some(Err(number)) => return failed(number),
                None => {}
            }
            let real = libc_call!($symbol, fn(c_int, *const c_char, *mut libc::stat) -> c_int);
            let Some(real) = real else { return failed(libc::ENOSYS) };
            // SAFETY: the program's arguments as they came.
            unsafe { real(version, path, to) }
        }
    )* };
}

versioned! {
    __xstat "__xstat", true;
    __xstat64 "__xstat64", true;
    __lxstat "__lxstat", false;
    __lxstat64 "__lxstat64", false;
}

/// See POSIX: relative to a directory, which no path of Pario's is.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn openat(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    permissions: c_uint,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { open_at(dir, path, flags, permissions) }
}

/// The same for large files.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn openat64(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    permissions: c_uint,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { open_at(dir, path, flags, permissions) }
}

/// # Safety
/// As for `openat`.
unsafe fn open_at(dir: c_int, path: *const c_char, flags: c_int, permissions: c_uint) -> c_int {
    if dir == libc::AT_FDCWD {
        match ours(path) {
            Some(Ok(place)) => return open_with(&place, flags, permissions),
            Some(Err(number)) => return failed(number),
            None => {}
        }
    }
    let real = libc_call!("openat64", fn(c_int, *const c_char, c_int, c_uint) -> c_int);
    let Some(real) = real else { return failed(libc::ENOSYS) };
    // SAFETY: the program's arguments as they came.
    unsafe { real(dir, path, flags, permissions) }
}

/// See POSIX.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fstatat(
    dir: c_int,
    path: *const c_char,
    to: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { stat_at(dir, path, to, flags) }
}

/// The same for large files.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fstatat64(
    dir: c_int,
    path: *const c_char,
    to: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { stat_at(dir, path, to, flags) }
}

/// # Safety
/// As for `fstatat`.
unsafe fn stat_at(dir: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int {
    if dir == libc::AT_FDCWD {
        match ours(path) {
            Some(Ok(place)) => {
                return done(|| fill(to, &place.stat(flags & libc::AT_SYMLINK_NOFOLLOW == 0)?));
            }
            Some(Err(number)) => return failed(number),
            None => {}
        }
    }
    let real = libc_call!("fstatat64", fn(c_int, *const c_char, *mut libc::stat, c_int) -> c_int);
    let Some(real) = real else { return failed(libc::ENOSYS) };
    // SAFETY: the program's arguments as they came.
    unsafe { real(dir, path, to, flags) }
}
