//! The file in which a server leaves to its successor what it put down ahead of others: see `ahead.rs`. Layout: `docs/formats/ahead.md`.
//!
//! It is written by plain writes and never synced: it survives the server's process, which is all it is for, since outboxes do not
//! survive the machine either.
//!
//! Never: grows past [`ENTRIES_MAX`]. Always: what a round put down is in it before a cursor moves or a message is answered; where it
//! cannot be written, the successor finds that out.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_core::{Generation, InodeId, Nanos, ObjectId, SessionId};
use pario_store::disk::{Disk, DiskFile, OpenMode};

use super::ahead::{Ahead, Mark, Marks, News, Written};

const MAGIC: [u8; 8] = *b"PARAHD01";
const HEAD_BYTES: usize = 64;
const ENTRY_BYTES: usize = 64;
/// Entries before the file is written anew.
const ENTRIES_MAX: u64 = 128 << 10;
/// Bytes of the boot's name.
const BOOT_BYTES: usize = 48;
const BLIND_AT: u64 = 8;

/// Where a server leaves something to its successor.
#[derive(Clone, Debug)]
pub struct LivesSpec {
    /// Through what it is written.
    pub disk: Arc<dyn Disk>,
    /// The file.
    pub path: PathBuf,
}

/// What a server knows of those before it, and leaves to those behind it.
pub(super) struct Lives {
    spec: LivesSpec,
    file: Arc<dyn DiskFile>,
    boot: String,
    entries: u64,
    /// `None`: it is the first since the machine was started, and nobody can come late.
    ahead: Option<Ahead>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Line {
    Mark(Mark),
    /// The outbox of a session came in that life.
    Came(SessionId, Nanos),
    /// Known from earlier lives: from when on it was seen what came before the records of a session.
    Since(SessionId, Nanos),
    /// All lives before that had taken over knew of the direct writes of a session.
    Met(SessionId),
}

impl Lives {
    /// Takes over from the life before; `boot` names the time since the machine was started. `None` where nothing can be written.
    pub(super) fn begin(spec: &LivesSpec, boot: &str, now: Nanos) -> Option<Lives> {
        let begun = Lives::take_over(spec, boot, now);
        let Err(error) = begun else { return begun.ok() };
        // As on a full disk: the server must come back in any case.
        tracing::warn!(%error, file = %spec.path.display(), "cannot be read or written anew: records that come late are refused");
        let file = match spec.disk.open(&spec.path, OpenMode::Write) {
            Ok(file) => file,
            Err(error) => {
                tracing::error!(%error, file = %spec.path.display(), "cannot be opened: it is not known what an earlier server put down, and records that come late may lie over newer ones");
                return None;
            }
        };
        let mut ahead = Ahead::new(now);
        ahead.go_blind();
        let lives = Lives {
            spec: spec.clone(),
            file,
            boot: boot.to_owned(),
            entries: ENTRIES_MAX,
            ahead: Some(ahead),
        };
        lives.say_blind();
        Some(lives)
    }

    fn take_over(spec: &LivesSpec, boot: &str, now: Nanos) -> io::Result<Lives> {
        let ahead = match read(spec)? {
            Some(bytes) => inherit(&bytes, boot, now),
            None => None,
        };
        let (file, entries) = write_anew(spec, boot, ahead.as_ref())?;
        Ok(Lives { spec: spec.clone(), file, boot: boot.to_owned(), entries, ahead })
    }

    /// Who decides about late records; `None` where nobody can be late.
    pub(super) fn ahead(&self) -> Option<&Ahead> {
        self.ahead.as_ref()
    }

    /// An outbox is there.
    pub(super) fn came(&mut self, session: SessionId, now: Nanos) {
        if self.ahead.as_mut().is_some_and(|ahead| ahead.came(session, now)) {
            self.write_down(&[Line::Came(session, now)]);
        }
    }

