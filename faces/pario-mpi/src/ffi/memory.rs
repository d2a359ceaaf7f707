//! A buffer of the program: an address and the memory around it.
//!
//! Never: accesses a byte outside the range of the datatype, from the lowest to the highest. Always: lives no longer than the
//! call, or the request, during which MPI forbids the program to use the buffer.
#![expect(unsafe_code, reason = "a C program's buffer is an address")]

use pario::view::{Datatype, Elements};

use crate::problem::{Class, MpiError, Result};

/// Shape of a buffer.
#[derive(Debug)]
enum BufferShape {
    /// Contiguous bytes, from the address on.
    Contiguous(usize),
    /// The elements of a datatype around the address; the range contains the address.
    Datatyped(Elements),
}

/// A buffer.
#[derive(Debug)]
pub struct ProgramMemory {
    address: usize,
    shape: BufferShape,
}

impl ProgramMemory {
    /// A contiguous buffer of `bytes`.
    ///
    /// # Safety
    /// As long as this lives, these bytes are readable, writable if it is read into, and not accessed by the program. MPI demands
    /// that of its caller.
    pub unsafe fn contiguous(address: usize, bytes: usize) -> Result<ProgramMemory> {
        if address == 0 && bytes != 0 {
            return Err(MpiError::new(Class::Buffer, format!("{bytes} bytes at a null address")));
        }
        Ok(ProgramMemory { address, shape: BufferShape::Contiguous(bytes) })
    }

    /// A buffer of `count` elements of a datatype.
    ///
    /// # Safety
    /// As for [`ProgramMemory::row`], for all bytes between the lowest and the highest that the elements cover.
    pub unsafe fn with_datatype(address: usize, datatype: &Datatype, count: i64) -> Result<ProgramMemory> {
        let elements = Elements::new(datatype, count)?;
        let bytes = usize::try_from(elements.bytes()).map_err(|_| {
            MpiError::new(Class::Count, format!("{} bytes do not fit in memory", elements.bytes()))
        })?;
        let low = elements.bounds().start;
        // With `MPI_BOTTOM` the address is 0 and the displacements are addresses.
        let first = isize::try_from(low).map_or(address, |low| address.wrapping_add_signed(low));
        if bytes != 0 && first == 0 {
            return Err(MpiError::new(Class::Buffer, format!("{bytes} bytes at a null address")));
        }
        if bytes == 0 || elements.contiguous_at().is_some() {
            return Ok(ProgramMemory { address: first, shape: BufferShape::Contiguous(bytes) });
        }
        if low <= 0 {
            return Ok(ProgramMemory { address, shape: BufferShape::Datatyped(elements) });
        }
        let moved = Datatype::hindexed(&[count], &[-low], datatype)?;
        Ok(ProgramMemory { address: first, shape: BufferShape::Datatyped(Elements::new(&moved, 1)?) })
    }

    /// Bytes of data.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.shape {
            BufferShape::Contiguous(bytes) => *bytes as u64,
            BufferShape::Datatyped(elements) => elements.bytes(),
        }
    }

    /// The elements of the datatype, if they have gaps.
    #[must_use]
    pub fn elements(&self) -> Option<&Elements> {
        match &self.shape {
            BufferShape::Contiguous(_) => None,
            BufferShape::Datatyped(elements) => Some(elements),
        }
    }

    /// All bytes from the lowest to the highest, and the position of the address among them.
    #[must_use]
    pub fn source(&self) -> (&[u8], usize) {
        let (start, bytes, origin) = self.range();
        if bytes == 0 {
            return (&[], 0);
        }
        // SAFETY: `new` was promised that these bytes are readable and not accessed by the program while `self` lives.
        let slice = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(start), bytes) };
        (slice, origin)
    }

    /// The same for reading into.
    #[must_use]
    pub fn target(&mut self) -> (&mut [u8], usize) {
        let (start, bytes, origin) = self.range();
        if bytes == 0 {
            return (&mut [], 0);
        }
        let start = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: `new` was promised that these bytes are writable and not accessed by the program while `self` lives; `self` is
        // borrowed exclusively.
        (unsafe { std::slice::from_raw_parts_mut(start, bytes) }, origin)
    }

    /// First address, length, and the distance of the buffer's own address from the first.
    fn range(&self) -> (usize, usize, usize) {
        match &self.shape {
            BufferShape::Contiguous(bytes) => (self.address, *bytes, 0),
            BufferShape::Datatyped(elements) => {
                let bounds = elements.bounds();
                let before = usize::try_from(-bounds.start).expect("nothing lies behind the address only");
                let bytes = usize::try_from(bounds.end - bounds.start).expect("memory is smaller");
                (self.address.wrapping_sub(before), bytes, before)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_lie_inside_or_be_zero() {
        let bytes = *b"abcdefgh";
        let base = bytes.as_ptr().expose_provenance();
        let pair = Datatype::elementary(2).unwrap();
        let back = Datatype::hvector(2, 1, -3, &pair).unwrap();
        // SAFETY: the elements lie in `bytes`, which lives to the end of the test.
        let inside = unsafe { ProgramMemory::with_datatype(base + 4, &back, 1) }.unwrap();
        assert_eq!((inside.source(), inside.bytes()), ((&b"bcdef"[..], 3), 4));
        let at = i64::try_from(base).unwrap();
        let far = Datatype::hindexed(&[1, 1], &[at + 4, at + 1], &pair).unwrap();
        // SAFETY: the same.
        let bottom = unsafe { ProgramMemory::with_datatype(0, &far, 1) }.unwrap();
        let mut packed = [0; 4];
        let (source, origin) = bottom.source();
        assert_eq!(bottom.elements().unwrap().pack(source, origin, 0, &mut packed), Ok(4));
        assert_eq!(&packed, b"efbc");
    }

    #[test]
    fn nothing_may_be_nowhere() {
        // SAFETY: nothing is never touched.
        let row = unsafe { ProgramMemory::contiguous(0, 0) }.unwrap();
        assert_eq!(row.source().0, b"");
        // SAFETY: it is refused.
        assert_eq!(unsafe { ProgramMemory::contiguous(0, 1) }.unwrap_err().class, Class::Buffer);
    }
}
