//! Constructors for parts of arrays: a box (`subarray`) and one process's part of a distribution (`darray`).
//!
//! Always: the bounds of the type are those of the full array, so that copies of it follow each other array by array.

use super::{Datatype, DatatypeKind, Dimension, checked_entry};
use crate::bounds::Bounds;
use crate::error::TypeError;

/// Which dimension of an array changes fastest in memory or file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArrayOrder {
    /// The last.
    C,
    /// The first.
    Fortran,
}

/// One dimension of an array and the selected part of it, in elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubarrayDimension {
    /// Of the array.
    pub size: i64,
    /// Of the part.
    pub subsize: i64,
    /// Where the part starts.
    pub start: i64,
}

/// How a dimension is dealt to processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// All of it to each process; there is one along this dimension.
    Undistributed,
    /// One block each, as equal as can be.
    Block,
    /// One block of this many elements each.
    BlockOf(i64),
    /// Single elements in turn.
    Cyclic,
    /// Blocks of this many elements in turn.
    CyclicOf(i64),
}

/// One dimension of a distributed array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DarrayDimension {
    /// Elements of the array.
    pub size: i64,
    /// How they are dealt.
    pub distribution: Distribution,
    /// Processes along this dimension.
    pub processes: i64,
}

impl Datatype {
    /// A box out of an array of any rank.
    pub fn subarray(
        dimensions: &[SubarrayDimension],
        order: ArrayOrder,
        element: &Datatype,
    ) -> Result<Self, TypeError> {
        let checked = dimensions.iter().enumerate().map(|(index, part)| subarray_dimension(index, part));
        Datatype::array(checked.collect::<Result<_, _>>()?, order, element)
    }

    /// What process `rank` of a group of `group` gets of an array dealt to a grid of processes. Ranks fill the grid with the
    /// last dimension changing fastest, in both orders.
    pub fn darray(
        group: i64,
        rank: i64,
        dimensions: &[DarrayDimension],
        order: ArrayOrder,
        element: &Datatype,
    ) -> Result<Self, TypeError> {
        let grid = grid_size(dimensions)?;
        if grid != group {
            return Err(TypeError::Grid { grid, group });
        }
        if rank < 0 || group <= rank {
            return Err(TypeError::Rank { rank, group });
        }
        let (mut below, mut rest) = (grid, rank);
        let mut checked = Vec::with_capacity(dimensions.len());
        for (index, dimension) in dimensions.iter().enumerate() {
            below /= dimension.processes;
            checked.push(darray_dimension(index, dimension, rest / below)?);
            rest %= below;
        }
        Datatype::array(checked, order, element)
    }

    fn array(
        mut dimensions: Vec<Dimension>,
        order: ArrayOrder,
        element: &Datatype,
    ) -> Result<Self, TypeError> {
        if dimensions.is_empty() {
            return Err(TypeError::NoDimensions);
        }
        if order == ArrayOrder::C {
            dimensions.reverse();
        }
        let bounds = array_bounds(&dimensions, element);
        let kind = DatatypeKind::Array { dimensions: dimensions.into(), element: element.clone() };
        Datatype::make(kind, bounds, element.0.depth)
    }
}

fn array_bounds(dimensions: &[Dimension], element: &Datatype) -> Option<Bounds> {
    let mut stride = element.extent();
    let mut bounds = element.0.bounds;
    for part in dimensions {
        let step = scale(part.step, stride)?;
        let full = bounds.repeated(part.block, stride)?.repeated(part.full, step)?;
        let tail = bounds.repeated(part.tail, stride)?.shifted(scale(part.full, step)?)?;
        bounds = full.then(tail)?.shifted(scale(part.first, stride)?)?;
        stride = scale(part.size, stride)?;
    }
    Some(bounds.marked(0, stride))
}

fn scale(count: u64, stride: i64) -> Option<i64> {
    i64::try_from(count).ok()?.checked_mul(stride)
}

fn subarray_dimension(index: usize, part: &SubarrayDimension) -> Result<Dimension, TypeError> {
    let SubarrayDimension { size, subsize, start } = *part;
    let wrong = || TypeError::Subarray { dimension: index, size, subsize, start };
    let end = start.checked_add(subsize).ok_or_else(wrong)?;
    if size < 1 || subsize < 1 || start < 0 || size < end {
        return Err(wrong());
    }
    let entry = |what, value| checked_entry(what, index, value);
    Ok(Dimension {
        size: entry("size", size)?,
        first: entry("start", start)?,
        block: entry("subsize", subsize)?,
        full: 1,
        step: 0,
        tail: 0,
    })
}

fn grid_size(dimensions: &[DarrayDimension]) -> Result<i64, TypeError> {
    let mut grid: i64 = 1;
    for (index, dimension) in dimensions.iter().enumerate() {
        if dimension.size < 1 || dimension.processes < 1 {
            return Err(refused(index, dimension, "both must be at least 1"));
        }
        let larger = grid.checked_mul(dimension.processes);
        grid = larger.ok_or(TypeError::TooLarge { what: "the process grid" })?;
    }
    Ok(grid)
}

