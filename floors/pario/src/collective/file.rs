//! A file that a group opened together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pario_core::{Code, Fault, FileAttr, Layout};
use pario_view::{Datatype, View};

use super::atomic::Atomic;
use super::choice::{Choice, Facts, choose};
use super::client_directed::ClientDirected;
use super::hints::Hints;
use super::illegal;
use super::manner::{Manner, Manners};
use super::opening::GroupFacts;
use super::report::{self, Faults};
use super::requests::Line;
use super::two_phase::{TwoPhase, TwoPhaseCounts};
use crate::client::{Counts, File, Kind, NumberedView, Pending, Place, Pointer, Source};
use crate::cooperative::{Above, Placement};
use crate::error::Result;
use crate::group::{Call, Group};
use crate::partition::choices::Method;
use crate::tier::TierStats;
use pario_server::store::CacheStats;

/// A file that all processes of a group opened together. Offsets count elementary types of the view, as MPI has it; before
/// [`GroupFile::set_view`] the view is the file's own bytes.
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
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) group: Arc<dyn Group>,
    pub(super) file: File,
    /// How collective calls are made.
    pub(super) manners: Manners,
    /// What had been done when it was opened.
    opened: (Counts, Faults),
    state: Mutex<State>,
    /// The file's own bytes.
    whole: Arc<NumberedView>,
    line: Line,
    /// The tier that accesses go through, where the file is client-directed.
    tier: Option<ClientDirected>,
    /// Whether accesses are atomic, and what that takes.
    pub(super) atomic: Atomic,
    pub(super) shared: Pointer,
    /// The plain file that lies below, where it is one. After the file: its handle is closed while servers listen.
    plain: Option<Above>,
    /// What all members know alike.
    pub(super) facts: GroupFacts,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) view: Arc<NumberedView>,
    /// The individual pointer, in elementary types.
    pointer: u64,
}

/// Where [`GroupFile::seek`] goes, in elementary types of the view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// To a place.
    Set(u64),
    /// From where the pointer is.
    Current(i64),
    /// From the file's end as the view shows it.
    End(i64),
}

impl GroupFile {
    /// A file that every member of the group has opened; collective.
    pub(crate) fn of(
        group: Arc<dyn Group>,
        file: File,
        hints: &Hints,
        plain: Option<Above>,
    ) -> Result<GroupFile> {
        let facts = GroupFacts::find(&*group, &file)?;
        GroupFile::with_facts(group, (file, facts), hints, plain)
    }

    /// The same where what all members know alike is known.
    pub(super) fn with_facts(
        group: Arc<dyn Group>,
        (file, facts): (File, GroupFacts),
        hints: &Hints,
        plain: Option<Above>,
    ) -> Result<GroupFile> {
        let choice = choose_for(&group, &file, hints, facts);
        report::explain(group.rank(), &file.place(), choice.method.word(), &choice.why);
        if plain.is_none() && choice.method == Method::ServerDirected {
            match file.is_writable() {
                true if 1 < group.size() => file.get_ready_to_write(),
                true => {}
                false => file.get_ready_to_read(),
            }
        }
        let whole = file.number_view(View::whole())?;
        let state = State { view: Arc::clone(&whole), pointer: 0 };
        let opened = (file.counts(), Faults::now());
        let manner = Manner::new(&group, hints, choice.method)?;
        let tier = ClientDirected::open(&group, &file, &manner.hints)?;
        let (state, line, shared) = (Mutex::new(state), Line::default(), file.pointer(facts.opening));
        let atomic = Atomic::default();
        let inner = Inner {
            group,
            file,
            manners: Manners::new(manner),
            opened,
            state,
            whole,
            line,
            tier,
            atomic,
            shared,
            plain,
            facts,
        };
        Ok(GroupFile { inner: Arc::new(inner) })
    }
}

/// Decides on the method, from facts that all ranks share.
fn choose_for(group: &Arc<dyn Group>, file: &File, hints: &Hints, facts: GroupFacts) -> Choice {
    let nodes = (0..group.size()).map(|rank| group.node_of(rank) + 1).max().unwrap_or(1);
    choose(&Facts {
        file: hints.method,
        partition: file.partition_method(),
        cache: hints.cache.unwrap_or(true),
        servers_near: facts.servers_near,
        ranks: group.size(),
        nodes,
    })
}

