//! Extended attributes: those of programs at the manager, those that tell of Pario made here.
//!
//! Never: access control lists, which the permission checks of the kernel would not follow. Always: `user.pario.…` is read-only and not
//! listed, so that a copy of all attributes works.

use pario::core::{FileKind, InodeId};
use pario::message::{NameReply, NameRequest, XattrHow};
use rustix::io::Errno;

use super::error::PosixResult;
use super::{FileSystem, at};

/// Prefix of the attributes that tell of Pario.
const OWN: &[u8] = b"user.pario.";
/// Prefix of attributes that the kernel interprets, as access control lists.
const SYSTEM: &[u8] = b"system.";

impl FileSystem {
    /// `getxattr`
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub fn xattr(&self, inode: InodeId, name: &[u8]) -> PosixResult<Vec<u8>> {
        if name.starts_with(SYSTEM) {
            return Err(Errno::OPNOTSUPP);
        }
        if let Some(own) = name.strip_prefix(OWN) {
            return self.own_xattr(inode, own);
        }
        match self.call(NameRequest::GetXattr { at: at(inode, b""), name: name.to_vec() })? {
            NameReply::Value { value } => Ok(value),
            _ => Err(Errno::IO),
        }
    }

    /// `listxattr`: names, each with a zero byte behind it.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub fn xattr_names(&self, inode: InodeId) -> PosixResult<Vec<u8>> {
        match self.call(NameRequest::ListXattrs { at: at(inode, b"") })? {
            NameReply::XattrNames { names } => {
                Ok(names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect())
            }
            _ => Err(Errno::IO),
        }
    }

    /// `setxattr`
    pub fn set_xattr(&self, inode: InodeId, name: &[u8], value: &[u8], how: XattrHow) -> PosixResult<()> {
        refuse_foreign(name)?;
        let (name, value) = (name.to_vec(), value.to_vec());
        self.call(NameRequest::SetXattr { at: at(inode, b""), name, value, how }).map(drop)
    }

    /// `removexattr`
    pub fn remove_xattr(&self, inode: InodeId, name: &[u8]) -> PosixResult<()> {
        refuse_foreign(name)?;
        self.call(NameRequest::RemoveXattr { at: at(inode, b""), name: name.to_vec() }).map(drop)
    }

    fn own_xattr(&self, inode: InodeId, name: &[u8]) -> PosixResult<Vec<u8>> {
        match name {
            b"partition" => Ok(self.name().as_bytes().to_vec()),
            b"inode" => Ok(inode.to_string().into_bytes()),
            b"process" => Ok(std::process::id().to_string().into_bytes()),
            b"layout" => {
                let attr = self.call_attr(NameRequest::Find { at: at(inode, b""), follow: false })?;
                if attr.kind != FileKind::File {
                    return Err(Errno::NODATA);
                }
                let layout = attr.layout;
                let (stripe, count) = (layout.stripe_bytes(), layout.count());
                let first = layout.servers().next().map_or(0, |server| server.0);
                Ok(format!("stripe={stripe} count={count} first={first}").into_bytes())
            }
            _ => Err(Errno::NODATA),
        }
    }
}

fn refuse_foreign(name: &[u8]) -> PosixResult<()> {
    if name.starts_with(SYSTEM) {
        return Err(Errno::OPNOTSUPP);
    }
    if name.starts_with(OWN) { Err(Errno::PERM) } else { Ok(()) }
}
