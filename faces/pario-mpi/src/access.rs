//! Accesses: their starting offset, independent or collective, and their memory.
//!
//! Always: an individual pointer advances by the requested bytes for writes and by the bytes read for reads; a rank that cannot
//! take part in a collective access still joins it, with an empty access, so that no rank waits for it.

use pario::{GroupFile, Seek};

use crate::ffi::ProgramMemory;
use crate::file::MpiFile;
use crate::problem::{Class, MpiError, Result};
use crate::shared;

/// Starting point of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessOrigin {
    /// At an offset, in elementary types.
    At(i64),
    /// At the individual pointer.
    Individual,
    /// At the shared pointer.
    Shared,
    /// At the shared pointer, in rank order.
    Ordered,
}

/// Whether all ranks take part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Together {
    /// Independent.
    No,
    /// Collective.
    Yes,
}

/// Reading or writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AccessDirection {
    Read,
    Write,
}

impl MpiFile {
    /// Unwraps the arguments of an access; a rank with an error joins a collective access with an empty one, and returns its
    /// error.
    pub fn or_nothing<T>(&self, together: Together, reading: bool, needed: Result<T>) -> Result<T> {
        if needed.is_err() && together == Together::Yes {
            let way = if reading { AccessDirection::Read } else { AccessDirection::Write };
            self.queue().wait_earlier()?;
            self.on_file(|file| {
                self.attend(file, way);
                Ok(())
            })?;
        }
        needed
    }

    /// Writes; returns how many bytes.
    pub fn write(&self, place: AccessOrigin, together: Together, memory: &ProgramMemory) -> Result<u64> {
        self.wait_for_earlier(together)?;
        self.on_file(|file| {
            let start = self.begin(file, AccessDirection::Write, place, memory.bytes());
            let start = self.or_attend(file, together, AccessDirection::Write, start)?;
            self.write_from(file, start, together, memory)
        })
    }

    /// Reads; returns the number of bytes.
    pub fn read(&self, place: AccessOrigin, together: Together, memory: &mut ProgramMemory) -> Result<u64> {
        self.wait_for_earlier(together)?;
        self.on_file(|file| {
            let wanted = memory.bytes();
            let start = self.begin(file, AccessDirection::Read, place, wanted);
            let start = self.or_attend(file, together, AccessDirection::Read, start)?;
            let count = self.read_into(file, start, together, memory)?;
            if place == AccessOrigin::Individual && count < wanted {
                rewind_to(file, wanted, count)?;
            }
            Ok(count)
        })
    }

    /// The checked starting offset of an access; advances the pointer that it uses.
    pub fn start_at(
        &self,
        reading: bool,
        place: AccessOrigin,
        together: Together,
        bytes: u64,
    ) -> Result<u64> {
        let way = if reading { AccessDirection::Read } else { AccessDirection::Write };
        self.on_file(|file| {
            let start = self.begin(file, way, place, bytes);
            self.or_attend(file, together, way, start)
        })
    }

    /// Writes at an offset from [`MpiFile::start_at`].
    pub fn write_at(&self, start: u64, together: Together, memory: &ProgramMemory) -> Result<u64> {
        self.on_file(|file| self.write_from(file, start, together, memory))
    }

    /// Reads at an offset from [`MpiFile::start_at`].
    pub fn read_at(&self, start: u64, together: Together, memory: &mut ProgramMemory) -> Result<u64> {
        self.on_file(|file| self.read_into(file, start, together, memory))
    }

    fn begin(&self, file: &GroupFile, way: AccessDirection, place: AccessOrigin, bytes: u64) -> Result<u64> {
        self.check_direction(way, place)?;
        let etype = file.view().etype_bytes();
        if !bytes.is_multiple_of(etype) {
            let text = format!(
                "{}: an access of {bytes} bytes is no multiple of the elementary type's {etype} bytes",
                self.name()
            );
            return Err(MpiError::new(Class::Arg, text));
        }
        let etypes = bytes / etype;
        match place {
            AccessOrigin::At(offset) => u64::try_from(offset).map_err(|_| {
                MpiError::new(Class::Arg, format!("{}: offset {offset} is negative", self.name()))
            }),
            AccessOrigin::Individual => {
                let _alone = self.lock_pointer();
                let before = file.position();
                let after = before.checked_add(etypes).filter(|after| i64::try_from(*after).is_ok());
                let far = || {
                    MpiError::new(
                        Class::ValueTooLarge,
                        format!("{}: the offset is beyond the largest file size", self.name()),
                    )
                };
                file.seek(Seek::Set(after.ok_or_else(far)?))?;
                Ok(before)
            }
            AccessOrigin::Shared => shared::reserve_shared(file, etypes),
            AccessOrigin::Ordered => shared::reserve_ordered(file, etypes),
        }
    }

    /// Waits for earlier collective accesses.
    fn wait_for_earlier(&self, together: Together) -> Result<()> {
        match together {
            Together::Yes => Ok(self.queue().wait_earlier()?),
            Together::No => Ok(()),
        }
    }

    /// A rank that cannot take part joins with an empty access.
    fn or_attend(
        &self,
        file: &GroupFile,
        together: Together,
        way: AccessDirection,
        start: Result<u64>,
    ) -> Result<u64> {
        if start.is_err() && together == Together::Yes {
            self.attend(file, way);
        }
        start
    }

    fn attend(&self, file: &GroupFile, way: AccessDirection) {
        // The relevant error is this rank's own.
        let _ = match way {
            AccessDirection::Write if self.amode().writes() => file.write_at_all(0, &[]).map(|()| 0),
            AccessDirection::Read if self.amode().reads() => file.read_at_all(0, &mut []),
            AccessDirection::Write | AccessDirection::Read => Ok(0),
        };
    }

    fn write_from(
        &self,
        file: &GroupFile,
        start: u64,
        together: Together,
        memory: &ProgramMemory,
    ) -> Result<u64> {
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
        memory: &mut ProgramMemory,
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

/// Moves the individual pointer back to the end of the bytes read.
fn rewind_to(file: &GroupFile, wanted: u64, count: u64) -> Result<()> {
    let etype = file.view().etype_bytes();
    let missing = i64::try_from(wanted / etype - count / etype).unwrap_or(0);
    file.seek(Seek::Current(-missing))?;
    Ok(())
}
