//! Element types: description, stored form, conversion.
//!
//! Never: a type with an old reference reaches `H5VLget_file_type`, which would take our object for a native file.

use std::ffi::{CStr, c_char, c_void};

use pario_container::{ByteOrder, ElementType, Hex, Member, TypeRecord};

use super::abi::Hid;
use super::failure::{Failure, VolOutcome};
use super::handle::Handle;
use super::library::Library;
use super::values::{Closer, Owned, checked, length};

/// Tag of bytes that stand for a reference.
const REFERENCE: &CStr = c"pario reference";
/// Name of the connector.
pub(crate) const NAME: &CStr = c"pario";

fn owned(library: &'static Library, id: Hid, function: &str) -> VolOutcome<Owned> {
    Owned::new(library, id, Closer::Type, function)
}

/// A text that HDF5 allocated.
fn taken(library: &Library, text: *mut c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: HDF5 returned a text that ends in NUL.
    let copy = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: HDF5 allocated it, and it is used no more.
    unsafe { (library.f.H5free_memory)(text.cast()) };
    copy
}

/// The description of a type.
pub(crate) fn describe(library: &'static Library, id: Hid) -> VolOutcome<ElementType> {
    let f = &library.f;
    // SAFETY: the type is open.
    let (class, size) = unsafe { ((f.H5Tget_class)(id), length((f.H5Tget_size)(id))) };
    let order = || {
        // SAFETY: as above.
        if unsafe { (f.H5Tget_order)(id) } == 1 { ByteOrder::Big } else { ByteOrder::Little }
    };
    Ok(match class {
        // SAFETY: as above.
        0 => ElementType::Integer { size, signed: unsafe { (f.H5Tget_sign)(id) } == 1, order: order() },
        1 => ElementType::Float { size, order: order() },
        3 => text(library, id, size)?,
        4 => ElementType::Bitfield { size, order: order() },
        // SAFETY: as above.
        5 => ElementType::Opaque { size, tag: taken(library, unsafe { (f.H5Tget_tag)(id) }) },
        6 => ElementType::Compound { size, members: members(library, id)? },
        7 => reference(library, id, size)?,
        8 => enumeration(library, id)?,
        // SAFETY: as above.
        9 => ElementType::Variable { of: Box::new(inner(library, unsafe { (f.H5Tget_super)(id) })?) },
        10 => array(library, id)?,
        number if number >= 0 => ElementType::Other { size, number },
        _ => return Err(Failure::of_library("H5Tget_class")),
    })
}

fn inner(library: &'static Library, id: Hid) -> VolOutcome<ElementType> {
    let of = owned(library, id, "H5Tget_super")?;
    describe(library, of.id)
}

fn text(library: &Library, id: Hid, size: u64) -> VolOutcome<ElementType> {
    // SAFETY: the type is open.
    let utf8 = unsafe { (library.f.H5Tget_cset)(id) } == 1;
    // SAFETY: as above.
    let variable = checked(unsafe { (library.f.H5Tis_variable_str)(id) }, "H5Tis_variable_str")? > 0;
    Ok(if variable { ElementType::Variabletext { utf8 } } else { ElementType::Text { size, utf8 } })
}

fn reference(library: &Library, id: Hid, size: u64) -> VolOutcome<ElementType> {
    for old in [c"H5T_STD_REF_OBJ_g", c"H5T_STD_REF_DSETREG_g"] {
        // SAFETY: both types are open.
        if unsafe { (library.f.H5Tequal)(id, library.variables.get(old)?) } > 0 {
            return Ok(ElementType::Reference { size });
        }
    }
    Err(Failure::unsupported("elements of type H5T_STD_REF; use object references (H5T_STD_REF_OBJ)"))
}

fn members(library: &'static Library, id: Hid) -> VolOutcome<Vec<Member>> {
    let f = &library.f;
    // SAFETY: the type is open.
    let count = checked(unsafe { (f.H5Tget_nmembers)(id) }, "H5Tget_nmembers")?;
    let mut members = Vec::new();
    let mut offset = 0;
    for number in 0..count.unsigned_abs() {
        // SAFETY: the type is open and has this member.
        let (name, element) =
            unsafe { ((f.H5Tget_member_name)(id, number), (f.H5Tget_member_type)(id, number)) };
        // SAFETY: as above.
        let at = length(unsafe { (f.H5Tget_member_offset)(id, number) });
        let element = inner(library, element)?;
        offset = at.max(offset);
        members.push(Member { name: taken(library, name), offset: at, element });
    }
    Ok(members)
}

