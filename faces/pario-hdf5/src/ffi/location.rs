//! From HDF5's location parameters to an object, through external links too.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_container::{Found, Header, LinkName, LinkRow, ROOT_ID};

use super::abi::{ACC_RDWR, BY_INDEX, BY_NAME, BY_SELF, BY_TOKEN, DEFAULT, LocByIndex, LocParams};
use super::failure::{Failure, VolOutcome};
use super::handle::{Handle, TreeGuard};
use super::library::Library;
use super::registry::{self, OpenTree};
use super::values::{bytes, index};

/// External links followed on one path.
const EXTERNAL_MAX: u32 = 16;

/// An object and the file that holds it.
#[derive(Debug)]
pub(crate) struct ObjectPlace {
    pub(crate) file: Arc<OpenTree>,
    pub(crate) id: u64,
    pub(crate) path: LinkName,
}

/// The object that location parameters name.
pub(crate) fn object(
    library: &Library,
    handle: &Handle,
    location: *const LocParams,
) -> VolOutcome<ObjectPlace> {
    // SAFETY: HDF5 passes valid parameters.
    let location = unsafe { &*location };
    match location.kind {
        BY_SELF => Ok(own(handle)),
        BY_NAME => {
            // SAFETY: the kind says which member is set.
            let by = unsafe { location.data.name };
            find(library, handle, &bytes(by.name)?, by.lapl)
        }
        BY_INDEX => {
            // SAFETY: as above.
            let by = unsafe { location.data.index };
            let (group, row) = link_by_index(library, handle, by)?;
            let inside = Handle {
                slot: handle.slot,
                file: group.file.clone(),
                target: super::handle::HandleTarget::Object(group.id),
                path: group.path,
                flags: handle.flags,
                opening: handle.opening,
            };
            find(library, &inside, &row.name.0, by.lapl)
        }
        BY_TOKEN => {
            // SAFETY: as above; the token lives during the call.
            let id = unsafe { (*location.data.token).id() };
            let mut tree = handle.tree()?;
            let id = tree.find_id(id)?;
            let path = tree.path_of(id).unwrap_or_default();
            drop(tree);
            Ok(ObjectPlace { file: handle.file.clone(), id, path })
        }
        kind => Err(Failure::new(format!("unknown kind of location {kind}"))),
    }
}

fn own(handle: &Handle) -> ObjectPlace {
    ObjectPlace { file: handle.file.clone(), id: handle.object(), path: handle.path.clone() }
}

/// The object at a path.
pub(crate) fn find(library: &Library, handle: &Handle, path: &[u8], lapl: i64) -> VolOutcome<ObjectPlace> {
    let mut at = own(handle);
    let mut rest = path.to_vec();
    for _ in 0..EXTERNAL_MAX {
        let found = at.file.tree()?.find(at.id, &rest)?;
        match found {
            Found::Object(id) => {
                at.path = shown_path(&at.file.tree()?, id, &at.path, &rest);
                at.id = id;
                return Ok(at);
            }
            Found::External { file, path } => {
                let next = open_external(library, &at.file, &file, lapl)?;
                at = ObjectPlace { file: next, id: ROOT_ID, path: LinkName::from("/") };
                rest = path.0;
            }
        }
    }
    Err(Failure::new(format!("more than {EXTERNAL_MAX} external links in one path")))
}

/// The path of an object: where it lies, or how it was reached if it has several names.
fn shown_path(tree: &TreeGuard<'_>, id: u64, start: &LinkName, path: &[u8]) -> LinkName {
    tree.path_of(id).unwrap_or_else(|| joined(start, path))
}

/// A path seen from a start.
pub(crate) fn joined(start: &LinkName, path: &[u8]) -> LinkName {
    let mut all = if path.first() == Some(&b'/') { Vec::new() } else { start.0.clone() };
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        if all.last() != Some(&b'/') {
            all.push(b'/');
        }
        all.extend(part);
    }
    if all.is_empty() { LinkName::from("/") } else { LinkName(all) }
}

