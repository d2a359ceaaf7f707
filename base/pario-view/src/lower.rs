//! From datatypes to programs.
//!
//! Never: expands a count. Always: a datatype that occurs several times is lowered once.

use std::collections::HashMap;

use crate::build::Builder;
use crate::datatype::{Datatype, DatatypeKind, Dimension};
use crate::error::TypeError;
use crate::program::{Placed, ViewProgram};

const TOO_LARGE: TypeError = TypeError::TooLarge { what: "the type" };

/// The program of one element.
pub(crate) fn program_of(datatype: &Datatype) -> Result<ViewProgram, TypeError> {
    let mut lowering = Lowering::default();
    let root = lowering.lower(datatype)?;
    lowering.builder.finish(root)
}

/// The program of `count` elements, one extent apart.
pub(crate) fn program_of_many(datatype: &Datatype, count: u64) -> Result<ViewProgram, TypeError> {
    let mut lowering = Lowering::default();
    let element = lowering.lower(datatype)?;
    let root = lowering.repeat(count, datatype.extent(), element)?;
    lowering.builder.finish(root)
}

#[derive(Default)]
struct Lowering {
    builder: Builder,
    /// What each datatype became, by identity; the tree that is lowered keeps them all alive.
    known: HashMap<usize, Option<Placed>>,
}

impl Lowering {
    /// Recursion is bounded by the nesting of datatypes.
    fn lower(&mut self, datatype: &Datatype) -> Result<Option<Placed>, TypeError> {
        if datatype.size() == 0 {
            return Ok(None);
        }
        if let Some(known) = self.known.get(&datatype.identity()) {
            return Ok(*known);
        }
        let placed = self.lower_kind(datatype)?;
        self.known.insert(datatype.identity(), placed);
        Ok(placed)
    }

    fn lower_kind(&mut self, datatype: &Datatype) -> Result<Option<Placed>, TypeError> {
        match datatype.kind() {
            DatatypeKind::Elementary => Ok(Some(Placed { at: 0, node: self.builder.run(datatype.size())? })),
            DatatypeKind::Strided { count, block, stride, element } => {
                let inner = self.lower(element)?;
                let inner = self.repeat(*block, element.extent(), inner)?;
                self.repeat(*count, *stride, inner)
            }
            DatatypeKind::Blocks { at, lengths, element } => {
                let blocks = at.iter().enumerate().map(|(index, at)| (*at, lengths.of(index), element));
                self.blocks(blocks)
            }
            DatatypeKind::Structure { members } => {
                let blocks = members
                    .iter()
                    .map(|member| (member.displacement, member.count.cast_unsigned(), &member.datatype));
                self.blocks(blocks)
            }
            DatatypeKind::Array { dimensions, element } => self.array(dimensions, element),
            DatatypeKind::Resized { element } => self.lower(element),
        }
    }

    /// Blocks of elements, each at its displacement.
    fn blocks<'a>(
        &mut self,
        blocks: impl Iterator<Item = (i64, u64, &'a Datatype)>,
    ) -> Result<Option<Placed>, TypeError> {
        let mut items = Vec::with_capacity(blocks.size_hint().0);
        // Long lists repeat a few lengths of one element, mostly the last.
        let mut last: Option<((usize, u64), Option<Placed>)> = None;
        for (at, length, element) in blocks {
            let key = (element.identity(), length);
            let block = match last {
                Some((known, block)) if known == key => block,
                _ => {
                    let inner = self.lower(element)?;
                    self.repeat(length, element.extent(), inner)?
                }
            };
            last = Some((key, block));
            if let Some(block) = block {
                items.push(shifted(block, at)?);
            }
        }
        self.builder.sequence(items)
    }

