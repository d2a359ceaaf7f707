//! A file as the application's own node-cache servers keep it: they grant no leases, so every access is confirmed with them.
//!
//! Never: caches or prefetches read data: another rank may have written it since. Always: when a write returns, the node cache has the
//! lease under which the write is visible to all clients, or the partition's servers have the bytes.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use pario_core::{Fault, Layout, LocalOffset, ObjectId, ServerIndex};
use pario_net::message::{Reply, Request};
use pario_net::outbox::CollectiveWait;
use pario_view::View;

use crate::client::file::backing::Unleased;
use crate::client::file::locks::Guarded;
use crate::client::file::read::range::FileReader;
use crate::client::file::state::OpenFile;
use crate::client::file::write::memory::WriteSource;
use crate::client::file::write::range::FileWriter;
use crate::client::file::write::stream::StreamRange;
use crate::client::session::state::{Session, unexpected_reply};
use crate::client::session::views::NumberedView;
use crate::group::Group;

/// See the module.
pub(crate) struct NodeCacheFile {
    file: Arc<OpenFile>,
    reported: AtomicU64,
}

impl std::fmt::Debug for NodeCacheFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TierFile").field(&self.file.context.describe()).finish()
    }
}

impl NodeCacheFile {
    /// A file that the node-cache servers know as `object`; its layout is the node cache's.
    pub(crate) fn open(mount: &Arc<Session>, object: ObjectId, layout: Layout, path: &str) -> NodeCacheFile {
        // The node cache moves bytes to the partition by itself: it lends no descriptors.
        let unleased = Unleased { generation: object.generation, may_be_lent: false };
        let file = OpenFile::open_unleased(mount, object.inode, layout, path.to_owned(), unleased);
        let heard = AtomicU64::new(file.data.faults.so_far());
        NodeCacheFile { file, reported: heard }
    }

    /// Sets the server that this process starts with.
    pub(crate) fn set_first_server(&self, turn: usize) {
        self.file.context.set_first_server(turn);
    }

    /// Gives a view its number in the node cache's session.
    pub(crate) fn number_view(&self, view: View) -> Result<Arc<NumberedView>, Fault> {
        self.file.context.session.number_view(view)
    }

    /// Writes to a range of a stream.
    pub(crate) fn write_stream(&self, place: &StreamRange, source: &WriteSource<'_>) -> Result<(), Fault> {
        FileWriter { file: &self.file, reported: &self.reported, guarded: Guarded::No }
            .write_stream(place, source)
    }

    /// Reads a range of a stream; returns the number of bytes before the file's end.
    pub(crate) fn read_stream(&self, place: &StreamRange, target: &mut [u8]) -> Result<usize, Fault> {
        FileReader { file: &self.file, guarded: Guarded::No }.read_stream(place, target)
    }

    /// Waits until the node-cache servers have all writes of this process; returns their errors.
    pub(crate) fn drain(&self, gathering: Option<&CollectiveWait>) -> Result<(), Fault> {
        let drained = self.file.data.unflushed.drain_in(gathering);
        self.file.data.unflushed.collect_errors();
        drained?;
        self.file.data.faults.report_once(&self.reported)
    }

    /// Signals to the node-cache servers, until the returned value is dropped, that this process is in a collective call.
    pub(crate) fn begin_collective_wait(&self, group: &dyn Group) -> Option<CollectiveWait> {
        self.file.data.unflushed.begin_collective_wait(group)
    }

    /// The file's length.
    pub(crate) fn len(&self) -> Result<u64, Fault> {
        measure(&self.file)
    }

    /// The file's length was set.
    pub(crate) fn set_len(&self, bytes: u64) {
        self.file.data.length.set(bytes);
    }

    /// Servers that are unreachable.
    pub(crate) fn unreachable_servers(&self) -> Vec<ServerIndex> {
        self.file.context.session.check_links();
        let is_gone = |server: &ServerIndex| self.file.context.session.live_connection(*server).is_none();
        self.file.context.session.server_indices().filter(is_gone).collect()
    }
}

/// Checked after records are committed: whether one of these servers may not buffer writes of the file.
pub(in crate::client) fn must_confirm(file: &OpenFile, servers: impl Iterator<Item = ServerIndex>) -> bool {
    if file.context.backing.has_leases() {
        return false;
    }
    let Some(outbox) = file.context.session.outbox_if_made() else { return false };
    let may =
        |server| outbox.cursor(server).is_some_and(|cursor| cursor.might_write_behind(file.context.inode));
    servers.take(usize::from(file.context.layout.count())).any(|server| !may(server))
}

/// The file's generation on servers without leases.
fn unleased_generation(file: &OpenFile) -> pario_core::Generation {
    file.context.backing.unleased().map(|unleased| unleased.generation).unwrap_or_default()
}

/// Makes servers drain the committed records and acquire the lease that makes them visible.
pub(in crate::client) fn confirm(
    file: &OpenFile,
    servers: &[ServerIndex],
    heard: &AtomicU64,
) -> Result<(), Fault> {
    let at = |fault: Fault| fault.at(file.context.describe());
    let generation = unleased_generation(file);
    let request = Request::Write { object: file.context.object(generation), at: LocalOffset(0) };
    let started: Vec<_> =
        servers.iter().map(|server| file.context.session.start(*server, &request, &[])).collect();
    let mut result = Ok(());
    for started in started {
        let answer = started.and_then(|started| file.context.session.finish(started, None));
        result = result.and(answer.map(|_| ()));
    }
    file.data.unflushed.collect_errors();
    result.map_err(at)?;
    file.data.faults.report_once(heard)
}

/// The length that the servers know together.
pub(in crate::client) fn measure(file: &OpenFile) -> Result<u64, Fault> {
    let at = |fault: Fault| fault.at(file.context.describe());
    let object = file.context.object(unleased_generation(file));
    let servers: Vec<ServerIndex> = file.context.layout.servers().collect();
    let ask = |server: &ServerIndex| file.context.session.start(*server, &Request::Measure { object }, &[]);
    let started: Vec<_> = servers.iter().map(ask).collect();
    let (mut result, mut size) = (Ok(()), 0);
    for (server, started) in servers.into_iter().zip(started) {
        let answer = started.and_then(|started| file.context.session.finish(started, None));
        match answer.map(|answer| answer.reply) {
            Ok(Reply::Length { bytes, .. }) => {
                size = size.max(file.context.layout.file_length(server, bytes))
            }
            Ok(Reply::NoObject {}) => {}
            Ok(other) => result = result.and(Err(unexpected_reply(&other))),
            Err(fault) => result = result.and(Err(fault)),
        }
    }
    result.map_err(at)?;
    file.data.length.set(size);
    Ok(size)
}
