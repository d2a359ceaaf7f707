//! Dataspaces: shapes, and selections as runs of elements.

use std::ffi::c_int;

use pario_container::DataSpace;

use super::abi::{Hid, UNLIMITED};
use super::failure::{Failure, VolOutcome};
use super::library::Library;
use super::values::{Closer, Owned, checked, index, length, unsigned};

/// Runs asked for at once.
const RUNS: usize = 4096;
/// `H5S_SEL_ALL`.
const SELECT_ALL: c_int = 3;

/// The shape of a dataspace.
pub(crate) fn shape(library: &Library, id: Hid) -> VolOutcome<DataSpace> {
    // SAFETY: the space is open.
    match unsafe { (library.f.H5Sget_simple_extent_type)(id) } {
        0 => Ok(DataSpace::Scalar),
        2 => Ok(DataSpace::Null),
        1 => {
            let (mut extent, mut maximum) = (vec![0; 32], vec![0; 32]);
            // SAFETY: the buffers have room for 32 dimensions, the most that HDF5 has.
            let rank = unsafe {
                (library.f.H5Sget_simple_extent_dims)(id, extent.as_mut_ptr(), maximum.as_mut_ptr())
            };
            let rank = usize::try_from(checked(rank, "H5Sget_simple_extent_dims")?).unwrap_or(0);
            extent.truncate(rank);
            let maximum = maximum[..rank].iter().map(|most| (*most != UNLIMITED).then_some(*most)).collect();
            Ok(DataSpace::Simple { extent, maximum })
        }
        _ => Err(Failure::of_library("H5Sget_simple_extent_type")),
    }
}

/// A dataspace of a shape.
pub(crate) fn create(library: &'static Library, shape: &DataSpace) -> VolOutcome<Owned> {
    let f = &library.f;
    let id = match shape {
        // SAFETY: the number is a kind of space.
        DataSpace::Scalar => unsafe { (f.H5Screate)(0) },
        // SAFETY: as above.
        DataSpace::Null => unsafe { (f.H5Screate)(2) },
        DataSpace::Simple { extent, maximum } => {
            let maximum: Vec<u64> = maximum.iter().map(|most| most.unwrap_or(UNLIMITED)).collect();
            let rank = c_int::try_from(extent.len()).map_err(|_| Failure::new("too many dimensions"))?;
            // SAFETY: both lists have `rank` entries.
            unsafe { (f.H5Screate_simple)(rank, extent.as_ptr(), maximum.as_ptr()) }
        }
    };
    Owned::new(library, id, Closer::DataSpace, "H5Screate")
}

/// A selection that is walked in pieces.
#[derive(Debug)]
pub(crate) struct Selection {
    library: &'static Library,
    iterator: Option<Owned>,
    /// Runs that were got and not yet used, last first.
    ready: Vec<(u64, u64)>,
    /// Elements of the selection.
    pub(crate) elements: u64,
    /// Elements of the whole space.
    pub(crate) extent: u64,
}

impl Selection {
    /// All elements, in order.
    pub(crate) fn all(library: &'static Library, elements: u64) -> Selection {
        let ready = if elements > 0 { vec![(0, elements)] } else { Vec::new() };
        Selection { library, iterator: None, ready, elements, extent: elements }
    }

    /// What is selected in a space.
    pub(crate) fn of(library: &'static Library, space: Hid) -> VolOutcome<Selection> {
        let f = &library.f;
        // SAFETY: the space is open.
        let (elements, extent) =
            unsafe { ((f.H5Sget_select_npoints)(space), (f.H5Sget_simple_extent_npoints)(space)) };
        let elements = unsigned(elements, "H5Sget_select_npoints")?;
        let extent = unsigned(extent, "H5Sget_simple_extent_npoints")?;
        // SAFETY: as above.
        if unsafe { (f.H5Sget_select_type)(space) } == SELECT_ALL || elements == 0 {
            return Ok(Selection { extent, ..Selection::all(library, elements) });
        }
        // SAFETY: as above.
        if unsafe { (f.H5Sselect_valid)(space) } <= 0 {
            return Err(Failure::new("the selection is outside the extent of its dataspace"));
        }
        // SAFETY: as above; elements of size 1 make offsets numbers of elements.
        let iterator = unsafe { (f.H5Ssel_iter_create)(space, 1, 0) };
        let iterator = Owned::new(library, iterator, Closer::Iterator, "H5Ssel_iter_create")?;
        Ok(Selection { library, iterator: Some(iterator), ready: Vec::new(), elements, extent })
    }

    /// The next runs, `count` elements together.
    pub(crate) fn take(&mut self, count: u64) -> VolOutcome<Vec<(u64, u64)>> {
        let (mut runs, mut missing): (Vec<(u64, u64)>, u64) = (Vec::new(), count);
        while missing > 0 {
            let Some((start, size)) = self.ready.pop() else {
                self.fetch()?;
                continue;
            };
            let taken = size.min(missing);
            if taken < size {
                self.ready.push((start + taken, size - taken));
            }
            match runs.last_mut() {
                Some((before, run)) if *before + *run == start => *run += taken,
                _ => runs.push((start, taken)),
            }
            missing -= taken;
        }
        Ok(runs)
    }

    fn fetch(&mut self) -> VolOutcome<()> {
        let short = || Failure::new("the selection has fewer elements than it says");
        let iterator = self.iterator.as_ref().ok_or_else(short)?;
        let (mut offsets, mut lengths) = (vec![0_u64; RUNS], vec![0_usize; RUNS]);
        let (mut runs, mut elements) = (0, 0);
        // SAFETY: the lists have `RUNS` entries.
        let done = unsafe {
            (self.library.f.H5Ssel_iter_get_seq_list)(
                iterator.id,
                RUNS,
                usize::MAX >> 2,
                &raw mut runs,
                &raw mut elements,
                offsets.as_mut_ptr(),
                lengths.as_mut_ptr(),
            )
        };
        checked(done, "H5Ssel_iter_get_seq_list")?;
        if runs == 0 {
            return Err(short());
        }
        let pairs = offsets[..runs].iter().zip(&lengths[..runs]).map(|(start, size)| (*start, length(*size)));
        self.ready = pairs.collect();
        self.ready.reverse();
        Ok(())
    }
}

/// Copies elements of a selection to packed bytes.
pub(crate) fn gather(memory: &[u8], runs: &[(u64, u64)], element: usize, packed: &mut [u8]) {
    let mut at = 0;
    for (start, count) in runs {
        let (from, size) = (index(*start) * element, index(*count) * element);
        packed[at..at + size].copy_from_slice(&memory[from..from + size]);
        at += size;
    }
}

/// Copies packed bytes to the elements of a selection.
pub(crate) fn scatter(packed: &[u8], runs: &[(u64, u64)], element: usize, memory: &mut [u8]) {
    let mut at = 0;
    for (start, count) in runs {
        let (to, size) = (index(*start) * element, index(*count) * element);
        memory[to..to + size].copy_from_slice(&packed[at..at + size]);
        at += size;
    }
}
