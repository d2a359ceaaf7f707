//! Random descriptions of types, from which both a datatype and its typemap are made.

use proptest::prelude::*;

use super::typemap::Typemap;
use crate::{ArrayOrder, DarrayDimension, Datatype, Distribution, StructMember, SubarrayDimension};

/// Larger typemaps are not written out.
const ENTRIES_MAX: usize = 2000;

/// Whether displacements may be anything, or only such that the type is legal in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Anything,
    Increasing,
}

/// A description of a type.
#[derive(Clone, Debug)]
pub(super) enum TypeSpec {
    Elementary(u64, u64),
    Contiguous(i64, Box<TypeSpec>),
    Vector(Unit, i64, i64, i64, Box<TypeSpec>),
    Indexed(Unit, Vec<(i64, i64)>, Box<TypeSpec>),
    IndexedBlock(Unit, i64, Vec<i64>, Box<TypeSpec>),
    Structure(Vec<(i64, i64, TypeSpec)>),
    Subarray(Vec<SubarrayDimension>, ArrayOrder, Box<TypeSpec>),
    Darray(Vec<DarrayDimension>, i64, ArrayOrder, Box<TypeSpec>),
    Resized(i64, i64, Box<TypeSpec>),
    Dup(Box<TypeSpec>),
}

/// What displacements are counted in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Elements,
    Bytes,
}

/// Random descriptions; elementary types have one of `sizes` bytes.
pub(super) fn any_spec(sizes: &'static [u64]) -> impl Strategy<Value = TypeSpec> {
    let align = prop_oneof![3 => Just(1u64), 1 => Just(2u64), 1 => Just(4u64)];
    let leaf = (prop::sample::select(sizes), align).prop_map(|(bytes, align)| {
        TypeSpec::Elementary(bytes, if bytes.is_multiple_of(align) { align } else { 1 })
    });
    leaf.prop_recursive(4, 24, 4, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        prop_oneof![
            (0..4i64, boxed.clone()).prop_map(|(count, of)| TypeSpec::Contiguous(count, of)),
            (any_unit(), 0..5i64, 0..4i64, -6..7i64, boxed.clone())
                .prop_map(|(unit, count, block, slack, of)| TypeSpec::Vector(unit, count, block, slack, of)),
            (any_unit(), prop::collection::vec((0..4i64, -9..12i64), 0..5), boxed.clone())
                .prop_map(|(unit, items, of)| TypeSpec::Indexed(unit, items, of)),
            (any_unit(), 0..4i64, prop::collection::vec(-9..12i64, 0..14), boxed.clone())
                .prop_map(|(unit, length, items, of)| TypeSpec::IndexedBlock(unit, length, items, of)),
            prop::collection::vec((0..3i64, -9..12i64, inner), 0..4).prop_map(TypeSpec::Structure),
            (prop::collection::vec(any_subarray_dimension(), 1..4), any_order(), boxed.clone())
                .prop_map(|(dimensions, order, of)| TypeSpec::Subarray(dimensions, order, of)),
            (prop::collection::vec(any_darray_dimension(), 1..4), any::<u16>(), any_order(), boxed.clone())
                .prop_map(|(dimensions, rank, order, of)| TypeSpec::Darray(
                    dimensions,
                    rank.into(),
                    order,
                    of
                )),
            (-5..6i64, -4..9i64, boxed.clone()).prop_map(|(lb, pad, of)| TypeSpec::Resized(lb, pad, of)),
            boxed.prop_map(TypeSpec::Dup),
        ]
    })
}

fn any_unit() -> impl Strategy<Value = Unit> {
    prop_oneof![Just(Unit::Elements), Just(Unit::Bytes)]
}

fn any_order() -> impl Strategy<Value = ArrayOrder> {
    prop_oneof![Just(ArrayOrder::C), Just(ArrayOrder::Fortran)]
}

fn any_subarray_dimension() -> impl Strategy<Value = SubarrayDimension> {
    (1..4i64, 0..3i64, 0..3i64).prop_map(|(subsize, before, after)| SubarrayDimension {
        size: before + subsize + after,
        subsize,
        start: before,
    })
}

fn any_darray_dimension() -> impl Strategy<Value = DarrayDimension> {
    let distribution = prop_oneof![
        Just(Distribution::Undistributed),
        Just(Distribution::Block),
        (1..6i64).prop_map(Distribution::BlockOf),
        Just(Distribution::Cyclic),
        (1..4i64).prop_map(Distribution::CyclicOf),
    ];
    (1..9i64, distribution, 1..4i64).prop_map(|(size, distribution, processes)| {
        let least = (size + processes - 1) / processes;
        let (distribution, processes) = match distribution {
            Distribution::Undistributed => (Distribution::Undistributed, 1),
            Distribution::BlockOf(block) => (Distribution::BlockOf(block.max(least)), processes),
            Distribution::Block | Distribution::Cyclic | Distribution::CyclicOf(_) => {
                (distribution, processes)
            }
        };
        DarrayDimension { size, distribution, processes }
    })
}

