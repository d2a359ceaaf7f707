//! Decodes MPI datatypes to Pario's by asking the MPI library for their constructors.
//!
//! Never: keeps a handle that it was given; handles are reused. Always: handles created by `get_contents` are freed.

use std::ffi::c_int;

use pario::Datatype as Type;
use pario::view::{ArrayOrder, DarrayDimension, Distribution, StructMember, SubarrayDimension};
use pario_mpi::{Class, MpiError, Result};

use super::api::{self, Aint, Count};
use crate::abi::{self, Datatype, combiner};

/// Limit of nesting; a few more than Pario's own limit, since `dup` does not count there.
const NESTING_MAX: u32 = 512;
/// Limit of numbers in one constructor's lists.
const NUMBERS_MAX: usize = 1 << 28;

/// Sizes of predefined types: in memory, or in a representation of files.
pub(crate) trait Sizes {
    /// A predefined type.
    fn predefined(&self, datatype: Datatype) -> Result<Type>;

    /// Whether types that end unaligned are padded as a compiler does.
    fn padded(&self) -> bool;
}

/// Sizes in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Native;

impl Sizes for Native {
    fn predefined(&self, datatype: Datatype) -> Result<Type> {
        let (size, (lb, extent)) = (size(datatype)?, extent(datatype)?);
        let (mut true_lb, mut true_extent): (Aint, Aint) = (0, 0);
        api::type_true_extent(datatype, &raw mut true_lb, &raw mut true_extent)?;
        if size == 0 {
            let nothing = Type::contiguous(0, &Type::elementary(1)?)?;
            return Ok(if extent == 0 { nothing } else { nothing.resized(lb, extent)? });
        }
        if i64::try_from(size) == Ok(extent) {
            return Ok(Type::elementary(size)?);
        }
        let length = u64::try_from(true_extent).unwrap_or(size);
        let data = if length == size {
            Type::elementary(size)?
        } else {
            // A pair for MPI_MINLOC and MPI_MAXLOC with a gap between the value and its index, an int.
            let index = Type::elementary(4)?;
            let value = Type::elementary(size - 4)?;
            let at = i64::try_from(length).unwrap_or(0) - 4;
            let member = |displacement, datatype| StructMember { count: 1, displacement, datatype };
            Type::structure(&[member(0, value), member(at, index)])?
        };
        Ok(data.resized(lb, extent)?)
    }

    fn padded(&self) -> bool {
        true
    }
}

/// Bytes of data in one element.
pub(crate) fn size(datatype: Datatype) -> Result<u64> {
    let mut size: Count = 0;
    api::type_size(datatype, &raw mut size)?;
    u64::try_from(size).map_err(|_| MpiError::new(Class::Type, format!("a datatype of {size} bytes")))
}

fn extent(datatype: Datatype) -> Result<(i64, i64)> {
    let (mut lb, mut extent): (Aint, Aint) = (0, 0);
    api::type_extent(datatype, &raw mut lb, &raw mut extent)?;
    Ok((lb as i64, extent as i64))
}

/// Arguments of a datatype's constructor.
struct TypeContents {
    combiner: c_int,
    /// Whether it was made by a large-count constructor, which stores its numbers in `counts`.
    large: bool,
    integers: Vec<c_int>,
    addresses: Vec<Aint>,
    counts: Vec<Count>,
    datatypes: Vec<Datatype>,
}

/// Result of `MPI_Type_get_envelope`.
struct Envelope {
    combiner: c_int,
    /// Integers, addresses, large counts, datatypes.
    sizes: [Count; 4],
    has_c: bool,
}

impl Envelope {
    fn of(datatype: Datatype) -> Result<Envelope> {
        let (mut sizes, mut combiner): ([Count; 4], c_int) = ([0; 4], 0);
        if api::type_envelope_c(datatype, &mut sizes, &mut combiner)? {
            return Ok(Envelope { combiner, sizes, has_c: true });
        }
        let mut small: [c_int; 3] = [0; 3];
        let [integers, addresses, datatypes] = &mut small;
        api::type_envelope(datatype, integers, addresses, datatypes, &raw mut combiner)?;
        let sizes = [small[0].into(), small[1].into(), 0, small[2].into()];
        Ok(Envelope { combiner, sizes, has_c: false })
    }

