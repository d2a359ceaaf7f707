//! A file as the servers of the application's own tier keep it: they give no leases, so every access says so to them.
//!
//! Never: keeps what was read, or asks for it ahead: another rank may have written it since. Always: when a write returns, the tier has
//! the permission under which it counts for everybody, or the partition's servers have the bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pario_core::{Fault, Layout, LocalOffset, ObjectId, ServerIndex};
use pario_net::message::{Reply, Request};
use pario_net::outbox::Gathering;
use pario_view::View;

use super::locks::Guarded;
use super::memory::Source;
use super::mount::{Mount, odd};
use super::open_file::OpenFile;
use super::stream_write::Place;
use super::views::NumberedView;
use crate::group::Group;

/// See the module.
pub(crate) struct TierFile {
    file: Arc<OpenFile>,
    heard: AtomicU64,
}

impl std::fmt::Debug for TierFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TierFile").field(&self.file.describe()).finish()
    }
}

impl TierFile {
    /// A file that the tier's servers know as `object`; its layout is the tier's.
    pub(crate) fn open(mount: &Arc<Mount>, object: ObjectId, layout: Layout, path: &str) -> TierFile {
        let file = OpenFile::enter_homeless(mount, object, layout, path.to_owned());
        let heard = AtomicU64::new(file.faults_so_far());
        TierFile { file, heard }
    }

    /// Says with which server this process begins.
    pub(crate) fn set_turn(&self, turn: usize) {
        self.file.set_turn(turn);
    }

    /// Gives a view its number in the tier's mount.
    pub(crate) fn number_view(&self, view: View) -> Result<Arc<NumberedView>, Fault> {
        self.file.mount.number_view(view)
    }

    /// Writes to a range of a stream.
    pub(crate) fn write_stream(&self, place: &Place, source: &Source<'_>) -> Result<(), Fault> {
        self.file.write_stream(place, source, (&self.heard, Guarded::No))
    }

    /// Reads a range of a stream; returns how many bytes there were before the file's end.
    pub(crate) fn read_stream(&self, place: &Place, target: &mut [u8]) -> Result<usize, Fault> {
        self.file.read_stream(place, target, Guarded::No)
    }

    /// The tier's servers have all that this process wrote; errors are told.
    pub(crate) fn drain(&self, gathering: Option<&Gathering>) -> Result<(), Fault> {
        let drained = self.file.drain_in(gathering);
        self.file.collect_errors();
        drained?;
        self.file.tell_fault(&self.heard)
    }

    /// Tells the tier's servers, until what it returns is dropped, that this process is in a call that all members of its group make.
    pub(crate) fn gather(&self, group: &dyn Group) -> Option<Gathering> {
        self.file.gather(group)
    }

    /// The file's length.
    pub(crate) fn len(&self) -> Result<u64, Fault> {
        self.file.measure()
    }

    /// The file was given a length.
    pub(crate) fn set_len(&self, bytes: u64) {
        self.file.size.store(bytes, Ordering::Release);
    }

    /// Servers that are gone.
    pub(crate) fn gone(&self) -> Vec<ServerIndex> {
        self.file.mount.look_after_links();
        let is_gone = |server: &ServerIndex| self.file.mount.live_connection(*server).is_none();
        self.file.mount.server_indices().filter(is_gone).collect()
    }
}

impl OpenFile {
    /// Asked behind the commit of records: whether one of these servers has no permission to have the file written behind.
    pub(super) fn must_settle(&self, servers: impl Iterator<Item = ServerIndex>) -> bool {
        if self.homeless.is_none() {
            return false;
        }
        let Some(outbox) = self.mount.outbox_if_made() else { return false };
        let may = |server| outbox.cursor(server).is_some_and(|cursor| cursor.might_write_behind(self.inode));
        servers.take(usize::from(self.layout.count())).any(|server| !may(server))
    }

    /// Has servers take what was committed and get what they need for it to count.
    pub(super) fn settle(&self, servers: &[ServerIndex], heard: &AtomicU64) -> Result<(), Fault> {
        let at = |fault: Fault| fault.at(self.describe());
        let generation = self.homeless.unwrap_or_default();
        let request = Request::Write { object: self.object(generation), at: LocalOffset(0) };
        let started: Vec<_> = servers.iter().map(|server| self.mount.start(*server, &request, &[])).collect();
        let mut result = Ok(());
        for started in started {
            let answer = started.and_then(|started| self.mount.finish(started, None));
            result = result.and(answer.map(|_| ()));
        }
        self.collect_errors();
        result.map_err(at)?;
        self.tell_fault(heard)
    }

    /// The length that all servers together know of.
    pub(super) fn measure(&self) -> Result<u64, Fault> {
        let at = |fault: Fault| fault.at(self.describe());
        let object = self.object(self.homeless.unwrap_or_default());
        let servers: Vec<ServerIndex> = self.layout.servers().collect();
        let ask = |server: &ServerIndex| self.mount.start(*server, &Request::Measure { object }, &[]);
        let started: Vec<_> = servers.iter().map(ask).collect();
        let (mut result, mut size) = (Ok(()), 0);
        for (server, started) in servers.into_iter().zip(started) {
            let answer = started.and_then(|started| self.mount.finish(started, None));
            match answer.map(|answer| answer.reply) {
                Ok(Reply::Length { bytes, .. }) => size = size.max(self.layout.file_length(server, bytes)),
                Ok(Reply::NoObject {}) => {}
                Ok(other) => result = result.and(Err(odd(&other))),
                Err(fault) => result = result.and(Err(fault)),
            }
        }
        result.map_err(at)?;
        self.size.store(size, Ordering::Release);
        Ok(size)
    }
}