    /// A round has put something down.
    pub(super) fn note(&mut self, marks: Marks, now: Nanos) {
        let Some(ahead) = &mut self.ahead else { return };
        match ahead.note(marks, now) {
            News::None => {}
            News::Marks(list) => {
                let lines: Vec<Line> = list.into_iter().map(Line::Mark).collect();
                self.write_down(&lines);
            }
            News::Blind => {
                tracing::info!(
                    "too much was written since this server came back to remember all of it: records that come late are refused from now on"
                );
                self.say_blind();
            }
        }
    }

    /// The server ends in order, with nobody's outbox: if it was the first, there is nothing that a successor must know.
    pub(super) fn end(self) {
        if self.ahead.is_none()
            && let Err(error) = self.spec.disk.remove(&self.spec.path)
        {
            tracing::warn!(%error, file = %self.spec.path.display(), "cannot be removed");
        }
    }

    fn write_down(&mut self, lines: &[Line]) {
        let written = self.append(lines);
        let Err(error) = written else { return };
        tracing::warn!(%error, file = %self.spec.path.display(), "what was put down cannot be remembered: records that come late are refused from now on");
        if let Some(ahead) = &mut self.ahead {
            ahead.go_blind();
        }
        self.say_blind();
    }

    fn append(&mut self, lines: &[Line]) -> io::Result<()> {
        if ENTRIES_MAX < self.entries + lines.len() as u64 {
            // What was just noted is in it.
            (self.file, self.entries) = write_anew(&self.spec, &self.boot, self.ahead.as_ref())?;
            return Ok(());
        }
        self.file.write_at(&encode(lines), HEAD_BYTES as u64 + self.entries * ENTRY_BYTES as u64)?;
        self.entries += lines.len() as u64;
        Ok(())
    }

