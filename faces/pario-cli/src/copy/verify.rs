//! Proof that a copy arrived: every file is read again on both sides and its checksums compared, piece by piece.
//!
//! Never: takes a length or a time for a proof. Always: everything that the source has is looked for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use pario::core::FileKind;

use super::data::Source;
use super::{PIECE_BYTES, Pair, Progress};
use crate::error::{CliError, Outcome};
use crate::place::{Facts, Links};
use crate::signals::Stop;

/// Compares `pair.to` with `pair.from`; returns how many files are the same, and what is not.
pub(crate) fn verify(
    pair: &Pair,
    jobs: usize,
    progress: &Progress,
    stop: &Stop,
) -> Outcome<(usize, Vec<CliError>)> {
    let mut found = Found { files: Vec::new(), failures: Vec::new() };
    found.walk(pair, pair.from.facts(Links::Follow)?);
    found.files.iter().for_each(|(_, bytes)| progress.found(*bytes));
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(found.failures);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                let mut buffers = (Vec::new(), Vec::new());
                while let Some((pair, bytes)) = found.files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = stop.check().and_then(|()| compare(pair, *bytes, &mut buffers)) {
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push(error);
                    }
                    progress.moved(*bytes);
                }
            });
        }
    });
    stop.check()?;
    Ok((found.files.len(), failures.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

struct Found {
    files: Vec<(Pair, u64)>,
    failures: Vec<CliError>,
}

impl Found {
    fn walk(&mut self, pair: &Pair, facts: Facts) {
        let walked = match facts.kind {
            Some(FileKind::File) => {
                self.files.push((pair.clone(), facts.size));
                Ok(())
            }
            Some(FileKind::Directory) => self.directory(pair),
            Some(FileKind::Symlink) => compare_links(pair),
            None => Ok(()),
        };
        self.failures.extend(walked.err());
    }

    fn directory(&mut self, pair: &Pair) -> Outcome {
        if !pair.to.is_directory()? {
            return Err(CliError::failed(format!("{}: is missing", pair.to)));
        }
        for entry in pair.from.list()? {
            let (name, facts) = entry?;
            self.walk(&Pair { from: pair.from.child(&name), to: pair.to.child(&name) }, facts);
        }
        Ok(())
    }
}

fn compare_links(pair: &Pair) -> Outcome {
    if pair.from.read_link()? == pair.to.read_link()? {
        return Ok(());
    }
    Err(CliError::failed(format!("{}: says something else than {}", pair.to, pair.from)))
}

fn compare(pair: &Pair, bytes: u64, buffers: &mut (Vec<u8>, Vec<u8>)) -> Outcome {
    let (source, target) = (Source::open(&pair.from)?, Source::open(&pair.to)?);
    let lengths = (source.len()?, target.len()?);
    if lengths != (bytes, bytes) {
        let text = format!("{}: has {} bytes, {} has {}", pair.to, lengths.1, pair.from, lengths.0);
        return Err(CliError::failed(text));
    }
    let mut at = 0;
    while at < bytes {
        let length = usize::try_from((bytes - at).min(PIECE_BYTES)).unwrap_or(usize::MAX);
        let sums =
            (checksum(&source, at, length, &mut buffers.0)?, checksum(&target, at, length, &mut buffers.1)?);
        if sums.0 != sums.1 {
            let end = at + length as u64;
            let text = format!("{}: differs from {} in bytes {at} to {end}", pair.to, pair.from);
            return Err(CliError::failed(text));
        }
        at += length as u64;
    }
    Ok(())
}

fn checksum(source: &Source, at: u64, length: usize, buffer: &mut Vec<u8>) -> Outcome<u32> {
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
    source.read_exact_at(at, &mut buffer[..length])?;
    Ok(crc32c::crc32c(&buffer[..length]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Speech;
    use crate::place::{Place, Tree};
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
        let place = |name: &str| Place { tree: Tree::Local, path: dir.path().join(name) };
        let pair = Pair { from: place("from"), to: place("to") };
        let progress = Progress::new(Speech { json: false, quiet: true, verbose: 0 }, "");
        let (files, failures) = verify(&pair, 2, &progress, &Stop::default()).unwrap();
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
        check(|to| std::fs::remove_file(to.join("empty")).unwrap(), &["no such file"]);
        check(|to| std::fs::write(to.join("sub/data"), "x").unwrap(), &["has 1 bytes"]);
        let relink = |to: &Path| {
            std::fs::remove_file(to.join("link")).unwrap();
            std::os::unix::fs::symlink("empty", to.join("link")).unwrap();
        };
        check(relink, &["says something else"]);
    }
}
