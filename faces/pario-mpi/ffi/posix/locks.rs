//! `flock`, `lockf`, and `fcntl`, which locks, duplicates, and reports the flags of a descriptor.

use std::ffi::{c_int, c_short};

use pario::{RecordMode, RecordWait};
use pario_mpi::posix::{Posix, PosixFile, Whence};
use pario_mpi::{FlockKind, LockOwner, LockSpan};

use super::copies::copied;
use super::descriptors::whence;
use super::{done, failed, file_of, libc_call};

/// See POSIX.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn flock(descriptor: c_int, how: c_int) -> c_int {
    let Some(file) = file_of(descriptor) else {
        let Some(real) = libc_call!("flock", fn(c_int, c_int) -> c_int) else { return failed(libc::ENOSYS) };
        // SAFETY: the program's arguments as they came.
        return unsafe { real(descriptor, how) };
    };
    let wait = if how & libc::LOCK_NB == 0 { RecordWait::Wait } else { RecordWait::No };
    let kind = match how & !libc::LOCK_NB {
        libc::LOCK_SH => FlockKind::Shared,
        libc::LOCK_EX => FlockKind::Exclusive,
        libc::LOCK_UN => FlockKind::Unlock,
        _ => return failed(libc::EINVAL),
    };
    done(|| file.flock(kind, wait))
}

/// `lockf`, by record locks of the process, as in the C library.
fn lockf_ours(file: &PosixFile, command: c_int, bytes: i64) -> Posix<()> {
    let span = LockSpan { whence: Whence::Here, start: 0, bytes };
    let set = |mode, wait| file.set_lock(LockOwner::Process, span, mode, wait);
    match command {
        libc::F_ULOCK => set(None, RecordWait::No),
        libc::F_LOCK => set(Some(RecordMode::Exclusive), RecordWait::Wait),
        libc::F_TLOCK => set(Some(RecordMode::Exclusive), RecordWait::No),
        libc::F_TEST => match file.find_lock(LockOwner::Process, span, RecordMode::Exclusive)? {
            Some(_) => Err(libc::EACCES),
            None => Ok(()),
        },
        _ => Err(libc::EINVAL),
    }
}

macro_rules! lockf {
    ($($name:ident $symbol:literal;)*) => { $(
        /// See POSIX.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(descriptor: c_int, command: c_int, bytes: i64) -> c_int {
            if let Some(file) = file_of(descriptor) {
                return done(|| lockf_ours(&file, command, bytes));
            }
            let Some(real) = libc_call!($symbol, fn(c_int, c_int, i64) -> c_int) else { return failed(libc::ENOSYS) };
            // SAFETY: the program's arguments as they came.
            unsafe { real(descriptor, command, bytes) }
        }
    )* };
}

lockf! {
    lockf "lockf";
    lockf64 "lockf64";
}

/// A number or an address, as C's variable arguments pass either.
type Argument = usize;

macro_rules! fcntl {
    ($($name:ident $symbol:literal;)*) => { $(
        /// See POSIX. A missing third argument is passed on as an arbitrary value and not read.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(descriptor: c_int, command: c_int, argument: Argument) -> c_int {
            let real = libc_call!($symbol, fn(c_int, c_int, Argument) -> c_int);
            // SAFETY: the program's arguments as they came.
            let real = || real.map_or_else(|| failed(libc::ENOSYS), |real| unsafe { real(descriptor, command, argument) });
            match file_of(descriptor) {
                Some(file) => served(&file, (descriptor, command, argument), real),
                None => real(),
            }
        }
    )* };
}

fcntl! {
    fcntl "fcntl";
    fcntl64 "fcntl64";
}

