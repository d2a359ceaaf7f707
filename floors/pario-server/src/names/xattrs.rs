//! Extended attributes of inodes: one row each.
//!
//! Never: read for an inode that has none: the inodes with some are known in memory. Always: bounded in name, value and sum; dropped with
//! their inode.

use std::collections::HashSet;

use pario_core::limits::{XATTR_BYTES_MAX, XATTR_NAME_BYTES_MAX, XATTRS_BYTES_MAX};
use pario_core::{Code, Fault, FileAttr, InodeId};
use pario_net::message::{At, NameReply, XattrHow};

use super::batch::Batch;
use super::edit::Edit;
use super::ledger::Ledger;
use super::name_space::{NameAnswer, Names, RequestOrigin};
use super::rows;
use super::sessions::scan;
use super::tree::show;

/// Inodes that may have extended attributes.
#[derive(Debug, Default)]
pub(super) struct XattrIndex {
    inodes: HashSet<InodeId>,
}

/// Arguments of a `SetXattr`.
#[derive(Clone, Copy, Debug)]
pub(super) struct XattrRequest<'a> {
    /// The inode's path.
    pub at: &'a At,
    /// Name of the attribute.
    pub name: &'a [u8],
    /// Its new value; `None` removes it.
    pub value: Option<&'a [u8]>,
    /// Whether it must be new, or must exist.
    pub how: XattrHow,
}

impl XattrIndex {
    /// Reads which inodes have some.
    pub(super) fn load(ledger: &Ledger) -> Result<XattrIndex, Fault> {
        let mut index = XattrIndex::default();
        scan(ledger, &rows::all_xattrs(), |key, _| {
            index.inodes.insert(InodeId(rows::number_of(key)?));
            Ok(())
        })?;
        Ok(index)
    }

    /// Deletes all attributes of an inode.
    pub(super) fn drop_all(&self, ledger: &Ledger, inode: InodeId, batch: &mut Batch) -> Result<(), Fault> {
        if !self.inodes.contains(&inode) {
            return Ok(());
        }
        scan(ledger, &rows::xattrs(inode), |key, _| {
            batch.delete(key);
            Ok(())
        })
    }
}

impl Names {
    pub(super) fn get_xattr(&self, at: &At, name: &[u8]) -> Result<NameReply, Fault> {
        let inode = self.resolve(at, false)?.inode;
        match self.tree.ledger.get(&rows::xattr(inode, name))? {
            Some(value) => Ok(NameReply::Value { value }),
            None => Err(missing(at, name)),
        }
    }

    pub(super) fn list_xattrs(&self, at: &At) -> Result<NameReply, Fault> {
        let inode = self.resolve(at, false)?.inode;
        let mut names = Vec::new();
        if self.xattrs.inodes.contains(&inode) {
            scan(&self.tree.ledger, &rows::xattrs(inode), |key, _| {
                names.push(rows::name_of_entry(key).to_vec());
                Ok(())
            })?;
        }
        Ok(NameReply::XattrNames { names })
    }

    pub(super) fn set_xattr(
        &mut self,
        origin: RequestOrigin,
        wish: &XattrRequest<'_>,
        wall_ns: u64,
    ) -> Result<NameAnswer, Fault> {
        let home = self.home_of(wish.at, false)?;
        let attr = FileAttr { changed_ns: wall_ns, ..*home.attr() };
        let key = rows::xattr(attr.inode, wish.name);
        let old = self.tree.ledger.get(&key)?;
        match (&old, wish.how, wish.value) {
            (Some(_), XattrHow::Create {}, _) => {
                return Err(Fault::new(Code::Exists, describe(wish.at, wish.name, "exists already")));
            }
            (None, XattrHow::Replace {}, _) | (None, _, None) => return Err(missing(wish.at, wish.name)),
            _ => {}
        }
        let mut edit = Edit::new(self.counters, wall_ns);
        match wish.value {
            Some(value) => {
                self.check_room(wish, attr.inode, value)?;
                edit.batch.put(&key, value);
            }
            None => edit.batch.delete(&key),
        }
        edit.put_attr(&home, attr);
        let answer = self.commit(origin, edit, NameAnswer::plain(NameReply::Done {}))?;
        if wish.value.is_some() {
            self.xattrs.inodes.insert(attr.inode);
        }
        Ok(answer)
    }

    fn check_room(&self, wish: &XattrRequest<'_>, inode: InodeId, value: &[u8]) -> Result<(), Fault> {
        let (name, at) = (wish.name, wish.at);
        if name.is_empty() || XATTR_NAME_BYTES_MAX < name.len() || name.contains(&0) {
            let text =
                format!("a name of an attribute has 1 to {XATTR_NAME_BYTES_MAX} bytes, none of them 0");
            return Err(Fault::new(Code::Invalid, describe(at, name, &text)));
        }
        if XATTR_BYTES_MAX < value.len() {
            let text = format!("a value of {} bytes: at most {XATTR_BYTES_MAX} are possible", value.len());
            return Err(Fault::new(Code::TooLarge, describe(at, name, &text)));
        }
        let mut bytes = name.len() + value.len();
        if self.xattrs.inodes.contains(&inode) {
            scan(&self.tree.ledger, &rows::xattrs(inode), |key, value| {
                let other = rows::name_of_entry(key);
                bytes += if other == name { 0 } else { other.len() + value.len() };
                Ok(())
            })?;
        }
        if bytes <= XATTRS_BYTES_MAX {
            return Ok(());
        }
        let text = format!("{bytes} bytes of attributes: an inode has at most {XATTRS_BYTES_MAX}");
        Err(Fault::new(Code::NoSpace, describe(at, name, &text)))
    }
}

fn missing(at: &At, name: &[u8]) -> Fault {
    Fault::new(Code::NoAttribute, describe(at, name, "no such attribute"))
}

fn describe(at: &At, name: &[u8], text: &str) -> String {
    format!("{}: {}: {text}", show(at), name.escape_ascii())
}
