//! The plain file, as opened by a member.
//!
//! Always: opened with the caller's permissions, without blocking on a pipe or a device; never truncated here: that is done
//! through the cache, so that no stale block stays there.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use pario_core::{Code, Fault};
use pario_server::store::RealDisk;
use pario_server::store::plain_cache::PlainFileOpening;

use super::CachedFileFacts;
use super::block::{BlockFacts, choose, seen};
use super::options::{CacheOptions, Placement};
use crate::error::Result;

/// File systems with client caches that are not coherent: NFS, SMB (three numbers), 9P.
const NONCOHERENT: [u64; 5] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997];
/// File systems of one machine, cached once by its kernel: ext2 to 4, XFS, btrfs, tmpfs, f2fs, and layers above them.
const LOCAL: [u64; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010, 0x794c_7630];
/// Inode numbers of FUSE file systems may differ from node to node.
const FUSE: u64 = 0x6573_5546;

/// See the module head.
#[derive(Debug)]
pub(super) struct OpenedPlainFile {
    file: File,
    reads: bool,
    writes: bool,
    kind: u64,
}

impl OpenedPlainFile {
    /// Opens the file; only rank 0 creates it.
    pub(super) fn open(path: &Path, options: &CacheOptions, first: bool) -> Result<OpenedPlainFile> {
        let fault = |error: &std::io::Error| Fault::from_io(error, path.display());
        if let Ok(found) = std::fs::metadata(path) {
            check_kind(path, &found)?;
        }
        let mut how = File::options();
        how.read(options.read).write(options.write).mode(options.mode);
        how.create(options.create && first).create_new(options.create_new && first);
        let file = how.open(path).or_else(|error| {
            if first || error.kind() != std::io::ErrorKind::NotFound {
                return Err(error);
            }
            // A client of a network file system may have a stale negative entry from before rank 0 created the file; reading the
            // directory drops it.
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            std::fs::read_dir(parent.unwrap_or(Path::new(".")))?.take(1).for_each(drop);
            how.open(path)
        });
        let file = file.map_err(|error| fault(&error))?;
        check_kind(path, &file.metadata().map_err(|error| fault(&error))?)?;
        let found = rustix::fs::fstatfs(&file).map_err(|errno| fault(&errno.into()))?;
        // The kernel's number has 32 bits, also where its type is wider and signed.
        #[expect(clippy::cast_sign_loss, reason = "only the lower 32 bits are significant")]
        let kind = found.f_type as u64 & 0xffff_ffff;
        Ok(OpenedPlainFile { file, reads: options.read, writes: options.write, kind })
    }

    /// This member's facts about the file; those of rank 0 are used.
    pub(super) fn facts(&self, path: &Path, options: &CacheOptions) -> Option<CachedFileFacts> {
        let metadata = self.file.metadata().ok()?;
        let (device, number) = (metadata.dev(), metadata.ino());
        let known = BlockFacts {
            requested: options.block_bytes,
            preferred: metadata.blksize(),
            seen: seen(path),
            cache_bytes: options.cache_bytes,
        };
        let block_bytes = choose(&known);
        Some(CachedFileFacts {
            name: format!("{device:x}-{number:x}"),
            inode: if self.kind == FUSE { 0 } else { number },
            bytes: metadata.len(),
            block_bytes,
            stripe_bytes: options.stripe_of(block_bytes),
            locks: options.noncoherent.unwrap_or_else(|| NONCOHERENT.contains(&self.kind)),
            placement: Placement::Home,
            direct: options.direct.unwrap_or_else(|| LOCAL.contains(&self.kind)),
            mode: metadata.mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
            modified_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        })
    }

    /// The same file, for the server's store.
    pub(super) fn for_store(&self, path: &Path, locks: bool) -> Result<PlainFileOpening> {
        let file = self.file.try_clone().map_err(|error| Fault::from_io(&error, path.display()))?;
        let file = RealDisk::adopt(file);
        Ok(PlainFileOpening { path: path.to_owned(), file, reads: self.reads, writes: self.writes, locks })
    }

    pub(super) fn into_file(self) -> File {
        self.file
    }
}

/// Nanoseconds since 1970; 0 for earlier times.
fn nanoseconds(seconds: i64, more: i64) -> u64 {
    u64::try_from(seconds.saturating_mul(1_000_000_000).saturating_add(more)).unwrap_or(0)
}

/// Only a plain file has blocks that can be cached.
fn check_kind(path: &Path, found: &std::fs::Metadata) -> Result<()> {
    if found.is_dir() {
        return Err(Fault::new(Code::IsDirectory, format!("{} is a directory", path.display())).into());
    }
    if !found.is_file() {
        let text = format!("{} is a pipe, a socket or a device: only plain files are cached", path.display());
        return Err(Fault::new(Code::Unsupported, text).into());
    }
    Ok(())
}