fn enumeration(library: &'static Library, id: Hid) -> VolOutcome<ElementType> {
    let f = &library.f;
    // SAFETY: the type is open.
    let of = Box::new(inner(library, unsafe { (f.H5Tget_super)(id) })?);
    // SAFETY: as above.
    let (count, size) = unsafe { ((f.H5Tget_nmembers)(id), (f.H5Tget_size)(id)) };
    let mut values = Vec::new();
    for number in 0..checked(count, "H5Tget_nmembers")?.unsigned_abs() {
        let mut value = vec![0; size];
        // SAFETY: the buffer has the size of the type.
        checked(
            // SAFETY: the identifiers are open; places and buffers outlive the call.
            unsafe { (f.H5Tget_member_value)(id, number, value.as_mut_ptr().cast()) },
            "H5Tget_member_value",
        )?;
        // SAFETY: the type has this member.
        values.push((taken(library, unsafe { (f.H5Tget_member_name)(id, number) }), Hex(value)));
    }
    Ok(ElementType::Enumeration { of, values })
}

fn array(library: &'static Library, id: Hid) -> VolOutcome<ElementType> {
    let f = &library.f;
    let mut shape = vec![0; 32];
    // SAFETY: the type is open; the buffer has room for 32 dimensions, the most that HDF5 has.
    let rank = checked(unsafe { (f.H5Tget_array_dims2)(id, shape.as_mut_ptr()) }, "H5Tget_array_dims2")?;
    shape.truncate(usize::try_from(rank).unwrap_or(0));
    // SAFETY: as above.
    Ok(ElementType::Array { shape, of: Box::new(inner(library, unsafe { (f.H5Tget_super)(id) })?) })
}

/// Whether elements hold values in the heap, and whether they hold references.
pub(crate) fn holds(element: &ElementType) -> (bool, bool) {
    match element {
        ElementType::Variabletext { .. } => (true, false),
        ElementType::Variable { of } => (true, holds(of).1),
        ElementType::Array { of, .. } | ElementType::Enumeration { of, .. } => holds(of),
        ElementType::Compound { members, .. } => {
            members.iter().fold((false, false), |(heap, refs), member| {
                let (inner_heap, inner_refs) = holds(&member.element);
                (heap || inner_heap, refs || inner_refs)
            })
        }
        ElementType::Reference { .. } => (false, true),
        ElementType::Opaque { tag, .. } => (false, tag.as_bytes() == REFERENCE.to_bytes()),
        ElementType::Integer { .. }
        | ElementType::Float { .. }
        | ElementType::Text { .. }
        | ElementType::Bitfield { .. }
        | ElementType::Other { .. } => (false, false),
    }
}

/// Bytes without meaning.
pub(crate) fn bytes(library: &'static Library, size: usize) -> VolOutcome<Owned> {
    // SAFETY: 5 is the class of opaque types.
    let bytes = owned(library, unsafe { (library.f.H5Tcreate)(5, size) }, "H5Tcreate")?;
    // SAFETY: the type is open, the text ends in NUL.
    checked(unsafe { (library.f.H5Tset_tag)(bytes.id, REFERENCE.as_ptr()) }, "H5Tset_tag")?;
    Ok(bytes)
}

/// The same type with opaque bytes in the place of references, which HDF5 would take for those of a native file.
pub(crate) fn without_references(library: &'static Library, id: Hid) -> VolOutcome<Owned> {
    let f = &library.f;
    // SAFETY: the type is open.
    let (class, size) = unsafe { ((f.H5Tget_class)(id), (f.H5Tget_size)(id)) };
    let inner = |function| -> VolOutcome<Owned> {
        // SAFETY: types of these classes have another one inside.
        let of = owned(library, unsafe { (f.H5Tget_super)(id) }, function)?;
        without_references(library, of.id)
    };
    match class {
        6 => compound_without_references(library, id, size),
        7 => bytes(library, size),
        // SAFETY: the inner type is open.
        9 => owned(library, unsafe { (f.H5Tvlen_create)(inner("H5Tget_super")?.id) }, "H5Tvlen_create"),
        10 => {
            let mut shape = vec![0; 32];
            // SAFETY: the buffer has room for 32 dimensions, the most that HDF5 has.
            let rank =
                checked(unsafe { (f.H5Tget_array_dims2)(id, shape.as_mut_ptr()) }, "H5Tget_array_dims2")?;
            let of = inner("H5Tget_super")?;
            // SAFETY: the shape has `rank` entries.
            let id = unsafe { (f.H5Tarray_create2)(of.id, rank.unsigned_abs(), shape.as_ptr()) };
            owned(library, id, "H5Tarray_create2")
        }
        // SAFETY: the type is open.
        _ => owned(library, unsafe { (f.H5Tcopy)(id) }, "H5Tcopy"),
    }
}

