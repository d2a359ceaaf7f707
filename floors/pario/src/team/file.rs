//! [`TeamFile`]: the handle of a team, and the calls of one thread alone.

use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::call::{Arguments, Hint, TeamCall, TeamPlace, check_end};
use super::core::{MemberEnd, TeamCore};
use super::counts::TeamCounts;
use super::error::{TeamCode, TeamError, TeamResult};
use super::helpers::HelperThreads;
use super::meeting::prefixed;
use super::member::TeamMember;
use super::opening::{self, HandleVariable};
use super::options::TeamOptions;
use super::position::Position;
use super::round::{Caller, RoundStage};
use super::target;
use crate::handle::Partition;

/// A file that the threads of a process read and write together. Cheap to clone; all clones are one handle with one pointer.
#[derive(Clone, Debug)]
pub struct TeamFile {
    pub(super) core: Arc<TeamCore>,
    /// Kept until the last clone is dropped.
    _helpers: Option<Arc<HelperThreads>>,
}

impl TeamFile {
    /// Opens a plain path or `pario://NAME/path`. One thread opens; all threads may use it.
    ///
    /// # Errors
    /// The file cannot be opened so, or a setting is wrong.
    pub fn open(name: impl AsRef<Path>, options: &TeamOptions) -> TeamResult<TeamFile> {
        TeamFile::open_below(name.as_ref(), Position::ALONE, options)
    }

    /// Opens a file of a mounted partition, such as one inside of this process.
    ///
    /// # Errors
    /// As [`TeamFile::open`].
    pub fn open_in(
        partition: &Partition,
        path: impl AsRef<Path>,
        options: &TeamOptions,
    ) -> TeamResult<TeamFile> {
        let path = path.as_ref();
        let opened = target::open_in(partition, path, options)?;
        let name = format!("pario://{}/{}", partition.name(), path.display());
        Ok(TeamFile::from_core(TeamCore::new(opened, name, Position::ALONE, options)?))
    }

    /// Opens as a collective call: all threads of a team call it with equal names and options, and get one handle. The members of its calls are
    /// the threads below the parent of `position`.
    ///
    /// Threads meet by parent position, name and options, and by the variable that receives the handle, so that teams of two initial threads
    /// do not mix.
    ///
    /// # Errors
    /// As [`TeamFile::open`], the same on all threads. [`TeamCode::NotSame`] if threads with one variable differ in name or options.
    pub fn open_all(
        name: impl AsRef<Path>,
        options: &TeamOptions,
        position: Position,
        variable: HandleVariable,
    ) -> TeamResult<TeamFile> {
        opening::open_all(name.as_ref(), options, position, variable)
    }

    pub(super) fn open_below(name: &Path, place: Position, options: &TeamOptions) -> TeamResult<TeamFile> {
        let opened = target::open(name, options)?;
        let name = name.display().to_string();
        Ok(TeamFile::from_core(TeamCore::new(opened, name, place, options)?))
    }

    fn from_core(core: TeamCore) -> TeamFile {
        TeamFile { core: Arc::new(core), _helpers: None }
    }

    /// The members of a team of `size` threads, in order; give one to each thread. A member that is dropped while others wait for it ends
    /// their call with an error that names it.
    ///
    /// # Panics
    /// For no thread.
    #[must_use]
    pub fn members(&self, size: u32) -> Vec<TeamMember> {
        assert!(0 < size, "a team has at least one thread");
        static SETS: AtomicU64 = AtomicU64::new(1);
        let set = SETS.fetch_add(1, Ordering::Relaxed);
        self.core.lock().gone.clear();
        let member = |number| {
            let position = Position::of(number, size);
            let caller = Caller { position, identity: next_identity(), set };
            TeamMember::new(self.clone(), Ok(caller))
        };
        (0..size).map(member).collect()
    }

    /// This thread as a member at a position, as in OpenMP or `rayon::broadcast`. Dropping it ends nothing.
    #[must_use]
    pub fn at(&self, position: Position) -> TeamMember {
        let caller = position.below(&self.core.place).map(|position| Caller {
            position,
            identity: thread_identity(),
            set: 0,
        });
        let outside = || {
            let text = format!(
                "{}: thread {position} is not below thread {}, where the file was opened",
                self.core.name, self.core.place
            );
            TeamError::new(TeamCode::BadArgument, text)
        };
        TeamMember::new(self.clone(), caller.ok_or_else(outside))
    }

