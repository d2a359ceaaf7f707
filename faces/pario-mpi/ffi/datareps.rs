//! Data representations: `native` and `internal` are bytes as in memory, `external32` is the standard's, others are registered by
//! the program.
//!
//! Always: conversion runs on the thread that called MPI, inside that call.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use pario::Datatype as Type;
use pario_mpi::{Class, MpiError, Result};

use super::api::{Aint, Count, Offset};
use super::datatypes::{self, Native, Sizes};
use super::external::{self, ConversionDirection, ProgramElements};
use crate::abi::Datatype;

/// Limit of registered representations.
const REGISTERED_MAX: usize = 64;
/// The longest name, of every ABI.
const NAME_BYTES_MAX: usize = 128;

pub(crate) type ExtentFn = unsafe extern "C" fn(Datatype, *mut Aint, *mut c_void) -> c_int;
pub(crate) type ConvertFn =
    unsafe extern "C" fn(*mut c_void, Datatype, c_int, *mut c_void, Offset, *mut c_void) -> c_int;
pub(crate) type ConvertLargeFn =
    unsafe extern "C" fn(*mut c_void, Datatype, Count, *mut c_void, Offset, *mut c_void) -> c_int;

/// A conversion function, by its count type; `None`: bytes are unchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Convert {
    Small(Option<ConvertFn>),
    Large(Option<ConvertLargeFn>),
}

/// Arguments of `MPI_Register_datarep`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisteredRep {
    pub(crate) read: Convert,
    pub(crate) write: Convert,
    pub(crate) extent: ExtentFn,
    pub(crate) extra: *mut c_void,
}
// SAFETY: the program registered the functions and the pointer for use by any thread that does its accesses.
unsafe impl Send for RegisteredRep {}
// SAFETY: the same.
unsafe impl Sync for RegisteredRep {}

static REGISTERED: Mutex<BTreeMap<String, Arc<RegisteredRep>>> = Mutex::new(BTreeMap::new());

/// Data representation of a file.
#[derive(Clone, Debug, Default)]
pub(crate) enum Rep {
    #[default]
    Native,
    Internal,
    External32,
    Registered(String, Arc<RegisteredRep>),
}

impl Rep {
    /// By name.
    pub(crate) fn named(name: &str) -> Result<Rep> {
        match name {
            "native" => Ok(Rep::Native),
            "internal" => Ok(Rep::Internal),
            "external32" => Ok(Rep::External32),
            _ => {
                let known =
                    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).get(name).map(Arc::clone);
                let unknown =
                    || MpiError::new(Class::UnsupportedDatarep, format!("no data representation '{name}'"));
                Ok(Rep::Registered(name.to_owned(), known.ok_or_else(unknown)?))
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Rep::Native => "native",
            Rep::Internal => "internal",
            Rep::External32 => "external32",
            Rep::Registered(name, _) => name,
        }
    }

    /// Whether bytes in the file are those in memory.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Rep::Native | Rep::Internal)
    }
}

impl Sizes for Rep {
    fn predefined(&self, datatype: Datatype) -> Result<Type> {
        let bytes = match self {
            Rep::Native | Rep::Internal => return Native.predefined(datatype),
            Rep::External32 => external::external_bytes(datatype)?,
            Rep::Registered(name, functions) => {
                let mut extent: Aint = 0;
                // SAFETY: the program registered this function for this use.
                let code = unsafe { (functions.extent)(datatype, &raw mut extent, functions.extra) };
                converted(name, code)?;
                extent
            }
        };
        let bytes = u64::try_from(bytes)
            .map_err(|_| MpiError::new(Class::Conversion, "a datatype of negative size"))?;
        if bytes == 0 {
            return Ok(Type::contiguous(0, &Type::elementary(1)?)?);
        }
        Ok(Type::elementary(bytes)?)
    }

    fn padded(&self) -> bool {
        self.is_memory()
    }
}

