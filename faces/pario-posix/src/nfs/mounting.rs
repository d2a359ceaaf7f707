//! The MOUNT protocol, version 3, on the port of NFS: the handle of the export's root, or of a directory below it.
//!
//! Never: keeps a list of clients: DUMP is empty. Always: an empty path is the root, as `libnfs` asks for it.

use pario::core::{FileKind, InodeId};
use rustix::io::Errno;

use super::exported::Exported;
use super::names;
use super::permission::{self, EXECUTE};
use super::rpc::{CallRefusal, Credential};
use super::status::{NFS_OK, NfsStatus};
use super::xdr::{Decoded, MalformedXdr, XdrReader, XdrWriter};

/// Limit of RFC 1813.
const PATH_BYTES_READ: usize = 1024;
const AUTH_SYS: u32 = 1;

/// Carries out a procedure of MOUNT.
pub(super) fn serve(
    export: &Exported,
    procedure: u32,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Result<(), CallRefusal> {
    let done = match procedure {
        // NULL, and UMNTALL, which has nothing to forget.
        0 | 4 => Ok(()),
        1 => mount(export, user, args, out),
        2 => {
            out.bool(false);
            Ok(())
        }
        3 => args.opaque(PATH_BYTES_READ).map(drop),
        5 => {
            list_exports(export, out);
            Ok(())
        }
        _ => return Err(CallRefusal::UnknownProcedure),
    };
    done.map_err(|MalformedXdr| CallRefusal::Garbage)
}

fn mount(export: &Exported, user: &Credential, args: &mut XdrReader<'_>, out: &mut XdrWriter) -> Decoded<()> {
    let path = args.opaque(PATH_BYTES_READ)?;
    match find(export, user, path) {
        Ok(inode) => {
            out.u32(NFS_OK);
            export.write_handle(out, inode);
            out.u32(1);
            out.u32(AUTH_SYS);
        }
        Err(status) => {
            tracing::info!(path = %String::from_utf8_lossy(path), ?status, "a mount is refused");
            out.u32(status.code());
        }
    }
    Ok(())
}

/// The directory of a path: the name of the partition, then names below its root.
fn find(export: &Exported, user: &Credential, path: &[u8]) -> Result<InodeId, NfsStatus> {
    let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    if names.next().is_some_and(|first| first != export.system.name().as_bytes()) {
        return Err(NfsStatus::NoEntry);
    }
    let mut dir = export.directory(InodeId::ROOT).map_err(|_| NfsStatus::Io)?;
    for name in names {
        permission::require(&dir, user, EXECUTE)?;
        if name == b".." {
            return Err(NfsStatus::from(Errno::INVAL));
        }
        dir = names::find(export, dir.inode, name)?;
        if dir.kind != FileKind::Directory {
            return Err(NfsStatus::NotDirectory);
        }
    }
    Ok(dir.inode)
}

fn list_exports(export: &Exported, out: &mut XdrWriter) {
    out.bool(true);
    out.opaque(format!("/{}", export.system.name()).as_bytes());
    for network in &export.options.allow {
        out.bool(true);
        out.opaque(network.to_string().as_bytes());
    }
    out.bool(false);
    out.bool(false);
}
