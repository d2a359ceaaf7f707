//! Location of a partition's names and their second copy, for its manager and for export and import.
//!
//! Always: the second copy is on server 1, or beside the names if there is one server; a partition in memory has none.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pario_core::{Clock, Code, Fault, Layout, ServerIndex};
use pario_net::connection::ReceivedReply;
use pario_net::deadlines::Deadlines;
use pario_net::message::{Reply, Request};
use pario_server::names::copy::{CopyLocation, CopySpec, Finish, LocalCopies};
use pario_server::names::record::boot;
use pario_server::names::{LedgerSpec, NamesExpected, offline};
use pario_server::stores::{disk_in, real_disk};
use pario_server::{Connect, Keeping, NamesSpec, Server};
use pario_sys::clock::MonotonicClock;

use crate::error::{Error, Result};
use crate::orders;
use crate::partition::identity::{COPY_DIRECTORY, DirectoryRole, Identity, StartMode};
use crate::partition::{
    HeldDirectory, PartitionState, RegistryEntry, ServeSpec, ServerEntry, Settings, StoreKind,
};

/// The server that keeps the second copy, where there is more than one.
const COPY_SERVER: ServerIndex = ServerIndex(1);
/// Time limit for the second copy to catch up.
const COPY_LIMIT: Duration = Duration::from_secs(5);

/// Opens the names of the manager, and restores them from the second copy if needed; no effect on other servers. Returns notes
/// for the user.
pub(crate) fn open(
    server: &Server,
    spec: &ServeSpec,
    holds: &[HeldDirectory],
    connect: Arc<dyn Connect>,
) -> std::result::Result<Vec<String>, Fault> {
    let Some(names) = &spec.names else { return Ok(Vec::new()) };
    let settings = &spec.settings;
    // Names are in the store's own directory, or in a separate one that is also held.
    let disk = disk_in(&holds[holds.len() - 1].opened);
    let place = copy_directory(settings).map(|dir| match dir {
        CopyDirectory::Here(dir) => {
            Arc::new(LocalCopies::new(Arc::clone(&disk), &dir)) as Arc<dyn CopyLocation>
        }
        CopyDirectory::On(other) => {
            Arc::new(server.copies_of(other, connect).protected(settings.network.protect.into()))
        }
    });
    let birth = match spec.mode {
        _ if settings.store == StoreKind::Memory => NamesExpected::New,
        _ if spec.accept_loss => NamesExpected::LossAccepted,
        StartMode::Existing => NamesExpected::Existing,
        StartMode::Fresh => NamesExpected::New,
    };
    let how = LedgerSpec {
        birth,
        copy: place.map(|place| CopySpec { location: place, partition: spec.id }),
        boot: boot(),
        name: settings.name.clone(),
        ..LedgerSpec::default()
    };
    let spec = NamesSpec { dir: names.dir.clone(), disk, defaults: defaults(settings)? };
    let recovery = server.open_names(&spec, how)?;
    Ok(recovery.notes)
}

/// Configuration of the second copy on a server.
pub(crate) fn keeping(spec: &ServeSpec, holds: &[HeldDirectory]) -> Keeping {
    let (copies, held) = match copy_directory(&spec.settings) {
        Some(CopyDirectory::Here(dir)) => (dir, &holds[holds.len() - 1]),
        Some(CopyDirectory::On(_)) | None => (spec.dir.join(COPY_DIRECTORY), &holds[0]),
    };
    Keeping { copies: LocalCopies::new(disk_in(&held.opened), &copies), dir: Arc::clone(&holds[0].opened) }
}

enum CopyDirectory {
    /// Beside the names.
    Here(PathBuf),
    /// On another server.
    On(ServerIndex),
}

fn copy_directory(settings: &Settings) -> Option<CopyDirectory> {
    match settings.servers.len() {
        _ if settings.store == StoreKind::Memory => None,
        1 => Some(CopyDirectory::Here(settings.names_dir().with_file_name(COPY_DIRECTORY))),
        _ => Some(CopyDirectory::On(COPY_SERVER)),
    }
}

