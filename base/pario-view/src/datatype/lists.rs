//! Constructors with list arguments: the indexed family and structures.

use std::sync::Arc;

use super::{Datatype, DatatypeKind, Lengths, TOO_FAR, checked_entry};
use crate::bounds::Bounds;
use crate::error::TypeError;

/// Elements of one type inside a structure.
#[derive(Clone, Debug)]
pub struct StructMember {
    /// How many elements.
    pub count: i64,
    /// Where they start, in bytes.
    pub displacement: i64,
    /// What they are.
    pub datatype: Datatype,
}

impl Datatype {
    /// Blocks of `lengths` elements at `displacements`, counted in elements.
    pub fn indexed(lengths: &[i64], displacements: &[i64], element: &Datatype) -> Result<Self, TypeError> {
        let lengths = each_length(lengths, displacements.len())?;
        Datatype::blocks(lengths, in_bytes(displacements, element)?, element)
    }

    /// Blocks of `lengths` elements at `displacements`, counted in bytes.
    pub fn hindexed(lengths: &[i64], displacements: &[i64], element: &Datatype) -> Result<Self, TypeError> {
        let lengths = each_length(lengths, displacements.len())?;
        Datatype::blocks(lengths, displacements.into(), element)
    }

    /// Blocks of `length` elements at `displacements`, counted in elements.
    pub fn indexed_block(length: i64, displacements: &[i64], element: &Datatype) -> Result<Self, TypeError> {
        let length = checked_entry("block length", 0, length)?;
        Datatype::blocks(Lengths::Equal(length), in_bytes(displacements, element)?, element)
    }

    /// Blocks of `length` elements at `displacements`, counted in bytes.
    pub fn hindexed_block(length: i64, displacements: &[i64], element: &Datatype) -> Result<Self, TypeError> {
        let length = checked_entry("block length", 0, length)?;
        Datatype::blocks(Lengths::Equal(length), displacements.into(), element)
    }

    /// Members of different types, each at its displacement.
    pub fn structure(members: &[StructMember]) -> Result<Self, TypeError> {
        let mut bounds = Some(Bounds::EMPTY);
        for (index, member) in members.iter().enumerate() {
            let count = checked_entry("member count", index, member.count)?;
            let block = placed_block(&member.datatype, count, member.displacement);
            bounds = bounds.zip(block).and_then(|(bounds, block)| bounds.then(block));
        }
        let below = members.iter().map(|member| member.datatype.0.depth).max().unwrap_or(0);
        Datatype::make(DatatypeKind::Structure { members: members.into() }, bounds, below)
    }

    fn blocks(lengths: Lengths, at: Arc<[i64]>, element: &Datatype) -> Result<Self, TypeError> {
        let mut bounds = Some(Bounds::EMPTY);
        for (index, displacement) in at.iter().enumerate() {
            let block = placed_block(element, lengths.of(index), *displacement);
            bounds = bounds.zip(block).and_then(|(bounds, block)| bounds.then(block));
        }
        let kind = DatatypeKind::Blocks { at, lengths, element: element.clone() };
        Datatype::make(kind, bounds, element.0.depth)
    }
}

impl Lengths {
    /// Elements in block `index`.
    pub(crate) fn of(&self, index: usize) -> u64 {
        match self {
            Lengths::Equal(length) => *length,
            Lengths::Each(lengths) => lengths[index],
        }
    }
}

fn placed_block(element: &Datatype, length: u64, displacement: i64) -> Option<Bounds> {
    if length == 0 {
        return Some(Bounds::EMPTY);
    }
    element.0.bounds.repeated(length, element.extent())?.shifted(displacement)
}

fn each_length(lengths: &[i64], displacements: usize) -> Result<Lengths, TypeError> {
    if lengths.len() != displacements {
        return Err(TypeError::Lists { lengths: lengths.len(), displacements });
    }
    let checked = lengths.iter().enumerate().map(|(at, length)| checked_entry("block length", at, *length));
    Ok(Lengths::Each(checked.collect::<Result<_, _>>()?))
}

fn in_bytes(displacements: &[i64], element: &Datatype) -> Result<Arc<[i64]>, TypeError> {
    let extent = element.extent();
    displacements.iter().map(|at| at.checked_mul(extent).ok_or(TOO_FAR)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_structure_is_padded_and_counts_its_members() {
        let letter = Datatype::named(1, 1).unwrap();
        let double = Datatype::named(8, 8).unwrap();
        let members = [
            StructMember { count: 1, displacement: 8, datatype: double },
            StructMember { count: 3, displacement: 16, datatype: letter.clone() },
            StructMember { count: 0, displacement: -99, datatype: letter },
        ];
        let structure = Datatype::structure(&members).unwrap();
        assert_eq!((structure.size(), structure.lb(), structure.ub()), (11, 8, 24));
        assert_eq!(structure.true_ub(), 19);
    }

    #[test]
    fn lists_must_fit_each_other() {
        let int = Datatype::named(4, 4).unwrap();
        let error = Datatype::indexed(&[1, 2], &[0], &int).unwrap_err();
        assert_eq!(error, TypeError::Lists { lengths: 2, displacements: 1 });
        let error = Datatype::hindexed(&[1, -2], &[0, 9], &int).unwrap_err();
        assert_eq!(error, TypeError::Negative { what: "block length", index: 1, value: -2 });
    }

    #[test]
    fn indexed_counts_elements_and_hindexed_bytes() {
        let int = Datatype::named(4, 4).unwrap();
        assert_eq!(Datatype::indexed(&[2, 1], &[0, 5], &int).unwrap().ub(), 24);
        assert_eq!(Datatype::hindexed(&[2, 1], &[0, 16], &int).unwrap().ub(), 20);
        assert_eq!(Datatype::indexed_block(2, &[1, 5], &int).unwrap().lb(), 4);
        assert_eq!(Datatype::hindexed_block(2, &[1, 5], &int).unwrap().lb(), 1);
    }
}