    fn is_predefined(&self) -> bool {
        matches!(
            self.combiner,
            combiner::NAMED
                | combiner::F90_REAL
                | combiner::F90_COMPLEX
                | combiner::F90_INTEGER
                | combiner::VALUE_INDEX
        )
    }

    fn contents(&self, datatype: Datatype) -> Result<TypeContents> {
        let [integers, addresses, counts, datatypes] =
            self.sizes.map(|size| usize::try_from(size).unwrap_or(0));
        if NUMBERS_MAX < integers.max(addresses).max(counts).max(datatypes) {
            return Err(MpiError::new(
                Class::Type,
                "a datatype with more than 2^28 numbers in its constructor",
            ));
        }
        let mut contents = TypeContents {
            combiner: self.combiner,
            large: counts != 0,
            integers: vec![0; integers],
            addresses: vec![0; addresses],
            counts: vec![0; counts],
            datatypes: vec![abi::datatype_null(); datatypes],
        };
        let [i, a, c, d] = self.sizes;
        let TypeContents { integers, addresses, counts, datatypes, .. } = &mut contents;
        let (ip, ap, cp, dp) =
            (integers.as_mut_ptr(), addresses.as_mut_ptr(), counts.as_mut_ptr(), datatypes.as_mut_ptr());
        if self.has_c {
            api::type_contents_c(datatype, i, a, c, d, ip, ap, cp, dp)?;
        } else {
            let int = |size: Count| c_int::try_from(size).unwrap_or(c_int::MAX);
            api::type_contents(datatype, int(i), int(a), int(d), ip, ap, dp)?;
        }
        Ok(contents)
    }
}

/// Whether a datatype is predefined.
pub(crate) fn is_predefined(datatype: Datatype) -> Result<bool> {
    Ok(Envelope::of(datatype)?.is_predefined())
}

/// The predefined types of a datatype, in the order of its type map.
#[derive(Clone, Debug)]
pub(crate) enum Signature {
    /// A number of one predefined type.
    Same(u64, Datatype),
    /// A sequence of signatures, each with its repetition.
    Several(Vec<(u64, Signature)>),
}

/// A datatype's signature; predefined types live as long as MPI does.
pub(crate) fn signature(datatype: Datatype) -> Result<Signature> {
    signature_nested(datatype, NESTING_MAX)
}

fn signature_nested(datatype: Datatype, depth: u32) -> Result<Signature> {
    if depth == 0 || datatype == abi::datatype_null() {
        return Err(MpiError::new(
            Class::Type,
            format!("an invalid datatype, or one nested deeper than {NESTING_MAX} levels"),
        ));
    }
    let envelope = Envelope::of(datatype)?;
    if envelope.is_predefined() {
        return Ok(Signature::Same(1, datatype));
    }
    let contents = envelope.contents(datatype)?;
    let total = size(datatype)?;
    let mut parts = Vec::with_capacity(contents.datatypes.len());
    let mut failed = None;
    for (at, element) in contents.datatypes.iter().copied().enumerate() {
        let part = signature_nested(element, depth - 1).and_then(|part| {
            let repeat = match contents.combiner {
                combiner::STRUCT | combiner::STRUCT_INTEGER => {
                    let lengths = contents.numbers(1, contents.datatypes.len())?;
                    u64::try_from(lengths[at]).unwrap_or(0)
                }
                // All other constructors have one inner type, repeated until its data fills theirs.
                _ => total.checked_div(size(element)?).unwrap_or(0),
            };
            Ok((repeat, part))
        });
        match part {
            Ok(part) => parts.push(part),
            Err(problem) => failed = failed.or(Some(problem)),
        }
        free(element)?;
    }
    if let Some(problem) = failed {
        return Err(problem);
    }
    Ok(match parts.as_slice() {
        [(repeat, Signature::Same(inner, leaf))] => Signature::Same(repeat * inner, *leaf),
        _ => Signature::Several(parts),
    })
}

/// Distance of consecutive elements, in bytes.
pub(crate) fn spread(datatype: Datatype) -> Result<i64> {
    extent(datatype).map(|(_, extent)| extent)
}