fn defaults(settings: &Settings) -> std::result::Result<Layout, Fault> {
    let total = u16::try_from(settings.servers.len()).unwrap_or(u16::MAX);
    Layout::new(settings.stripe.0, total, 0, total)
        .map_err(|error| Fault::new(Code::Invalid, error.to_string()))
}

/// Result of an export or import.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamesFile {
    /// Rows, of all kinds.
    pub rows: u64,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Writes all names of a running or stopped partition into a self-contained file.
///
/// # Errors
/// If the manager's directory is on another machine while the partition is down, or the names cannot be read.
pub fn export(entry: &RegistryEntry, target: &Path) -> Result<NamesFile> {
    let (bytes, notes) =
        if entry.state == PartitionState::Down { stopped_names(entry)? } else { running_names(entry)? };
    let (contents, _) = offline::check(&bytes)?;
    let failed = |error: std::io::Error| Error::Setup(format!("{}: {error}", target.display()));
    let whole = std::path::absolute(target).map_err(failed)?;
    let (parent, name) = (whole.parent().unwrap_or(Path::new("/")), whole.file_name().unwrap_or_default());
    let dir = pario_sys::dir::Dir::open(parent).map_err(failed)?;
    crate::partition::disk::write_atomically(&dir, name, &bytes).map_err(|error| failed(error.into_io()))?;
    Ok(NamesFile { rows: contents.rows, notes })
}

/// Replaces the names of a stopped partition by those of a file.
///
/// # Errors
/// If it is not down, the manager's directory is on another machine, or the file is damaged or of another partition.
pub fn import(entry: &RegistryEntry, source: &Path) -> Result<NamesFile> {
    let name = &entry.name;
    if entry.state != PartitionState::Down {
        return Err(Error::Setup(format!("partition '{name}' is not down: `pario down {name}` first")));
    }
    let failed = |error: std::io::Error| Error::Setup(format!("{}: {error}", source.display()));
    let bytes = std::fs::read(source).map_err(failed)?;
    let (_, partition) = offline::check(&bytes)
        .map_err(|fault| Error::Setup(format!("{}: {}: use another export", source.display(), fault.text)))?;
    if partition != entry.id {
        let text = format!(
            "{}: these are the names of partition {partition}, not of '{name}' ({})",
            source.display(),
            entry.id
        );
        return Err(Error::Setup(text));
    }
    let (settings, _holds) = (&entry.settings, hold(entry)?);
    let copy = local_copy(settings);
    let contents = offline::import(
        &real_disk(),
        &settings.names_dir(),
        &bytes,
        copy.as_ref().map(|copy| copy as &dyn CopyLocation),
    )?;
    let mut notes = Vec::new();
    if copy.is_none() && copy_directory(settings).is_some() {
        notes.push(format!("the second copy on server {COPY_SERVER} is replaced at the next start"));
    }
    Ok(NamesFile { rows: contents.rows, notes })
}

/// Holds the manager's directories, so that no server starts meanwhile.
fn hold(entry: &RegistryEntry) -> Result<Vec<crate::partition::HeldDirectory>> {
    let settings = &entry.settings;
    if !settings.servers[0].is_local() {
        let host = settings.servers[0].host.clone().unwrap_or_default();
        return Err(Error::Setup(format!(
            "the names of '{}' are on {host}: run this command there",
            entry.name
        )));
    }
    let mut dirs = vec![(settings.servers[0].dir.clone(), DirectoryRole::Store)];
    dirs.extend(settings.names_base().map(|base| (base.to_owned(), DirectoryRole::Names)));
    dirs.into_iter()
        .map(|(dir, role)| {
            let wanted = Identity::wanted(settings, entry.id, ServerIndex::MANAGER, role);
            wanted.hold(&dir, StartMode::Existing).map_err(Error::setup)
        })
        .collect()
}

