//! A name space in a temporary directory, and a small command language for it.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use pario_core::{Code, DirEntry, Fault, FileAttr, FileKind, InodeId, Layout, SessionId, Striping};
use pario_net::message::{At, Creator, NameReply, NameRequest, OpenHow, XattrHow};
use pario_store::RealDisk;
use pario_store::disk::Disk;

use crate::names::{LedgerPace, NameAnswer, Names, RequestOrigin};

/// Upper bound of every wait.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
/// Owner of all files of a test.
pub(super) const CREATOR: Creator = Creator { mode: 0o644, uid: 10, gid: 20 };
/// Limits at which all changes stay in the log until a sync is requested.
pub(super) const LAZY: LedgerPace = LedgerPace {
    sync_after: Duration::from_secs(3600),
    apply_after: Duration::from_secs(3600),
    apply_bytes: 64 << 20,
    memtable_bytes_max: 128 << 20,
    log_bytes_max: 256 << 20,
    reserve_bytes: 0,
};

/// See the module.
pub(super) struct NamesFixture {
    pub(super) dir: tempfile::TempDir,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) pace: LedgerPace,
    pub(super) session: SessionId,
    pub(super) request: u64,
    pub(super) wall_ns: u64,
    names: Option<Names>,
}

pub(super) fn defaults() -> Layout {
    Layout::new(65536, 2, 0, 4).unwrap()
}

impl NamesFixture {
    pub(super) fn new() -> NamesFixture {
        NamesFixture::with(LAZY, RealDisk::shared())
    }

    pub(super) fn with(pace: LedgerPace, disk: Arc<dyn Disk>) -> NamesFixture {
        NamesFixture::on(tempfile::tempdir().unwrap(), pace, disk)
    }

    /// The names of an existing directory.
    pub(super) fn on(dir: tempfile::TempDir, pace: LedgerPace, disk: Arc<dyn Disk>) -> NamesFixture {
        let mut world =
            NamesFixture { dir, disk, pace, session: SessionId(7), request: 0, wall_ns: 1000, names: None };
        world.reopen();
        world
    }

    /// The effect of a kill of the process and a restart.
    pub(super) fn reopen(&mut self) {
        self.try_reopen().unwrap();
    }

    pub(super) fn try_reopen(&mut self) -> Result<(), Fault> {
        self.names = None;
        let dir = self.dir.path().join("names");
        self.names = Some(Names::open_with(Arc::clone(&self.disk), &dir, defaults(), self.pace)?);
        Ok(())
    }

    pub(super) fn close(&mut self) {
        self.names = None;
    }

    pub(super) fn shut_down(&mut self) {
        self.names.take().unwrap().shut_down().unwrap();
    }

    pub(super) fn names(&mut self) -> &mut Names {
        self.names.as_mut().unwrap()
    }

    pub(super) fn ask(&mut self, request: &NameRequest) -> Result<NameAnswer, Fault> {
        self.request += 1;
        self.repeat(request)
    }

    /// Sends the last request again.
    pub(super) fn repeat(&mut self, request: &NameRequest) -> Result<NameAnswer, Fault> {
        self.wall_ns += 1;
        let origin = RequestOrigin { session: self.session, request: self.request };
        let wall_ns = self.wall_ns;
        self.names().request(origin, request, wall_ns)
    }

    /// Carries out a line of [`parse`].
    pub(super) fn run(&mut self, line: &str) -> Result<NameAnswer, Fault> {
        self.ask(&parse(line))
    }

    pub(super) fn attr(&mut self, line: &str) -> FileAttr {
        attr_of(&self.run(line).unwrap())
    }

    pub(super) fn list(&mut self, path: &str) -> Vec<DirEntry> {
        self.list_in_pages(path, 1000)
    }

    pub(super) fn list_in_pages(&mut self, path: &str, limit: u32) -> Vec<DirEntry> {
        let mut all: Vec<DirEntry> = Vec::new();
        loop {
            let after = all.last().map(|entry| entry.name.clone());
            let answer = self.ask(&NameRequest::List { at: At::root(path), after, limit }).unwrap();
            let NameReply::Entries { entries, more } = answer.reply else { panic!("{answer:?}") };
            assert!(entries.len() <= limit as usize);
            all.extend(entries);
            if !more {
                return all;
            }
        }
    }

