//! Files of a server beside its objects: names files of the second copy, and objects without a file (`lost+found`).
//!
//! Never: on the service thread; removes an object that it could not keep under another name; follows a symbolic link in the storage
//! directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_core::{Code, Fault, ObjectId, ServerIndex};
use pario_net::message::{Reply, Request};
use pario_store::Store;
use pario_sys::dir::{Dir, PRIVATE_DIRECTORY, is_link_error};

use super::Service;
use super::link::LinkId;
use crate::drain::store_fault;
use crate::names::copy::{CopyLocation, Finish, LocalCopies};

/// Most bytes of a names file in one reply.
const READ_BYTES_MAX: u32 = 1 << 20;

/// Directory with objects that no file claims.
const LOST: &str = "lost+found";

/// A server's own directory.
#[derive(Clone, Debug)]
pub struct Keeping {
    /// Directory of names files, the partition's second copy.
    pub copies: LocalCopies,
    /// The storage directory, in which `objects` is, and `lost+found` when it is needed.
    pub dir: Arc<Dir>,
}

/// Whether a request is served here.
pub(super) fn is_about_kept(request: &Request) -> bool {
    matches!(
        request,
        Request::CopyFiles {}
            | Request::CopyWrite { .. }
            | Request::CopyRead { .. }
            | Request::SetAside { .. }
            | Request::CutLeftover { .. }
    )
}

impl Service {
    /// Serves a request about files beside the objects.
    pub(super) fn keep(
        &mut self,
        id: LinkId,
        number: u64,
        request: Request,
        data: Vec<u8>,
    ) -> Result<(), Fault> {
        let index = self.spec.index;
        let nowhere =
            || Fault::new(Code::Unsupported, format!("server {index} has no directory for names files"));
        let keeping = self.keeping.clone().ok_or_else(nowhere)?;
        if matches!(request, Request::CopyWrite { .. }) && !self.is_peer(id) {
            return Err(Fault::new(Code::Denied, "only the manager writes the second copy of names"));
        }
        if let Request::SetAside { object } | Request::CutLeftover { object, .. } = request {
            self.fences.check(object)?;
        }
        let store = Arc::clone(&self.spec.store);
        let work = move || carry_out(&keeping, (index, &*store), &request, &data);
        self.pool.run(work, self.answer_with(id, number));
        Ok(())
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is sent here")]
fn carry_out(
    keeping: &Keeping,
    (index, store): (ServerIndex, &dyn Store),
    request: &Request,
    data: &[u8],
) -> Result<(Reply, Vec<u8>), Fault> {
    let done = |reply| Ok((reply, Vec::new()));
    match *request {
        Request::CopyFiles {} => done(Reply::CopyFiles { files: keeping.copies.files()? }),
        Request::CopyRead { number, at, bytes } => {
            Ok((Reply::Data {}, keeping.copies.read(number, at, bytes.min(READ_BYTES_MAX))?))
        }
        Request::CopyWrite { number, at, finish } => {
            let odd = || Fault::new(Code::Protocol, format!("a write of names that ends as {finish}"));
            keeping.copies.write(number, at, data, Finish::from_code(finish).ok_or_else(odd)?)?;
            done(Reply::Done {})
        }
        Request::SetAside { object } => {
            let path = set_aside(keeping, store, object).map_err(|fault| of_server(index, fault))?;
            store.remove(object).map_err(|error| store_fault(index, &error))?;
            done(Reply::SetAside { path: path.display().to_string() })
        }
        Request::CutLeftover { object, bytes } => {
            let ObjectId { inode, generation } = object;
            store
                .truncate(inode, generation, generation, bytes)
                .map_err(|error| store_fault(index, &error))?;
            done(Reply::Done {})
        }
        _ => Err(Fault::new(Code::Protocol, "a request that is not about what is kept")),
    }
}

/// Links the object's file into `lost+found`. Location of objects: `docs/formats/store.md`.
fn set_aside(keeping: &Keeping, store: &dyn Store, object: ObjectId) -> Result<PathBuf, Fault> {
    let store_error = |error: pario_store::StoreError| Fault::new(Code::Io, error.to_string());
    store.flush(object).and_then(|()| store.sync(object)).map_err(store_error)?;
    let low = object.inode.0.to_le_bytes()[0];
    let file = Path::new("objects").join(format!("{low:02x}")).join(object.to_string());
    keep_name(&keeping.dir, &file, &object.to_string()).map_err(|error| {
        let (file, lost) = (keeping.dir.path().join(&file), keeping.dir.path().join(LOST));
        let text = format!("moving {} to {}", file.display(), lost.display());
        match is_link_error(&error) {
            true => Fault::new(
                Code::Io,
                format!("{text}: a symbolic link is there, which is not followed: remove it"),
            ),
            false => Fault::from_io(&error, text),
        }
    })
}

/// Names a file of the storage directory in `lost+found`, too, which is made if need be; returns the path there.
fn keep_name(dir: &Dir, file: &Path, name: &str) -> io::Result<PathBuf> {
    match dir.make_dir(Path::new(LOST), PRIVATE_DIRECTORY) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let lost = dir.open_dir(Path::new(LOST))?;
    let mut target = Path::new(LOST).join(name);
    let mut number = 1;
    // An object of this number may have been lost before.
    while let Err(error) = dir.add_name(file, &target) {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        number += 1;
        target = Path::new(LOST).join(format!("{name}.{number}"));
    }
    lost.sync()?;
    Ok(dir.path().join(target))
}

fn of_server(index: ServerIndex, fault: Fault) -> Fault {
    Fault { text: format!("server {index}: {}", fault.text), ..fault }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_planted_link_is_not_followed_and_names_are_not_replaced() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(root.path().join("objects/ab")).unwrap();
        std::fs::write(root.path().join("objects/ab/x"), "bytes").unwrap();
        let (dir, file) = (Dir::open(root.path()).unwrap(), Path::new("objects/ab/x"));
        symlink(outside.path(), root.path().join(LOST)).unwrap();
        assert!(is_link_error(&keep_name(&dir, file, "x").unwrap_err()));
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
        dir.remove_file(Path::new(LOST)).unwrap();
        assert_eq!(keep_name(&dir, file, "x").unwrap(), root.path().join("lost+found/x"));
        assert_eq!(keep_name(&dir, file, "x").unwrap(), root.path().join("lost+found/x.2"));
        assert_eq!(std::fs::read(root.path().join("lost+found/x.2")).unwrap(), b"bytes");
    }
}
