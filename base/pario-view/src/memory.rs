//! Memory described by a datatype: which bytes a buffer of some elements consists of, and packing them.
//!
//! Never: touches a byte outside the slice it is given. Always: offsets are relative to the buffer's address as MPI has it, and may
//! be negative.

use std::ops::Range;

use crate::datatype::Datatype;
use crate::error::TypeError;
use crate::lower::program_of_many;
use crate::program::{NodeShape, ViewProgram};
use crate::walk::RunWalk;

/// `count` elements of a datatype in memory.
#[derive(Clone, Debug)]
pub struct Elements {
    program: ViewProgram,
}

/// Memory that a buffer of elements does not fit in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("elements at {bounds:?} around byte {origin} do not fit in {memory_bytes} bytes")]
pub struct OutOfMemory {
    /// What the elements cover, relative to the origin.
    pub bounds: Range<i64>,
    /// Where the buffer's address is in the memory given.
    pub origin: usize,
    /// Bytes given.
    pub memory_bytes: usize,
}

impl Elements {
    /// `count` elements, one extent apart.
    pub fn new(datatype: &Datatype, count: i64) -> Result<Elements, TypeError> {
        let rounds = u64::try_from(count).map_err(|_| TypeError::NegativeCount { value: count })?;
        Ok(Elements { program: program_of_many(datatype, rounds)? })
    }

    /// Bytes of data.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.program.size()
    }

    /// From the lowest to the highest byte, relative to the buffer's address.
    #[must_use]
    pub fn bounds(&self) -> Range<i64> {
        let root = self.program.root.zip(self.program.root_node());
        root.map_or(0..0, |(root, node)| root.at + node.lo..root.at + node.hi)
    }

    /// Where the data starts, if it is contiguous and in order.
    #[must_use]
    pub fn contiguous_at(&self) -> Option<i64> {
        let root = self.program.root_node().filter(|root| root.shape == NodeShape::Run);
        root.and(self.program.root).map(|root| root.at)
    }

    /// The contiguous memory ranges of a range of the packed bytes, in order.
    #[must_use]
    pub fn runs(&self, packed: Range<u64>) -> RunWalk<'_> {
        RunWalk::over(&self.program.nodes, self.program.root, packed)
    }

    /// Copies packed bytes from `packed_offset` on out of `memory` (`origin` is the index of the buffer's address in it), until `target`
    /// is full or the data ends. Returns the number of bytes copied.
    pub fn pack(
        &self,
        memory: &[u8],
        origin: usize,
        packed_offset: u64,
        target: &mut [u8],
    ) -> Result<usize, OutOfMemory> {
        self.check(memory.len(), origin)?;
        let mut done = 0;
        for run in self.runs(range(packed_offset, target.len())) {
            let (at, bytes) = (memory_index(origin, run.at), crate::program::index(run.bytes));
            target[done..done + bytes].copy_from_slice(&memory[at..at + bytes]);
            done += bytes;
        }
        Ok(done)
    }

    /// The reverse of [`Elements::pack`].
    pub fn unpack(
        &self,
        source: &[u8],
        packed_offset: u64,
        memory: &mut [u8],
        origin: usize,
    ) -> Result<usize, OutOfMemory> {
        self.check(memory.len(), origin)?;
        let mut done = 0;
        for run in self.runs(range(packed_offset, source.len())) {
            let (at, bytes) = (memory_index(origin, run.at), crate::program::index(run.bytes));
            memory[at..at + bytes].copy_from_slice(&source[done..done + bytes]);
            done += bytes;
        }
        Ok(done)
    }

    fn check(&self, memory_bytes: usize, origin: usize) -> Result<(), OutOfMemory> {
        let bounds = self.bounds();
        let fits = |at: i64| i128::from(at) + origin as i128;
        if 0 <= fits(bounds.start) && fits(bounds.end) <= memory_bytes as i128 {
            return Ok(());
        }
        Err(OutOfMemory { bounds, origin, memory_bytes })
    }
}

fn range(offset: u64, bytes: usize) -> Range<u64> {
    offset..offset.saturating_add(bytes as u64)
}

fn memory_index(origin: usize, at: i64) -> usize {
    let at = isize::try_from(at).expect("checked against memory");
    origin.checked_add_signed(at).expect("checked against memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_and_unpacks_columns() {
        let byte = Datatype::elementary(1).unwrap();
        // Column by column of a matrix of 2 rows and 3 columns.
        let column = Datatype::vector(2, 1, 3, &byte).unwrap().resized(0, 1).unwrap();
        let columns = Elements::new(&column, 3).unwrap();
        let mut packed = [0; 6];
        assert_eq!(columns.pack(b"..abcdef", 2, 0, &mut packed), Ok(6));
        assert_eq!(&packed, b"adbecf");
        let mut matrix = *b"......";
        assert_eq!(columns.unpack(b"becf", 2, &mut matrix, 0), Ok(4));
        assert_eq!(&matrix, b".bc.ef");
    }

    #[test]
    fn memory_may_lie_before_the_address() {
        let int = Datatype::elementary(4).unwrap();
        let backwards = Elements::new(&Datatype::vector(2, 1, -1, &int).unwrap(), 1).unwrap();
        assert_eq!(backwards.bounds(), -4..4);
        let mut packed = [0; 8];
        assert_eq!(backwards.pack(b"abcdefgh", 4, 0, &mut packed), Ok(8));
        assert_eq!(&packed, b"efghabcd");
        let error = backwards.pack(b"abcdefgh", 3, 0, &mut packed).unwrap_err();
        assert_eq!(error, OutOfMemory { bounds: -4..4, origin: 3, memory_bytes: 8 });
    }

    #[test]
    fn nothing_is_nothing() {
        let int = Datatype::elementary(4).unwrap();
        let none = Elements::new(&int, 0).unwrap();
        assert_eq!((none.bytes(), none.bounds(), none.contiguous_at()), (0, 0..0, None));
        assert_eq!(none.runs(0..10).count(), 0);
        assert_eq!(Elements::new(&int, 3).unwrap().contiguous_at(), Some(0));
    }
}
