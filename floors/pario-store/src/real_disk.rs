//! The machine's file system, as a [`Disk`].

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use pario_core::Space;
use pario_sys::MemoryPiece;
use pario_sys::aligned::ALIGNMENT;
use pario_sys::file_map::{Scattered, scatter};
use pario_sys::preallocation;
use rustix::fs::{CWD, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;

use crate::disk::{Disk, DiskFile, EntryKind, OpenMode};
use crate::marks::Life;

/// The file system itself: every call is one system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RealDisk;

/// Scattered pieces are written through a mapping if there are at least so many, and so many per page.
const PIECES_MAPPED_MIN: usize = 16;
const PIECES_PER_PAGE_MIN: u64 = 2;
const PAGE_BYTES: u64 = 4096;

#[derive(Debug)]
struct RealFile(File);

/// A file opened with O_DIRECT.
#[derive(Debug)]
struct DirectFile(RealFile);

impl RealDisk {
    /// A disk to share.
    #[must_use]
    pub fn shared() -> Arc<dyn Disk> {
        Arc::new(RealDisk)
    }

    /// Wraps a file that is open already, with its permissions.
    #[must_use]
    pub fn adopt(file: File) -> Arc<dyn DiskFile> {
        Arc::new(RealFile(file))
    }

    /// Wraps a file that is open already with O_DIRECT.
    pub(crate) fn adopt_direct(file: File) -> Arc<dyn DiskFile> {
        Arc::new(DirectFile(RealFile(file)))
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(open(path, mode, OFlags::empty())?))
    }

    fn open_direct(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(DirectFile(open(path, mode, OFlags::DIRECT)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::DirBuilder::new().mode(0o700).create(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    fn exchange(&self, one: &Path, two: &Path) -> io::Result<()> {
        Ok(rustix::fs::renameat_with(CWD, one, CWD, two, RenameFlags::EXCHANGE)?)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<(OsString, EntryKind)>> {
        let entries = std::fs::read_dir(path)?;
        entries
            .map(|entry| {
                let entry = entry?;
                let kind = match entry.file_type()? {
                    kind if kind.is_file() => EntryKind::File,
                    kind if kind.is_dir() => EntryKind::Directory,
                    _ => EntryKind::Other,
                };
                Ok((entry.file_name(), kind))
            })
            .collect()
    }

    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        match std::fs::metadata(path) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        space_of(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?.as_fd())
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(path)?)?)
    }

    fn gains_by_room(&self, path: &Path) -> bool {
        File::open(path).is_ok_and(|dir| preallocation::gains_by_preallocation(dir.as_fd()))
    }

    fn life(&self) -> Life {
        let digits: Vec<u8> = boot().bytes().filter(u8::is_ascii_hexdigit).collect();
        let mut life = Life::default();
        for (byte, pair) in life.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).unwrap_or_default();
            *byte = u8::from_str_radix(pair, 16).unwrap_or_default();
        }
        life
    }
}

/// Capacity and free space of the file system that holds an open file or directory.
pub(crate) fn space_of(fd: BorrowedFd<'_>) -> io::Result<Space> {
    let found = rustix::fs::fstatvfs(fd)?;
    Ok(Space {
        total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        pool: pool_of(rustix::fs::fstat(fd)?.st_dev),
    })
}

/// The identity of the machine's boot.
fn boot() -> &'static str {
    use std::sync::OnceLock;
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default())
}

/// Name of the extended attribute that holds a mark.
const MARK_NAME: &str = "user.pario.length";
/// Longer attributes are not marks.
const MARK_BYTES_MAX: usize = 256;

/// Identifies a device among those of all machines: the boot's identity tells machines apart.
fn pool_of(device: u64) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (boot(), device).hash(&mut hasher);
    hasher.finish() | 1
}

fn open(path: &Path, mode: OpenMode, flags: OFlags) -> io::Result<RealFile> {
    let mut options = File::options();
    options.read(true).mode(0o600);
    #[expect(clippy::cast_possible_wrap, reason = "open flags are small positive numbers")]
    options.custom_flags(flags.bits() as i32);
    match mode {
        OpenMode::Read => {}
        OpenMode::Write => _ = options.write(true),
        OpenMode::Create => _ = options.write(true).create(true).truncate(false),
        OpenMode::CreateNew => _ = options.write(true).create_new(true),
    }
    Ok(RealFile(options.open(path)?))
}

impl DiskFile for RealFile {
    fn write_pieces_at(&self, pieces: &[MemoryPiece<'_>], offset: u64) -> io::Result<()> {
        pario_sys::write_pieces_at(self.0.as_fd(), pieces, offset)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        pario_sys::read_exact_or_end_at(self.0.as_fd(), target, offset)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    /// A system call for each piece costs about as much as a page of a mapping.
    fn write_scattered(&self, pieces: &[Scattered<'_>]) -> io::Result<()> {
        if are_many(pieces) && scatter(self.0.as_fd(), pieces)? {
            return Ok(());
        }
        pieces.iter().try_for_each(|piece| self.write_at(piece.bytes, piece.at))
    }

    fn make_room(&self, offset: u64, bytes: u64) -> io::Result<()> {
        preallocation::preallocate(self.0.as_fd(), offset..offset.saturating_add(bytes))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn mark(&self) -> io::Result<Option<Vec<u8>>> {
        let mut mark = vec![0; MARK_BYTES_MAX];
        match rustix::fs::fgetxattr(&self.0, MARK_NAME, &mut mark) {
            Ok(bytes) => {
                mark.truncate(bytes);
                Ok(Some(mark))
            }
            Err(Errno::NODATA | Errno::RANGE) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn set_mark(&self, mark: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::fsetxattr(&self.0, MARK_NAME, mark, XattrFlags::empty())?)
    }

    fn remove_mark(&self) -> io::Result<()> {
        match rustix::fs::fremovexattr(&self.0, MARK_NAME) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

impl DiskFile for DirectFile {
    fn write_pieces_at(&self, pieces: &[MemoryPiece<'_>], offset: u64) -> io::Result<()> {
        self.0.write_pieces_at(pieces, offset)
    }

    /// Ends at the first short read: the file's end need not be aligned, and a further read from there would be refused.
    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < target.len() && filled.is_multiple_of(ALIGNMENT) {
            let rest = &mut target[filled..];
            let at = offset + filled as u64;
            match rustix::io::retry_on_intr(|| rustix::io::pread(&self.0.0, &mut *rest, at))? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(filled)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_fd()
    }
}

/// Whether pieces are so many and so close that a mapping costs less than a call for each.
pub(crate) fn are_many(pieces: &[Scattered<'_>]) -> bool {
    let span = match (pieces.first(), pieces.last()) {
        (Some(first), Some(last)) => last.at.saturating_sub(first.at),
        (None, _) | (_, None) => 0,
    };
    let is_dense = span / PAGE_BYTES * PIECES_PER_PAGE_MIN <= pieces.len() as u64;
    is_dense && PIECES_MAPPED_MIN <= pieces.len()
}
