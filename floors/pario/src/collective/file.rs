//! A file opened collectively by a group.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pario_core::{Code, Fault, FileAttr, Layout};
use pario_view::{Datatype, View};

use super::active_method::{ActiveMethod, CurrentMethod};
use super::atomic::Atomic;
use super::choice::{MethodChoice, MethodFacts, choose};
use super::client_directed::ClientDirected;
use super::hints::Hints;
use super::illegal;
use super::method::{GroupAccess, MemberAccess, Method as Access};
use super::opening::GroupFacts;
use super::report::{self, ProcessCounters};
use super::requests::CollectiveQueue;
use super::server_directed::ServerDirected;
use super::two_phase::TwoPhaseCounts;
use crate::client::{
    AccessKind, Counts, File, GroupPointer, NumberedView, Pending, StreamRange, WriteSource,
};
use crate::error::Result;
use crate::fleet::file_cache::{Placement, PlainBacking};
use crate::fleet::node_cache::TierStats;
use crate::group::{CollectiveCall, Group};
use crate::partition::choices::Method;
use pario_server::store::CacheStats;

/// A file opened collectively by all processes of a group. Offsets count elementary types of the view, as in MPI; before
/// [`GroupFile::set_view`] the view is the plain bytes of the file.
///
/// ```
/// use pario::{Alone, Datatype, Hints, Partition};
///
/// let partition = Partition::in_process(4)?;
/// let options = partition.options().create(true).read(true).write(true);
/// let file = options.open_all(&Alone::group(), "field", &Hints::default())?;
/// let byte = Datatype::elementary(1)?;
/// file.set_view(0, &byte, &byte.resized(0, 4)?)?;            // every fourth byte
/// file.write_at_all(0, b"abc")?;
/// let mut bytes = [0; 3];
/// file.read_at_all(0, &mut bytes)?;
/// assert_eq!(&bytes, b"abc");
/// file.close()?;
/// assert_eq!(partition.metadata("field")?.size, 9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct GroupFile {
    pub(super) inner: Arc<GroupFileInner>,
}

#[derive(Debug)]
pub(super) struct GroupFileInner {
    pub(super) group: Arc<dyn Group>,
    pub(super) file: File,
    /// The method of independent calls. Declared after `file`: its handle is closed while servers of a cache still listen.
    pub(super) independent: Arc<dyn Access>,
    /// The method of collective calls.
    pub(super) active_method: CurrentMethod,
    /// Counters at open.
    opened: (Counts, ProcessCounters),
    state: Mutex<GroupFileState>,
    /// The view of the plain bytes.
    whole: Arc<NumberedView>,
    queue: CollectiveQueue,
    /// State of atomic mode.
    pub(super) atomic: Atomic,
    pub(super) shared: GroupPointer,
    /// Facts equal on all members.
    pub(super) facts: GroupFacts,
}

#[derive(Debug)]
pub(super) struct GroupFileState {
    pub(super) view: Arc<NumberedView>,
    /// The individual pointer, in elementary types.
    pointer: u64,
}

/// Target of [`GroupFile::seek`], in elementary types of the view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// Absolute.
    Set(u64),
    /// Relative to the pointer.
    Current(i64),
    /// Relative to the end of the file as the view shows it.
    End(i64),
}

impl GroupFile {
    /// A file that every member of the group has opened; collective.
    pub(crate) fn of(
        group: Arc<dyn Group>,
        file: File,
        hints: &Hints,
        plain: Option<PlainBacking>,
    ) -> Result<GroupFile> {
        let facts = GroupFacts::find(&*group, &file)?;
        GroupFile::with_facts(group, (file, facts), hints, plain)
    }

