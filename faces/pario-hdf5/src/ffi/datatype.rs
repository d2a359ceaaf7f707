//! Callbacks of committed datatypes.

use std::ffi::{c_char, c_void};

use pario_container::{Hex, Kind, ObjectBody};

use super::abi::{DEFAULT, Herr, Hid, LocParams, OK, Pair, VolOperation};
use super::failure::{Failure, VolOutcome, guard, guard_status};
use super::group::{NewPlace, make, open_kind};
use super::handle::Handle;
use super::values::{arguments, memory_mut, operation, put};
use super::{plists, types};
use crate::stats::{self, ServedCount};

pub(super) unsafe extern "C" fn commit(
    object: *mut c_void,
    location: *const LocParams,
    name: *const c_char,
    type_id: Hid,
    lcpl: Hid,
    tcpl: Hid,
    _tapl: Hid,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> *mut c_void {
    guard(Handle::slot_of(object), std::ptr::null_mut(), |library| {
        stats::add(ServedCount::Objects, 1);
        let element = types::record(library, type_id, Handle::borrow(object)?)?;
        let body = ObjectBody::Type { element, properties: plists::encode(library, tcpl)? };
        let timed = plists::timed(library, tcpl)?;
        Ok(make(library, &NewPlace { object, location, name, lcpl }, body, timed)?.into_raw())
    })
}

pub(super) unsafe extern "C" fn open(
    object: *mut c_void,
    location: *const LocParams,
    name: *const c_char,
    _tapl: Hid,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> *mut c_void {
    guard(Handle::slot_of(object), std::ptr::null_mut(), |library| {
        stats::add(ServedCount::Objects, 1);
        Ok(open_kind(library, (object, location), name, (Kind::Type, DEFAULT))?.into_raw())
    })
}

fn committed(handle: &Handle) -> VolOutcome<(Hex, Hex)> {
    match &handle.tree()?.header(handle.object())?.body {
        ObjectBody::Type { element, properties } => Ok((element.encoded.clone(), properties.clone())),
        ObjectBody::Group { .. } | ObjectBody::Dataset(_) => Err(Failure::new("a datatype is needed")),
    }
}

pub(super) unsafe extern "C" fn get(
    object: *mut c_void,
    args: *mut VolOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |library| {
        stats::add(ServedCount::Objects, 1);
        let (encoded, properties) = committed(Handle::borrow(object)?)?;
        match operation(args) {
            0 => {
                let size: &mut *mut usize = arguments(args);
                put(*size, encoded.0.len());
            }
            1 => {
                let Pair(buffer, size): &mut Pair<*mut c_void, usize> = arguments(args);
                let target = memory_mut(*buffer, *size);
                let count = encoded.0.len().min(target.len());
                target[..count].copy_from_slice(&encoded.0[..count]);
            }
            2 => {
                let tcpl: &mut Hid = arguments(args);
                *tcpl = plists::decode(library, &properties, c"H5P_CLS_DATATYPE_CREATE_ID_g")?.release();
            }
            kind => return Err(Failure::unsupported(&format!("query {kind} of datatypes"))),
        }
        Ok(OK)
    })
}

pub(super) unsafe extern "C" fn specific(
    _object: *mut c_void,
    _args: *mut VolOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    // Headers are written at once: there is nothing to flush.
    OK
}