fn compound_without_references(library: &'static Library, id: Hid, size: usize) -> VolOutcome<Owned> {
    let f = &library.f;
    // SAFETY: 6 is the class of compound types.
    let compound = owned(library, unsafe { (f.H5Tcreate)(6, size) }, "H5Tcreate")?;
    // SAFETY: the type is open.
    let count = checked(unsafe { (f.H5Tget_nmembers)(id) }, "H5Tget_nmembers")?;
    for number in 0..count.unsigned_abs() {
        // SAFETY: the type has this member.
        let member = owned(library, unsafe { (f.H5Tget_member_type)(id, number) }, "H5Tget_member_type")?;
        let member = without_references(library, member.id)?;
        // SAFETY: as above.
        let (name, offset) =
            unsafe { ((f.H5Tget_member_name)(id, number), (f.H5Tget_member_offset)(id, number)) };
        // SAFETY: both types are open, the name ends in NUL.
        let done = unsafe { (f.H5Tinsert)(compound.id, name, offset, member.id) };
        taken(library, name);
        checked(done, "H5Tinsert")?;
    }
    Ok(compound)
}

/// The stored record of a type. `near` is any open object of the file.
pub(crate) fn record(library: &'static Library, id: Hid, near: *const Handle) -> VolOutcome<TypeRecord> {
    // SAFETY: the type is open.
    let plain = owned(library, unsafe { (library.f.H5Tcopy)(id) }, "H5Tcopy")?;
    let description = describe(library, plain.id)?;
    let mut bytes = 0;
    // SAFETY: without a buffer the size is returned.
    checked(unsafe { (library.f.H5Tencode)(plain.id, std::ptr::null_mut(), &raw mut bytes) }, "H5Tencode")?;
    let mut encoded = vec![0; bytes];
    // SAFETY: the buffer has the size that was asked for.
    checked(
        // SAFETY: the identifiers are open; places and buffers outlive the call.
        unsafe { (library.f.H5Tencode)(plain.id, encoded.as_mut_ptr().cast(), &raw mut bytes) },
        "H5Tencode",
    )?;
    let memory = length(size(library, plain.id));
    let mut record = TypeRecord { encoded: Hex(encoded), size: memory, description, committed: None };
    if holds(&record.description).0 {
        // Offsets and sizes at rest differ from those in memory.
        let stored = at_rest(library, &record, near)?;
        record.size = length(size(library, stored.id));
        record.description = describe(library, stored.id)?;
    }
    Ok(record)
}

/// The type of stored bytes as the program sees it.
pub(crate) fn decode(library: &'static Library, record: &TypeRecord) -> VolOutcome<Owned> {
    // SAFETY: the bytes are those of `H5Tencode`, protected by a checksum.
    owned(library, unsafe { (library.f.H5Tdecode)(record.encoded.0.as_ptr().cast()) }, "H5Tdecode")
}

/// The type of elements at rest: variable-length values are blob ids, kept by the object behind `pointer`.
pub(crate) fn at_rest(
    library: &'static Library,
    record: &TypeRecord,
    pointer: *const Handle,
) -> VolOutcome<Owned> {
    let mut plain = decode(library, record)?;
    match holds(&record.description) {
        (false, _) => return Ok(plain),
        (true, false) => (),
        (true, true) => plain = without_references(library, plain.id)?,
    }
    // SAFETY: the name ends in NUL.
    let connector = checked(
        unsafe { (library.f.H5VLget_connector_id_by_name)(NAME.as_ptr()) },
        "H5VLget_connector_id_by_name",
    )?;
    let object = pointer.cast_mut().cast::<c_void>();
    // SAFETY: the object outlives the type, which is closed before the callback ends.
    let id = unsafe { (library.f.H5VLget_file_type)(object, connector, plain.id) };
    // SAFETY: the identifier was opened above.
    unsafe { (library.f.H5VLclose)(connector) };
    owned(library, id, "H5VLget_file_type")
}

/// Converts elements in place. The buffer has room for the larger of both types.
pub(crate) fn convert(
    library: &Library,
    (from, to, dxpl): (Hid, Hid, Hid),
    count: usize,
    (buffer, background): (&mut [u8], Option<&mut [u8]>),
) -> VolOutcome<()> {
    let background = background.map_or(std::ptr::null_mut(), |bytes| bytes.as_mut_ptr().cast());
    // SAFETY: both buffers have room for `count` elements of the larger type.
    let done =
        unsafe { (library.f.H5Tconvert)(from, to, count, buffer.as_mut_ptr().cast(), background, dxpl) };
    checked(done, "H5Tconvert").map(|_| ())
}

/// Size of an element in memory.
pub(crate) fn size(library: &Library, id: Hid) -> usize {
    // SAFETY: the type is open.
    unsafe { (library.f.H5Tget_size)(id) }
}
