//! Restart log: the file in which a server leaves its list of overwrites (`overwrites.rs`) to its successor. Layout:
//! `docs/formats/ahead.md`.
//!
//! It is written by plain writes and never synced: it must survive the server's process only, since outboxes do not survive the machine
//! either.
//!
//! Never: grows past [`ENTRIES_MAX`]. Always: the writes of a round are in it before a cursor moves or a message is answered; if it cannot
//! be written, the successor detects that.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_core::{Generation, InodeId, Nanos, ObjectId, SessionId};
use pario_store::disk::{Disk, DiskFile, OpenMode};

use super::overwrites::{CommitSpan, LogUpdate, Overwrites, WrittenRange, WrittenRanges};

const MAGIC: [u8; 8] = *b"PARAHD01";
const HEAD_BYTES: usize = 64;
const ENTRY_BYTES: usize = 64;
/// Entries before the file is rewritten.
const ENTRIES_MAX: u64 = 128 << 10;
/// Bytes of the boot id.
const BOOT_BYTES: usize = 48;
const INCOMPLETE_AT: u64 = 8;

/// Location of a server's restart log.
#[derive(Clone, Debug)]
pub struct RestartLogSpec {
    /// The disk that holds it.
    pub disk: Arc<dyn Disk>,
    /// The file.
    pub path: PathBuf,
}

/// A server's knowledge of its predecessors, and its restart log for its successors.
pub(super) struct RestartLog {
    spec: RestartLogSpec,
    file: Arc<dyn DiskFile>,
    boot: String,
    entries: u64,
    /// `None`: the first server since the machine booted; no record can be late.
    overwrites: Option<Overwrites>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum RestartEntry {
    Mark(WrittenRange),
    /// The outbox of a session was attached.
    Attached(SessionId, Nanos),
    /// From earlier servers: from when on every write that preceded a session's records was observed.
    Since(SessionId, Nanos),
    /// Every earlier server that replaced another knew the direct writes of this session.
    Known(SessionId),
}

impl RestartLog {
    /// Takes over from the previous server; `boot` is the boot id of the machine. `None` where nothing can be written.
    pub(super) fn begin(spec: &RestartLogSpec, boot: &str, now: Nanos) -> Option<RestartLog> {
        let begun = RestartLog::take_over(spec, boot, now);
        let Err(error) = begun else { return begun.ok() };
        // As on a full disk: the server must start in any case.
        tracing::warn!(%error, file = %spec.path.display(), "the restart log cannot be read or rewritten: late records are refused");
        let file = match spec.disk.open(&spec.path, OpenMode::Write) {
            Ok(file) => file,
            Err(error) => {
                tracing::error!(%error, file = %spec.path.display(), "the restart log cannot be opened: late records may overwrite newer bytes of an earlier server; check the directory's permissions");
                return None;
            }
        };
        let mut ahead = Overwrites::new(now);
        ahead.drop_table();
        let lives = RestartLog {
            spec: spec.clone(),
            file,
            boot: boot.to_owned(),
            entries: ENTRIES_MAX,
            overwrites: Some(ahead),
        };
        lives.mark_incomplete();
        Some(lives)
    }

    fn take_over(spec: &RestartLogSpec, boot: &str, now: Nanos) -> io::Result<RestartLog> {
        let ahead = match read(spec)? {
            Some(bytes) => inherit(&bytes, boot, now),
            None => None,
        };
        let (file, entries) = rewrite(spec, boot, ahead.as_ref())?;
        Ok(RestartLog { spec: spec.clone(), file, boot: boot.to_owned(), entries, overwrites: ahead })
    }

    /// Decides about late records; `None` where none can be late.
    pub(super) fn overwrites(&self) -> Option<&Overwrites> {
        self.overwrites.as_ref()
    }

    /// An outbox was attached.
    pub(super) fn attached(&mut self, session: SessionId, now: Nanos) {
        if self.overwrites.as_mut().is_some_and(|ahead| ahead.attached(session, now)) {
            self.write_entries(&[RestartEntry::Attached(session, now)]);
        }
    }