/// `fcntl` on a file of Pario's; `real` is the C library's call on the descriptor that represents it.
fn served(
    file: &PosixFile,
    (descriptor, command, argument): (c_int, c_int, Argument),
    real: impl FnOnce() -> c_int,
) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(descriptor, real()),
        libc::F_GETFD | libc::F_SETFD => real(),
        libc::F_GETFL => flags_of(file),
        libc::F_SETFL => {
            let flags = c_int::from_ne_bytes(low_bytes(argument));
            file.set_append(flags & libc::O_APPEND != 0);
            0
        }
        libc::F_SETLK => done(|| set(file, LockOwner::Process, argument, RecordWait::No)),
        libc::F_SETLKW => done(|| set(file, LockOwner::Process, argument, RecordWait::Wait)),
        libc::F_GETLK => done(|| find(file, LockOwner::Process, argument)),
        libc::F_OFD_SETLK => done(|| set(file, LockOwner::Description, argument, RecordWait::No)),
        libc::F_OFD_SETLKW => done(|| set(file, LockOwner::Description, argument, RecordWait::Wait)),
        libc::F_OFD_GETLK => done(|| find(file, LockOwner::Description, argument)),
        _ => failed(libc::EINVAL),
    }
}

/// An `int` among variable arguments is the low half of a register.
fn low_bytes(argument: Argument) -> [u8; 4] {
    let low = u32::try_from(argument & 0xffff_ffff).unwrap_or(0);
    low.to_ne_bytes()
}

fn flags_of(file: &PosixFile) -> c_int {
    let mode = file.mode();
    let way = match (mode.read, mode.write) {
        (true, true) => libc::O_RDWR,
        (false, true) => libc::O_WRONLY,
        (true | false, false) => libc::O_RDONLY,
    };
    way | if file.appends() { libc::O_APPEND } else { 0 }
}

/// The program's structure.
fn structure(argument: Argument, owner: LockOwner) -> Posix<libc::flock> {
    let place = std::ptr::with_exposed_provenance::<libc::flock>(argument);
    // SAFETY: the program passes the address of such a structure, or null by mistake.
    let lock = *unsafe { place.as_ref() }.ok_or(libc::EFAULT)?;
    // A process id here is not allowed for locks of a description.
    if owner == LockOwner::Description && lock.l_pid != 0 {
        return Err(libc::EINVAL);
    }
    Ok(lock)
}

fn span(lock: &libc::flock) -> Posix<LockSpan> {
    Ok(LockSpan { whence: whence(lock.l_whence.into())?, start: lock.l_start, bytes: lock.l_len })
}

fn mode(kind: c_short) -> Posix<Option<RecordMode>> {
    match c_int::from(kind) {
        libc::F_RDLCK => Ok(Some(RecordMode::Shared)),
        libc::F_WRLCK => Ok(Some(RecordMode::Exclusive)),
        libc::F_UNLCK => Ok(None),
        _ => Err(libc::EINVAL),
    }
}

fn set(file: &PosixFile, owner: LockOwner, argument: Argument, wait: RecordWait) -> Posix<()> {
    let lock = structure(argument, owner)?;
    file.set_lock(owner, span(&lock)?, mode(lock.l_type)?, wait)
}

fn find(file: &PosixFile, owner: LockOwner, argument: Argument) -> Posix<()> {
    let mut lock = structure(argument, owner)?;
    let wished = mode(lock.l_type)?.ok_or(libc::EINVAL)?;
    match file.find_lock(owner, span(&lock)?, wished)? {
        None => lock.l_type = c_short::try_from(libc::F_UNLCK).map_err(|_| libc::EINVAL)?,
        Some(found) => {
            let kind = match found.mode {
                RecordMode::Shared => libc::F_RDLCK,
                RecordMode::Exclusive => libc::F_WRLCK,
            };
            lock.l_type = c_short::try_from(kind).map_err(|_| libc::EINVAL)?;
            lock.l_whence = c_short::try_from(libc::SEEK_SET).map_err(|_| libc::EINVAL)?;
            lock.l_start = i64::try_from(found.range.start).map_err(|_| libc::EOVERFLOW)?;
            // A lock without an end has length 0.
            let bytes = (found.range.end != u64::MAX).then(|| found.range.end - found.range.start);
            lock.l_len = i64::try_from(bytes.unwrap_or(0)).map_err(|_| libc::EOVERFLOW)?;
            lock.l_pid = i32::try_from(found.pid).unwrap_or(-1);
        }
    }
    let place = std::ptr::with_exposed_provenance_mut::<libc::flock>(argument);
    // SAFETY: the program's structure, which was read above.
    unsafe { place.write(lock) };
    Ok(())
}