    /// The same, with known group facts.
    pub(super) fn with_facts(
        group: Arc<dyn Group>,
        (file, facts): (File, GroupFacts),
        hints: &Hints,
        plain: Option<PlainBacking>,
    ) -> Result<GroupFile> {
        let choice = choose_for(&group, &file, hints, facts);
        report::explain(group.rank(), &file.description(), choice.method.word(), &choice.why);
        let whole = file.number_view(View::whole())?;
        let state = GroupFileState { view: Arc::clone(&whole), pointer: 0 };
        let opened = (file.counts(), ProcessCounters::now());
        let hints = Hints { method: Some(choice.method), ..hints.clone() };
        let independent = access_below(&group, &file, &hints, plain)?;
        let manner = ActiveMethod::new(&group, &hints, choice.method, &independent)?;
        let (state, line, shared) =
            (Mutex::new(state), CollectiveQueue::default(), file.pointer(facts.opening));
        let atomic = Atomic::default();
        let inner = GroupFileInner {
            group,
            file,
            independent,
            active_method: CurrentMethod::new(manner),
            opened,
            state,
            whole,
            queue: line,
            atomic,
            shared,
            facts,
        };
        Ok(GroupFile { inner: Arc::new(inner) })
    }
}

/// The method of independent accesses; collective.
fn access_below(
    group: &Arc<dyn Group>,
    file: &File,
    hints: &Hints,
    plain: Option<PlainBacking>,
) -> Result<Arc<dyn Access>> {
    if let Some(plain) = plain {
        return Ok(Arc::new(plain));
    }
    if let Some(cached) = ClientDirected::open(group, file, hints)? {
        return Ok(Arc::new(cached));
    }
    if hints.method == Some(Method::ServerDirected) {
        ServerDirected::prepare(&**group, file);
    }
    Ok(Arc::new(ServerDirected))
}

/// Chooses the method, from facts that are equal on all ranks.
fn choose_for(group: &Arc<dyn Group>, file: &File, hints: &Hints, facts: GroupFacts) -> MethodChoice {
    let nodes = (0..group.size()).map(|rank| group.node_of(rank) + 1).max().unwrap_or(1);
    choose(&MethodFacts {
        file: hints.method,
        partition: file.partition_method(),
        cache: hints.cache.unwrap_or(true),
        servers_near: facts.servers_near,
        ranks: group.size(),
        nodes,
    })
}

impl GroupFile {
    /// The method of collective accesses.
    pub fn method(&self) -> Method {
        self.inner.active_method.now().method
    }

    /// Counters of this process, for all files of the session, since this file was opened.
    pub fn counts(&self) -> Counts {
        let mut counts = self.inner.file.counts().since(&self.inner.opened.0);
        counts.list_bytes += self.two_phase_counts().map_or(0, |counts| counts.list_bytes);
        counts
    }

    /// The group that opened it.
    pub fn group(&self) -> &Arc<dyn Group> {
        &self.inner.group
    }

    /// The hints in force, given at open and later.
    pub fn hints(&self) -> Hints {
        self.inner.active_method.now().hints.clone()
    }

    /// Two-phase counters of this process; `None` if another method was chosen.
    pub fn two_phase_counts(&self) -> Option<TwoPhaseCounts> {
        self.inner.active_method.now().access.stats().two_phase
    }

    /// Distribution of the file over the servers.
    pub fn layout(&self) -> Layout {
        self.inner.file.layout()
    }