/// Decodes a datatype of the program.
pub(crate) fn decode(datatype: Datatype, sizes: &dyn Sizes) -> Result<Type> {
    decode_nested(datatype, sizes, NESTING_MAX)
}

fn decode_nested(datatype: Datatype, sizes: &dyn Sizes, depth: u32) -> Result<Type> {
    if datatype == abi::datatype_null() {
        return Err(MpiError::new(Class::Type, "MPI_DATATYPE_NULL is no datatype"));
    }
    if depth == 0 {
        return Err(MpiError::new(Class::Type, format!("datatypes are nested deeper than {NESTING_MAX}")));
    }
    let envelope = Envelope::of(datatype)?;
    if envelope.is_predefined() {
        return sizes.predefined(datatype);
    }
    let contents = envelope.contents(datatype)?;
    let mut inner = Vec::with_capacity(contents.datatypes.len());
    let mut failed = None;
    for element in contents.datatypes.iter().copied() {
        match decode_nested(element, sizes, depth - 1) {
            Ok(decoded) => inner.push(decoded),
            Err(problem) => failed = failed.or(Some(problem)),
        }
        free(element)?;
    }
    if let Some(problem) = failed {
        return Err(problem);
    }
    let made = contents.make(&inner)?;
    if sizes.padded() && matches!(contents.combiner, combiner::STRUCT | combiner::STRUCT_INTEGER) {
        // The padding is that of the MPI library.
        let (lb, extent) = extent(datatype)?;
        if (made.lb(), made.extent()) != (lb, extent) {
            return Ok(made.resized(lb, extent)?);
        }
    }
    Ok(made)
}

/// Frees a handle created by `get_contents`; predefined types are not freed.
fn free(mut datatype: Datatype) -> Result<()> {
    if datatype != abi::datatype_null() && !is_predefined(datatype)? {
        api::type_free(&raw mut datatype)?;
    }
    Ok(())
}

impl TypeContents {
    fn make(&self, inner: &[Type]) -> Result<Type> {
        let element = || inner.first().ok_or_else(|| self.unknown_combiner());
        Ok(match self.combiner {
            combiner::DUP => element()?.dup(),
            combiner::CONTIGUOUS => Type::contiguous(self.number(0)?, element()?)?,
            combiner::VECTOR => Type::vector(self.number(0)?, self.number(1)?, self.number(2)?, element()?)?,
            combiner::HVECTOR | combiner::HVECTOR_INTEGER => {
                Type::hvector(self.number(0)?, self.number(1)?, self.places(2, 1)?[0], element()?)?
            }
            combiner::INDEXED => {
                let count = self.count()?;
                Type::indexed(&self.numbers(1, count)?, &self.numbers(1 + count, count)?, element()?)?
            }
            combiner::HINDEXED | combiner::HINDEXED_INTEGER => {
                let count = self.count()?;
                Type::hindexed(&self.numbers(1, count)?, &self.places(1 + count, count)?, element()?)?
            }
            combiner::INDEXED_BLOCK => {
                let count = self.count()?;
                Type::indexed_block(self.number(1)?, &self.numbers(2, count)?, element()?)?
            }
            combiner::HINDEXED_BLOCK => {
                let count = self.count()?;
                Type::hindexed_block(self.number(1)?, &self.places(2, count)?, element()?)?
            }
            combiner::STRUCT | combiner::STRUCT_INTEGER => self.structure(inner)?,
            combiner::SUBARRAY => self.subarray(element()?)?,
            combiner::DARRAY => self.darray(element()?)?,
            combiner::RESIZED => {
                let bounds = self.places(0, 2)?;
                element()?.resized(bounds[0], bounds[1])?
            }
            _ => return Err(self.unknown_combiner()),
        })
    }

    fn unknown_combiner(&self) -> MpiError {
        MpiError::new(
            Class::Type,
            format!("a datatype with an unknown constructor (combiner {})", self.combiner),
        )
    }