    /// A round has written to the store.
    pub(super) fn note(&mut self, marks: WrittenRanges, now: Nanos) {
        let Some(ahead) = &mut self.overwrites else { return };
        match ahead.note(marks, now) {
            LogUpdate::None => {}
            LogUpdate::Marks(list) => {
                let lines: Vec<RestartEntry> = list.into_iter().map(RestartEntry::Mark).collect();
                self.write_entries(&lines);
            }
            LogUpdate::Dropped => {
                tracing::info!(
                    "the writes since this server's restart exceed its overwrite table: late records are refused from now on"
                );
                self.mark_incomplete();
            }
        }
    }

    /// Orderly shutdown, with no outbox attached: the first server since boot leaves no entries.
    pub(super) fn end(self) {
        if self.overwrites.is_none()
            && let Err(error) = self.spec.disk.remove(&self.spec.path)
        {
            tracing::warn!(%error, file = %self.spec.path.display(), "cannot be removed");
        }
    }

    fn write_entries(&mut self, lines: &[RestartEntry]) {
        let written = self.append(lines);
        let Err(error) = written else { return };
        tracing::warn!(%error, file = %self.spec.path.display(), "the restart log cannot be written: late records are refused from now on");
        if let Some(ahead) = &mut self.overwrites {
            ahead.drop_table();
        }
        self.mark_incomplete();
    }

    fn append(&mut self, lines: &[RestartEntry]) -> io::Result<()> {
        if ENTRIES_MAX < self.entries + lines.len() as u64 {
            // The new file contains the entries just noted.
            (self.file, self.entries) = rewrite(&self.spec, &self.boot, self.overwrites.as_ref())?;
            return Ok(());
        }
        self.file.write_at(&encode(lines), HEAD_BYTES as u64 + self.entries * ENTRY_BYTES as u64)?;
        self.entries += lines.len() as u64;
        Ok(())
    }