/// The second copy, if it is on this machine.
fn local_copy(settings: &Settings) -> Option<LocalCopies> {
    let dir = match copy_directory(settings)? {
        CopyDirectory::Here(dir) => dir,
        CopyDirectory::On(server) => {
            let address = settings.servers.get(server.at()).filter(|address| address.is_local())?;
            address.dir.join(COPY_DIRECTORY)
        }
    };
    Some(LocalCopies::new(real_disk(), &dir))
}

fn stopped_names(entry: &RegistryEntry) -> Result<(Vec<u8>, Vec<String>)> {
    let (settings, _holds) = (&entry.settings, hold(entry)?);
    let copy = local_copy(settings).map(|place| CopySpec { location: Arc::new(place), partition: entry.id });
    let spec = LedgerSpec {
        birth: NamesExpected::Existing,
        copy,
        boot: boot(),
        name: entry.name.clone(),
        ..LedgerSpec::default()
    };
    let (bytes, recovery) = offline::export(real_disk(), &settings.names_dir(), spec, entry.id)?;
    Ok((bytes, recovery.notes))
}

/// A running partition already has a names file: its second copy, once that has all changes.
fn running_names(entry: &RegistryEntry) -> Result<(Vec<u8>, Vec<String>)> {
    let server = match copy_directory(&entry.settings) {
        Some(CopyDirectory::Here(_)) => ServerIndex::MANAGER,
        Some(CopyDirectory::On(server)) => server,
        None => {
            let text = format!("partition '{}' is in memory and has no second copy of its names", entry.name);
            return Err(Error::Setup(text));
        }
    };
    wait_copied(entry, server)?;
    let place = ServedNames { entry, server: &entry.servers[server.at()] };
    let newest = place.files()?.last().map(|(number, _)| *number);
    let none = || Error::Setup(format!("server {server} has no second copy of names yet: try again"));
    let bytes = pario_server::names::copy::read_whole(&place, newest.ok_or_else(none)?)?;
    Ok((bytes, Vec::new()))
}

/// Waits until the copy has all earlier changes.
fn wait_copied(entry: &RegistryEntry, server: ServerIndex) -> Result<()> {
    let began = MonotonicClock.now();
    loop {
        let status =
            orders::status(entry, &entry.servers[ServerIndex::MANAGER.at()]).map_err(Error::setup)?;
        let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
        let ledger = status.pointer("/manager/names/ledger");
        if ledger.is_some_and(|ledger| ledger["copies"] == true && ledger["uncopied"] == 0) {
            return Ok(());
        }
        if COPY_LIMIT < MonotonicClock.now().since(began) {
            let text = format!(
                "the second copy of names on server {server} is behind: try again, or export after `pario down`"
            );
            return Err(Fault::new(Code::Unreachable, text).into());
        }
        let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        // An empty `poll` sleeps.
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
}

/// The names files on a server of a running partition.
#[derive(Debug)]
struct ServedNames<'a> {
    entry: &'a RegistryEntry,
    server: &'a ServerEntry,
}

impl ServedNames<'_> {
    fn request(&self, request: &Request) -> std::result::Result<ReceivedReply, Fault> {
        orders::order(self.entry, self.server, request, Deadlines::ORDER)
    }
}

impl CopyLocation for ServedNames<'_> {
    fn describe(&self) -> String {
        format!("server {}", self.server.index)
    }

    fn files(&self) -> std::result::Result<Vec<(u64, u64)>, Fault> {
        let answer = self.request(&Request::CopyFiles {})?;
        let Reply::CopyFiles { files } = answer.reply else {
            return Err(orders::unexpected_reply(self.server.index, &answer.reply));
        };
        Ok(files)
    }

    fn write(&self, _: u64, _: u64, _: &[u8], _: Finish) -> std::result::Result<(), Fault> {
        Err(Fault::new(Code::Denied, "only the manager writes the second copy of names"))
    }

    fn read(&self, number: u64, at: u64, bytes: u32) -> std::result::Result<Vec<u8>, Fault> {
        Ok(self.request(&Request::CopyRead { number, at, bytes })?.data)
    }
}