    /// Numbers as passed to the constructor: integers, or large counts.
    fn numbers(&self, at: usize, count: usize) -> Result<Vec<i64>> {
        let found = if self.large {
            self.counts.get(at..at + count).map(<[Count]>::to_vec)
        } else {
            self.integers
                .get(at..at + count)
                .map(|some| some.iter().map(|number| i64::from(*number)).collect())
        };
        found.ok_or_else(|| self.unknown_combiner())
    }

    fn number(&self, at: usize) -> Result<i64> {
        Ok(self.numbers(at, 1)?[0])
    }

    fn count(&self) -> Result<usize> {
        usize::try_from(self.number(0)?).map_err(|_| self.unknown_combiner())
    }

    /// Byte displacements: addresses; integers in old Fortran constructors; large counts in large-count constructors.
    fn places(&self, at: usize, count: usize) -> Result<Vec<i64>> {
        if self.large || self.addresses.is_empty() {
            return self.numbers(at, count);
        }
        let found = self.addresses.get(..count).map(|some| some.iter().map(|place| *place as i64).collect());
        found.ok_or_else(|| self.unknown_combiner())
    }

    fn structure(&self, inner: &[Type]) -> Result<Type> {
        let count = self.count()?;
        let (lengths, places) = (self.numbers(1, count)?, self.places(1 + count, count)?);
        if inner.len() != count {
            return Err(self.unknown_combiner());
        }
        let members: Vec<StructMember> = (0..count)
            .map(|at| StructMember {
                count: lengths[at],
                displacement: places[at],
                datatype: inner[at].clone(),
            })
            .collect();
        Ok(Type::structure(&members)?)
    }

    fn order(&self) -> ArrayOrder {
        match self.integers.last() {
            Some(&abi::ORDER_FORTRAN) => ArrayOrder::Fortran,
            Some(_) | None => ArrayOrder::C,
        }
    }

    fn subarray(&self, element: &Type) -> Result<Type> {
        let dimensions =
            usize::try_from(*self.integers.first().ok_or_else(|| self.unknown_combiner())?).unwrap_or(0);
        let first = usize::from(!self.large);
        let list = |number: usize| self.numbers(first + number * dimensions, dimensions);
        let (size, subsize, start) = (list(0)?, list(1)?, list(2)?);
        let dimensions: Vec<SubarrayDimension> = (0..dimensions)
            .map(|at| SubarrayDimension { size: size[at], subsize: subsize[at], start: start[at] })
            .collect();
        Ok(Type::subarray(&dimensions, self.order(), element)?)
    }

    fn darray(&self, element: &Type) -> Result<Type> {
        let integer = |at: usize| self.integers.get(at).copied().ok_or_else(|| self.unknown_combiner());
        let (processes, rank) = (integer(0)?, integer(1)?);
        let dimensions = usize::try_from(integer(2)?).unwrap_or(0);
        // Sizes are stored between the number of dimensions and the distributions, unless they are large.
        let (sizes, next) = match self.large {
            true => (self.numbers(0, dimensions)?, 3),
            false => (self.numbers(3, dimensions)?, 3 + dimensions),
        };
        let mut list = Vec::with_capacity(dimensions);
        for (at, size) in sizes.into_iter().enumerate() {
            let kind = integer(next + at)?;
            let argument = integer(next + dimensions + at)?;
            let processes = i64::from(integer(next + 2 * dimensions + at)?);
            list.push(DarrayDimension { size, distribution: self.distribution(kind, argument)?, processes });
        }
        Ok(Type::darray(processes.into(), rank.into(), &list, self.order(), element)?)
    }

    fn distribution(&self, kind: c_int, argument: c_int) -> Result<Distribution> {
        let default = argument == abi::DISTRIBUTE_DFLT_DARG;
        match kind {
            abi::DISTRIBUTE_BLOCK if default => Ok(Distribution::Block),
            abi::DISTRIBUTE_BLOCK => Ok(Distribution::BlockOf(argument.into())),
            abi::DISTRIBUTE_CYCLIC if default => Ok(Distribution::Cyclic),
            abi::DISTRIBUTE_CYCLIC => Ok(Distribution::CyclicOf(argument.into())),
            abi::DISTRIBUTE_NONE => Ok(Distribution::Undistributed),
            _ => Err(self.unknown_combiner()),
        }
    }
}
