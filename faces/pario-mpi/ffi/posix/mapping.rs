//! Private mappings of Pario's files: memory of the process that is filled when it is mapped. Later writes to the file are not
//! visible, which POSIX permits for private mappings; shared ones are refused.

use std::ffi::{c_int, c_void};

use pario_mpi::posix::{Posix, PosixFile, refuse};

use super::descriptors::target;
use super::{failed, file_of, libc_call, protected};

/// Arguments of a mapping.
struct Mapping {
    at: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    offset: i64,
}

type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;

macro_rules! mapping {
    ($($name:ident $symbol:literal;)*) => { $(
        /// See POSIX.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            at: *mut c_void, bytes: usize, protection: c_int, flags: c_int, descriptor: c_int, offset: i64,
        ) -> *mut c_void {
            let real = libc_call!($symbol, fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void);
            let Some(real) = real else {
                failed(libc::ENOSYS);
                return libc::MAP_FAILED;
            };
            let ours = if flags & libc::MAP_ANONYMOUS == 0 { file_of(descriptor) } else { None };
            let Some(file) = ours else {
                // SAFETY: the program's arguments as they came.
                return unsafe { real(at, bytes, protection, flags, descriptor, offset) };
            };
            let wished = Mapping { at, bytes, protection, flags, offset };
            protected(|| Ok(copy_in(&file, &wished, real))).unwrap_or(Err(libc::EIO)).unwrap_or_else(|number| {
                failed(number);
                libc::MAP_FAILED
            })
        }
    )* };
}

mapping! {
    mmap "mmap";
    mmap64 "mmap64";
}

fn copy_in(file: &PosixFile, wished: &Mapping, real: Mmap) -> Posix<*mut c_void> {
    file.served().note("mmap");
    if wished.flags & libc::MAP_PRIVATE == 0 {
        refuse("mmap", file.name(), "map it with MAP_PRIVATE, or use pread and pwrite");
        return Err(libc::ENODEV);
    }
    if !file.mode().read {
        return Err(libc::EACCES);
    }
    if wished.offset < 0 || wished.offset % 4096 != 0 {
        return Err(libc::EINVAL);
    }
    let flags = wished.flags | libc::MAP_ANONYMOUS;
    // SAFETY: anonymous memory, at the address that the program requested; its own arguments otherwise.
    let memory = unsafe { real(wished.at, wished.bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if memory == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOMEM));
    }
    // The C library's own call, so that bytes behind the end of the file stay zero.
    let filled = fill(file, target(memory, wished.bytes), wished.offset);
    // SAFETY: the memory that was just mapped, all of it.
    let protect = || unsafe { libc::mprotect(memory, wished.bytes, wished.protection) };
    match filled {
        Ok(()) if protect() == 0 => Ok(memory),
        other => {
            // SAFETY: the same memory (the program does not have its address yet).
            unsafe { libc::munmap(memory, wished.bytes) };
            Err(other.err().unwrap_or(libc::EACCES))
        }
    }
}

fn fill(file: &PosixFile, mut memory: &mut [u8], mut offset: i64) -> Posix<()> {
    while !memory.is_empty() {
        let count = file.read_at(offset, memory)?;
        if count == 0 {
            break;
        }
        memory = &mut memory[count..];
        offset += i64::try_from(count).map_err(|_| libc::EOVERFLOW)?;
    }
    Ok(())
}
