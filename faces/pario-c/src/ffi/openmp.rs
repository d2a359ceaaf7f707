//! OpenMP runtimes of the running process: nothing is linked, three functions are looked up.
//!
//! A runtime is found in the global scope, or among the loaded libraries by its file name, since Python and others load it
//! locally. With several runtimes the one counts in which the calling thread is in a region; `PARIO_OMP` chooses by name.
//!
//! Never: loads a runtime; unloads one. Always: a runtime that is loaded later is found as soon as a thread calls from one of its regions.

use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_ulonglong, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use pario_api::team::{LEVELS_MAX, Position, TeamLevel};

use crate::ffi::per_process::PerProcess;
use crate::last_error::{CallError, CallResult};

/// Chooses a runtime by the beginning of its file name; `none`: every thread is a team of one.
const VARIABLE: &str = "PARIO_OMP";
/// Beginnings of the file names of runtimes.
const NAMES: [&str; 3] = ["libgomp", "libomp", "libiomp5"];
/// These begin with a name above, and are no runtimes.
const OTHERS: [&str; 2] = ["libomptarget", "libompd"];

/// The functions of one runtime.
#[derive(Clone, Debug)]
struct Runtime {
    name: String,
    level: unsafe extern "C" fn() -> c_int,
    ancestor: unsafe extern "C" fn(c_int) -> c_int,
    size: unsafe extern "C" fn(c_int) -> c_int,
}

/// The runtimes of a process at some time.
#[derive(Clone, Debug)]
struct Runtimes {
    /// Libraries that were loaded in the life of the process, when these were found.
    loads: u64,
    found: Arc<[Runtime]>,
}

static RUNTIMES: PerProcess<RwLock<Option<Runtimes>>> = PerProcess::new();
static CHOICE: PerProcess<Option<OsString>> = PerProcess::new();

/// The position of the calling thread.
pub(super) fn position() -> CallResult<Position> {
    let choice = CHOICE.get(|| std::env::var_os(VARIABLE).filter(|choice| !choice.is_empty()));
    let choice = choice.as_ref().map(|choice| choice.to_string_lossy());
    if choice.as_deref() == Some("none") {
        return Ok(Position::ALONE);
    }
    let known = runtimes(false);
    let position = position_in(&known.found, choice.as_deref());
    // A runtime may have been loaded since.
    if position != Ok(Position::ALONE) || known.loads == loads() {
        return position;
    }
    position_in(&runtimes(true).found, choice.as_deref())
}

fn position_in(found: &[Runtime], choice: Option<&str>) -> CallResult<Position> {
    if let Some(choice) = choice {
        let in_region = || found.iter().any(|runtime| 0 < runtime.level());
        return match found.iter().find(|runtime| runtime.name.starts_with(choice)) {
            Some(chosen) => chosen.position(),
            None if in_region() => Err(not_loaded(found, choice)),
            None => Ok(Position::ALONE),
        };
    }
    let mut inside = found.iter().filter(|runtime| 0 < runtime.level());
    match (inside.next(), inside.next()) {
        (None, _) => Ok(Position::ALONE),
        (Some(runtime), None) => runtime.position(),
        (Some(one), Some(two)) => {
            let (one, two) = (&one.name, &two.name);
            let text = format!("this thread is in regions of {one} and of {two}: choose by {VARIABLE}={one}");
            Err(CallError::new(libc::EINVAL, text))
        }
    }
}

fn not_loaded(found: &[Runtime], choice: &str) -> CallError {
    let names: Vec<&str> = found.iter().map(|runtime| runtime.name.as_str()).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let text = format!("{VARIABLE}={choice}: no such OpenMP runtime is loaded (loaded: {names})");
    CallError::new(libc::EINVAL, text)
}

impl Runtime {
    fn level(&self) -> c_int {
        // SAFETY: a function of the OpenMP standard with this type, in a library that stays loaded.
        unsafe { (self.level)() }
    }

    fn position(&self) -> CallResult<Position> {
        let depth = self.level();
        let level = |level: c_int| {
            // SAFETY: as for the level; levels from 1 to the current one are allowed.
            let number = unsafe { (self.ancestor)(level) };
            // SAFETY: as above.
            let size = unsafe { (self.size)(level) };
            TeamLevel { number: u32::try_from(number).unwrap_or(0), size: u32::try_from(size).unwrap_or(0) }
        };
        Position::from_levels((1..=depth).map(level)).ok_or_else(|| {
            let text = format!(
                "{} says {depth} nested regions; at most {LEVELS_MAX}, each with the number of a thread, are supported",
                self.name
            );
            CallError::new(libc::EINVAL, text)
        })
    }
}

