//! Two-phase: the classic collective access, as MPI libraries do it, with offset lists and no cache. It is the yardstick of the other
//! methods, so it is done as well as it can be.
//!
//! ```text
//!  announce: the range that each rank reaches            ─► plan: file domains, one for each aggregator, cut into windows
//!  each round, write: lists + data ─► aggregator merges a window ─► one write for each covered run
//!              read:  lists        ─► aggregator reads a window  ─► ranks copy their pieces out
//! ```
//! Ranks of a node exchange through memory, ranks of different nodes by TCP. Only collective calls are two-phase; independent calls
//! on the same file go their ordinary way.
//!
//! Never: keeps file data from one call to the next; sends a message between ranks of a node; writes bytes that no rank gave. Always:
//! a call returns when all of its data is in the file, with the same success or failure on every rank; if a rank is gone, with an
//! error that names it.

mod connect;
mod counts;
mod cover;
mod exchange;
mod far;
mod list;
mod plain;
mod plan;
mod read;
mod segment;
mod share;
mod target;
mod wire;
mod write;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use pario_core::{Code, Fault};
use pario_sys::fork_generation;
use pario_view::View;

pub(crate) use self::connect::{connect as connect_ranks, network, own_addresses};
use self::counts::Counters;
pub use self::counts::TwoPhaseCounts;
use self::cover::Cover;
use self::exchange::Exchange;
use self::list::Reach;
pub use self::plain::{PlainFile, PlainMode};
use self::plan::{Plan, Shape, choose_aggregators, default_aggregators};
use self::read::Reading;
use self::segment::{Announcement, Form};
pub(crate) use self::target::Target;
use self::write::Writing;
use super::hints::Hints;
use crate::error::{Error, Result};
use crate::group::Group;

/// What an aggregator merges in one round if nobody said: small enough to stay in a processor's cache.
pub const BUFFER_BYTES: u64 = 512 << 10;
/// The least and the most that may be said.
const BUFFER_BYTES_MIN: u64 = 16;
const BUFFER_BYTES_MAX: u64 = 256 << 20;
/// What each aggregator gets at least of a slot.
const SHARE_BYTES_MIN: usize = 64;

/// Two-phase accesses of one file by one group.
#[derive(Debug)]
pub(crate) struct TwoPhase {
    group: Arc<dyn Group>,
    aggregators: Vec<usize>,
    window_bytes: u64,
    counters: Arc<Counters>,
    made_in: u64,
    state: Mutex<State>,
}

/// Made at the first call: opening a file costs no memory.
#[derive(Debug)]
enum State {
    Unmade,
    Made(Box<(Exchange, Buffers)>),
    /// Ranks are out of step; nothing more can be done together.
    Broken(Error),
}

/// An aggregator's memory; empty for others.
#[derive(Debug)]
struct Buffers {
    window: Vec<u8>,
    /// What of the window is given, or wanted, by anybody.
    cover: Cover,
    /// What is wanted by others of this node.
    near: Cover,
    /// What is wanted by each rank of other nodes.
    far: Vec<Option<Cover>>,
    /// A list that was taken.
    list: Vec<u8>,
}

impl Buffers {
    fn new(window_bytes: usize, ranks: usize) -> Buffers {
        let cover = Cover::new(window_bytes);
        let far = (0..ranks).map(|_| None).collect();
        Buffers { window: vec![0; window_bytes], near: cover.clone(), cover, far, list: Vec::new() }
    }

    fn clear_wishes(&mut self) {
        self.cover.clear();
        self.near.clear();
        self.far.iter_mut().flatten().for_each(Cover::clear);
    }
}

/// Calls that ranks may make together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Write = 1,
    Read = 2,
}

/// What a call ended with: a result for the caller, and the fault that all ranks share.
type Ended<T> = Result<(T, Option<Fault>)>;

impl TwoPhase {
    /// Two-phase for a group, which is duplicated; collective.
    pub(crate) fn new(group: &Arc<dyn Group>, hints: &Hints) -> Result<TwoPhase> {
        let group = group.duplicate()?;
        let checked = check(hints);
        group.agree(checked.clone().map_err(Error::from))?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let said = [hints.aggregators.unwrap_or(0), processors];
        let said: Vec<u8> = said.iter().flat_map(|number| number.to_le_bytes()).collect();
        let all =
            group.allgather(&[said, hints.buffer_bytes.unwrap_or(0).to_le_bytes().to_vec()].concat())?;
        let numbers = |index: usize| {
            all.iter().map(move |bytes| {
                let number = bytes.get(8 * index..8 * index + 8).and_then(|bytes| bytes.try_into().ok());
                number.map_or(0, u64::from_le_bytes)
            })
        };
        for (index, what) in [(0, "the number of aggregators"), (2, "the buffer size")] {
            if let Some(rank) = numbers(index).position(|number| Some(number) != numbers(index).next()) {
                let text = format!("ranks 0 and {rank} do not agree on {what} of two-phase, and all must");
                return Err(Fault::new(Code::NotSame, text).into());
            }
        }
        let nodes: Vec<usize> = (0..group.size()).map(|rank| group.node_of(rank)).collect();
        let processors: Vec<usize> = numbers(1).map(|number| usize::try_from(number).unwrap_or(1)).collect();
        let count = hints.aggregators.unwrap_or_else(|| default_aggregators(&nodes, &processors));
        Ok(TwoPhase {
            aggregators: choose_aggregators(&nodes, count),
            window_bytes: hints.buffer_bytes.unwrap_or(BUFFER_BYTES),
            group,
            counters: Arc::default(),
            made_in: fork_generation(),
            state: Mutex::new(State::Unmade),
        })
    }