impl TypeSpec {
    /// The datatype and its typemap; `None` if that is too long to write out.
    pub(super) fn make(&self, mode: Mode) -> Option<(Datatype, Typemap)> {
        let (datatype, map) = match self {
            TypeSpec::Elementary(bytes, align) => {
                (Datatype::named(*bytes, *align).unwrap(), Typemap::elementary(*bytes, *align))
            }
            TypeSpec::Contiguous(count, of) => {
                let (of, map) = of.make(mode)?;
                (Datatype::contiguous(*count, &of).unwrap(), map.strided(1, *count, 0))
            }
            TypeSpec::Vector(unit, count, block, slack, of) => {
                let (of, map) = of.make(mode)?;
                let (count, block, slack) = (*count, *block, *slack);
                vector(*unit, (count, block, slack), mode, (&of, &map))
            }
            TypeSpec::Indexed(unit, items, of) => {
                let (of, map) = of.make(mode)?;
                let lengths: Vec<i64> = items.iter().map(|item| item.0).collect();
                let at = displacements(items.iter().copied(), *unit, mode, &map);
                let make = match unit {
                    Unit::Elements => Datatype::indexed,
                    Unit::Bytes => Datatype::hindexed,
                };
                let blocks =
                    at.iter().zip(&lengths).map(|(at, length)| (at * bytes_of(*unit, &map), *length, &map));
                (make(&lengths, &at, &of).unwrap(), Typemap::blocks(blocks))
            }
            TypeSpec::IndexedBlock(unit, length, items, of) => {
                let (of, map) = of.make(mode)?;
                let at = displacements(items.iter().map(|gap| (*length, *gap)), *unit, mode, &map);
                let make = match unit {
                    Unit::Elements => Datatype::indexed_block,
                    Unit::Bytes => Datatype::hindexed_block,
                };
                let blocks = at.iter().map(|at| (at * bytes_of(*unit, &map), *length, &map));
                (make(*length, &at, &of).unwrap(), Typemap::blocks(blocks))
            }
            TypeSpec::Structure(members) => structure(members, mode)?,
            TypeSpec::Subarray(dimensions, order, of) => {
                let (of, map) = of.make(mode)?;
                (Datatype::subarray(dimensions, *order, &of).unwrap(), map.subarray(dimensions, *order))
            }
            TypeSpec::Darray(dimensions, rank, order, of) => {
                let (of, map) = of.make(mode)?;
                let group = dimensions.iter().map(|dimension| dimension.processes).product();
                let rank = rank % group;
                let datatype = Datatype::darray(group, rank, dimensions, *order, &of).unwrap();
                (datatype, map.darray(rank, dimensions, *order))
            }
            TypeSpec::Resized(lb, pad, of) => {
                let (of, map) = of.make(mode)?;
                let (lb, extent) = match mode {
                    Mode::Anything => (*lb, map.true_ub() - map.true_lb() + pad),
                    Mode::Increasing => (0, map.true_ub() + pad.abs()),
                };
                (of.resized(lb, extent).unwrap(), map.resized(lb, extent))
            }
            TypeSpec::Dup(of) => {
                let (of, map) = of.make(mode)?;
                (of.dup(), map)
            }
        };
        (map.entries.len() <= ENTRIES_MAX).then_some((datatype, map))
    }
}

fn vector(unit: Unit, shape: (i64, i64, i64), mode: Mode, of: (&Datatype, &Typemap)) -> (Datatype, Typemap) {
    let (count, block, slack) = shape;
    let stride = match mode {
        Mode::Anything => slack,
        Mode::Increasing => block * of.1.extent() / bytes_of(unit, of.1).max(1) + slack.abs(),
    };
    let make = match unit {
        Unit::Elements => Datatype::vector,
        Unit::Bytes => Datatype::hvector,
    };
    let map = of.1.strided(count, block, stride * bytes_of(unit, of.1));
    (make(count, block, stride, of.0).unwrap(), map)
}

fn structure(members: &[(i64, i64, TypeSpec)], mode: Mode) -> Option<(Datatype, Typemap)> {
    let mut made = vec![];
    let mut end = 0;
    for (count, gap, spec) in members {
        let (datatype, map) = spec.make(mode)?;
        let displacement = match mode {
            Mode::Anything => *gap,
            Mode::Increasing => end + gap.abs(),
        };
        end = displacement + (count - 1).max(0) * map.extent() + map.true_ub();
        made.push((StructMember { count: *count, displacement, datatype }, map));
    }
    let members: Vec<StructMember> = made.iter().map(|(member, _)| member.clone()).collect();
    let blocks = made.iter().map(|(member, map)| (member.displacement, member.count, map));
    let (datatype, map) = (Datatype::structure(&members).unwrap(), Typemap::blocks(blocks));
    if mode == Mode::Anything {
        return Some((datatype, map));
    }
    // Explicit bounds of one member are bounds of the whole, and may leave out the others.
    let extent = map.ub().max(map.true_ub());
    Some((datatype.resized(0, extent).unwrap(), map.resized(0, extent)))
}

/// Displacements from lengths and gaps.
fn displacements(items: impl Iterator<Item = (i64, i64)>, unit: Unit, mode: Mode, map: &Typemap) -> Vec<i64> {
    let mut end = 0;
    let scale = match unit {
        Unit::Elements => 1,
        Unit::Bytes => map.extent(),
    };
    let place = |(length, gap): (i64, i64)| match mode {
        Mode::Anything => gap,
        Mode::Increasing => {
            let at = end + gap.abs();
            end = at + length * scale;
            at
        }
    };
    items.map(place).collect()
}

fn bytes_of(unit: Unit, map: &Typemap) -> i64 {
    match unit {
        Unit::Elements => map.extent(),
        Unit::Bytes => 1,
    }
}
