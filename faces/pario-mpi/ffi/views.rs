//! Views as passed by the program: displacement, handles of the two types, representation.

use std::ffi::c_char;
use std::sync::PoisonError;

use pario::Datatype as Type;
use pario_mpi::{Class, MpiError, Result};

use super::api;
use super::convert::{put, text};
use super::datareps::Rep;
use super::datatypes::{self, Native};
use super::table::OpenHandle;
use crate::abi::{self, Datatype};

/// The view in force.
#[derive(Debug, Default)]
pub(crate) struct ViewState {
    displacement: i64,
    pub(crate) rep: Rep,
    /// `None`: bytes, as after open.
    types: Option<Types>,
}

/// Own duplicates: the program may free its handles.
#[derive(Debug)]
struct Types {
    etype: Datatype,
    filetype: Datatype,
}
// SAFETY: handles, which any thread may pass to the MPI library that made them.
unsafe impl Send for Types {}
// SAFETY: the same.
unsafe impl Sync for Types {}

impl Drop for Types {
    fn drop(&mut self) {
        for mut datatype in [self.etype, self.filetype] {
            if datatypes::is_predefined(datatype) == Ok(false) {
                // The error is ignored: the MPI library is ending.
                let _ = api::type_free(&raw mut datatype);
            }
        }
    }
}

/// A duplicate that stays valid when the program frees its handle.
fn keep(datatype: Datatype) -> Result<Datatype> {
    if datatypes::is_predefined(datatype)? {
        return Ok(datatype);
    }
    let mut made = abi::datatype_null();
    api::type_dup(datatype, &raw mut made)?;
    Ok(made)
}

/// `MPI_File_set_view`; collective.
pub(crate) fn set(
    opened: &OpenHandle,
    displacement: i64,
    (etype, filetype): (Datatype, Datatype),
    datarep: *const c_char,
) -> Result<()> {
    let rep = text(datarep, "a data representation").and_then(|name| Rep::named(&name));
    let place = at(opened, displacement);
    let made = rep.clone().and_then(|rep| {
        place.clone()?;
        decode(&rep, etype, filetype)
    });
    // A rank without a valid representation has no view, and reports the error.
    let word = rep.as_ref().map_or("", |rep| rep.name());
    let displacement = place.clone().unwrap_or(0);
    opened.file.set_view(displacement, &made, word)?;
    let types = Types { etype: keep(etype)?, filetype: keep(filetype)? };
    let state = ViewState { displacement, rep: rep?, types: Some(types) };
    *opened.view.lock().unwrap_or_else(PoisonError::into_inner) = state;
    Ok(())
}

/// Displacement of a view in bytes.
fn at(opened: &OpenHandle, displacement: i64) -> Result<i64> {
    if displacement == abi::DISPLACEMENT_CURRENT {
        if !opened.file.amode().sequential {
            let text = "MPI_DISPLACEMENT_CURRENT is for files that are open for sequential access";
            return Err(MpiError::new(Class::Arg, text));
        }
        return opened.file.shared_byte_offset();
    }
    if opened.file.amode().sequential {
        let text = "a view of a file that is open for sequential access begins at MPI_DISPLACEMENT_CURRENT";
        return Err(MpiError::new(Class::Arg, text));
    }
    match displacement {
        0.. => Ok(displacement),
        _ => Err(MpiError::new(Class::Arg, format!("a view that begins at byte {displacement}"))),
    }
}

fn decode(rep: &Rep, etype: Datatype, filetype: Datatype) -> Result<(Type, Type)> {
    let decoded = datatypes::decode(etype, rep)?;
    if etype == filetype {
        return Ok((decoded.clone(), decoded));
    }
    Ok((decoded, datatypes::decode(filetype, rep)?))
}

/// `MPI_File_get_view`.
pub(crate) fn get(
    opened: &OpenHandle,
    displacement: *mut i64,
    (etype, filetype): (*mut Datatype, *mut Datatype),
    datarep: *mut c_char,
) -> Result<()> {
    let view = opened.view.lock().unwrap_or_else(PoisonError::into_inner);
    put(displacement, view.displacement)?;
    match &view.types {
        None => {
            put(etype, abi::byte())?;
            put(filetype, abi::byte())?;
        }
        Some(types) => {
            put(etype, keep(types.etype)?)?;
            put(filetype, keep(types.filetype)?)?;
        }
    }
    for (at, byte) in view.rep.name().bytes().chain([0]).enumerate() {
        put(datarep.wrapping_add(at), c_char::from_ne_bytes([byte]))?;
    }
    Ok(())
}

/// `MPI_File_get_type_extent`: distance of elements in the file's representation.
pub(crate) fn type_extent(opened: &OpenHandle, datatype: Datatype) -> Result<i64> {
    let view = opened.view.lock().unwrap_or_else(PoisonError::into_inner);
    let decoded = match view.rep.is_memory() {
        true => datatypes::decode(datatype, &Native)?,
        false => datatypes::decode(datatype, &view.rep)?,
    };
    Ok(decoded.extent())
}