    /// The same handle with `threads` threads of its own, which share the work of large calls. For a program with one thread.
    ///
    /// # Errors
    /// The threads cannot be started.
    pub fn with_threads(&self, threads: u32) -> TeamResult<TeamFile> {
        let helpers = HelperThreads::start(&self.core, threads)?;
        Ok(TeamFile { core: Arc::clone(&self.core), _helpers: Some(Arc::new(helpers)) })
    }

    /// Writes by one thread alone, at an offset; does not move the pointer.
    ///
    /// # Errors
    /// The write failed.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> TeamResult<()> {
        self.core.check_open()?;
        self.core.check_writable("write_at")?;
        check_end(offset, bytes.len() as u64).map_err(|error| prefixed(&self.core.name, error))?;
        let written = self.core.target.write(offset, &mut [IoSlice::new(bytes)]);
        written.map_err(|error| prefixed(&self.core.name, error))
    }

    /// Reads by one thread alone, at an offset; returns the number of bytes before the end of the file.
    ///
    /// # Errors
    /// The read failed.
    pub fn read_at(&self, offset: u64, target: &mut [u8]) -> TeamResult<usize> {
        self.core.check_open()?;
        check_end(offset, target.len() as u64).map_err(|error| prefixed(&self.core.name, error))?;
        let read = self.core.target.read(offset, &mut [IoSliceMut::new(target)]);
        let read = read.map_err(|error| prefixed(&self.core.name, error))?;
        Ok(usize::try_from(read).unwrap_or(target.len()))
    }

    /// Writes part `part` of `parts` at the pointer, behind the parts with lower numbers; never waits for them. For tasks. Parts that cannot be
    /// placed yet are kept, up to the setting `buffer`. The pointer moves when all parts are written.
    ///
    /// # Errors
    /// The write failed, the part came before, or too many bytes would be kept.
    pub fn write_part(&self, bytes: &[u8], part: u64, parts: u64) -> TeamResult<()> {
        self.core.write_part(bytes, part, parts)
    }

    /// Writes a large buffer at an offset, divided between the threads of [`TeamFile::with_threads`].
    ///
    /// # Errors
    /// The write failed.
    pub fn write_divided_at(&self, offset: u64, bytes: &[u8]) -> TeamResult<()> {
        let lists = [IoSlice::new(bytes)];
        let call = TeamCall::write(&lists, TeamPlace::At(offset), Arguments::Common, Hint::Unknown);
        self.at(self.core.place).call(&call).map(drop)
    }

    /// Reads into a large buffer from an offset on, divided between the threads of [`TeamFile::with_threads`].
    ///
    /// # Errors
    /// The read failed, or the file ends before: [`TeamCode::EndOfFile`] with the count.
    pub fn read_divided_at(&self, offset: u64, target: &mut [u8]) -> TeamResult<u64> {
        self.at(self.core.place).read_com_at_all(offset, CommonTarget::Memory(target), Hint::Unknown)
    }

    /// The pointer behind all calls that have ended.
    pub fn tell(&self) -> u64 {
        let state = self.core.lock();
        let decided = state.rounds.iter().take_while(|round| round.stage == RoundStage::Finished).last();
        let number = decided.map_or(0, |round| round.number + 1);
        state.base_of(number).unwrap_or(state.pointer)
    }

    /// The length of the file.
    ///
    /// # Errors
    /// It cannot be determined.
    pub fn size(&self) -> TeamResult<u64> {
        self.core.check_open()?;
        self.core.target.len().map_err(|error| prefixed(&self.core.name, error))
    }

    /// Puts on stable storage what has been written, by one thread alone; returns the error of an earlier write that went behind.
    ///
    /// # Errors
    /// As above.
    pub fn sync(&self) -> TeamResult<()> {
        self.core.check_open()?;
        let synced = self.core.target.sync().map_err(|error| prefixed(&self.core.name, error));
        self.core.lock().deferred.take().map_or(synced, Err)
    }

    /// Closes the handle, by one thread alone. Calls that wait for members end with [`TeamCode::Closed`].
    ///
    /// # Errors
    /// An error of an earlier write that went behind.
    pub fn close(&self) -> TeamResult<()> {
        self.core.close_alone()
    }

    /// Whether the handle is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.core.lock().is_closed
    }

    /// Whether both are clones of one handle.
    #[must_use]
    pub fn is_same(&self, other: &TeamFile) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    /// The counters of the handle.
    #[must_use]
    pub fn counts(&self) -> TeamCounts {
        self.core.counts()
    }

    /// The name under which it was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }
}

