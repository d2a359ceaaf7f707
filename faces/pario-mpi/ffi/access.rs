//! Reads and writes: converts the program's buffer, count and datatype to memory, and sets exact statuses.

use std::ffi::c_void;
use std::sync::PoisonError;

use pario_mpi::ffi::ProgramMemory;
use pario_mpi::{AccessOrigin, Class, MpiError, Result, Together};

use super::api::{self, Status};
use super::datareps::{self, Rep};
use super::datatypes::{self, Native};
use super::table::OpenHandle;
use crate::abi::{self, Datatype};

/// The program's arguments.
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

    /// Converts to memory.
    pub(crate) fn memory(&self) -> Result<ProgramMemory> {
        if self.count < 0 {
            return Err(MpiError::new(Class::Count, format!("the count {} is negative", self.count)));
        }
        let datatype = datatypes::decode(self.datatype, &Native)?;
        let address = self.address.expose_provenance();
        // SAFETY: the program passes a buffer for so many elements and does not access it until the call, or the request, is
        // complete.
        unsafe { ProgramMemory::with_datatype(address, &datatype, self.count) }
    }
}

/// The representation, if bytes in the file differ from memory.
pub(crate) fn representation(opened: &OpenHandle) -> Option<Rep> {
    let view = opened.view.lock().unwrap_or_else(PoisonError::into_inner);
    (!view.rep.is_memory()).then(|| view.rep.clone())
}

/// Writes; returns bytes of memory.
pub(crate) fn write(
    opened: &OpenHandle,
    place: AccessOrigin,
    together: Together,
    buffer: Buffer,
) -> Result<u64> {
    if let Some(rep) = representation(opened) {
        let bytes = datareps::to_file(&rep, buffer.address, buffer.count, buffer.datatype);
        let bytes = opened.file.or_nothing(together, false, bytes)?;
        // SAFETY: the bytes are owned here and live to the end of this call.
        let memory = unsafe { ProgramMemory::contiguous(bytes.as_ptr().expose_provenance(), bytes.len()) }?;
        opened.file.write(place, together, &memory)?;
        return Ok(datatypes::size(buffer.datatype)? * u64::try_from(buffer.count).unwrap_or(0));
    }
    let memory = opened.file.or_nothing(together, false, buffer.memory())?;
    opened.file.write(place, together, &memory)
}

/// Reads; returns bytes of memory.
pub(crate) fn read(
    opened: &OpenHandle,
    place: AccessOrigin,
    together: Together,
    buffer: Buffer,
) -> Result<u64> {
    if let Some(rep) = representation(opened) {
        let size = datareps::file_bytes(&rep, buffer.count, buffer.datatype);
        let mut bytes = vec![0_u8; opened.file.or_nothing(together, true, size)?];
        // SAFETY: the bytes are owned here and live to the end of this call.
        let mut memory =
            unsafe { ProgramMemory::contiguous(bytes.as_mut_ptr().expose_provenance(), bytes.len()) }?;
        let count = opened.file.read(place, together, &mut memory)?;
        let count = usize::try_from(count).unwrap_or(0);
        return datareps::from_file(&rep, buffer.address, buffer.datatype, &mut bytes[..count]);
    }
    let mut memory = opened.file.or_nothing(together, true, buffer.memory())?;
    opened.file.read(place, together, &mut memory)
}

/// Stores the number of bytes in the program's status.
pub(crate) fn tell(status: *mut Status, bytes: u64) -> Result<()> {
    if status.addr() == abi::STATUS_IGNORE || status.is_null() {
        return Ok(());
    }
    api::status_set_elements(status, abi::byte(), i64::try_from(bytes).unwrap_or(i64::MAX))?;
    api::status_set_cancelled(status, 0)
}
