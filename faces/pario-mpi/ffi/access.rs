//! Reading and writing: the program's buffer, count and datatype as memory, and exact statuses.

use std::ffi::c_void;
use std::sync::PoisonError;

use pario_mpi::ffi::Memory;
use pario_mpi::{Class, Place, Problem, Result, Together};

use super::api::{self, Status};
use super::datareps::{self, Rep};
use super::datatypes::{self, Native};
use super::table::Opened;
use crate::abi::{self, Datatype};

/// What the program gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    pub(crate) address: *mut c_void,
    pub(crate) count: i64,
    pub(crate) datatype: Datatype,
}

impl Buffer {
    pub(crate) fn new(address: *const c_void, count: impl Into<i64>, datatype: Datatype) -> Buffer {
        Buffer { address: address.cast_mut(), count: count.into(), datatype }
    }

    /// As memory.
    pub(crate) fn memory(&self) -> Result<Memory> {
        if self.count < 0 {
            return Err(Problem::new(Class::Count, format!("a count of {}", self.count)));
        }
        let datatype = datatypes::decode(self.datatype, &Native)?;
        let address = self.address.expose_provenance();
        // SAFETY: the program passes a buffer for so many elements and leaves it alone until the call, or the request, is complete.
        unsafe { Memory::picked(address, &datatype, self.count) }
    }
}

/// Bytes that are not as in memory.
pub(crate) fn representation(opened: &Opened) -> Option<Rep> {
    let view = opened.view.lock().unwrap_or_else(PoisonError::into_inner);
    (!view.rep.is_memory()).then(|| view.rep.clone())
}

/// Writes; returns bytes of memory.
pub(crate) fn write(opened: &Opened, place: Place, together: Together, buffer: Buffer) -> Result<u64> {
    if let Some(rep) = representation(opened) {
        let bytes = datareps::to_file(&rep, buffer.address, buffer.count, buffer.datatype);
        let bytes = opened.file.or_nothing(together, false, bytes)?;
        // SAFETY: the bytes are ours and live to the end of this call.
        let memory = unsafe { Memory::row(bytes.as_ptr().expose_provenance(), bytes.len()) }?;
        opened.file.write(place, together, &memory)?;
        return Ok(datatypes::size(buffer.datatype)? * u64::try_from(buffer.count).unwrap_or(0));
    }
    let memory = opened.file.or_nothing(together, false, buffer.memory())?;
    opened.file.write(place, together, &memory)
}

/// Reads; returns bytes of memory.
pub(crate) fn read(opened: &Opened, place: Place, together: Together, buffer: Buffer) -> Result<u64> {
    if let Some(rep) = representation(opened) {
        let size = datareps::file_bytes(&rep, buffer.count, buffer.datatype);
        let mut bytes = vec![0_u8; opened.file.or_nothing(together, true, size)?];
        // SAFETY: the bytes are ours and live to the end of this call.
        let mut memory = unsafe { Memory::row(bytes.as_mut_ptr().expose_provenance(), bytes.len()) }?;
        let count = opened.file.read(place, together, &mut memory)?;
        let count = usize::try_from(count).unwrap_or(0);
        return datareps::from_file(&rep, buffer.address, buffer.datatype, &mut bytes[..count]);
    }
    let mut memory = opened.file.or_nothing(together, true, buffer.memory())?;
    opened.file.read(place, together, &mut memory)
}

/// Tells the program how many bytes there were.
pub(crate) fn tell(status: *mut Status, bytes: u64) -> Result<()> {
    if status.addr() == abi::STATUS_IGNORE || status.is_null() {
        return Ok(());
    }
    api::status_set_elements(status, abi::byte(), i64::try_from(bytes).unwrap_or(i64::MAX))?;
    api::status_set_cancelled(status, 0)
}
