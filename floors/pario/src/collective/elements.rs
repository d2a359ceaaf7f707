//! Accesses with memory described by datatypes.
//!
//! Never: copies bytes that no element covers. Always: uses the same methods as contiguous accesses, in the same order.

use pario_core::{Code, Fault};
use pario_view::Elements;

use super::file::GroupFile;
use crate::client::WriteSource;
use crate::error::{Error, Result};

impl GroupFile {
    /// Writes the bytes that `elements` describe, relative to byte `origin` of `memory`.
    pub fn write_elements_at(
        &self,
        offset: u64,
        memory: &[u8],
        origin: usize,
        elements: &Elements,
    ) -> Result<()> {
        self.write_source(offset, &WriteSource::elements(memory, origin, elements)?)
    }

    /// Reads into the bytes that `elements` describe, relative to byte `origin` of `memory`; returns the number of bytes before
    /// the end of the file.
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

    /// Collective [`GroupFile::write_elements_at`].
    pub fn write_elements_at_all(
        &self,
        offset: u64,
        memory: &[u8],
        origin: usize,
        elements: &Elements,
    ) -> Result<()> {
        self.write_source_all(offset, WriteSource::elements(memory, origin, elements).map_err(Error::from))
    }

    /// Collective [`GroupFile::read_elements_at`].
    pub fn read_elements_at_all(
        &self,
        offset: u64,
        memory: &mut [u8],
        origin: usize,
        elements: &Elements,
    ) -> Result<usize> {
        let checked = check(memory, origin, elements).and_then(|()| pack_len(elements));
        // A rank with invalid arguments still takes part, with an empty access, so that the others do not wait for it.
        let mut packed = vec![0; *checked.as_ref().unwrap_or(&0)];
        let count = self.read_at_all(offset, &mut packed);
        checked?;
        unpack(&packed[..count?], memory, origin, elements)
    }

    /// Writes the bytes that `elements` describe at the individual pointer and advances it.
    pub fn write_elements(&self, memory: &[u8], origin: usize, elements: &Elements) -> Result<()> {
        let offset = self.advance(pack_len(elements)?)?;
        self.write_elements_at(offset, memory, origin, elements)
    }

    /// Reads into the bytes that `elements` describe at the individual pointer and advances it by the bytes read.
    pub fn read_elements(&self, memory: &mut [u8], origin: usize, elements: &Elements) -> Result<usize> {
        let count = self.read_elements_at(self.position(), memory, origin, elements)?;
        self.advance(count)?;
        Ok(count)
    }

    /// Collective [`GroupFile::write_elements`].
    pub fn write_elements_all(&self, memory: &[u8], origin: usize, elements: &Elements) -> Result<()> {
        let offset = self.advance_all(pack_len(elements)?);
        self.write_elements_at_all(offset, memory, origin, elements)
    }

    /// Collective [`GroupFile::read_elements`].
    pub fn read_elements_all(&self, memory: &mut [u8], origin: usize, elements: &Elements) -> Result<usize> {
        let count = self.read_elements_at_all(self.position(), memory, origin, elements)?;
        self.advance(count)?;
        Ok(count)
    }
}

/// Checks that the elements lie inside the memory.
fn check(memory: &[u8], origin: usize, elements: &Elements) -> Result<()> {
    WriteSource::elements(memory, origin, elements).map(|_| ()).map_err(Error::from)
}

fn unpack(packed: &[u8], memory: &mut [u8], origin: usize, elements: &Elements) -> Result<usize> {
    let unpacked = elements.unpack(packed, 0, memory, origin);
    unpacked.map_err(|error| Fault::new(Code::Invalid, error.to_string()))?;
    Ok(packed.len())
}

fn pack_len(elements: &Elements) -> Result<usize> {
    usize::try_from(elements.bytes())
        .map_err(|_| Fault::new(Code::TooLarge, "the elements have more bytes than memory can hold").into())
}
