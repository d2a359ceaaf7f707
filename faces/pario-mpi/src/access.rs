//! Accesses: where they begin, with whom, and from or into which memory.
//!
//! Always: an individual pointer moves by what was asked for writes and by what was read for reads; a rank that cannot take part
//! in a collective access is there all the same, with nothing, so that nobody waits for it.

use pario::{GroupFile, Seek};

use crate::ffi::Memory;
use crate::file::OpenFile;
use crate::problem::{Class, Problem, Result};
use crate::shared;

/// Where an access begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// At an offset, in elementary types.
    At(i64),
    /// At the individual pointer.
    Individual,
    /// At the shared pointer.
    Shared,
    /// At the shared pointer, in the order of ranks.
    Ordered,
}

/// Whether all ranks take part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Together {
    /// This rank alone.
    No,
    /// All.
    Yes,
}

/// Reading or writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Read,
    Write,
}

impl OpenFile {
    /// What is needed for an access; a rank that has it not attends a collective one with nothing, and is told.
    pub fn or_nothing<T>(&self, together: Together, reading: bool, needed: Result<T>) -> Result<T> {
        if needed.is_err() && together == Together::Yes {
            let way = if reading { Way::Read } else { Way::Write };
            self.line().drain()?;
            self.on_file(|file| {
                self.attend(file, way);
                Ok(())
            })?;
        }
        needed
    }

    /// Writes; returns how many bytes.
    pub fn write(&self, place: Place, together: Together, memory: &Memory) -> Result<u64> {
        self.in_turn(together)?;
        self.on_file(|file| {
            let start = self.begin(file, Way::Write, place, memory.bytes());
            let start = self.or_attend(file, together, Way::Write, start)?;
            self.write_from(file, start, together, memory)
        })
    }

    /// Reads; returns how many bytes there were.
    pub fn read(&self, place: Place, together: Together, memory: &mut Memory) -> Result<u64> {
        self.in_turn(together)?;
        self.on_file(|file| {
            let wanted = memory.bytes();
            let start = self.begin(file, Way::Read, place, wanted);
            let start = self.or_attend(file, together, Way::Read, start)?;
            let count = self.read_into(file, start, together, memory)?;
            if place == Place::Individual && count < wanted {
                give_back(file, wanted, count)?;
            }
            Ok(count)
        })
    }

    /// Where an access begins: checks it, and moves the pointer that it uses.
    pub fn start_at(&self, reading: bool, place: Place, together: Together, bytes: u64) -> Result<u64> {
        let way = if reading { Way::Read } else { Way::Write };
        self.on_file(|file| {
            let start = self.begin(file, way, place, bytes);
            self.or_attend(file, together, way, start)
        })
    }

    /// Writes from a place that [`OpenFile::start_at`] gave.
    pub fn write_at(&self, start: u64, together: Together, memory: &Memory) -> Result<u64> {
        self.on_file(|file| self.write_from(file, start, together, memory))
    }

    /// Reads from a place that [`OpenFile::start_at`] gave.
    pub fn read_at(&self, start: u64, together: Together, memory: &mut Memory) -> Result<u64> {
        self.on_file(|file| self.read_into(file, start, together, memory))
    }

    fn begin(&self, file: &GroupFile, way: Way, place: Place, bytes: u64) -> Result<u64> {
        self.check_way(way, place)?;
        let etype = file.view().etype_bytes();
        if !bytes.is_multiple_of(etype) {
            let text =
                format!("{}: {bytes} bytes are no whole number of elementary types of {etype}", self.name());
            return Err(Problem::new(Class::Arg, text));
        }
        let etypes = bytes / etype;
        match place {
            Place::At(offset) => u64::try_from(offset).map_err(|_| {
                Problem::new(Class::Arg, format!("{}: offset {offset} is negative", self.name()))
            }),
            Place::Individual => {
                let _alone = self.moving();
                let before = file.position();
                let after = before.checked_add(etypes).filter(|after| i64::try_from(*after).is_ok());
                let far = || Problem::new(Class::ValueTooLarge, format!("{}: beyond any file", self.name()));
                file.seek(Seek::Set(after.ok_or_else(far)?))?;
                Ok(before)
            }
            Place::Shared => shared::reserve_shared(file, etypes),
            Place::Ordered => shared::reserve_ordered(file, etypes),
        }
    }

    /// Collective accesses come one after the other.
    fn in_turn(&self, together: Together) -> Result<()> {
        match together {
            Together::Yes => self.line().drain(),
            Together::No => Ok(()),
        }
    }

    /// A rank that cannot take part attends with nothing.
    fn or_attend(&self, file: &GroupFile, together: Together, way: Way, start: Result<u64>) -> Result<u64> {
        if start.is_err() && together == Together::Yes {
            self.attend(file, way);
        }
        start
    }

    fn attend(&self, file: &GroupFile, way: Way) {
        // The error that matters is this rank's own.
        let _ = match way {
            Way::Write if self.amode().writes() => file.write_at_all(0, &[]).map(|()| 0),
            Way::Read if self.amode().reads() => file.read_at_all(0, &mut []),
            Way::Write | Way::Read => Ok(0),
        };
    }

    fn write_from(&self, file: &GroupFile, start: u64, together: Together, memory: &Memory) -> Result<u64> {
        let (source, origin) = memory.source();
        match (memory.elements(), together) {
            (None, Together::No) => file.write_at(start, source)?,
            (None, Together::Yes) => file.write_at_all(start, source)?,
            (Some(elements), Together::No) => file.write_elements_at(start, source, origin, elements)?,
            (Some(elements), Together::Yes) => file.write_elements_at_all(start, source, origin, elements)?,
        }
        Ok(memory.bytes())
    }

    fn read_into(
        &self,
        file: &GroupFile,
        start: u64,
        together: Together,
        memory: &mut Memory,
    ) -> Result<u64> {
        // Cloned because the memory is borrowed for writing; a few numbers.
        let elements = memory.elements().cloned();
        let (target, origin) = memory.target();
        let count = match (&elements, together) {
            (None, Together::No) => file.read_at(start, target)?,
            (None, Together::Yes) => file.read_at_all(start, target)?,
            (Some(elements), Together::No) => file.read_elements_at(start, target, origin, elements)?,
            (Some(elements), Together::Yes) => file.read_elements_at_all(start, target, origin, elements)?,
        };
        Ok(count as u64)
    }
}

/// Puts the individual pointer back behind what was really read.
fn give_back(file: &GroupFile, wanted: u64, count: u64) -> Result<()> {
    let etype = file.view().etype_bytes();
    let missing = i64::try_from(wanted / etype - count / etype).unwrap_or(0);
    file.seek(Seek::Current(-missing))?;
    Ok(())
}