    fn array(&mut self, dimensions: &[Dimension], element: &Datatype) -> Result<Option<Placed>, TypeError> {
        let mut stride = element.extent();
        let mut inner = self.lower(element)?;
        for part in dimensions {
            let step = scale(part.step, stride)?;
            let block = self.repeat(part.block, stride, inner)?;
            let full = self.repeat(part.full, step, block)?;
            let tail = match self.repeat(part.tail, stride, inner)? {
                Some(tail) => Some(shifted(tail, scale(part.full, step)?)?),
                None => None,
            };
            inner = self.builder.sequence(full.into_iter().chain(tail).collect())?;
            inner = match inner {
                Some(inner) => Some(shifted(inner, scale(part.first, stride)?)?),
                None => None,
            };
            stride = scale(part.size, stride)?;
        }
        Ok(inner)
    }

    fn repeat(&mut self, count: u64, stride: i64, of: Option<Placed>) -> Result<Option<Placed>, TypeError> {
        match of {
            Some(body) if 0 < count => self.builder.repeat(count, stride, body).map(Some),
            _ => Ok(None),
        }
    }
}

fn shifted(placed: Placed, by: i64) -> Result<Placed, TypeError> {
    Ok(Placed { at: placed.at.checked_add(by).ok_or(TOO_LARGE)?, ..placed })
}

fn scale(count: u64, stride: i64) -> Result<i64, TypeError> {
    i64::try_from(count).ok().and_then(|count| count.checked_mul(stride)).ok_or(TOO_LARGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::{ArrayOrder, StructMember, SubarrayDimension};
    use crate::program::NodeShape;

    fn part(size: i64, subsize: i64, start: i64) -> SubarrayDimension {
        SubarrayDimension { size, subsize, start }
    }

    #[track_caller]
    fn check_nodes(datatype: &Datatype, nodes: usize) -> ViewProgram {
        let program = program_of(datatype).unwrap();
        assert_eq!(program.nodes.len(), nodes, "{:?}", program.nodes);
        assert_eq!(program.size(), datatype.size());
        program
    }

    #[test]
    fn full_rows_of_an_array_are_one_run() {
        let double = Datatype::elementary(8).unwrap();
        let rows = Datatype::subarray(&[part(100, 10, 5), part(50, 50, 0)], ArrayOrder::C, &double).unwrap();
        let program = check_nodes(&rows, 1);
        assert_eq!(program.root.unwrap().at, 5 * 50 * 8);
    }

    #[test]
    fn full_planes_of_partial_rows_are_one_loop() {
        let double = Datatype::elementary(8).unwrap();
        let dimensions = [part(20, 7, 3), part(30, 30, 0), part(50, 5, 9)];
        let program = check_nodes(&Datatype::subarray(&dimensions, ArrayOrder::C, &double).unwrap(), 2);
        let root = program.root_node().unwrap();
        assert!(matches!(root.shape, NodeShape::Loop { count: 210, stride: 400, .. }));
    }

    #[test]
    fn one_element_of_each_is_no_loop() {
        let byte = Datatype::elementary(1).unwrap();
        let nested = Datatype::vector(1, 1, 77, &byte).unwrap().resized(-3, 9).unwrap();
        check_nodes(&Datatype::contiguous(1, &nested).unwrap(), 1);
    }

    #[test]
    fn equal_members_of_a_structure_are_one_pattern() {
        let byte = Datatype::elementary(1).unwrap();
        let column = Datatype::vector(5, 1, 10, &byte).unwrap();
        let member = |displacement| StructMember { count: 1, displacement, datatype: column.clone() };
        let structure = Datatype::structure(&[member(0), member(100), member(200)]).unwrap();
        check_nodes(&structure, 3);
        let uneven = Datatype::structure(&[member(0), member(100), member(250)]).unwrap();
        check_nodes(&uneven, 3);
    }

    #[test]
    fn shared_subtypes_do_not_multiply() {
        let mut datatype = Datatype::elementary(1).unwrap();
        for _ in 0..40 {
            let member = |displacement| StructMember { count: 1, displacement, datatype: datatype.clone() };
            let far = datatype.true_ub() + 1;
            datatype = Datatype::structure(&[member(0), member(far)]).unwrap();
        }
        assert_eq!(program_of(&datatype).unwrap().size(), 1 << 40);
    }
}