    pub(super) fn sync(&mut self) -> Result<(), Fault> {
        let (sender, receiver) = mpsc::channel();
        self.names().sync(Box::new(move |result| sender.send(result).unwrap()));
        receiver.recv_timeout(LIMIT).expect("a sync is answered")
    }
}

pub(super) fn attr_of(answer: &NameAnswer) -> FileAttr {
    let NameReply::Attr { attr } = answer.reply else { panic!("no attributes: {answer:?}") };
    attr
}

pub(super) fn inode_of(answer: &NameAnswer) -> InodeId {
    attr_of(answer).inode
}

/// A request from a line: a verb and one or two paths.
pub(super) fn parse(line: &str) -> NameRequest {
    let mut words = line.split(' ');
    let verb = words.next().unwrap();
    let mut at = || At::root(words.next().unwrap_or_default());
    let create = OpenHow { create: true, write: true, ..OpenHow::default() };
    let mut open_with =
        |how| NameRequest::Open { at: at(), how, creator: CREATOR, striping: Striping::default() };
    match verb {
        "create" => open_with(create),
        "exclusive" => open_with(OpenHow { exclusive: true, ..create }),
        "truncate" => open_with(OpenHow { truncate: true, write: true, ..OpenHow::default() }),
        "open" => open_with(OpenHow::default()),
        "write" => open_with(OpenHow { write: true, ..OpenHow::default() }),
        "mkdir" => NameRequest::MakeDir { at: at(), creator: Creator { mode: 0o755, ..CREATOR } },
        "symlink" => NameRequest::Symlink { target: at().path, at: at(), creator: CREATOR },
        "readlink" => NameRequest::ReadLink { at: at() },
        "stat" => NameRequest::Stat { at: at(), follow: true },
        "lstat" => NameRequest::Stat { at: at(), follow: false },
        "list" => NameRequest::List { at: at(), after: None, limit: 1000 },
        "remove" => NameRequest::Remove { at: at() },
        "rmdir" => NameRequest::RemoveDir { at: at() },
        "rename" => NameRequest::Rename { from: at(), to: at(), replace: true },
        "link" => NameRequest::Link { from: at(), to: at() },
        "exchange" => NameRequest::Exchange { one: at(), two: at() },
        "fifo" => NameRequest::MakeNode { at: at(), kind: FileKind::Fifo, device: 9, creator: CREATOR },
        "device" => {
            NameRequest::MakeNode { at: at(), kind: FileKind::CharDevice, device: 9, creator: CREATOR }
        }
        "get" => NameRequest::GetXattr { at: at(), name: at().path },
        "set" => NameRequest::SetXattr { at: at(), name: at().path, value: at().path, how: XattrHow::Any {} },
        "unset" => NameRequest::RemoveXattr { at: at(), name: at().path },
        "find" => NameRequest::Find { at: at(), follow: false },
        "move" => NameRequest::Rename { from: at(), to: at(), replace: false },
        other => panic!("no such verb: {other}"),
    }
}

/// Runs lines; a line that starts with `!Code` must fail with it and name the path at fault.
#[track_caller]
pub(super) fn check(lines: &[&str]) -> NamesFixture {
    let mut world = NamesFixture::new();
    for line in lines {
        let Some((code, line)) = line.strip_prefix('!').and_then(|line| line.split_once(' ')) else {
            if let Err(fault) = world.run(line) {
                panic!("{line}: {:?}: {fault}", fault.code);
            }
            continue;
        };
        let fault = world.run(line).expect_err(line);
        assert_eq!(format!("{:?}", fault.code), code, "{line}: {fault}");
        let names_a_path = line.split(' ').skip(1).any(|path| fault.text.contains(path));
        assert!(names_a_path && !fault.text.contains('\n'), "{line}: {fault}");
    }
    world
}

/// Waits until a condition holds.
#[track_caller]
pub(super) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = crossbeam_channel::after(LIMIT);
    let pace = crossbeam_channel::tick(Duration::from_millis(2));
    while !holds() {
        crossbeam_channel::select! {
            recv(pace) -> _ => {}
            recv(limit) -> _ => panic!("did not happen: {what}"),
        }
    }
}

/// The code of a failed request.
#[track_caller]
pub(super) fn code_of(result: Result<NameAnswer, Fault>) -> Code {
    result.expect_err("should have failed").code
}
