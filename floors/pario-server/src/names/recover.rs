//! Opening a ledger: redb, the newer records of the logs, and the second copy where one of them is missing or damaged.
//!
//! Never: starts with fewer names than before without a report: missing names without a copy are refused, unless the loss was accepted.
//! Always: [`Recovery`] reports the sources used and the losses.

use std::sync::Arc;

use pario_core::{Code, Fault};
use pario_store::disk::OpenMode;
use serde::Serialize;

use super::base::Base;
use super::batch::Batch;
use super::copy::file::NamesImage;
use super::copy::{self, CopySpec};
use super::ledger::{FileLocation, LedgerPace};
use super::log::{self, LedgerLog, OldLog};
use super::memtable::Memtable;
use super::replay::{LogImage, ReplayRecords, Replayed};

/// Whether names must exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NamesExpected {
    /// They are created if missing.
    #[default]
    New,
    /// Names existed before.
    Existing,
    /// They existed, and the user has accepted their loss.
    LossAccepted,
}

/// How a ledger is opened.
#[derive(Clone, Debug, Default)]
pub struct LedgerSpec {
    /// Limits and delays.
    pub pace: LedgerPace,
    /// Whether it must exist.
    pub birth: NamesExpected,
    /// The second copy, if configured.
    pub copy: Option<CopySpec>,
    /// The current boot, as in [`super::record::boot`]; 0: power may have been lost since the logs were written.
    pub boot: u32,
    /// The partition's name, for messages.
    pub name: String,
}

/// Findings and repairs when names were opened.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Recovery {
    /// In words, one line each; empty if nothing was wrong.
    pub notes: Vec<String>,
    /// Changes that are lost.
    pub lost_changes: u64,
    /// Lost rows of the names themselves.
    pub lost_rows: u64,
    /// An unknown number of further changes is lost.
    pub lost_more: bool,
}

impl Recovery {
    /// Whether rows or changes are missing, so that rows may contradict each other.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        0 < self.lost_changes || 0 < self.lost_rows || self.lost_more
    }

    /// `nothing is lost`, or the amount.
    fn losses(&self) -> String {
        let more =
            if self.lost_more { ", and an unknown number of changes since the copy fell behind" } else { "" };
        match (self.lost_changes, self.lost_rows) {
            (0, 0) if !self.lost_more => "nothing is lost".into(),
            (0, 0) => "an unknown number of changes since the copy fell behind is lost".into(),
            (changes, 0) => format!("{changes} changes are lost{more}"),
            (0, rows) => format!("{rows} rows are lost{more}"),
            (changes, rows) => format!("{changes} changes and {rows} rows are lost{more}"),
        }
    }
}

/// The parts of a recovered ledger.
pub(super) struct Recovered {
    pub(super) base: Base,
    /// Last batch.
    pub(super) last: u64,
    pub(super) log: LedgerLog,
    /// Logs that redb has applied and the second copy may lack.
    pub(super) kept: Vec<OldLog>,
    pub(super) recovery: Recovery,
}

/// Applies the logs to redb.
pub(super) fn recover(place: &FileLocation, spec: &LedgerSpec) -> Result<Recovered, Fault> {
    let images = log::read_all(&*place.disk, &place.dir)?;
    match Base::find(Arc::clone(&place.disk), &place.dir) {
        Ok(Some(base)) => Opening { location: place, spec, images: &images }.with_base(base),
        Ok(None) if spec.birth == NamesExpected::New => {
            let base = Base::make(Arc::clone(&place.disk), &place.dir, std::iter::empty(), 0)?;
            Opening { location: place, spec, images: &images }.with_base(base)
        }
        Ok(None) => {
            let text = format!("{} has no names.redb", place.dir.display());
            Opening { location: place, spec, images: &images }.without_base(&text)
        }
        Err(fault) if fault.code == Code::Corrupt => {
            Opening { location: place, spec, images: &images }.without_base(&fault.text)
        }
        Err(fault) => Err(fault),
    }
}

