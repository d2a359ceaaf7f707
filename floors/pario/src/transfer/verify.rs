//! Verification of a copy: every file is read again on both sides and its checksums compared, piece by piece.
//!
//! Never: relies on lengths or times. Always: every entry of the source is checked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use pario_core::FileKind;

use super::map::DataMap;
use super::tree::{FileStat, LinkPolicy};
use super::{CopyPair, Observer, PIECE_BYTES, SourceFile, TransferError, TransferResult};

/// Result of a comparison.
#[derive(Debug)]
pub struct VerifyReport {
    /// Files that were compared.
    pub files: usize,
    /// Files, directories and links that are missing or differ.
    pub failures: Vec<TransferError>,
}

/// Compares `pair.to` with `pair.from`, with `jobs` threads; `Err` if the source is missing or the observer stopped it.
pub fn verify(pair: &CopyPair, jobs: usize, observer: &dyn Observer) -> TransferResult<VerifyReport> {
    let mut plan = Comparisons { files: Vec::new(), failures: Vec::new() };
    plan.walk(pair, pair.from.stat(LinkPolicy::Stay)?);
    plan.files.iter().for_each(|(_, bytes)| observer.found(*bytes));
    let check = || if observer.is_stopped() { Err(TransferError::Stopped) } else { Ok(()) };
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(plan.failures);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                let mut buffers = VerifyBuffers::default();
                while let Some((pair, bytes)) = plan.files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = check().and_then(|()| compare(pair, *bytes, &mut buffers)) {
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push(error);
                    }
                    observer.moved(*bytes);
                }
            });
        }
    });
    check()?;
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(VerifyReport { files: plan.files.len(), failures })
}

/// One per side.
#[derive(Default)]
struct VerifyBuffers {
    source: Vec<u8>,
    target: Vec<u8>,
}

/// Files to compare, and differences known without reading.
struct Comparisons {
    files: Vec<(CopyPair, u64)>,
    failures: Vec<TransferError>,
}

impl Comparisons {
    fn walk(&mut self, pair: &CopyPair, stat: FileStat) {
        let walked = match stat.kind {
            Some(FileKind::File) => {
                self.files.push((pair.clone(), stat.size));
                Ok(())
            }
            Some(FileKind::Directory) => self.directory(pair),
            Some(FileKind::Symlink) => compare_links(pair),
            Some(FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice) | None => {
                Ok(())
            }
        };
        self.failures.extend(walked.err());
    }

    fn directory(&mut self, pair: &CopyPair) -> TransferResult {
        if !pair.to.is_directory()? {
            return Err(TransferError::refused(format!("{}: is missing", pair.to)));
        }
        for entry in pair.from.read_dir()? {
            let entry = entry?;
            let inner = CopyPair { from: pair.from.child(&entry.name), to: pair.to.child(&entry.name) };
            self.walk(&inner, entry.stat);
        }
        Ok(())
    }
}

fn compare_links(pair: &CopyPair) -> TransferResult {
    if pair.from.read_link()? == pair.to.read_link()? {
        return Ok(());
    }
    Err(TransferError::refused(format!("{}: links to another target than {}", pair.to, pair.from)))
}

fn compare(pair: &CopyPair, bytes: u64, buffers: &mut VerifyBuffers) -> TransferResult {
    let (source, target) = (SourceFile::open(&pair.from)?, SourceFile::open(&pair.to)?);
    let lengths = (source.length()?, target.length()?);
    if lengths != (bytes, bytes) {
        let text = format!("{}: has {} bytes, {} has {}", pair.to, lengths.1, pair.from, lengths.0);
        return Err(TransferError::refused(text));
    }
    let maps = (DataMap::new(source.data_in(0..bytes)?), DataMap::new(target.data_in(0..bytes)?));
    let next = |piece| maps.0.next(piece).into_iter().chain(maps.1.next(piece)).min();
    let mut piece = next(0);
    // A hole on both sides is equal.
    while let Some(number) = piece {
        let at = number * PIECE_BYTES;
        let length = (bytes - at).min(PIECE_BYTES);
        let ours = crc32c::crc32c(source.read_into(at, length, &mut buffers.source)?);
        if ours != crc32c::crc32c(target.read_into(at, length, &mut buffers.target)?) {
            let end = at + length;
            let text = format!("{}: differs from {} in bytes {at} to {end}", pair.to, pair.from);
            return Err(TransferError::refused(text));
        }
        piece = next(number + 1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::{TreePath, Unobserved};
    use std::path::Path;

    fn check(change: impl FnOnce(&Path), expected: &[&str]) {
        let dir = tempfile::tempdir().unwrap();
        for side in ["from", "to"] {
            let side = dir.path().join(side);
            std::fs::create_dir_all(side.join("sub")).unwrap();
            std::fs::write(side.join("sub/data"), vec![5u8; 3_000_000]).unwrap();
            std::fs::write(side.join("empty"), "").unwrap();
            std::os::unix::fs::symlink("sub/data", side.join("link")).unwrap();
        }
        change(&dir.path().join("to"));
        let path = |name: &str| TreePath::local(dir.path().join(name));
        let pair = CopyPair { from: path("from"), to: path("to") };
        let VerifyReport { files, failures } = verify(&pair, 2, &Unobserved).unwrap();
        assert_eq!(files, 2);
        assert_eq!(failures.len(), expected.len(), "{failures:?}");
        for (failure, part) in failures.iter().zip(expected) {
            assert!(failure.to_string().contains(part), "{failure}");
        }
    }

    #[test]
    fn equal_trees_are_equal() {
        check(|_| (), &[]);
    }

    #[test]
    fn one_byte_is_found() {
        let flip = |to: &Path| {
            let mut data = vec![5u8; 3_000_000];
            data[2_999_999] = 6;
            std::fs::write(to.join("sub/data"), data).unwrap();
        };
        check(flip, &["differs"]);
    }

    #[test]
    fn missing_short_and_other_links_are_found() {
        check(|to| std::fs::remove_file(to.join("empty")).unwrap(), &["No such file"]);
        check(|to| std::fs::write(to.join("sub/data"), "x").unwrap(), &["has 1 bytes"]);
        let relink = |to: &Path| {
            std::fs::remove_file(to.join("link")).unwrap();
            std::os::unix::fs::symlink("empty", to.join("link")).unwrap();
        };
        check(relink, &["links to another target"]);
    }
}
