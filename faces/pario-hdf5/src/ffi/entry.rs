//! The two functions by which HDF5 finds a plugin.

use std::ffi::{c_int, c_void};

use super::{class, compat, library};
use crate::stats;

/// `H5PL_TYPE_VOL`.
const VOL: c_int = 1;

/// The kind of plugin.
#[unsafe(no_mangle)]
pub(super) extern "C" fn H5PLget_plugin_type() -> c_int {
    VOL
}

/// The connector's table, for the HDF5 that calls: it is found by the return address.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn H5PLget_plugin_info() -> *const c_void {
    std::arch::naked_asm!("mov rdi, [rsp]", "jmp {info}", info = sym plugin_info)
}

/// The connector's table, for the HDF5 that calls: it is found by the return address.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn H5PLget_plugin_info() -> *const c_void {
    std::arch::naked_asm!("mov x0, x30", "b {info}", info = sym plugin_info)
}

extern "C" fn print_stats() {
    stats::print();
}

extern "C" fn plugin_info(caller: *const c_void) -> *const c_void {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        if stats::wanted() {
            // SAFETY: the function lives as long as the process; the plugin is never unloaded, see below.
            unsafe { libc::atexit(print_stats) };
        }
        keep_loaded();
    });
    match library::of_address(caller) {
        Ok(found) => {
            compat::install();
            class::of_slot(found.slot)
        }
        Err(text) => {
            eprintln!("pario hdf5: {text}");
            std::ptr::null()
        }
    }
}

/// HDF5 unloads plugins when it ends; functions that were handed out must stay.
fn keep_loaded() {
    // SAFETY: all fields may be zero.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let own = (print_stats as extern "C" fn()) as *const c_void;
    // SAFETY: the address is one of this library, `info` outlives the call.
    if unsafe { libc::dladdr(own, &raw mut info) } != 0 && !info.dli_fname.is_null() {
        // SAFETY: the name is a C string of the loader.
        unsafe { libc::dlopen(info.dli_fname, libc::RTLD_NOLOAD | libc::RTLD_LAZY | libc::RTLD_NODELETE) };
    }
}
