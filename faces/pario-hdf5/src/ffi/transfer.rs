//! Transfers of elements between the program's memory and a dataset: selection, conversion, storage, in pieces.
//!
//! Never: holds the tree's lock while HDF5 converts, since conversion comes back for variable-length values. Always: nothing is
//! converted where both types are equal.

use std::ffi::c_void;

use pario_container::{ElementType, TypeRecord};

use super::abi::{DEFAULT, Hid, SPACE_BLOCK, SPACE_PLIST};
use super::failure::{Failure, VolOutcome};
use super::handle::Handle;
use super::library::Library;
use super::space::{Selection, gather, scatter};
use super::types;
use super::values::{Closer, Owned, index, length, memory, memory_mut};
use crate::stats::{self, ServedCount};

/// Bytes of one piece.
const PIECE: usize = 4 << 20;

/// One transfer as the program asks for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferRequest {
    pub(crate) memory_type: Hid,
    pub(crate) memory_space: Hid,
    pub(crate) file_space: Hid,
    pub(crate) dxpl: Hid,
}

/// A transfer with known selections and types.
struct TransferPlan {
    library: &'static Library,
    id: u64,
    dxpl: Hid,
    /// `None` if nothing is converted.
    stored: Option<Conversion>,
    memory_size: usize,
    stored_size: usize,
    /// Conversion needs what is there already.
    background: bool,
    file: Selection,
    memory: Selection,
}

impl TransferPlan {
    fn new(library: &'static Library, handle: &Handle, request: TransferRequest) -> VolOutcome<TransferPlan> {
        refuse_transform(library, request.dxpl)?;
        let id = handle.object();
        let (record, elements) = {
            let tree = handle.tree()?;
            let header = tree.header(id)?;
            let dataset = header.dataset().ok_or_else(|| Failure::new("a dataset is needed"))?;
            (dataset.element.clone(), dataset.space.elements())
        };
        let (file, memory) = selections(library, request, elements)?;
        let stored = conversion(library, request.memory_type, &record, handle)?;
        let memory_size = types::size(library, request.memory_type);
        let stored_size = index(record.size);
        Ok(TransferPlan {
            library,
            id,
            dxpl: request.dxpl,
            background: stored.is_some() && has_members(&record.description),
            stored,
            memory_size,
            stored_size,
            file,
            memory,
        })
    }

    /// Elements of the next piece.
    fn piece(&self, left: u64) -> u64 {
        length(PIECE / self.memory_size.max(self.stored_size).max(1)).max(1).min(left)
    }

    fn memory_bytes(&self) -> usize {
        index(self.memory.extent) * self.memory_size
    }
}

/// Pieces of a compound are converted one by one, into what is there.
fn has_members(element: &ElementType) -> bool {
    match element {
        ElementType::Compound { .. } => true,
        ElementType::Array { of, .. } | ElementType::Variable { of } => has_members(of),
        ElementType::Integer { .. }
        | ElementType::Float { .. }
        | ElementType::Text { .. }
        | ElementType::Variabletext { .. }
        | ElementType::Enumeration { .. }
        | ElementType::Opaque { .. }
        | ElementType::Bitfield { .. }
        | ElementType::Reference { .. }
        | ElementType::Other { .. } => false,
    }
}

/// Both types of a conversion.
pub(crate) struct Conversion {
    /// The type at rest.
    pub(crate) stored: Owned,
    /// The type in memory.
    pub(crate) memory: Owned,
}

/// How elements have to be converted; `None` if not at all.
pub(crate) fn conversion(
    library: &'static Library,
    memory_type: Hid,
    record: &TypeRecord,
    handle: *const Handle,
) -> VolOutcome<Option<Conversion>> {
    let stored = types::at_rest(library, record, handle)?;
    // SAFETY: both types are open.
    let same =
        !types::holds(&record.description).0 && unsafe { (library.f.H5Tequal)(memory_type, stored.id) } > 0;
    if same {
        return Ok(None);
    }
    let memory = if types::holds(&record.description) == (true, true) {
        types::without_references(library, memory_type)?
    } else {
        // SAFETY: the type is open.
        Owned::new(library, unsafe { (library.f.H5Tcopy)(memory_type) }, Closer::Type, "H5Tcopy")?
    };
    Ok(Some(Conversion { stored, memory }))
}

fn selections(
    library: &'static Library,
    request: TransferRequest,
    elements: u64,
) -> VolOutcome<(Selection, Selection)> {
    let TransferRequest { memory_space, file_space, .. } = request;
    if [memory_space, file_space].contains(&SPACE_PLIST) || file_space == SPACE_BLOCK {
        return Err(Failure::unsupported("selections by H5S_PLIST, or by H5S_BLOCK in the file"));
    }
    let file = match file_space {
        DEFAULT => Selection::all(library, elements),
        space => Selection::of(library, space)?,
    };
    if file.extent != elements {
        return Err(Failure::new("the file dataspace has another extent than the dataset"));
    }
    let memory = match (memory_space, file_space) {
        (DEFAULT, DEFAULT) => Selection::all(library, elements),
        (DEFAULT, space) => Selection::of(library, space)?,
        (SPACE_BLOCK, _) => Selection::all(library, file.elements),
        (space, _) => Selection::of(library, space)?,
    };
    if memory.elements != file.elements {
        let text =
            format!("{} elements are selected in memory, {} in the file", memory.elements, file.elements);
        return Err(Failure::new(text));
    }
    Ok((file, memory))
}