fn open_external(
    library: &Library,
    from: &OpenTree,
    file: &LinkName,
    lapl: i64,
) -> VolOutcome<Arc<OpenTree>> {
    let wanted = String::from_utf8(file.0.clone()).map_err(|_| Failure::new("a file name is not UTF-8"))?;
    let wanted = PathBuf::from(wanted);
    let mut candidates = Vec::new();
    let own_dir = Path::new(&from.name).parent().map(Path::to_path_buf).unwrap_or_default();
    if wanted.starts_with("pario:") {
        candidates.push(wanted.clone());
    } else if wanted.is_absolute() {
        candidates.push(wanted.clone());
        candidates.extend(wanted.file_name().map(|name| own_dir.join(name)));
    } else {
        candidates.extend(prefix(library, lapl)?.map(|dir| dir.join(&wanted)));
        let variable = std::env::var_os("HDF5_EXT_PREFIX").unwrap_or_default();
        candidates.extend(std::env::split_paths(&variable).map(|dir| dir.join(&wanted)));
        candidates.push(own_dir.join(&wanted));
        candidates.push(wanted.clone());
    }
    let flags = if from.writable { ACC_RDWR } else { 0 };
    let mut last = Failure::with_errno(format!("no file {}", wanted.display()), 2);
    for candidate in candidates {
        match registry::open(&candidate.to_string_lossy(), flags) {
            Ok(found) => return Ok(found),
            Err(failure) => last = failure,
        }
    }
    Err(Failure::with_errno(format!("external link to {}: {}", wanted.display(), last.text), last.errno()))
}

fn prefix(library: &Library, lapl: i64) -> VolOutcome<Option<PathBuf>> {
    if lapl == DEFAULT {
        return Ok(None);
    }
    let mut buffer = vec![0_u8; 4096];
    // SAFETY: the buffer has the size given.
    let size = unsafe { (library.f.H5Pget_elink_prefix)(lapl, buffer.as_mut_ptr().cast(), buffer.len()) };
    let size = usize::try_from(size).map_err(|_| Failure::of_library("H5Pget_elink_prefix"))?;
    buffer.truncate(size);
    Ok((size > 0).then(|| PathBuf::from(String::from_utf8_lossy(&buffer).into_owned())))
}

/// The group that holds the last name of a location, and that name.
pub(crate) fn link(
    library: &Library,
    handle: &Handle,
    location: *const LocParams,
) -> VolOutcome<(Arc<OpenTree>, u64, LinkName)> {
    // SAFETY: HDF5 passes valid parameters.
    let location = unsafe { &*location };
    if location.kind != BY_NAME {
        return Err(Failure::new("a link is named by its path"));
    }
    // SAFETY: the kind says which member is set.
    let by = unsafe { location.data.name };
    let path = bytes(by.name)?;
    let trimmed = path.strip_suffix(b"/").unwrap_or(&path);
    // The groups above are found first, perhaps in another file.
    let (above, last) = match trimmed.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (if at == 0 { &b"/"[..] } else { &trimmed[..at] }, &trimmed[at + 1..]),
        None => (&b"."[..], trimmed),
    };
    let group = find(library, handle, above, by.lapl)?;
    let (id, name) = group.file.tree()?.split(group.id, last)?;
    Ok((group.file, id, name))
}

/// The link that a location names or counts.
pub(crate) fn link_row(
    library: &Library,
    handle: &Handle,
    location: *const LocParams,
) -> VolOutcome<(ObjectPlace, LinkRow)> {
    // SAFETY: HDF5 passes valid parameters.
    let known = unsafe { &*location };
    if known.kind == BY_INDEX {
        // SAFETY: the kind says which member is set.
        return link_by_index(library, handle, unsafe { known.data.index });
    }
    let (file, group, name) = link(library, handle, location)?;
    let row = file.tree()?.link(group, &name)?;
    Ok((ObjectPlace { file, id: group, path: LinkName::default() }, row))
}

fn link_by_index(library: &Library, handle: &Handle, by: LocByIndex) -> VolOutcome<(ObjectPlace, LinkRow)> {
    let group = find(library, handle, &bytes(by.name)?, by.lapl)?;
    let rows = ordered_links(&mut group.file.tree()?, group.id, by.index, by.order)?;
    let row =
        rows.into_iter().nth(index(by.n)).ok_or_else(|| Failure::new(format!("no link number {}", by.n)))?;
    Ok((group, row))
}

/// Links of a group in an order of HDF5: by name (0) or creation (1); increasing (0), decreasing (1), native (2).
pub(crate) fn ordered_links(
    tree: &mut TreeGuard<'_>,
    group: u64,
    by: i32,
    order: i32,
) -> VolOutcome<Vec<LinkRow>> {
    let mut rows = tree.links(group)?;
    if by == 1 {
        rows.sort_by_key(|row| row.order);
    }
    if order == 1 {
        rows.reverse();
    }
    Ok(rows)
}

/// Names of attributes in an order of HDF5.
pub(crate) fn ordered_attributes(header: &Header, by: i32, order: i32) -> Vec<LinkName> {
    let mut attributes: Vec<_> = header.attributes.iter().collect();
    if by == 1 {
        attributes.sort_by_key(|attribute| attribute.order);
    } else {
        attributes.sort_by(|a, b| a.name.cmp(&b.name));
    }
    if order == 1 {
        attributes.reverse();
    }
    attributes.into_iter().map(|attribute| attribute.name.clone()).collect()
}