    /// In place, so that it needs no room.
    fn say_blind(&self) {
        if let Err(error) = self.file.write_at(&1u32.to_le_bytes(), BLIND_AT) {
            tracing::error!(%error, file = %self.spec.path.display(), "cannot be written: remove it only when no client is left");
        }
    }
}

/// Names the time since the machine was started.
pub(super) fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn read(spec: &LivesSpec) -> io::Result<Option<Vec<u8>>> {
    let Some(length) = spec.disk.length(&spec.path)? else { return Ok(None) };
    // More was never written.
    let length = length.min(HEAD_BYTES as u64 + ENTRIES_MAX * ENTRY_BYTES as u64);
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let read = spec.disk.open(&spec.path, OpenMode::Read)?.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// What the life before has left; `None` if nobody of its time can still be there.
fn inherit(bytes: &[u8], boot: &str, now: Nanos) -> Option<Ahead> {
    let Some((head, lines)) = bytes.split_at_checked(HEAD_BYTES) else {
        return Some(Ahead::unsure(now, HashMap::new()));
    };
    if head[..8] != MAGIC {
        return Some(Ahead::unsure(now, HashMap::new()));
    }
    if head[16..] != boot_bytes(boot) {
        return None;
    }
    let (was_blind, was_unsure, had_taken_over) = (head[8] != 0, head[12] != 0, head[13] != 0);
    // What stands last may have been cut off with its writer: then nothing that depends on it was said to anybody.
    let lines: Option<Vec<Line>> = lines.chunks_exact(ENTRY_BYTES).map(decode).collect();
    let Some(lines) = lines else { return Some(Ahead::unsure(now, HashMap::new())) };
    let sessions = |line: &Line| match line {
        Line::Came(session, at) if was_blind => Some((*session, *at)),
        Line::Since(session, at) if !was_blind => Some((*session, *at)),
        Line::Came(..) | Line::Since(..) | Line::Met(_) | Line::Mark(_) => None,
    };
    let mut ahead = if was_blind || was_unsure {
        Ahead::unsure(now, lines.iter().filter_map(sessions).collect())
    } else {
        Ahead::new(now)
    };
    for line in lines.iter().filter(|_| !was_blind) {
        if let Line::Mark(mark) = line {
            ahead.insert(mark);
        }
    }
    let met = |line: &Line| match line {
        Line::Met(session) => Some(*session),
        Line::Came(..) | Line::Since(..) | Line::Mark(_) => None,
    };
    let met: HashSet<SessionId> = lines.iter().filter_map(met).collect();
    let came = |line: &Line| match line {
        // What one life did not know of and may have covered, the next one could not tell.
        Line::Came(session, _) => Some(*session).filter(|session| head[14] == 0 || met.contains(session)),
        Line::Since(..) | Line::Met(_) | Line::Mark(_) => None,
    };
    let came: HashSet<SessionId> = lines.iter().filter_map(came).collect();
    Some(if had_taken_over { ahead.behind(came) } else { ahead })
}

fn write_anew(spec: &LivesSpec, boot: &str, ahead: Option<&Ahead>) -> io::Result<(Arc<dyn DiskFile>, u64)> {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[12] = u8::from(ahead.is_some_and(Ahead::is_unsure));
    head[13] = u8::from(ahead.is_some());
    head[14] = u8::from(ahead.is_some_and(|ahead| ahead.before().is_some()));
    head[16..].copy_from_slice(&boot_bytes(boot));
    let mut lines: Vec<Line> = Vec::new();
    if let Some(ahead) = ahead {
        lines.extend(ahead.since().map(|(session, at)| Line::Since(session, at)));
        lines.extend(ahead.here().map(|(session, at)| Line::Came(session, at)));
        lines.extend(ahead.before().into_iter().flatten().copied().map(Line::Met));
        lines.extend(ahead.marks().map(Line::Mark));
    }
    let beside = beside(&spec.path);
    if spec.disk.exists(&beside)? {
        spec.disk.remove(&beside)?;
    }
    let file = spec.disk.open(&beside, OpenMode::CreateNew)?;
    file.write_at(&[&head[..], &encode(&lines)].concat(), 0)?;
    spec.disk.rename(&beside, &spec.path)?;
    Ok((file, lines.len() as u64))
}

/// Where it is written before it gets its name.
fn beside(path: &Path) -> PathBuf {
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

fn encode(lines: &[Line]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(lines.len() * ENTRY_BYTES);
    for line in lines {
        let (kind, generation, words) = match line {
            Line::Mark(Mark { object, bytes, written }) => {
                let Written { oldest, newest, put } = *written;
                let words = [object.inode.0, bytes.start, bytes.end, oldest.0, newest.0, put.0, 0];
                (1u32, object.generation.0, words)
            }
            Line::Came(session, at) => (2, 0, [session.0, 0, 0, 0, 0, at.0, 0]),
            Line::Since(session, at) => (3, 0, [session.0, 0, 0, 0, 0, at.0, 0]),
            Line::Met(session) => (4, 0, [session.0, 0, 0, 0, 0, 0, 0]),
        };
        bytes.extend(kind.to_le_bytes());
        bytes.extend(generation.to_le_bytes());
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    }
    bytes
}

fn decode(entry: &[u8]) -> Option<Line> {
    let word = |at: usize| entry[at..at + 8].try_into().ok().map(u64::from_le_bytes);
    let half = |at: usize| entry[at..at + 4].try_into().ok().map(u32::from_le_bytes);
    let (first, at) = (word(8)?, Nanos(word(48)?));
    match half(0)? {
        1 => {
            let object = ObjectId { inode: InodeId(first), generation: Generation(half(4)?) };
            let (bytes, oldest, newest) = (word(16)?..word(24)?, Nanos(word(32)?), Nanos(word(40)?));
            let written = Written { oldest, newest, put: at };
            (bytes.start < bytes.end).then_some(Line::Mark(Mark { object, bytes, written }))
        }
        2 => Some(Line::Came(SessionId(first), at)),
        3 => Some(Line::Since(SessionId(first), at)),
        4 => Some(Line::Met(SessionId(first))),
        _ => None,
    }
}

#[cfg(test)]
#[path = "lives_tests.rs"]
mod tests;
