//! `external32` of derived types: split into their predefined types, each of which the MPI library converts. MPI libraries
//! convert predefined types correctly, and some crash on structures.
//!
//! Never: converts more than [`STEP_BYTES`] or one element per step. Always: data is in the order of the type map, without gaps.

use std::ffi::{c_int, c_void};

use pario_mpi::{Class, MpiError, Result};

use super::api::{self, Aint};
use super::datatypes::{self, Signature};
use crate::abi::{self, Datatype};

/// Bytes of memory that are converted per step, if one element is not larger.
const STEP_BYTES: u64 = 16 << 20;

/// Direction of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConversionDirection {
    Read,
    Write,
}

/// ProgramElements of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramElements {
    pub(crate) buffer: *mut c_void,
    pub(crate) count: i64,
    pub(crate) datatype: Datatype,
}

/// Converts elements to or from the bytes of a file, which are exactly theirs.
pub(crate) fn convert(way: ConversionDirection, elements: ProgramElements, file: &mut [u8]) -> Result<()> {
    let signature = datatypes::signature(elements.datatype)?;
    if let Signature::Same(_, leaf) = signature {
        check_leaf(leaf)?;
        let count = small(elements.count)?;
        return one_type(way, (elements.buffer, count, elements.datatype), file);
    }
    let (size, extent) = (datatypes::size(elements.datatype)?, datatypes::spread(elements.datatype)?);
    let each = file.len().checked_div(usize::try_from(elements.count).unwrap_or(0)).unwrap_or(0);
    let step = i64::try_from((STEP_BYTES / size.max(1)).max(1)).unwrap_or(1);
    let (mut done, mut rest) = (0, file);
    while done < elements.count {
        let count = step.min(elements.count - done);
        let bytes = each * usize::try_from(count).unwrap_or(0);
        let (now, later) = rest.split_at_mut(bytes.min(rest.len()));
        let moved = isize::try_from(done * extent).map_err(|_| beyond())?;
        let buffer = elements.buffer.wrapping_byte_offset(moved);
        convert_derived(
            way,
            ProgramElements { buffer, count, datatype: elements.datatype },
            (&signature, size),
            now,
        )?;
        (done, rest) = (done + count, later);
    }
    Ok(())
}

/// Converts a few elements of a derived type: packed first, then type by type.
fn convert_derived(
    way: ConversionDirection,
    elements: ProgramElements,
    (signature, size): (&Signature, u64),
    file: &mut [u8],
) -> Result<()> {
    let ProgramElements { buffer, count, datatype } = elements;
    let bytes = usize::try_from(size).ok().and_then(|size| size.checked_mul(usize::try_from(count).ok()?));
    let mut packed = vec![0u8; bytes.ok_or_else(beyond)?];
    let (length, number) = (c_int::try_from(packed.len()).map_err(|_| beyond())?, small(count)?);
    let (start, own, mut at) = (packed.as_mut_ptr().cast::<c_void>(), abi::comm_self(), 0);
    if way == ConversionDirection::Write {
        api::pack(buffer, number, datatype, start, length, &raw mut at, own)?;
    }
    let mut places = (0, 0);
    for _ in 0..count {
        convert_leaves(way, signature, (&mut packed, file), &mut places)?;
    }
    if way == ConversionDirection::Read {
        at = 0;
        api::unpack(start, length, &raw mut at, buffer, number, datatype, own)?;
    }
    Ok(())
}

/// Converts each run of one predefined type, from the current positions on.
fn convert_leaves(
    way: ConversionDirection,
    signature: &Signature,
    (packed, file): (&mut [u8], &mut [u8]),
    places: &mut (usize, usize),
) -> Result<()> {
    match signature {
        Signature::Same(0, _) => Ok(()),
        Signature::Same(repeat, leaf) => {
            check_leaf(*leaf)?;
            let count = c_int::try_from(*repeat).map_err(|_| beyond())?;
            let bytes = usize::try_from(datatypes::size(*leaf)? * repeat).map_err(|_| beyond())?;
            let length = usize::try_from(external_bytes(*leaf)?).map_err(|_| beyond())?;
            let length = length.checked_mul(usize::try_from(*repeat).map_err(|_| beyond())?);
            let (from, to) = *places;
            let ends = (from + bytes, to + length.ok_or_else(beyond)?);
            let memory = packed.get_mut(from..ends.0).ok_or_else(beyond)?;
            let part = file.get_mut(to..ends.1).ok_or_else(beyond)?;
            one_type(way, (memory.as_mut_ptr().cast(), count, *leaf), part)?;
            *places = ends;
            Ok(())
        }
        Signature::Several(parts) => {
            for (repeat, part) in parts {
                for _ in 0..*repeat {
                    convert_leaves(way, part, (packed, file), places)?;
                }
            }
            Ok(())
        }
    }
}

fn one_type(
    way: ConversionDirection,
    (buffer, count, datatype): (*mut c_void, c_int, Datatype),
    file: &mut [u8],
) -> Result<()> {
    let (bytes, mut at) = (file.len().cast_signed(), 0);
    let (name, file) = (c"external32".as_ptr(), file.as_mut_ptr().cast::<c_void>());
    match way {
        ConversionDirection::Write => {
            api::pack_external(name, buffer, count, datatype, file, bytes, &raw mut at)
        }
        ConversionDirection::Read => {
            api::unpack_external(name, file, bytes, &raw mut at, buffer, count, datatype)
        }
    }
}

/// Bytes of a predefined type in a file.
pub(crate) fn external_bytes(datatype: Datatype) -> Result<Aint> {
    let mut size: Aint = 0;
    api::pack_external_size(c"external32".as_ptr(), 1, datatype, &raw mut size)?;
    Ok(size)
}

/// Some libraries have no conversion of pairs of a value and an index, and crash on them; the size that they report shows it.
fn check_leaf(leaf: Datatype) -> Result<()> {
    let (memory, file) = (datatypes::size(leaf)?, external_bytes(leaf)?);
    if u64::try_from(file).is_ok_and(|file| memory <= 2 * file) {
        return Ok(());
    }
    Err(MpiError::new(Class::Conversion, "the MPI library has no external32 conversion of this datatype"))
}

fn small(count: i64) -> Result<c_int> {
    c_int::try_from(count).map_err(|_| {
        MpiError::new(Class::Count, format!("{count} elements are too many to convert in one call"))
    })
}

fn beyond() -> MpiError {
    MpiError::new(Class::Count, "an element is too large to convert")
}