impl GroupFile {
    /// The method that collective accesses take.
    pub fn method(&self) -> Method {
        self.inner.manners.now().method
    }

    /// What this process did, on all files of the mount, since this one was opened.
    pub fn counts(&self) -> Counts {
        let mut counts = self.inner.file.counts().since(&self.inner.opened.0);
        counts.list_bytes += self.two_phase_counts().map_or(0, |counts| counts.list_bytes);
        counts
    }

    /// The group that opened it.
    pub fn group(&self) -> &Arc<dyn Group> {
        &self.inner.group
    }

    /// What was wished at open and since, as far as it is in force.
    pub fn hints(&self) -> Hints {
        self.inner.manners.now().hints
    }

    /// What two-phase counted in this process; `None` if another method was chosen.
    pub fn two_phase_counts(&self) -> Option<TwoPhaseCounts> {
        self.inner.manners.now().two_phase.as_deref().map(TwoPhase::counts)
    }

    /// How the file lies on the servers.
    pub fn layout(&self) -> Layout {
        self.inner.file.layout()
    }

    /// The view in force.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(self.inner.state().view.view())
    }

    /// Shows this process the part of the file that `filetype`, repeated from byte `displacement` on, covers; the pointer goes to
    /// 0. Collective; views may differ, elementary types must have one size.
    pub fn set_view(&self, displacement: i64, etype: &Datatype, filetype: &Datatype) -> Result<()> {
        self.set_view_if(Ok((displacement, etype, filetype)), &[])
    }

    /// The same, for callers that have more to agree on: a member that cannot say a view says why, and things that all must have
    /// alike go along with their names.
    pub fn set_view_if(
        &self,
        wished: Result<(i64, &Datatype, &Datatype)>,
        alike: &[(&str, &[u8])],
    ) -> Result<()> {
        let made = wished.and_then(|(at, etype, filetype)| self.inner.make_view(at, etype, filetype));
        let bytes = made.as_ref().map_or(0, |view| view.view().etype_bytes()).to_le_bytes();
        let all = [alike, &[("the size of the elementary type", &bytes)]].concat();
        self.inner.group.agree_on(Call::SetView, made.as_ref().map(|_| &all[..]).map_err(Clone::clone))?;
        *self.inner.state() = State { view: made?, pointer: 0 };
        self.inner.shared.renew();
        self.inner.look_at_views()
    }

    /// Writes at an offset, independently of the others.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.inner.write(offset, &Source::Bytes(data))
    }

    /// Reads at an offset, independently of the others; returns how many bytes there were before the file's end.
    pub fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize> {
        self.inner.read(offset, target)
    }

    /// Writes at an offset, together with all others; data may be empty.
    pub fn write_at_all(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.inner.line.run(|| self.write_at_all_now(offset, data))
    }

    /// Reads at an offset, together with all others.
    pub fn read_at_all(&self, offset: u64, target: &mut [u8]) -> Result<usize> {
        self.inner.line.run(|| self.read_at_all_now(offset, target))
    }

    /// Where byte 0 of the elementary type at `offset` of the view lies in the file.
    pub fn byte_offset(&self, offset: u64) -> Result<u64> {
        let view = self.view();
        let stream = offset.checked_mul(view.etype_bytes());
        stream.and_then(|stream| view.file_offset(stream)).ok_or_else(|| {
            Fault::new(Code::TooLarge, format!("{}: offset {offset} is beyond the view", self.place())).into()
        })
    }

    pub(super) fn write_at_all_now(&self, offset: u64, data: &[u8]) -> Result<()> {
        match &self.inner.manners.now().two_phase {
            Some(two_phase) if !self.atomicity() => {
                let place = self.inner.locate(offset, data.len());
                two_phase.write(&self.inner.file, place.as_ref().map(parts).map_err(Clone::clone), data)
            }
            Some(_) | None => self.inner.write(offset, &Source::Bytes(data)),
        }
    }

    pub(super) fn read_at_all_now(&self, offset: u64, target: &mut [u8]) -> Result<usize> {
        match &self.inner.manners.now().two_phase {
            Some(two_phase) if !self.atomicity() => {
                let place = self.inner.locate(offset, target.len());
                two_phase.read(&self.inner.file, place.as_ref().map(parts).map_err(Clone::clone), target)
            }
            Some(_) | None => self.inner.read(offset, target),
        }
    }

    /// The same file once more.
    pub(super) fn share(&self) -> GroupFile {
        GroupFile { inner: Arc::clone(&self.inner) }
    }

    pub(super) fn line(&self) -> &Line {
        &self.inner.line
    }

    pub(super) fn place(&self) -> String {
        self.inner.file.place()
    }

    /// Writes what is described, independently of the others.
    pub(super) fn write_source(&self, offset: u64, source: &Source<'_>) -> Result<()> {
        self.inner.write(offset, source)
    }

    /// The same together with all others. What cannot be described is told to them where they would wait.
    pub(super) fn write_source_all(&self, offset: u64, source: Result<Source<'_>>) -> Result<()> {
        self.inner.line.run(|| match &self.inner.manners.now().two_phase {
            Some(two_phase) if !self.atomicity() => {
                let place = source
                    .as_ref()
                    .map_err(Clone::clone)
                    .and_then(|source| self.inner.locate(offset, source.len()));
                let bytes = source.map(|source| source.in_a_row()).unwrap_or_default();
                two_phase.write(&self.inner.file, place.as_ref().map(parts).map_err(Clone::clone), &bytes)
            }
            Some(_) | None => self.inner.write(offset, &source?),
        })
    }

    /// Moves the pointer in a collective and returns where it was. Where it cannot be moved the access itself fails, for all.
    pub(super) fn advance_all(&self, bytes: usize) -> u64 {
        self.inner.advance(bytes).unwrap_or_else(|_| self.position())
    }

    pub(super) fn advance(&self, bytes: usize) -> Result<u64> {
        self.inner.advance(bytes)
    }

    /// Writes at the individual pointer and moves it.
    pub fn write(&self, data: &[u8]) -> Result<()> {
        let offset = self.inner.advance(data.len())?;
        self.write_at(offset, data)
    }

    /// Reads at the individual pointer and moves it by what was read.
    pub fn read(&self, target: &mut [u8]) -> Result<usize> {
        let offset = self.inner.state().pointer;
        let count = self.read_at(offset, target)?;
        self.inner.advance(count)?;
        Ok(count)
    }

    /// [`GroupFile::write`], together with all others.
    pub fn write_all(&self, data: &[u8]) -> Result<()> {
        let offset = self.advance_all(data.len());
        self.write_at_all(offset, data)
    }

    /// [`GroupFile::read`], together with all others.
    pub fn read_all(&self, target: &mut [u8]) -> Result<usize> {
        let offset = self.inner.state().pointer;
        let count = self.read_at_all(offset, target)?;
        self.inner.advance(count)?;
        Ok(count)
    }

    /// Where the individual pointer is, in elementary types.
    pub fn position(&self) -> u64 {
        self.inner.state().pointer
    }

    /// Moves the individual pointer.
    pub fn seek(&self, to: Seek) -> Result<u64> {
        let target = self.target_of(to, || Ok(self.position()))?;
        self.inner.state().pointer = target;
        Ok(target)
    }

    /// Where a seek leads.
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
        let before = || Fault::new(Code::Invalid, format!("{}: a seek before the start", self.place()));
        Ok(u64::try_from(target).map_err(|_| before())?)
    }

    /// Starts a write; the bytes come back with [`Pending::wait`].
    pub fn start_write_at(&self, offset: u64, data: Vec<u8>) -> Result<Pending<Vec<u8>>> {
        let inner = Arc::clone(&self.inner);
        let work = move || inner.write(offset, &Source::Bytes(&data)).map(|()| data);
        self.inner.file.start(work)
    }

    /// Starts a read; the buffer comes back, cut to what was read.
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
        if let Some(tier) = &self.inner.tier {
            return tier.len();
        }
        self.inner.told(self.inner.file.len())
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Attributes.
    pub fn attr(&self) -> Result<FileAttr> {
        self.inner.file.attr()
    }

    /// What the tier-1 server in this process has done so far and holds now, of all its files; `None` where this process runs none
    /// for this file.
    pub fn tier_stats(&self) -> Option<TierStats> {
        self.inner.tier.as_ref()?.stats()
    }

    /// What the server of the cooperative cache in this process has done so far and holds now, of all its files; `None` where this
    /// process runs none for this file.
    pub fn cache_stats(&self) -> Option<CacheStats> {
        self.inner.plain.as_ref()?.stats()
    }

    /// Where blocks of a plain file of a group are cached; `None` for files of a partition. On one node that is their home in any case.
    pub fn placement(&self) -> Option<Placement> {
        self.inner.plain.as_ref().map(Above::placement)
    }

    /// Cuts or lengthens the file; collective.
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        self.set_len_if(Ok(bytes))
    }

    /// The same; a member that cannot say a length says why.
    pub fn set_len_if(&self, wished: Result<u64>) -> Result<()> {
        let group = &self.inner.group;
        let told = wished.as_ref().map_or(0, |bytes| *bytes).to_le_bytes();
        let alike: &[(&str, &[u8])] = &[("a new length", &told)];
        group.agree_on(Call::SetLength, wished.as_ref().map(|_| alike).map_err(Clone::clone))?;
        let bytes = wished?;
        if let Some(plain) = &self.inner.plain {
            return plain.set_len(group, &self.inner.file, bytes);
        }
        let mine = if group.rank() == 0 { self.inner.file.set_len(bytes) } else { Ok(()) };
        group.agree(mine)?;
        if let Some(tier) = &self.inner.tier {
            tier.set_len(bytes);
        }
        Ok(())
    }

    /// Puts what the group wrote on stable storage; collective.
    pub fn sync(&self) -> Result<()> {
        if let Some(plain) = &self.inner.plain {
            return self.inner.line.run(|| plain.sync(&self.inner.group, &self.inner.file));
        }
        let gathering = self.inner.file.gather(&*self.inner.group);
        let tier = || self.inner.tier.as_ref().map_or(Ok(()), ClientDirected::sync);
        let mine = self.inner.line.run(|| {
            let tier = tier();
            let mine = self.inner.file.sync_member(self.inner.group.rank(), gathering.as_ref());
            tier.and(mine)
        });
        self.inner.group.agree_in(Call::Sync, mine)
    }

    /// Lets go of it without the others, for a program that ends and has not closed it: what this member wrote is in the servers' stores.
    pub fn abandon(self) -> Result<()> {
        // What stands between the file and its servers lets go by itself, in its own order.
        if self.inner.tier.is_some() || self.inner.plain.is_some() {
            return Ok(());
        }
        self.inner.line.run(|| self.inner.file.close_shared())
    }

    /// Closes it; collective. Errors of any member are told to all.
    pub fn close(self) -> Result<()> {
        let group = Arc::clone(&self.inner.group);
        if let Some(plain) = &self.inner.plain {
            let closed = self.inner.line.run(|| plain.close(&group, &self.inner.file));
            report::report(group.rank(), &self.inner.file.place(), &self.counts(), &self.inner.opened.1);
            return closed;
        }
        let gathering = self.inner.file.gather(&*group);
        let mine = self.inner.line.run(|| {
            let tier = self.inner.tier.as_ref().map_or(Ok(()), ClientDirected::close);
            let mine = self.inner.file.close_member(gathering.as_ref());
            tier.and(mine)
        });
        report::report(group.rank(), &self.inner.file.place(), &self.counts(), &self.inner.opened.1);
        group.agree_in(Call::Close, mine)
    }
}