/// The memory of a common read. Rust memory has one owner, so that one member gives it and the others its length.
#[derive(Debug)]
pub enum CommonTarget<'a> {
    /// The memory.
    Memory(&'a mut [u8]),
    /// Its length; another member gives the memory.
    Length(u64),
}

impl TeamCore {
    pub(super) fn counts(&self) -> TeamCounts {
        TeamCounts { system_calls: self.target.system_calls(), ..self.counters.snapshot() }
    }

    /// Checks for a call of one thread.
    fn check_open(&self) -> TeamResult<()> {
        self.check_process()?;
        if self.lock().is_closed { Err(self.closed()) } else { Ok(()) }
    }

    pub(super) fn check_writable(&self, call: &str) -> TeamResult<()> {
        if self.write {
            return Ok(());
        }
        let text = format!("{}: {call}: the file is open for reading only", self.name);
        Err(TeamError::new(TeamCode::Other(pario_core::Code::NotWritable), text))
    }

    /// Writes the buffers of a member at their offsets.
    pub(super) fn write_call(&self, call: &TeamCall<'_>, start: u64) -> TeamResult<()> {
        let pario_sys::lent::LentMemory::Sources(sources) = &call.memory else { return Ok(()) };
        if let TeamPlace::Each(offsets) = call.place {
            let mut pairs = sources.iter().zip(offsets).filter(|(source, _)| !source.is_empty());
            return pairs.try_for_each(|(source, offset)| self.target.write(*offset, &mut [*source]));
        }
        match sources {
            [source] if source.is_empty() => Ok(()),
            [source] => self.target.write(start, &mut [*source]),
            _ => self.target.write(start, &mut sources.to_vec()),
        }
    }

    fn close_alone(&self) -> TeamResult<()> {
        self.check_process()?;
        let mut state = self.lock();
        if state.is_closed {
            return Err(self.closed());
        }
        state.is_closed = true;
        self.tell(&mut state);
        let gathering: Vec<u64> = state
            .rounds
            .iter()
            .filter(|round| round.stage == RoundStage::Gathering)
            .map(|round| round.number)
            .collect();
        gathering.into_iter().for_each(|number| self.fail(&mut state, number, self.closed()));
        let mut patience = super::wait::Patience::new(self);
        let idle = |state: &super::core::TeamState| {
            state.rounds.iter().all(|round| round.stage == RoundStage::Finished)
        };
        let mut state = self.wait(state, &mut patience, idle, 0);
        let deferred = state.deferred.take();
        drop(state);
        let closed = self.target.close().map_err(|error| prefixed(&self.name, error));
        super::counts::report(&self.name, &self.counts());
        deferred.map_or(closed, Err)
    }

    /// A member of [`TeamFile::members`] has ended.
    pub(super) fn member_ended(&self, caller: &Caller, end: MemberEnd) {
        if self.check_process().is_err() {
            return;
        }
        let gone = super::core::GoneMember { position: caller.position, set: caller.set, end };
        let mut state = self.lock();
        state.gone.push(gone);
        let lacks = |round: &&super::round::Round| {
            let is_waited_for = round.set == caller.set && round.stage == RoundStage::Gathering;
            is_waited_for && round.membership.index(&caller.position).is_none()
        };
        let waiting: Vec<u64> = state.rounds.iter().filter(lacks).map(|round| round.number).collect();
        waiting.into_iter().for_each(|number| self.fail(&mut state, number, gone.error(&self.name)));
        state.retire();
        self.tell(&mut state);
    }
}

fn next_identity() -> u64 {
    static IDENTITIES: AtomicU64 = AtomicU64::new(1);
    IDENTITIES.fetch_add(1, Ordering::Relaxed)
}

/// The identity of this thread.
pub(super) fn thread_identity() -> u64 {
    thread_local! {
        static IDENTITY: u64 = next_identity();
    }
    IDENTITY.with(|identity| *identity)
}