/// A data transform is noticed, never ignored.
fn refuse_transform(library: &Library, dxpl: Hid) -> VolOutcome<()> {
    if dxpl == DEFAULT || library.variables.get(c"H5P_LST_DATASET_XFER_ID_g")? == dxpl {
        return Ok(());
    }
    // SAFETY: the stack is saved and put back, since a list without a transform is reported as an error.
    let saved = unsafe { (library.f.H5Eget_current_stack)() };
    // SAFETY: the list is open; no text is asked for.
    let size = unsafe { (library.f.H5Pget_data_transform)(dxpl, std::ptr::null_mut(), 0) };
    // SAFETY: the stack was saved above; this closes it.
    unsafe { (library.f.H5Eset_current_stack)(saved) };
    if size > 0 { Err(Failure::unsupported("data transforms (H5Pset_data_transform)")) } else { Ok(()) }
}

/// Writes elements of the program.
pub(crate) fn write(
    library: &'static Library,
    handle: &Handle,
    request: TransferRequest,
    buffer: *const c_void,
) -> VolOutcome<()> {
    let mut plan = TransferPlan::new(library, handle, request)?;
    let total = plan.file.elements;
    if total > 0 && buffer.is_null() {
        return Err(Failure::new("the program's buffer is missing"));
    }
    let program = memory(buffer, plan.memory_bytes());
    stats::add(ServedCount::BytesWritten, total * length(plan.memory_size));
    let (mut left, mut packed) = (total, Vec::new());
    // Without conversion a selection that is one run in memory is written from where it is, at once.
    while left > 0 {
        let whole = plan.stored.is_none() && plan.memory.elements == plan.memory.extent && left == total;
        let count = if whole { left } else { plan.piece(left) };
        let (to, from) = (plan.file.take(count)?, plan.memory.take(count)?);
        match (&plan.stored, &from[..]) {
            (None, [(start, _)]) => {
                let at = index(*start) * plan.memory_size;
                let bytes = &program[at..at + index(count) * plan.memory_size];
                handle.tree()?.write_elements(plan.id, &to, bytes)?;
            }
            (None, _) => {
                packed.resize(index(count) * plan.memory_size, 0);
                gather(program, &from, plan.memory_size, &mut packed);
                handle.tree()?.write_elements(plan.id, &to, &packed)?;
            }
            (Some(types), _) => {
                packed.clear();
                packed.resize(index(count) * plan.memory_size.max(plan.stored_size), 0);
                gather(program, &from, plan.memory_size, &mut packed);
                write_converted(&plan, (handle, types), (&to, count), &mut packed)?;
            }
        }
        left -= count;
    }
    Ok(())
}

fn write_converted(
    plan: &TransferPlan,
    (handle, types): (&Handle, &Conversion),
    (to, count): (&[(u64, u64)], u64),
    packed: &mut [u8],
) -> VolOutcome<()> {
    let bytes = index(count) * plan.stored_size;
    let mut background = None;
    if plan.background {
        let mut there = vec![0; packed.len()];
        handle.tree()?.read_elements(plan.id, to, &mut there[..bytes])?;
        background = Some(there);
    }
    let types = (types.memory.id, types.stored.id, plan.dxpl);
    types::convert(plan.library, types, index(count), (packed, background.as_deref_mut()))?;
    let mut tree = handle.tree()?;
    // Values first, then the elements that name them.
    tree.flush_heap(plan.id)?;
    Ok(tree.write_elements(plan.id, to, &packed[..bytes])?)
}

/// Reads elements into the program's memory.
pub(crate) fn read(
    library: &'static Library,
    handle: &Handle,
    request: TransferRequest,
    buffer: *mut c_void,
) -> VolOutcome<()> {
    let mut plan = TransferPlan::new(library, handle, request)?;
    let total = plan.file.elements;
    if total > 0 && buffer.is_null() {
        return Err(Failure::new("the program's buffer is missing"));
    }
    let program = memory_mut(buffer, plan.memory_bytes());
    stats::add(ServedCount::BytesRead, total * length(plan.memory_size));
    let (mut left, mut packed) = (total, Vec::new());
    while left > 0 {
        let whole = plan.stored.is_none() && plan.memory.elements == plan.memory.extent && left == total;
        let count = if whole { left } else { plan.piece(left) };
        let (from, to) = (plan.file.take(count)?, plan.memory.take(count)?);
        match (&plan.stored, &to[..]) {
            (None, [(start, _)]) => {
                let at = index(*start) * plan.memory_size;
                let bytes = &mut program[at..at + index(count) * plan.memory_size];
                handle.tree()?.read_elements(plan.id, &from, bytes)?;
            }
            (None, _) => {
                packed.resize(index(count) * plan.memory_size, 0);
                handle.tree()?.read_elements(plan.id, &from, &mut packed)?;
                scatter(&packed, &to, plan.memory_size, program);
            }
            (Some(stored), _) => {
                packed.clear();
                packed.resize(index(count) * plan.memory_size.max(plan.stored_size), 0);
                let bytes = index(count) * plan.stored_size;
                handle.tree()?.read_elements(plan.id, &from, &mut packed[..bytes])?;
                let mut background = plan.background.then(|| vec![0; packed.len()]);
                if let Some(there) = &mut background {
                    gather(program, &to, plan.memory_size, there);
                }
                let types = (stored.stored.id, stored.memory.id, plan.dxpl);
                types::convert(library, types, index(count), (&mut packed, background.as_deref_mut()))?;
                scatter(&packed, &to, plan.memory_size, program);
            }
        }
        left -= count;
    }
    Ok(())
}