impl Inner {
    /// What the facts speak for, where nothing is wished.
    pub(super) fn chosen(&self) -> Choice {
        choose_for(&self.group, &self.file, &Hints { method: None, ..self.manners.now().hints }, self.facts)
    }

    /// Whether accesses go through a tier of the application's own.
    pub(super) fn is_tiered(&self) -> bool {
        self.tier.is_some()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_view(
        &self,
        displacement: i64,
        etype: &Datatype,
        filetype: &Datatype,
    ) -> Result<Arc<NumberedView>> {
        let access =
            if self.file.is_writable() { pario_view::Access::Write } else { pario_view::Access::Read };
        self.file
            .number_view(View::new(displacement, etype, filetype, access).map_err(|error| illegal(&error))?)
    }

    /// Moves the pointer behind `bytes` and returns where it was.
    fn advance(&self, bytes: usize) -> Result<u64> {
        let mut state = self.state();
        let etype = state.view.view().etype_bytes();
        self.check_whole(bytes, etype)?;
        let before = state.pointer;
        state.pointer += bytes as u64 / etype;
        Ok(before)
    }

    /// Only whole elementary types are read and written.
    pub(super) fn check_whole(&self, bytes: usize, etype_bytes: u64) -> Result<()> {
        if (bytes as u64).is_multiple_of(etype_bytes) {
            return Ok(());
        }
        let place = self.file.place();
        let text = format!("{place}: {bytes} bytes are no multiple of the elementary type's {etype_bytes}");
        Err(Fault::new(Code::Invalid, text).into())
    }

    pub(super) fn write(&self, offset: u64, source: &Source<'_>) -> Result<()> {
        if let Some(plain) = &self.plain {
            plain.count(source.len());
        }
        let place = self.locate(offset, source.len())?;
        let guard = self.guard(&place, Kind::Write)?;
        if let Some(tier) = &self.tier {
            return tier.write(&self.file, &place, source);
        }
        self.told(self.file.write_stream(&place, source, guard.guarded()))
    }

    /// Names whom an error is about, where only this floor knows.
    fn told<T>(&self, result: Result<T>) -> Result<T> {
        match &self.plain {
            Some(plain) => result.map_err(|error| plain.name(&self.file, error)),
            None => result,
        }
    }

    pub(super) fn read(&self, offset: u64, target: &mut [u8]) -> Result<usize> {
        if let Some(plain) = &self.plain {
            plain.count(target.len());
        }
        let place = self.locate(offset, target.len())?;
        let guard = self.guard(&place, Kind::Read)?;
        if let Some(tier) = &self.tier {
            return tier.read(&self.file, &place, target);
        }
        self.told(self.file.read_stream(&place, target, guard.guarded()))
    }

    /// The stream range of an access, checked.
    fn locate(&self, offset: u64, bytes: usize) -> Result<Place> {
        let numbered = Arc::clone(&self.state().view);
        let view = numbered.view();
        self.check_whole(bytes, view.etype_bytes())?;
        let start = offset.checked_mul(view.etype_bytes());
        let end = start.and_then(|start| start.checked_add(bytes as u64));
        match (start, end.filter(|end| *end <= view.stream_bytes())) {
            (Some(start), Some(end)) => Ok(self.plain(numbered, start..end)),
            _ => {
                let text =
                    format!("{}: {bytes} bytes at offset {offset} are beyond the view", self.file.place());
                Err(Fault::new(Code::TooLarge, text).into())
            }
        }
    }
}

impl Inner {
    /// Bytes that lie in a row in the file are the file's own: the servers need not know the view. So a program that sets another
    /// view for every row of an array, as HDF5 does, ships none.
    fn plain(&self, numbered: Arc<NumberedView>, stream: std::ops::Range<u64>) -> Place {
        let bytes = stream.end - stream.start;
        let first = numbered.view().extents(stream.clone()).next();
        match first {
            Some(extent) if extent.bytes == bytes && !numbered.view().is_whole() => Place {
                view: Arc::clone(&self.whole),
                stream: extent.file_offset..extent.file_offset + bytes,
                seen: Some((numbered, stream)),
            },
            Some(_) | None => Place::new(numbered, stream),
        }
    }
}

/// A place as two-phase has it.
fn parts(place: &Place) -> (&View, std::ops::Range<u64>) {
    (place.view.view(), place.stream.clone())
}