    /// What was counted so far.
    pub(crate) fn counts(&self) -> TwoPhaseCounts {
        self.counters.read()
    }

    /// Writes `data` to a range of a view's stream, together with all others. A rank that cannot take part says why, and all fail.
    pub(crate) fn write(
        &self,
        target: &dyn Target,
        place: Result<(&View, Range<u64>)>,
        data: &[u8],
    ) -> Result<()> {
        self.call(target, Kind::Write, place, |exchange, buffers, plan, reach| {
            let counters = &*self.counters;
            let fault = Writing { exchange, buffers, plan, reach, data, target, counters }.run()?;
            Ok(((), fault))
        })
    }

    /// Reads a range of a view's stream, together with all others; returns how many bytes there were before the file's end.
    pub(crate) fn read(
        &self,
        target: &dyn Target,
        place: Result<(&View, Range<u64>)>,
        memory: &mut [u8],
    ) -> Result<usize> {
        self.call(target, Kind::Read, place, |exchange, buffers, plan, reach| {
            exchange.make_windows()?;
            let counters = &*self.counters;
            Reading { exchange, buffers, plan, reach, memory, target, counters, file_end: None }.run()
        })
    }

    /// One collective call: announced, planned, carried out by `run`.
    fn call<T: Default>(
        &self,
        target: &dyn Target,
        kind: Kind,
        place: Result<(&View, Range<u64>)>,
        run: impl FnOnce(&mut Exchange, &mut Buffers, &Plan, &Reach<'_>) -> Ended<T>,
    ) -> Result<T> {
        if self.made_in != fork_generation() {
            return Err(Fault::new(Code::Closed, "a file of a group is used in a forked child").into());
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Unmade) {
            *state = self.make().map_or_else(State::Broken, |made| State::Made(Box::new(made)));
        }
        let (exchange, buffers) = match &mut *state {
            State::Made(made) => (&mut made.0, &mut made.1),
            State::Broken(error) => return Err(error.clone()),
            State::Unmade => unreachable!("it was just made"),
        };
        let whole = View::whole();
        let reach = place.as_ref().map(|(view, stream)| Reach { view, stream: stream.clone() });
        let reach = reach.unwrap_or(Reach { view: &whole, stream: 0..0 });
        let carry_out = || -> Ended<Result<T>> {
            let said =
                Announcement { kind: kind as u32, span: reach.span(), fault: fault_of(place.as_ref().err()) };
            let all = exchange.announce(&said)?;
            if let Some(fault) = refusal(&all, exchange.me()) {
                return Ok((Err(fault.into()), None));
            }
            let spans: Vec<Range<u64>> = all.into_iter().map(|said| said.span).collect();
            let plan = Plan::new(&spans, self.shape(target));
            self.counters.call(plan.rounds());
            if plan.rounds() == 0 {
                return Ok((Ok(T::default()), None));
            }
            run(exchange, buffers, &plan, &reach).map(|(result, fault)| (Ok(result), fault))
        };
        match carry_out() {
            Ok((result, None)) => result,
            Ok((_, Some(fault))) => Err(fault.into()),
            Err(error) => {
                exchange.give_up(&error);
                *state = State::Broken(error.clone());
                Err(error)
            }
        }
    }

    fn shape(&self, target: &dyn Target) -> Shape {
        let align_bytes = target.align_bytes();
        Shape { aggregators: self.aggregators.len(), window_bytes: self.window_bytes, align_bytes }
    }

    fn make(&self) -> Result<(Exchange, Buffers)> {
        let (ranks, count) = (self.group.size(), self.aggregators.len());
        let window_bytes = usize::try_from(self.window_bytes).expect("checked when it was said");
        // Twice what a rank has of a round if all have the same: lists come with data.
        let even = 2 * count * window_bytes / ranks;
        let slot_bytes = even.max(count * SHARE_BYTES_MIN);
        let form = Form { ranks, aggregators: count, slot_bytes, window_bytes };
        let counters = Arc::clone(&self.counters);
        let exchange = Exchange::new(&self.group, form, self.aggregators.clone(), counters)?;
        let own_bytes = if exchange.place.is_some() { window_bytes } else { 0 };
        Ok((exchange, Buffers::new(own_bytes, ranks)))
    }
}

fn check(hints: &Hints) -> std::result::Result<(), Fault> {
    let bytes = hints.buffer_bytes.unwrap_or(BUFFER_BYTES);
    if !(BUFFER_BYTES_MIN..=BUFFER_BYTES_MAX).contains(&bytes) {
        let text =
            format!("a two-phase buffer of {bytes} bytes: {BUFFER_BYTES_MIN} to {BUFFER_BYTES_MAX} may be");
        return Err(Fault::new(Code::Invalid, text));
    }
    if hints.aggregators == Some(0) {
        return Err(Fault::new(Code::Invalid, "two-phase needs at least one aggregator"));
    }
    Ok(())
}

fn fault_of(error: Option<&Error>) -> Option<Fault> {
    error.map(|error| Fault::new(error.code(), error.to_string()))
}

/// Why a call cannot be: a rank cannot take part, or ranks do not call the same.
fn refusal(all: &[Announcement], me: usize) -> Option<Fault> {
    if let Some(fault) = &all[me].fault {
        return Some(fault.clone());
    }
    if let Some((rank, fault)) =
        all.iter().enumerate().find_map(|(rank, said)| Some((rank, said.fault.clone()?)))
    {
        return Some(fault.at(format!("rank {rank}")));
    }
    let other = all.iter().position(|said| said.kind != all[0].kind)?;
    let text = format!("ranks 0 and {other} call different collectives: one reads and the other writes");
    Some(Fault::new(Code::NotSame, text))
}