    /// The view in force.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(self.inner.state().view.view())
    }

    /// Sets the view of this process: the part of the file that `filetype` covers, repeated from byte `displacement` on; the
    /// pointer is set to 0. Collective; views may differ, elementary types must have one size.
    pub fn set_view(&self, displacement: i64, etype: &Datatype, filetype: &Datatype) -> Result<()> {
        self.set_view_if(Ok((displacement, etype, filetype)), &[])
    }

    /// The same, for callers that must agree on more: a member without a valid view passes its error, and `alike` are named
    /// values that must be equal on all members.
    pub fn set_view_if(
        &self,
        wished: Result<(i64, &Datatype, &Datatype)>,
        alike: &[(&str, &[u8])],
    ) -> Result<()> {
        let made = wished.and_then(|(at, etype, filetype)| self.inner.make_view(at, etype, filetype));
        let bytes = made.as_ref().map_or(0, |view| view.view().etype_bytes()).to_le_bytes();
        let all = [alike, &[("the size of the elementary type", &bytes)]].concat();
        self.inner
            .group
            .agree_on(CollectiveCall::SetView, made.as_ref().map(|_| &all[..]).map_err(Clone::clone))?;
        *self.inner.state() = GroupFileState { view: made?, pointer: 0 };
        self.inner.shared.renew();
        self.inner.compare_views()
    }

    /// Independent write at an offset.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.inner.write(offset, &WriteSource::Bytes(data))
    }

    /// Independent read at an offset; returns the number of bytes before the end of the file.
    pub fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize> {
        self.inner.read(offset, target)
    }

    /// Collective write at an offset; data may be empty.
    pub fn write_at_all(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.inner.queue.run(|| self.write_at_all_now(offset, data))
    }

    /// Collective read at an offset.
    pub fn read_at_all(&self, offset: u64, target: &mut [u8]) -> Result<usize> {
        self.inner.queue.run(|| self.read_at_all_now(offset, target))
    }

    /// File offset of byte 0 of the elementary type at `offset` of the view.
    pub fn byte_offset(&self, offset: u64) -> Result<u64> {
        let view = self.view();
        let stream = offset.checked_mul(view.etype_bytes());
        stream.and_then(|stream| view.file_offset(stream)).ok_or_else(|| {
            Fault::new(Code::TooLarge, format!("{}: offset {offset} is beyond the view", self.describe()))
                .into()
        })
    }

    pub(super) fn write_at_all_now(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.write_all_now(offset, Ok(WriteSource::Bytes(data)))
    }

    fn write_all_now(&self, offset: u64, source: Result<WriteSource<'_>>) -> Result<()> {
        let method = self.inner.active_method.now();
        method.access.write_all(&MemberAccess { inner: &self.inner, offset }, source)
    }

    pub(super) fn read_at_all_now(&self, offset: u64, target: &mut [u8]) -> Result<usize> {
        let method = self.inner.active_method.now();
        method.access.read_all(&MemberAccess { inner: &self.inner, offset }, target)
    }

    /// Another handle of the same file.
    pub(super) fn another_handle(&self) -> GroupFile {
        GroupFile { inner: Arc::clone(&self.inner) }
    }

    pub(super) fn queue(&self) -> &CollectiveQueue {
        &self.inner.queue
    }

    pub(super) fn describe(&self) -> String {
        self.inner.file.description()
    }

    /// Independent write of described memory.
    pub(super) fn write_source(&self, offset: u64, source: &WriteSource<'_>) -> Result<()> {
        self.inner.write(offset, source)
    }

    /// Collective write of described memory. An invalid description is reported to the other members in the call where they would
    /// wait.
    pub(super) fn write_source_all(&self, offset: u64, source: Result<WriteSource<'_>>) -> Result<()> {
        self.inner.queue.run(|| self.write_all_now(offset, source))
    }

    /// Advances the pointer in a collective call and returns its old value. If it cannot be advanced the access itself fails, on
    /// all members.
    pub(super) fn advance_all(&self, bytes: usize) -> u64 {
        self.inner.advance(bytes).unwrap_or_else(|_| self.position())
    }

    pub(super) fn advance(&self, bytes: usize) -> Result<u64> {
        self.inner.advance(bytes)
    }

    /// Writes at the individual pointer and advances it.
    pub fn write(&self, data: &[u8]) -> Result<()> {
        let offset = self.inner.advance(data.len())?;
        self.write_at(offset, data)
    }

    /// Reads at the individual pointer and advances it by the bytes read.
    pub fn read(&self, target: &mut [u8]) -> Result<usize> {
        let offset = self.inner.state().pointer;
        let count = self.read_at(offset, target)?;
        self.inner.advance(count)?;
        Ok(count)
    }

    /// Collective [`GroupFile::write`].
    pub fn write_all(&self, data: &[u8]) -> Result<()> {
        let offset = self.advance_all(data.len());
        self.write_at_all(offset, data)
    }

    /// Collective [`GroupFile::read`].
    pub fn read_all(&self, target: &mut [u8]) -> Result<usize> {
        let offset = self.inner.state().pointer;
        let count = self.read_at_all(offset, target)?;
        self.inner.advance(count)?;
        Ok(count)
    }

    /// The individual pointer, in elementary types.
    pub fn position(&self) -> u64 {
        self.inner.state().pointer
    }

    /// Moves the individual pointer.
    pub fn seek(&self, to: Seek) -> Result<u64> {
        let target = self.target_of(to, || Ok(self.position()))?;
        self.inner.state().pointer = target;
        Ok(target)
    }

    /// Target position of a seek.
    pub(super) fn target_of(&self, to: Seek, position: impl FnOnce() -> Result<u64>) -> Result<u64> {
        let target = match to {
            Seek::Set(offset) => i128::from(offset),
            Seek::Current(by) => i128::from(position()?) + i128::from(by),
            Seek::End(by) => {
                let end = self.len()?;
                let view = self.view();
                let stream = view.stream_at_or_after(end).unwrap_or(view.stream_bytes());
                i128::from(stream.div_ceil(view.etype_bytes())) + i128::from(by)
            }
        };
        let before = || {
            Fault::new(Code::Invalid, format!("{}: a seek to before the start of the file", self.describe()))
        };
        Ok(u64::try_from(target).map_err(|_| before())?)
    }

    /// Starts a write; [`Pending::wait`] returns the buffer.
    pub fn start_write_at(&self, offset: u64, data: Vec<u8>) -> Result<Pending<Vec<u8>>> {
        let inner = Arc::clone(&self.inner);
        let work = move || inner.write(offset, &WriteSource::Bytes(&data)).map(|()| data);
        self.inner.file.start(work)
    }

    /// Starts a read; [`Pending::wait`] returns the buffer, truncated to the bytes read.
    pub fn start_read_at(&self, offset: u64, mut target: Vec<u8>) -> Result<Pending<Vec<u8>>> {
        let inner = Arc::clone(&self.inner);
        self.inner.file.start(move || {
            let count = inner.read(offset, &mut target)?;
            target.truncate(count);
            Ok(target)
        })
    }

    /// The file's length.
    pub fn len(&self) -> Result<u64> {
        self.inner.independent.len(self.inner.on())
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Attributes.
    pub fn attr(&self) -> Result<FileAttr> {
        self.inner.file.attr()
    }

    /// Counters and current contents of the node-cache server in this process, for all its files; `None` if this process runs
    /// none for this file.
    pub fn node_cache_stats(&self) -> Option<TierStats> {
        self.inner.independent.stats().node_cache
    }

    /// Counters and current contents of the file-cache server in this process, for all its files; `None` if this process runs
    /// none for this file.
    pub fn cache_stats(&self) -> Option<CacheStats> {
        self.inner.independent.stats().file_cache
    }

    /// Where blocks of a cached plain file are placed; `None` for files of a partition. On one node every block is at its home;
    /// never [`Placement::Auto`].
    pub fn placement(&self) -> Option<Placement> {
        self.inner.independent.stats().placement
    }

    /// Truncates or extends the file; collective.
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        self.set_len_if(Ok(bytes))
    }

    /// The same; a member without a valid length passes its error.
    pub fn set_len_if(&self, wished: Result<u64>) -> Result<()> {
        let group = &self.inner.group;
        let told = wished.as_ref().map_or(0, |bytes| *bytes).to_le_bytes();
        let alike: &[(&str, &[u8])] = &[("a new length", &told)];
        group.agree_on(CollectiveCall::SetLength, wished.as_ref().map(|_| alike).map_err(Clone::clone))?;
        let bytes = wished?;
        self.inner.independent.set_len(self.inner.on(), bytes)
    }

    /// Writes the group's data to stable storage; collective.
    pub fn sync(&self) -> Result<()> {
        self.inner.queue.run(|| self.inner.independent.sync(self.inner.on()))
    }

    /// Writes this member's data to stable storage without the other members, for a program that ends and may still close the
    /// file. False: a cache lies between the file and its servers, and nothing was done.
    pub fn sync_alone(&self) -> Result<bool> {
        if self.inner.independent.is_cached() {
            return Ok(false);
        }
        self.inner.queue.run(|| self.inner.file.sync())?;
        Ok(true)
    }

    /// Releases the file without the other members, for a program that ends and has not closed it: this member's data is in the
    /// servers' stores afterwards.
    pub fn abandon(self) -> Result<()> {
        // Caches between the file and its servers release it themselves, in their own order.
        if self.inner.independent.is_cached() {
            return Ok(());
        }
        self.inner.queue.run(|| self.inner.file.close_shared())
    }

    /// Closes the file; collective. An error of any member is returned on all.
    pub fn close(self) -> Result<()> {
        let inner = &self.inner;
        let closed = inner.queue.run(|| inner.independent.close(inner.on()));
        report::report(inner.group.rank(), &inner.file.description(), &self.counts(), &inner.opened.1);
        closed
    }
}