    /// Overwrites the head in place: needs no free space.
    fn mark_incomplete(&self) {
        if let Err(error) = self.file.write_at(&1u32.to_le_bytes(), INCOMPLETE_AT) {
            tracing::error!(%error, file = %self.spec.path.display(), "the restart log cannot be marked as incomplete: remove the file, but only when no client is connected");
        }
    }
}

/// Boot id of the machine.
pub(super) fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn read(spec: &RestartLogSpec) -> io::Result<Option<Vec<u8>>> {
    let Some(length) = spec.disk.length(&spec.path)? else { return Ok(None) };
    // A longer file was never written.
    let length = length.min(HEAD_BYTES as u64 + ENTRIES_MAX * ENTRY_BYTES as u64);
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let read = spec.disk.open(&spec.path, OpenMode::Read)?.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// Inherits the previous server's table; `None` if no client of its time can still exist.
fn inherit(bytes: &[u8], boot: &str, now: Nanos) -> Option<Overwrites> {
    let Some((head, lines)) = bytes.split_at_checked(HEAD_BYTES) else {
        return Some(Overwrites::incomplete(now, HashMap::new()));
    };
    if head[..8] != MAGIC {
        return Some(Overwrites::incomplete(now, HashMap::new()));
    }
    if head[16..] != boot_bytes(boot) {
        return None;
    }
    let (was_blind, was_unsure, had_taken_over) = (head[8] != 0, head[12] != 0, head[13] != 0);
    // The last entry may be torn by a kill: no reply that depends on it was sent.
    let lines: Option<Vec<RestartEntry>> = lines.chunks_exact(ENTRY_BYTES).map(decode).collect();
    let Some(lines) = lines else { return Some(Overwrites::incomplete(now, HashMap::new())) };
    let sessions = |line: &RestartEntry| match line {
        RestartEntry::Attached(session, at) if was_blind => Some((*session, *at)),
        RestartEntry::Since(session, at) if !was_blind => Some((*session, *at)),
        RestartEntry::Attached(..)
        | RestartEntry::Since(..)
        | RestartEntry::Known(_)
        | RestartEntry::Mark(_) => None,
    };
    let mut ahead = if was_blind || was_unsure {
        Overwrites::incomplete(now, lines.iter().filter_map(sessions).collect())
    } else {
        Overwrites::new(now)
    };
    for line in lines.iter().filter(|_| !was_blind) {
        if let RestartEntry::Mark(mark) = line {
            ahead.insert(mark);
        }
    }
    let met = |line: &RestartEntry| match line {
        RestartEntry::Known(session) => Some(*session),
        RestartEntry::Attached(..) | RestartEntry::Since(..) | RestartEntry::Mark(_) => None,
    };
    let met: HashSet<SessionId> = lines.iter().filter_map(met).collect();
    let came = |line: &RestartEntry| match line {
        // Direct writes unknown to one server may have been overwritten, which the next one cannot detect.
        RestartEntry::Attached(session, _) => {
            Some(*session).filter(|session| head[14] == 0 || met.contains(session))
        }
        RestartEntry::Since(..) | RestartEntry::Known(_) | RestartEntry::Mark(_) => None,
    };
    let came: HashSet<SessionId> = lines.iter().filter_map(came).collect();
    Some(if had_taken_over { ahead.after_restart(came) } else { ahead })
}

fn rewrite(
    spec: &RestartLogSpec,
    boot: &str,
    ahead: Option<&Overwrites>,
) -> io::Result<(Arc<dyn DiskFile>, u64)> {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[12] = u8::from(ahead.is_some_and(Overwrites::is_incomplete));
    head[13] = u8::from(ahead.is_some());
    head[14] = u8::from(ahead.is_some_and(|ahead| ahead.before().is_some()));
    head[16..].copy_from_slice(&boot_bytes(boot));
    let mut lines: Vec<RestartEntry> = Vec::new();
    if let Some(ahead) = ahead {
        lines.extend(ahead.since().map(|(session, at)| RestartEntry::Since(session, at)));
        lines.extend(ahead.here().map(|(session, at)| RestartEntry::Attached(session, at)));
        lines.extend(ahead.before().into_iter().flatten().copied().map(RestartEntry::Known));
        lines.extend(ahead.marks().map(RestartEntry::Mark));
    }
    let beside = temporary_path(&spec.path);
    if spec.disk.exists(&beside)? {
        spec.disk.remove(&beside)?;
    }
    let file = spec.disk.open(&beside, OpenMode::CreateNew)?;
    file.write_at(&[&head[..], &encode(&lines)].concat(), 0)?;
    spec.disk.rename(&beside, &spec.path)?;
    Ok((file, lines.len() as u64))
}

/// Path of the file before it is renamed.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

fn boot_bytes(boot: &str) -> [u8; BOOT_BYTES] {
    let mut bytes = [0; BOOT_BYTES];
    let length = boot.len().min(BOOT_BYTES);
    bytes[..length].copy_from_slice(&boot.as_bytes()[..length]);
    bytes
}

fn encode(lines: &[RestartEntry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(lines.len() * ENTRY_BYTES);
    for line in lines {
        let (kind, generation, words) = match line {
            RestartEntry::Mark(WrittenRange { object, bytes, written }) => {
                let CommitSpan { oldest, newest, stored_at: put } = *written;
                let words = [object.inode.0, bytes.start, bytes.end, oldest.0, newest.0, put.0, 0];
                (1u32, object.generation.0, words)
            }
            RestartEntry::Attached(session, at) => (2, 0, [session.0, 0, 0, 0, 0, at.0, 0]),
            RestartEntry::Since(session, at) => (3, 0, [session.0, 0, 0, 0, 0, at.0, 0]),
            RestartEntry::Known(session) => (4, 0, [session.0, 0, 0, 0, 0, 0, 0]),
        };
        bytes.extend(kind.to_le_bytes());
        bytes.extend(generation.to_le_bytes());
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    }
    bytes
}

fn decode(entry: &[u8]) -> Option<RestartEntry> {
    let word = |at: usize| entry[at..at + 8].try_into().ok().map(u64::from_le_bytes);
    let half = |at: usize| entry[at..at + 4].try_into().ok().map(u32::from_le_bytes);
    let (first, at) = (word(8)?, Nanos(word(48)?));
    match half(0)? {
        1 => {
            let object = ObjectId { inode: InodeId(first), generation: Generation(half(4)?) };
            let (bytes, oldest, newest) = (word(16)?..word(24)?, Nanos(word(32)?), Nanos(word(40)?));
            let written = CommitSpan { oldest, newest, stored_at: at };
            (bytes.start < bytes.end).then_some(RestartEntry::Mark(WrittenRange { object, bytes, written }))
        }
        2 => Some(RestartEntry::Attached(SessionId(first), at)),
        3 => Some(RestartEntry::Since(SessionId(first), at)),
        4 => Some(RestartEntry::Known(SessionId(first))),
        _ => None,
    }
}

#[cfg(test)]
#[path = "restart_log_tests.rs"]
mod tests;