/// The runtimes known, or those of now.
fn runtimes(anew: bool) -> Runtimes {
    let slot = RUNTIMES.get(RwLock::default);
    if !anew && let Some(known) = slot.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
        return known.clone();
    }
    let now = find();
    *slot.write().unwrap_or_else(PoisonError::into_inner) = Some(now.clone());
    now
}

fn find() -> Runtimes {
    let loads = loads();
    let mut found: Vec<Runtime> = Vec::new();
    let mut add = |runtime: Option<Runtime>| {
        let is_new = |new: &Runtime| found.iter().all(|known| known.level as usize != new.level as usize);
        found.extend(runtime.filter(is_new));
    };
    for path in loaded_paths() {
        let name = Path::new(OsStr::from_bytes(&path)).file_name();
        let name = name.map(|name| name.to_string_lossy().into_owned());
        let is_runtime = |name: &String| {
            NAMES.iter().any(|start| name.starts_with(start))
                && !OTHERS.iter().any(|start| name.starts_with(start))
        };
        if let Some((name, path)) = name.filter(is_runtime).zip(CString::new(path).ok()) {
            // SAFETY: the library is loaded already: no code of it runs. The handle is kept, so that it stays.
            let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            add((!handle.is_null()).then(|| look_up(handle, name)).flatten());
        }
    }
    // A runtime inside of the program itself, or with another name.
    add(look_up(libc::RTLD_DEFAULT, "the program's OpenMP runtime".to_owned()));
    Runtimes { loads, found: found.into() }
}

fn look_up(handle: *mut c_void, name: String) -> Option<Runtime> {
    let symbol = |name: &CStr| {
        // SAFETY: a handle of the dynamic linker and a string.
        let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    };
    let (level, ancestor, size) =
        (symbol(c"omp_get_level")?, symbol(c"omp_get_ancestor_thread_num")?, symbol(c"omp_get_team_size")?);
    // SAFETY: the OpenMP standard gives this function this type.
    let level = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(level) };
    type OfLevel = unsafe extern "C" fn(c_int) -> c_int;
    // SAFETY: as above.
    let ancestor = unsafe { std::mem::transmute::<*mut c_void, OfLevel>(ancestor) };
    // SAFETY: as above.
    let size = unsafe { std::mem::transmute::<*mut c_void, OfLevel>(size) };
    Some(Runtime { name, level, ancestor, size })
}

/// Libraries that were loaded in the life of the process.
fn loads() -> u64 {
    let mut loads: c_ulonglong = 0;
    // SAFETY: the callback gets the address of `loads`, which lives during the call.
    unsafe { libc::dl_iterate_phdr(Some(read_loads), (&raw mut loads).cast()) };
    loads
}

unsafe extern "C" fn read_loads(info: *mut libc::dl_phdr_info, _: libc::size_t, data: *mut c_void) -> c_int {
    // SAFETY: the linker passes a valid structure.
    let loads = unsafe { (*info).dlpi_adds };
    // SAFETY: the address that `loads` passed.
    unsafe { *data.cast::<c_ulonglong>() = loads };
    1
}

/// Paths of the loaded libraries.
fn loaded_paths() -> Vec<Vec<u8>> {
    let mut paths: Vec<Vec<u8>> = Vec::new();
    // SAFETY: the callback gets the address of `paths`, which lives during the call.
    unsafe { libc::dl_iterate_phdr(Some(read_path), (&raw mut paths).cast()) };
    paths
}

unsafe extern "C" fn read_path(info: *mut libc::dl_phdr_info, _: libc::size_t, data: *mut c_void) -> c_int {
    // SAFETY: the linker passes a valid structure.
    let name: *const c_char = unsafe { (*info).dlpi_name };
    // SAFETY: the address that `loaded_paths` passed; no other reference exists during the call.
    let paths = unsafe { &mut *data.cast::<Vec<Vec<u8>>>() };
    if !name.is_null() {
        // SAFETY: a string of the linker, constant while the library is loaded.
        paths.push(unsafe { CStr::from_ptr(name) }.to_bytes().to_vec());
    }
    0
}

/// Whether an address lies on the calling thread's stack.
pub(super) fn is_on_own_stack(address: usize) -> bool {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: has no conditions.
    let own = unsafe { libc::pthread_self() };
    // SAFETY: this thread and a place for its attributes.
    let result = unsafe { libc::pthread_getattr_np(own, attributes.as_mut_ptr()) };
    if result != 0 {
        return false;
    }
    let (mut start, mut bytes): (*mut c_void, libc::size_t) = (std::ptr::null_mut(), 0);
    // SAFETY: attributes that the call above has filled.
    let result = unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut start, &raw mut bytes) };
    // SAFETY: as above.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    result == 0 && (start.addr()..start.addr().saturating_add(bytes)).contains(&address)
}