impl GroupFileInner {
    /// The method that the facts suggest, if none is requested.
    pub(super) fn chosen(&self) -> MethodChoice {
        choose_for(
            &self.group,
            &self.file,
            &Hints { method: None, ..self.active_method.now().hints.clone() },
            self.facts,
        )
    }

    /// The group and the file, for the method.
    fn on(&self) -> GroupAccess<'_> {
        GroupAccess { group: &self.group, file: &self.file }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, GroupFileState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_view(
        &self,
        displacement: i64,
        etype: &Datatype,
        filetype: &Datatype,
    ) -> Result<Arc<NumberedView>> {
        let access = if self.file.is_writable() {
            pario_view::ViewAccess::Write
        } else {
            pario_view::ViewAccess::Read
        };
        self.file
            .number_view(View::new(displacement, etype, filetype, access).map_err(|error| illegal(&error))?)
    }

    /// Advances the pointer by `bytes` and returns its old value.
    fn advance(&self, bytes: usize) -> Result<u64> {
        let mut state = self.state();
        let etype = state.view.view().etype_bytes();
        self.check_whole(bytes, etype)?;
        let before = state.pointer;
        state.pointer += bytes as u64 / etype;
        Ok(before)
    }

    /// Checks that an access has whole elementary types.
    pub(super) fn check_whole(&self, bytes: usize, etype_bytes: u64) -> Result<()> {
        if (bytes as u64).is_multiple_of(etype_bytes) {
            return Ok(());
        }
        let place = self.file.description();
        let text = format!(
            "{place}: an access of {bytes} bytes is no multiple of the elementary type's {etype_bytes} bytes"
        );
        Err(Fault::new(Code::Invalid, text).into())
    }

