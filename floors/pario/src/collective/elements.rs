//! Accesses whose memory is described by datatypes too.
//!
//! Never: moves bytes that no element covers. Always: the same methods as bytes in a row, in the same order.

use pario_core::{Code, Fault};
use pario_view::Elements;

use super::file::GroupFile;
use crate::client::Source;
use crate::error::{Error, Result};

impl GroupFile {
    /// Writes what `elements` describe around byte `origin` of `memory`.
    pub fn write_elements_at(
        &self,
        offset: u64,
        memory: &[u8],
        origin: usize,
        elements: &Elements,
    ) -> Result<()> {
        self.write_source(offset, &Source::elements(memory, origin, elements)?)
    }

    /// Reads into what `elements` describe around byte `origin` of `memory`; returns how many bytes there were before the file's end.
    pub fn read_elements_at(
        &self,
        offset: u64,
        memory: &mut [u8],
        origin: usize,
        elements: &Elements,
    ) -> Result<usize> {
        check(memory, origin, elements)?;
        let mut packed = vec![0; pack_len(elements)?];
        let count = self.read_at(offset, &mut packed)?;
        unpack(&packed[..count], memory, origin, elements)
    }

    /// [`GroupFile::write_elements_at`], together with all others.
    pub fn write_elements_at_all(
        &self,
        offset: u64,
        memory: &[u8],
        origin: usize,
        elements: &Elements,
    ) -> Result<()> {
        self.write_source_all(offset, Source::elements(memory, origin, elements).map_err(Error::from))
    }

    /// [`GroupFile::read_elements_at`], together with all others.
    pub fn read_elements_at_all(
        &self,
        offset: u64,
        memory: &mut [u8],
        origin: usize,
        elements: &Elements,
    ) -> Result<usize> {
        let checked = check(memory, origin, elements).and_then(|()| pack_len(elements));
        // Whoever cannot take part is there all the same, with nothing: the others do not wait for it.
        let mut packed = vec![0; *checked.as_ref().unwrap_or(&0)];
        let count = self.read_at_all(offset, &mut packed);
        checked?;
        unpack(&packed[..count?], memory, origin, elements)
    }

    /// Writes what `elements` describe at the individual pointer and moves it.
    pub fn write_elements(&self, memory: &[u8], origin: usize, elements: &Elements) -> Result<()> {
        let offset = self.advance(pack_len(elements)?)?;
        self.write_elements_at(offset, memory, origin, elements)
    }

    /// Reads into what `elements` describe at the individual pointer and moves it by what was read.
    pub fn read_elements(&self, memory: &mut [u8], origin: usize, elements: &Elements) -> Result<usize> {
        let count = self.read_elements_at(self.position(), memory, origin, elements)?;
        self.advance(count)?;
        Ok(count)
    }

    /// [`GroupFile::write_elements`], together with all others.
    pub fn write_elements_all(&self, memory: &[u8], origin: usize, elements: &Elements) -> Result<()> {
        let offset = self.advance_all(pack_len(elements)?);
        self.write_elements_at_all(offset, memory, origin, elements)
    }

    /// [`GroupFile::read_elements`], together with all others.
    pub fn read_elements_all(&self, memory: &mut [u8], origin: usize, elements: &Elements) -> Result<usize> {
        let count = self.read_elements_at_all(self.position(), memory, origin, elements)?;
        self.advance(count)?;
        Ok(count)
    }
}

/// Whether the elements lie in the memory.
fn check(memory: &[u8], origin: usize, elements: &Elements) -> Result<()> {
    Source::elements(memory, origin, elements).map(|_| ()).map_err(Error::from)
}

fn unpack(packed: &[u8], memory: &mut [u8], origin: usize, elements: &Elements) -> Result<usize> {
    let unpacked = elements.unpack(packed, 0, memory, origin);
    unpacked.map_err(|error| Fault::new(Code::Invalid, error.to_string()))?;
    Ok(packed.len())
}

fn pack_len(elements: &Elements) -> Result<usize> {
    usize::try_from(elements.bytes()).map_err(|_| Fault::new(Code::TooLarge, "elements beyond memory").into())
}
