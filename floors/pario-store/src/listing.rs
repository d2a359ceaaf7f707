//! Pages of a long listing: the names are read and sorted once, then returned page by page.
//!
//! Never: keeps names after the last page. Always: ascending order, regardless of the directories' order.

use std::ffi::OsStr;
use std::path::Path;

use pario_core::{Generation, InodeId, ObjectId};

use crate::disk::{Disk, EntryKind};
use crate::error::{Doing, StoreError};

/// Position of one listing. A second concurrent listing is correct too, but slower.
#[derive(Debug, Default)]
pub(crate) struct ObjectListing {
    after: Option<ObjectId>,
    /// Objects still to be listed, the next one last; `None` before the first page and after the last.
    rest: Option<Vec<ObjectId>>,
}

impl ObjectListing {
    /// Continues after `after`; reads the names again unless the last page ended there.
    pub(crate) fn start_after(
        &mut self,
        after: Option<ObjectId>,
        disk: &dyn Disk,
        root: &Path,
    ) -> Result<(), StoreError> {
        if after.is_none() || self.rest.is_none() || self.after != after {
            let mut rest = read_names(disk, root)?;
            rest.retain(|object| after.is_none_or(|after| after < *object));
            rest.sort_unstable_by(|a, b| b.cmp(a));
            self.rest = Some(rest);
            self.after = after;
        }
        Ok(())
    }

    pub(crate) fn next(&mut self) -> Option<ObjectId> {
        let next = self.rest.as_mut().and_then(Vec::pop);
        match next {
            Some(object) => self.after = Some(object),
            None => self.rest = None,
        }
        next
    }
}

fn read_names(disk: &dyn Disk, root: &Path) -> Result<Vec<ObjectId>, StoreError> {
    let list = |path: &Path| disk.list_dir(path).map_err(|e| StoreError::from_dir(e, Doing::Examining, path));
    let mut objects = Vec::new();
    for (dir, kind) in list(root)? {
        if kind != EntryKind::Directory {
            continue;
        }
        let names = list(&root.join(&dir))?;
        objects.extend(names.iter().filter_map(|(name, kind)| {
            let object = parse_name(name)?;
            let at_home = dir.to_str() == Some(&crate::directory::names_dir(object.inode));
            (at_home && *kind == EntryKind::File).then_some(object)
        }));
    }
    Ok(objects)
}

/// The object of a file name; `None` for other names.
fn parse_name(name: &OsStr) -> Option<ObjectId> {
    let name = name.to_str()?;
    let (inode, generation) = name.split_once('-')?;
    let object = ObjectId {
        inode: InodeId(u64::from_str_radix(inode, 16).ok()?),
        generation: Generation(u32::from_str_radix(generation, 16).ok()?),
    };
    // Only the written form: no capitals, no signs, no missing zeros.
    (object.to_string() == name).then_some(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_our_form_are_objects() {
        let object = ObjectId { inode: InodeId(0x1234_abcd), generation: Generation(7) };
        assert_eq!(parse_name(OsStr::new("000000001234abcd-00000007")), Some(object));
        for name in ["000000001234ABCD-00000007", "1234abcd-7", "x", "-", "+00000001234abcd-00000007"] {
            assert_eq!(parse_name(OsStr::new(name)), None, "{name}");
        }
    }
}
