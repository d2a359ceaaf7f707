//! A buffer of the program, as an address and what lies around it.
//!
//! Never: touches a byte outside what the datatype covers, from the lowest to the highest. Always: lives no longer than the call,
//! or the request, that MPI says the program must leave it alone for.
#![expect(unsafe_code, reason = "a C program's buffer is an address")]

use pario::view::{Datatype, Elements};

use crate::problem::{Class, Problem, Result};

/// What a buffer consists of.
#[derive(Debug)]
enum Shape {
    /// So many bytes in a row, from the address on.
    Row(usize),
    /// What a datatype picks around the address; nothing of it lies behind it only.
    Picked(Elements),
}

/// A buffer.
#[derive(Debug)]
pub struct Memory {
    address: usize,
    shape: Shape,
}

impl Memory {
    /// A buffer of `bytes` in a row.
    ///
    /// # Safety
    /// As long as this lives, these bytes are readable, writable if it is read into, and the program leaves them alone. MPI
    /// demands that of whoever calls it.
    pub unsafe fn row(address: usize, bytes: usize) -> Result<Memory> {
        if address == 0 && bytes != 0 {
            return Err(Problem::new(Class::Buffer, format!("{bytes} bytes at a null address")));
        }
        Ok(Memory { address, shape: Shape::Row(bytes) })
    }

    /// A buffer of `count` elements of a datatype.
    ///
    /// # Safety
    /// As for [`Memory::row`], for all bytes between the lowest and the highest that the elements cover.
    pub unsafe fn picked(address: usize, datatype: &Datatype, count: i64) -> Result<Memory> {
        let elements = Elements::new(datatype, count)?;
        let bytes = usize::try_from(elements.bytes()).map_err(|_| {
            Problem::new(Class::Count, format!("{} bytes are beyond memory", elements.bytes()))
        })?;
        let low = elements.bounds().start;
        // With `MPI_BOTTOM` the address is 0 and the distances are addresses.
        let first = isize::try_from(low).map_or(address, |low| address.wrapping_add_signed(low));
        if bytes != 0 && first == 0 {
            return Err(Problem::new(Class::Buffer, format!("{bytes} bytes at a null address")));
        }
        if bytes == 0 || elements.contiguous_at().is_some() {
            return Ok(Memory { address: first, shape: Shape::Row(bytes) });
        }
        if low <= 0 {
            return Ok(Memory { address, shape: Shape::Picked(elements) });
        }
        let moved = Datatype::hindexed(&[count], &[-low], datatype)?;
        Ok(Memory { address: first, shape: Shape::Picked(Elements::new(&moved, 1)?) })
    }

    /// Bytes of data.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.shape {
            Shape::Row(bytes) => *bytes as u64,
            Shape::Picked(elements) => elements.bytes(),
        }
    }

    /// The datatype's picks, if there are gaps.
    #[must_use]
    pub fn elements(&self) -> Option<&Elements> {
        match &self.shape {
            Shape::Row(_) => None,
            Shape::Picked(elements) => Some(elements),
        }
    }

    /// All bytes from the lowest to the highest, and where the address lies among them.
    #[must_use]
    pub fn source(&self) -> (&[u8], usize) {
        let (start, bytes, origin) = self.range();
        if bytes == 0 {
            return (&[], 0);
        }
        // SAFETY: `new` was promised that these bytes are readable and left alone while `self` lives.
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
        // SAFETY: `new` was promised that these bytes are writable and left alone while `self` lives; `self` is borrowed alone.
        (unsafe { std::slice::from_raw_parts_mut(start, bytes) }, origin)
    }

    /// First address, length, and the distance of the buffer's own address from the first.
    fn range(&self) -> (usize, usize, usize) {
        match &self.shape {
            Shape::Row(bytes) => (self.address, *bytes, 0),
            Shape::Picked(elements) => {
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
        let inside = unsafe { Memory::picked(base + 4, &back, 1) }.unwrap();
        assert_eq!((inside.source(), inside.bytes()), ((&b"bcdef"[..], 3), 4));
        let at = i64::try_from(base).unwrap();
        let far = Datatype::hindexed(&[1, 1], &[at + 4, at + 1], &pair).unwrap();
        // SAFETY: the same.
        let bottom = unsafe { Memory::picked(0, &far, 1) }.unwrap();
        let mut packed = [0; 4];
        let (source, origin) = bottom.source();
        assert_eq!(bottom.elements().unwrap().pack(source, origin, 0, &mut packed), Ok(4));
        assert_eq!(&packed, b"efbc");
    }

    #[test]
    fn nothing_may_be_nowhere() {
        // SAFETY: nothing is never touched.
        let row = unsafe { Memory::row(0, 0) }.unwrap();
        assert_eq!(row.source().0, b"");
        // SAFETY: it is refused.
        assert_eq!(unsafe { Memory::row(0, 1) }.unwrap_err().class, Class::Buffer);
    }
}