/// The blocks of one dimension that belong to the process at coordinate `place`.
fn darray_dimension(index: usize, dimension: &DarrayDimension, place: i64) -> Result<Dimension, TypeError> {
    let block = block_of(index, dimension)?;
    let entry = |value| checked_entry("array size", index, value);
    let (size, place, processes) = (entry(dimension.size)?, entry(place)?, entry(dimension.processes)?);
    // A block larger than the array is the whole array; this also keeps products below far from overflow.
    let block = entry(block)?.min(size);
    let blocks = size.div_ceil(block);
    if blocks <= place {
        return Ok(Dimension { size, first: 0, block, full: 0, step: 0, tail: 0 });
    }
    let mine = (blocks - place).div_ceil(processes);
    let last_is_mine = (blocks - 1 - place).is_multiple_of(processes);
    let tail = if last_is_mine { size % block } else { 0 };
    let full = if tail == 0 { mine } else { mine - 1 };
    let step = if mine == 1 { 0 } else { block * processes };
    Ok(Dimension { size, first: place * block, block, full, step, tail })
}

fn block_of(index: usize, dimension: &DarrayDimension) -> Result<i64, TypeError> {
    let DarrayDimension { size, distribution, processes } = *dimension;
    match distribution {
        Distribution::Undistributed if processes != 1 => {
            Err(refused(index, dimension, "an undistributed dimension has one process"))
        }
        Distribution::Undistributed => Ok(size),
        Distribution::Block => Ok((size - 1) / processes + 1),
        Distribution::BlockOf(block) if block < 1 || block.saturating_mul(processes) < size => {
            Err(refused(index, dimension, "blocks too small to hold them all"))
        }
        Distribution::CyclicOf(block) if block < 1 => {
            Err(refused(index, dimension, "blocks of less than one element"))
        }
        Distribution::Cyclic => Ok(1),
        Distribution::BlockOf(block) | Distribution::CyclicOf(block) => Ok(block),
    }
}

fn refused(dimension: usize, of: &DarrayDimension, why: &'static str) -> TypeError {
    TypeError::Distribution { dimension, size: of.size, processes: of.processes, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(size: i64, distribution: Distribution, processes: i64) -> [DarrayDimension; 1] {
        [DarrayDimension { size, distribution, processes }]
    }

    #[test]
    fn a_subarray_has_the_bounds_of_its_array() {
        let int = Datatype::named(4, 4).unwrap();
        let part = |size, subsize, start| SubarrayDimension { size, subsize, start };
        let datatype = Datatype::subarray(&[part(4, 2, 1), part(6, 3, 2)], ArrayOrder::C, &int).unwrap();
        assert_eq!((datatype.size(), datatype.lb(), datatype.extent()), (24, 0, 96));
        assert_eq!((datatype.true_lb(), datatype.true_ub()), ((6 + 2) * 4, (2 * 6 + 5) * 4));
        let fortran = Datatype::subarray(&[part(4, 2, 1), part(6, 3, 2)], ArrayOrder::Fortran, &int).unwrap();
        assert_eq!(fortran.true_lb(), (2 * 4 + 1) * 4);
    }

    #[test]
    fn every_element_falls_to_one_process() {
        let byte = Datatype::elementary(1).unwrap();
        for distribution in [Distribution::Block, Distribution::Cyclic, Distribution::CyclicOf(3)] {
            for (size, group) in [(1, 1), (7, 3), (12, 4), (2, 5), (9, 9)] {
                let sizes = (0..group).map(|rank| {
                    let datatype =
                        Datatype::darray(group, rank, &one(size, distribution, group), ArrayOrder::C, &byte);
                    datatype.unwrap().size()
                });
                assert_eq!(sizes.sum::<u64>(), size.cast_unsigned(), "{distribution:?} {size} on {group}");
            }
        }
    }

    #[test]
    fn says_what_is_wrong() {
        let byte = Datatype::elementary(1).unwrap();
        let darray = |group, rank, dimensions: &[DarrayDimension]| {
            Datatype::darray(group, rank, dimensions, ArrayOrder::C, &byte).map(|datatype| datatype.size())
        };
        assert_eq!(darray(3, 0, &one(4, Distribution::Block, 2)), Err(TypeError::Grid { grid: 2, group: 3 }));
        assert_eq!(darray(2, 2, &one(4, Distribution::Block, 2)), Err(TypeError::Rank { rank: 2, group: 2 }));
        let refused =
            |distribution, processes| darray(processes, 0, &one(4, distribution, processes)).is_err();
        assert!(refused(Distribution::BlockOf(1), 2));
        assert!(refused(Distribution::CyclicOf(0), 2));
        assert!(refused(Distribution::Undistributed, 2));
        assert!(refused(Distribution::Block, 0));
        assert!(!refused(Distribution::BlockOf(i64::MAX), 2));
        let part = SubarrayDimension { size: 4, subsize: 2, start: 3 };
        let error = Datatype::subarray(&[part], ArrayOrder::C, &byte).unwrap_err();
        assert_eq!(error.to_string(), "dimension 0: 2 elements from 3 on are not in an array of 4");
        assert_eq!(Datatype::subarray(&[], ArrayOrder::C, &byte).unwrap_err(), TypeError::NoDimensions);
    }
}
