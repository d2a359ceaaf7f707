//! Opening as a collective call: threads of a team meet before there is a handle.
//!
//! Threads meet by parent position, name and options. The variable that receives the handle keeps teams of different initial threads apart:
//! a shared variable has one address for the whole team, a private one lies on the stack of its thread. Variables elsewhere, such as elements
//! of an array or memory of each thread's own, say nothing: such threads are joined after [`JOIN`], if together they are a whole team and the
//! process has opened files from one initial thread only.
//!
//! Never: opens twice for one team. Always: one result for all threads of a meeting.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::error::{TeamCode, TeamError, TeamResult};
use super::file::{TeamFile, thread_identity};
use super::membership::Membership;
use super::options::TeamOptions;
use super::position::Position;
use super::round::Caller;
use super::wait::Patience;

/// The variable of a thread that receives the handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HandleVariable {
    /// Its address.
    pub address: usize,
    /// Whether it lies on the calling thread's own stack. True for a private variable, and for thread 0 also for a shared one.
    pub is_own: bool,
}

/// Time after which threads with unrelated variables are joined.
const JOIN: Duration = Duration::from_millis(100);
/// The initial thread that opens files: 0 for none yet, its identity, or [`SEVERAL`].
static INITIAL_THREAD: AtomicU64 = AtomicU64::new(0);
const SEVERAL: u64 = u64::MAX;

/// Threads of one team that open a file.
struct OpenMeeting {
    number: u64,
    /// Numbers of meetings that were joined with it.
    joined: Vec<u64>,
    place: Position,
    name: PathBuf,
    options: TeamOptions,
    membership: Membership,
    variables: Vec<HandleVariable>,
    /// The threads that have come.
    mates: Vec<Caller>,
    /// Once all are there; counted down by each thread that has it.
    result: Option<TeamResult<TeamFile>>,
    is_opening: bool,
    left: usize,
}

struct OpenMeetings {
    meetings: Vec<OpenMeeting>,
    next: u64,
}

static MEETINGS: Mutex<OpenMeetings> = Mutex::new(OpenMeetings { meetings: Vec::new(), next: 0 });
static CHANGED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, OpenMeetings> {
    MEETINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn open_all(
    name: &Path,
    options: &TeamOptions,
    position: Position,
    variable: HandleVariable,
) -> TeamResult<TeamFile> {
    note_initial_thread(position);
    let place = position.parent();
    let Some(own) = position.below(&place).filter(|own| !own.levels().is_empty()) else {
        return TeamFile::open_below(name, position, options);
    };
    let patience = match options.patience {
        Some(patience) => Some(patience),
        None => super::settings::patience_of_environment()?,
    };
    let mut table = lock();
    let number = table.join(&Opener { name, options, place, own, variable })?;
    let mut patience = Patience::with_limit(patience);
    CHANGED.notify_all();
    loop {
        if table.get(number).is_some_and(OpenMeeting::begins) {
            drop(table);
            let result = TeamFile::open_below(name, place, options);
            table = lock();
            if let Some(meeting) = table.get(number) {
                if let Ok(file) = &result {
                    file.core.lock().mates = std::mem::take(&mut meeting.mates);
                }
                meeting.result = Some(result);
            }
            CHANGED.notify_all();
        }
        if let Some(result) = table.leave(number) {
            return result;
        }
        let left = patience.left().min(JOIN);
        table = CHANGED.wait_timeout(table, left).unwrap_or_else(PoisonError::into_inner).0;
        if JOIN <= patience.waited() {
            table.join_unrelated(number);
        }
        if table.get(number).is_some_and(|meeting| meeting.membership.first_missing().is_none()) {
            continue;
        }
        let Some(meeting) = table.get(number).filter(|meeting| meeting.result.is_none()) else { continue };
        let missing = meeting
            .membership
            .first_missing()
            .map(|missing| format!("open_all: thread {missing} is missing"));
        if let Err(error) = patience.check(&name.display().to_string(), missing) {
            meeting.result = Some(Err(error));
            CHANGED.notify_all();
        }
    }
}

/// Notes the thread outside of all teams, or number 0 of the outermost one: that is the initial thread.
fn note_initial_thread(position: Position) {
    if position.levels().first().is_some_and(|outermost| outermost.number != 0) {
        return;
    }
    let own = thread_identity();
    let known = INITIAL_THREAD.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
    if known.is_err_and(|known| known != own) {
        INITIAL_THREAD.store(SEVERAL, Ordering::Relaxed);
    }
}

/// One thread that opens.
struct Opener<'a> {
    name: &'a Path,
    options: &'a TeamOptions,
    place: Position,
    own: Position,
    variable: HandleVariable,
}

impl OpenMeetings {
    fn get(&mut self, number: u64) -> Option<&mut OpenMeeting> {
        let is_it = |meeting: &&mut OpenMeeting| meeting.number == number || meeting.joined.contains(&number);
        self.meetings.iter_mut().find(is_it)
    }

