//! `MPI_Info`: reads hints, and returns those in force.

use std::ffi::{CStr, CString, c_char, c_int};

use pario_mpi::{Class, MpiError, Result};

use super::api;
use crate::abi::{self, Info};

/// The longest key and value of any ABI, with the zero.
const KEY_BYTES: usize = 256;
const VALUE_BYTES: usize = 1024;
/// Limit of hints that are read.
const KEYS_MAX: c_int = 256;

/// All pairs of an info.
pub(crate) fn pairs(info: Info) -> Result<Vec<(String, String)>> {
    if info == abi::info_null() {
        return Ok(Vec::new());
    }
    let mut count = 0;
    api::info_nkeys(info, &raw mut count)?;
    let mut pairs = Vec::new();
    for number in 0..count.min(KEYS_MAX) {
        let mut key = [0 as c_char; KEY_BYTES + 1];
        api::info_nthkey(info, number, key.as_mut_ptr())?;
        let mut value = [0 as c_char; VALUE_BYTES + 1];
        let mut found = 0;
        let room = c_int::try_from(VALUE_BYTES).expect("a small number");
        api::info_get(info, key.as_ptr(), room, value.as_mut_ptr(), &raw mut found)?;
        if found != 0 {
            pairs.push((string(&key), string(&value)));
        }
    }
    Ok(pairs)
}

fn string(from: &[c_char]) -> String {
    let bytes: Vec<u8> =
        from.iter().take_while(|byte| **byte != 0).map(|byte| byte.to_ne_bytes()[0]).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A new info.
pub(crate) fn make(pairs: &[(&'static str, String)]) -> Result<Info> {
    let mut info = abi::info_null();
    api::info_create(&raw mut info)?;
    for (key, value) in pairs {
        let (key, value) = (c(key)?, c(value)?);
        api::info_set(info, key.as_ptr(), value.as_ptr())?;
    }
    Ok(info)
}

fn c(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| MpiError::new(Class::Info, "a hint has a zero byte in it"))
}

/// The name of the null device, for shadow handles.
pub(crate) const NULL_DEVICE: &CStr = c"/dev/null";