    pub(super) fn write(&self, offset: u64, source: &WriteSource<'_>) -> Result<()> {
        let place = self.locate(offset, source.len())?;
        let guard = self.guard(&place, AccessKind::Write)?;
        self.independent.write(self.on(), &place, source, guard.guarded())
    }

    pub(super) fn read(&self, offset: u64, target: &mut [u8]) -> Result<usize> {
        let place = self.locate(offset, target.len())?;
        let guard = self.guard(&place, AccessKind::Read)?;
        self.independent.read(self.on(), &place, target, guard.guarded())
    }

    /// The checked stream range of an access.
    pub(super) fn locate(&self, offset: u64, bytes: usize) -> Result<StreamRange> {
        let numbered = Arc::clone(&self.state().view);
        let view = numbered.view();
        self.check_whole(bytes, view.etype_bytes())?;
        let start = offset.checked_mul(view.etype_bytes());
        let end = start.and_then(|start| start.checked_add(bytes as u64));
        match (start, end.filter(|end| *end <= view.stream_bytes())) {
            (Some(start), Some(end)) => Ok(self.through_whole_view(numbered, start..end)),
            _ => {
                let text = format!(
                    "{}: {bytes} bytes at offset {offset} are beyond the view",
                    self.file.description()
                );
                Err(Fault::new(Code::TooLarge, text).into())
            }
        }
    }
}

impl GroupFileInner {
    /// Bytes that are contiguous in the file are accessed through the whole-file view, so the servers need not know the view. A
    /// program that sets another view for every row of an array, as HDF5 does, ships none.
    fn through_whole_view(&self, numbered: Arc<NumberedView>, stream: std::ops::Range<u64>) -> StreamRange {
        let bytes = stream.end - stream.start;
        let first = numbered.view().extents(stream.clone()).next();
        match first {
            Some(extent) if extent.bytes == bytes && !numbered.view().is_whole() => StreamRange {
                view: Arc::clone(&self.whole),
                stream: extent.file_offset..extent.file_offset + bytes,
                in_view: Some((numbered, stream)),
            },
            Some(_) | None => StreamRange::new(numbered, stream),
        }
    }
}