/// Registers a representation.
pub(crate) fn register(name: &str, functions: RegisteredRep) -> Result<()> {
    let mut known = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if name.is_empty() || NAME_BYTES_MAX < name.len() {
        let text = format!("a data representation's name has 1 to {NAME_BYTES_MAX} bytes");
        return Err(MpiError::new(Class::Arg, text));
    }
    if ["native", "internal", "external32"].contains(&name) || known.contains_key(name) {
        return Err(MpiError::new(
            Class::DupDatarep,
            format!("the data representation '{name}' is already registered"),
        ));
    }
    if REGISTERED_MAX <= known.len() {
        return Err(MpiError::new(Class::Other, format!("more than {REGISTERED_MAX} data representations")));
    }
    known.insert(name.to_owned(), Arc::new(functions));
    Ok(())
}

/// Converts the program's buffer to the bytes of a file.
pub(crate) fn to_file(rep: &Rep, buffer: *const c_void, count: i64, datatype: Datatype) -> Result<Vec<u8>> {
    let mut bytes = vec![0; file_bytes(rep, count, datatype)?];
    convert(rep, ConversionDirection::Write, (buffer.cast_mut(), count, datatype), &mut bytes)?;
    Ok(bytes)
}

/// Converts the bytes of a file to the program's buffer: only whole elements. Returns the bytes of memory that were filled.
pub(crate) fn from_file(rep: &Rep, buffer: *mut c_void, datatype: Datatype, bytes: &mut [u8]) -> Result<u64> {
    let each = datatypes::decode(datatype, rep)?.size();
    let whole = (bytes.len() as u64).checked_div(each).unwrap_or(0);
    let count = i64::try_from(whole).unwrap_or(i64::MAX);
    if count != 0 {
        convert(rep, ConversionDirection::Read, (buffer, count, datatype), bytes)?;
    }
    Ok(whole * datatypes::size(datatype)?)
}

/// Bytes of `count` elements in a file.
pub(crate) fn file_bytes(rep: &Rep, count: i64, datatype: Datatype) -> Result<usize> {
    let each = datatypes::decode(datatype, rep)?.size();
    let total = u64::try_from(count).ok().and_then(|count| count.checked_mul(each));
    let total = total.and_then(|total| usize::try_from(total).ok());
    total.ok_or_else(|| MpiError::new(Class::Count, format!("{count} elements do not fit in memory")))
}

fn convert(
    rep: &Rep,
    way: ConversionDirection,
    (buffer, count, datatype): (*mut c_void, i64, Datatype),
    file: &mut [u8],
) -> Result<()> {
    let small = || {
        c_int::try_from(count).map_err(|_| {
            MpiError::new(Class::Count, format!("{count} elements are too many to convert in one call"))
        })
    };
    match rep {
        Rep::Native | Rep::Internal => Ok(()),
        Rep::External32 => external::convert(way, ProgramElements { buffer, count, datatype }, file),
        Rep::Registered(name, functions) => {
            let function = if way == ConversionDirection::Read { functions.read } else { functions.write };
            let (file, extra) = (file.as_mut_ptr().cast::<c_void>(), functions.extra);
            let code = match function {
                // SAFETY: the program registered this function; the buffer is the program's, the file's bytes are owned here.
                Convert::Small(Some(call)) => unsafe { call(buffer, datatype, small()?, file, 0, extra) },
                // SAFETY: the same.
                Convert::Large(Some(call)) => unsafe { call(buffer, datatype, count, file, 0, extra) },
                Convert::Small(None) | Convert::Large(None) => {
                    return Err(MpiError::new(
                        Class::UnsupportedDatarep,
                        format!("the representation '{name}' has no conversion for this direction"),
                    ));
                }
            };
            converted(name, code)
        }
    }
}

fn converted(name: &str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(MpiError::new(
            Class::Conversion,
            format!("a function of the representation '{name}' returned {code}"),
        )),
    }
}