/// State of the second copy.
#[derive(Default)]
struct CopyContents {
    bytes: Option<Vec<u8>>,
    from: String,
    /// Why it could not be read.
    trouble: Option<String>,
}

impl CopyContents {
    /// Suffix of a message that no copy exists.
    fn besides(&self) -> String {
        let say = |trouble| format!(" (the one of {} cannot be read: {trouble})", self.from);
        self.trouble.as_ref().map(say).unwrap_or_default()
    }
}

#[derive(Clone, Copy)]
struct Opening<'a> {
    location: &'a FileLocation,
    spec: &'a LedgerSpec,
    images: &'a [LogImage],
}

impl Opening<'_> {
    fn with_base(self, mut base: Base) -> Result<Recovered, Fault> {
        let applied = base.applied()?;
        let mut records = ReplayRecords::of(self.images, applied, self.spec.boot);
        let mut recovery = Recovery::default();
        let is_damaged = records.has_holes() || 0 < records.damaged;
        let copied = if is_damaged { self.copied() } else { CopyContents::default() };
        // An incomplete tail is usual after a power cut, and possible after a kill.
        let is_usual = !records.has_holes() && records.damaged == u64::from(records.torn_tail);
        if !is_usual {
            let why = format!("the log in {} is damaged", self.location.dir.display());
            self.refuse_unread(&why, &copied)?;
        }
        let image = copied.bytes.as_deref().and_then(|bytes| NamesImage::parse(bytes).ok());
        if let Some(image) = &image {
            records.add_copied(&image.changes);
        }
        let replayed = self.play(&mut base, &records)?;
        recovery.lost_changes = replayed.lost;
        if 0 < replayed.lost || records.damaged != u64::from(records.torn_tail) {
            let used = if image.is_some() {
                format!(" and the second copy ({})", copied.from)
            } else {
                String::new()
            };
            let note = format!(
                "names: the log is damaged in {} places; replayed from what is whole{used}: {}{}",
                records.damaged,
                recovery.losses(),
                copied.besides()
            );
            recovery.notes.push(note);
        }
        self.finish(base, replayed, recovery)
    }

    /// Rows from the second copy, later changes from it and from the logs.
    fn without_base(self, why: &str) -> Result<Recovered, Fault> {
        let why = why.trim_start_matches("names: ");
        let copied = self.copied();
        self.refuse_unread(why, &copied)?;
        let Some(image) = copied.bytes.as_deref().and_then(|bytes| NamesImage::parse(bytes).ok()) else {
            return self.without_copy(why, &copied.besides());
        };
        let disk = Arc::clone(&self.location.disk);
        let mut base = Base::make(disk, &self.location.dir, tables(&image, self.spec.pace), image.applied)?;
        let mut records = ReplayRecords::of(self.images, image.applied, self.spec.boot);
        records.add_copied(&image.changes);
        let replayed = self.play(&mut base, &records)?;
        let mut recovery = Recovery {
            notes: Vec::new(),
            lost_changes: replayed.lost,
            lost_rows: image.lost_rows().unwrap_or(0),
            lost_more: image.lost_rows().is_none() || self.copy_was_behind(),
        };
        let from = &copied.from;
        let note = format!("names: {why}: taken from the second copy ({from}): {}", recovery.losses());
        recovery.notes.push(note);
        self.finish(base, replayed, recovery)
    }

    /// Refuses if a copy could not be read: it may have the missing names, and would be replaced by the remaining ones.
    fn refuse_unread(self, why: &str, copied: &CopyContents) -> Result<(), Fault> {
        match &copied.trouble {
            Some(trouble) if self.spec.birth != NamesExpected::LossAccepted => {
                let (name, from) = (&self.spec.name, &copied.from);
                let text = format!(
                    "names of partition '{name}': {why}, and {from} could not be asked for the second copy ({trouble}): bring {from} up, or make the copy readable, and try again, or `pario up {name} --accept-loss` to go on without it and lose what only the copy has"
                );
                Err(Fault::new(Code::Unreachable, text))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses, or starts with the records of the logs.
    fn without_copy(self, why: &str, besides: &str) -> Result<Recovered, Fault> {
        let name = &self.spec.name;
        if self.spec.birth != NamesExpected::LossAccepted {
            let text = format!(
                "names of partition '{name}' are gone: {why}, and there is no second copy{besides}: put the names back from a backup, or `pario doctor {name} --names import FILE`, or `pario up {name} --accept-loss` to begin without names (objects stay and `pario doctor {name} --repair` collects them in lost+found)"
            );
            return Err(Fault::new(Code::Corrupt, text));
        }
        let mut base =
            Base::make(Arc::clone(&self.location.disk), &self.location.dir, std::iter::empty(), 0)?;
        let records = ReplayRecords::of(self.images, 0, self.spec.boot);
        let replayed = self.play(&mut base, &records)?;
        let note = format!(
            "{why}, and there is no second copy{besides}: the partition begins without names, as was asked for"
        );
        let recovery =
            Recovery { notes: vec![format!("names: {note}")], lost_more: true, ..Recovery::default() };
        self.finish(base, replayed, recovery)
    }

    /// The second copy, and the reason if it cannot be read.
    fn copied(self) -> CopyContents {
        let Some(copy) = &self.spec.copy else { return CopyContents::default() };
        let from = copy.location.describe();
        match copy::read_best(&*copy.location) {
            Ok(bytes) => CopyContents { bytes, from, trouble: None },
            Err(fault) => CopyContents { bytes: None, from, trouble: Some(fault.text) },
        }
    }

    fn copy_was_behind(self) -> bool {
        self.location.disk.exists(&self.location.dir.join(copy::BEHIND_FILE)).unwrap_or(true)
    }

    fn play(self, base: &mut Base, records: &ReplayRecords<'_>) -> Result<Replayed, Fault> {
        let mut memtable = Memtable::default();
        let applied = base.applied()?;
        let replayed = records.play(|sequence, batch| {
            memtable.apply(sequence, batch);
            if self.spec.pace.apply_bytes <= memtable.bytes() {
                base.apply_anyway(&std::mem::take(&mut memtable), sequence)?;
            }
            Ok(())
        })?;
        if applied < replayed.highest {
            base.apply_anyway(&memtable, replayed.highest)?;
        }
        Ok(replayed)
    }

    fn finish(self, base: Base, replayed: Replayed, recovery: Recovery) -> Result<Recovered, Fault> {
        let FileLocation { disk, dir } = self.location;
        let Replayed { last, highest, dropped, .. } = replayed;
        if 0 < dropped {
            tracing::warn!(last, dropped, dir = %dir.display(), "names: changes that were never synced are lost");
        }
        for note in &recovery.notes {
            tracing::warn!("{note}");
        }
        let io_fault = |error| Fault::from_io(&error, format!("removing logs of {}", dir.display()));
        let mut kept = Vec::new();
        for image in self.images {
            // Dropped records must not be replayed later when the second copy is used.
            if self.spec.copy.is_some() && dropped == 0 {
                let file = disk.open(&image.path, OpenMode::Read).map_err(io_fault)?;
                kept.push(OldLog { file, path: image.path.clone(), last_sequence: highest });
            } else {
                disk.remove(&image.path).map_err(io_fault)?;
            }
        }
        disk.sync_dir(dir).map_err(io_fault)?;
        let number = self.images.last().map_or(0, |image| image.number) + 1;
        let log = LedgerLog::create(&**disk, dir, number)?;
        Ok(Recovered { base, last: highest, log, kept, recovery })
    }
}

/// The rows of a names file in memtables of a size that redb applies in one transaction.
pub(super) fn tables<'a>(
    image: &'a NamesImage<'_>,
    pace: LedgerPace,
) -> impl Iterator<Item = Result<Memtable, Fault>> + 'a {
    let mut parts = image.snapshot().peekable();
    std::iter::from_fn(move || {
        parts.peek()?;
        let mut table = Memtable::default();
        let mut number = 0;
        while let Some(batch) = parts.next_if(|_: &Batch| table.bytes() < pace.apply_bytes) {
            number += 1;
            table.apply(number, &batch);
        }
        Some(Ok(table))
    })
}