    /// Joins threads with variables that say nothing about their team, if together they are a whole one.
    fn join_unrelated(&mut self, number: u64) {
        if INITIAL_THREAD.load(Ordering::Relaxed) == SEVERAL {
            return;
        }
        let Some(at) = self.meetings.iter().position(|meeting| meeting.number == number) else { return };
        let mut own = self.meetings.swap_remove(at);
        let fits = |meeting: &OpenMeeting| {
            let is_open = |meeting: &OpenMeeting| meeting.result.is_none() && !meeting.is_opening;
            let same =
                meeting.place == own.place && meeting.name == own.name && meeting.options == own.options;
            is_open(&own) && is_open(meeting) && same
        };
        let mut all = own.membership.clone();
        let members = self
            .meetings
            .iter()
            .filter(|meeting| fits(meeting))
            .flat_map(|meeting| meeting.membership.members().iter().map(|member| member.position));
        let is_whole = members.into_iter().all(|position| all.add(position).is_ok());
        if is_whole && all.first_missing().is_none() {
            let (others, rest): (Vec<_>, Vec<_>) = self.meetings.drain(..).partition(|meeting| fits(meeting));
            self.meetings = rest;
            own.membership = all;
            for mut other in others {
                own.joined.push(other.number);
                own.joined.append(&mut other.joined);
                own.variables.append(&mut other.variables);
                own.mates.append(&mut other.mates);
            }
        }
        self.meetings.push(own);
    }

    /// Joins the meeting of the caller's team, or begins one.
    fn join(&mut self, opener: &Opener<'_>) -> TeamResult<u64> {
        let fits = |meeting: &&mut OpenMeeting| {
            meeting.result.is_none()
                && meeting.place == opener.place
                && meeting.membership.index(&opener.own).is_none()
        };
        let shares = |meeting: &OpenMeeting| {
            meeting.variables.iter().any(|variable| variable.address == opener.variable.address)
        };
        let same_name =
            |meeting: &OpenMeeting| meeting.name == opener.name && meeting.options == *opener.options;
        let by_address = self.meetings.iter_mut().filter(fits).find(|meeting| shares(meeting));
        if let Some(meeting) = by_address {
            if !same_name(meeting) {
                return Err(meeting.disagree(opener));
            }
            return meeting.add(opener);
        }
        let is_private = |meeting: &OpenMeeting| meeting.variables.iter().all(|variable| variable.is_own);
        let private = self.meetings.iter_mut().filter(fits).filter(|_| opener.variable.is_own);
        if let Some(meeting) = private.into_iter().find(|meeting| is_private(meeting) && same_name(meeting)) {
            return meeting.add(opener);
        }
        self.next += 1;
        let mut meeting = OpenMeeting {
            number: self.next,
            joined: Vec::new(),
            place: opener.place,
            name: opener.name.to_owned(),
            options: opener.options.clone(),
            membership: Membership::default(),
            variables: Vec::new(),
            mates: Vec::new(),
            result: None,
            is_opening: false,
            left: 0,
        };
        meeting.add(opener)?;
        self.meetings.push(meeting);
        Ok(self.next)
    }

    /// The result for one thread; the last thread ends the meeting.
    fn leave(&mut self, number: u64) -> Option<TeamResult<TeamFile>> {
        let meeting = self.get(number)?;
        let result = meeting.result.clone()?;
        meeting.left += 1;
        if meeting.left == meeting.variables.len() {
            let number = meeting.number;
            self.meetings.retain(|meeting| meeting.number != number);
        }
        Some(result)
    }
}

impl OpenMeeting {
    fn add(&mut self, opener: &Opener<'_>) -> TeamResult<u64> {
        if self.membership.add(opener.own).is_err() {
            let text = format!(
                "{}: thread {} is of another team than others with its variable",
                self.name.display(),
                opener.own
            );
            return Err(TeamError::new(TeamCode::TwoTeams, text));
        }
        self.variables.push(opener.variable);
        self.mates.push(Caller { position: opener.own, identity: thread_identity(), set: 0 });
        Ok(self.number)
    }

    /// Whether the caller is the one that opens: the last to come.
    fn begins(&mut self) -> bool {
        let begins = self.result.is_none() && !self.is_opening && self.membership.first_missing().is_none();
        self.is_opening |= begins;
        begins
    }

    /// Threads with one variable differ in name or options: all get the error.
    fn disagree(&mut self, opener: &Opener<'_>) -> TeamError {
        let first = self.membership.members().first().map_or(Position::ALONE, |member| member.position);
        let text = format!(
            "threads {first} and {} do not agree: open_all of {} and {}, or with different flags",
            opener.own,
            self.name.display(),
            opener.name.display()
        );
        let error = TeamError::new(TeamCode::NotSame, text);
        self.result = Some(Err(error.clone()));
        CHANGED.notify_all();
        error
    }
}
