//! Import slots of loaded libraries: where the loader has put the addresses of functions of other libraries.
//!
//! Never: touches a library that does not import HDF5, or HDF5 itself. Always: a page that the loader made read-only is
//! read-only again afterwards.

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Replacements for the library that an importing object resolves to.
pub(super) type Replacements<'a> = &'a dyn Fn(*const c_void) -> Option<Vec<(&'static str, *const c_void)>>;

#[cfg(target_arch = "x86_64")]
const SLOT_KINDS: [u32; 2] = [6, 7];
#[cfg(target_arch = "aarch64")]
const SLOT_KINDS: [u32; 2] = [1025, 1026];

const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;

/// `Elf64_Rela`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// `Elf64_Dyn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dynamic {
    tag: i64,
    value: u64,
}

/// A loaded object.
struct LoadedObject {
    name: CString,
    base: u64,
    dynamic: u64,
}

/// Objects that were examined.
static DONE: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(|| Mutex::new(HashSet::new()));

unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: `patch` passes a list, the loader valid information.
    let (info, objects) = unsafe { (&*info, &mut *data.cast::<Vec<LoadedObject>>()) };
    // SAFETY: the loader passes a text that ends in NUL.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned();
    for number in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: the object has this many program headers.
        let header = unsafe { &*info.dlpi_phdr.add(number) };
        if header.p_type == libc::PT_DYNAMIC {
            objects.push(LoadedObject {
                name: name.clone(),
                base: info.dlpi_addr,
                dynamic: info.dlpi_addr + header.p_vaddr,
            });
        }
    }
    0
}

/// Patches all objects that were loaded since the last call.
pub(super) fn patch(replacements: Replacements<'_>) {
    let mut objects: Vec<LoadedObject> = Vec::new();
    // SAFETY: the callback takes a list of objects, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut objects).cast()) };
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    for object in objects {
        if done.insert(object.base) {
            patch_object(&object, replacements);
        }
    }
}

/// The HDF5 that an object resolves to.
fn resolved(object: &LoadedObject) -> Option<*const c_void> {
    // SAFETY: the object is loaded, so that none of its code runs.
    let handle = unsafe { libc::dlopen(object.name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: the handle is open, the name ends in NUL.
    let found = unsafe { libc::dlsym(handle, c"H5open".as_ptr()) };
    // SAFETY: the handle was opened above.
    unsafe { libc::dlclose(handle) };
    (!found.is_null()).then_some(found.cast_const())
}

fn patch_object(object: &LoadedObject, replacements: Replacements<'_>) {
    let (mut strings, mut symbols) = (0, 0);
    let (mut rela, mut rela_size, mut plt, mut plt_size) = (0, 0, 0, 0);
    let mut at = object.dynamic as *const Dynamic;
    // SAFETY: the table of a loaded object ends with tag 0.
    while let entry @ Dynamic { tag: 1.., .. } | entry @ Dynamic { tag: ..=-1, .. } = unsafe { *at } {
        match entry.tag {
            DT_STRTAB => strings = entry.value,
            DT_SYMTAB => symbols = entry.value,
            DT_RELA => rela = entry.value,
            DT_RELASZ => rela_size = entry.value,
            DT_JMPREL => plt = entry.value,
            DT_PLTRELSZ => plt_size = entry.value,
            _ => (),
        }
        // SAFETY: the end was not reached.
        at = unsafe { at.add(1) };
    }
    // The kernel's own object has addresses that are not relocated.
    if strings < object.base || symbols < object.base || strings == 0 {
        return;
    }
    let mut found = Vec::new();
    for (table, size) in [(rela, rela_size), (plt, plt_size)] {
        slots_of(object, (table, size), (symbols, strings), &mut found);
    }
    if found.is_empty() {
        return;
    }
    let Some(wanted) = resolved(object).and_then(replacements) else { return };
    for (slot, name) in found {
        if let Some((_, function)) = wanted.iter().find(|(known, _)| *known == name) {
            write_slot(slot, *function);
        }
    }
}

/// Import slots for functions of HDF5: address and name.
fn slots_of(
    object: &LoadedObject,
    (table, size): (u64, u64),
    (symbols, strings): (u64, u64),
    found: &mut Vec<(u64, String)>,
) {
    const SYMBOL_SIZE: u64 = 24;
    if table < object.base || table == 0 {
        return;
    }
    let count = usize::try_from(size).unwrap_or(0) / size_of::<Relocation>();
    for number in 0..count {
        // SAFETY: the table of a loaded object has this many entries.
        let entry = unsafe { *(table as *const Relocation).add(number) };
        let (kind, symbol) = ((entry.info & 0xffff_ffff), entry.info >> 32);
        if symbol == 0 || !SLOT_KINDS.iter().any(|known| u64::from(*known) == kind) {
            continue;
        }
        // SAFETY: a symbol begins with its name's place in the table of texts.
        let name = unsafe { *((symbols + symbol * SYMBOL_SIZE) as *const u32) };
        // SAFETY: texts of that table end in NUL.
        let name = unsafe { CStr::from_ptr((strings + u64::from(name)) as *const _) };
        if name.to_bytes().starts_with(b"H5") {
            found.push((object.base + entry.offset, name.to_string_lossy().into_owned()));
        }
    }
}

fn write_slot(slot: u64, function: *const c_void) {
    // SAFETY: asking for the size of pages has no effect.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let (start, size) = ((slot & !(page - 1)) as *mut c_void, usize::try_from(page).unwrap_or(4096));
    // SAFETY: the page is that of an import slot of a loaded object.
    if unsafe { libc::mprotect(start, size, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
        eprintln!("pario hdf5: the system forbids changing import slots; listing groups in h5py will fail");
        return;
    }
    // SAFETY: a slot holds one address and is aligned; the write is atomic for threads that call through it.
    unsafe { std::sync::atomic::AtomicPtr::from_ptr(slot as *mut *mut c_void) }
        .store(function.cast_mut(), std::sync::atomic::Ordering::SeqCst);
}
