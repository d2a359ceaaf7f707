//! Two-phase: the classic collective access of MPI libraries, with offset lists and no cache. It is the reference for the other
//! methods.
//!
//! ```text
//!  announce: the range that each rank accesses              ─► plan: file domains, one for each aggregator, cut into windows
//!  each iteration, write: lists + data ─► aggregator merges a window ─► one write for each covered run
//!                  read:  lists        ─► aggregator reads a window  ─► ranks copy their pieces out
//! ```
//! Ranks of a node exchange through memory, ranks of different nodes by TCP. Only collective calls use two-phase; independent
//! calls on the same file use the ordinary path.
//!
//! Never: keeps file data from one call to the next; sends a message between ranks of a node; writes bytes that no rank passed.
//! Always: a call returns when all of its data is in the file, with the same result on every rank; if a rank is dead, with an
//! error that names it.

mod candidates;
mod connect;
mod counts;
mod cover;
mod exchange;
mod list;
mod method;
mod plain;
mod plan;
mod rank_connection;
mod read;
mod remote_rank;
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
use self::counts::TwoPhaseCounters;
pub use self::counts::TwoPhaseCounts;
use self::cover::CoverBitmap;
use self::exchange::Exchange;
use self::list::RankRange;
pub(super) use self::method::TwoPhaseMethod;
pub use self::plain::{PlainFile, PlainMode};
use self::plan::{PlanShape, TwoPhasePlan, choose_aggregators, default_aggregators};
pub(crate) use self::rank_connection::RankConnection;
use self::read::TwoPhaseRead;
use self::segment::{Announcement, SegmentLayout};
pub(crate) use self::target::AggregatorTarget;
use self::write::TwoPhaseWrite;
use super::hints::Hints;
use crate::client::check_shown_once;
use crate::error::{Error, Result};
use crate::group::Group;

/// Default buffer of an aggregator, merged in one iteration: small enough to stay in a processor's cache.
pub const BUFFER_BYTES: u64 = 512 << 10;
/// Limits of the buffer size.
const BUFFER_BYTES_MIN: u64 = 16;
const BUFFER_BYTES_MAX: u64 = 256 << 20;
/// Smallest share of an aggregator in a slot.
const SHARE_BYTES_MIN: usize = 64;

/// Two-phase accesses of one file by one group.
#[derive(Debug)]
pub(crate) struct TwoPhase {
    group: Arc<dyn Group>,
    aggregators: Vec<usize>,
    window_bytes: u64,
    counters: Arc<TwoPhaseCounters>,
    made_in: u64,
    state: Mutex<ExchangeState>,
}

/// Created at the first call: opening a file costs no memory.
#[derive(Debug)]
enum ExchangeState {
    NotCreated,
    Created(Box<(Exchange, Buffers)>),
    /// The ranks are out of step; no further collective access is possible.
    Broken(Error),
}

/// An aggregator's memory; empty on other ranks.
#[derive(Debug)]
struct Buffers {
    window: Vec<u8>,
    /// Bytes of the window that any rank passed or wants.
    cover: CoverBitmap,
    /// Bytes that other ranks of this node want.
    near: CoverBitmap,
    /// Bytes that each rank of other nodes wants.
    far: Vec<Option<CoverBitmap>>,
    /// The list of the current step.
    list: Vec<u8>,
}

impl Buffers {
    fn new(window_bytes: usize, ranks: usize) -> Buffers {
        let cover = CoverBitmap::new(window_bytes);
        let far = (0..ranks).map(|_| None).collect();
        Buffers { window: vec![0; window_bytes], near: cover.clone(), cover, far, list: Vec::new() }
    }

    fn clear_wanted(&mut self) {
        self.cover.clear();
        self.near.clear();
        self.far.iter_mut().flatten().for_each(CoverBitmap::clear);
    }
}

/// Kinds of collective calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CallKind {
    Write = 1,
    Read = 2,
}

/// Outcome of a call: a result for the caller, and the fault that all ranks share.
type CallOutcome<T> = Result<(T, Option<Fault>)>;

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
                let text = format!(
                    "ranks 0 and {rank} do not agree on {what} of two-phase, which must be equal on all members"
                );
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
            state: Mutex::new(ExchangeState::NotCreated),
        })
    }

    /// The counters so far.
    pub(crate) fn counts(&self) -> TwoPhaseCounts {
        self.counters.read()
    }

    /// Collective write of `data` to a range of a view's stream. A rank that cannot take part passes its error, and all fail.
    pub(crate) fn write(
        &self,
        target: &dyn AggregatorTarget,
        place: Result<(&View, Range<u64>)>,
        data: &[u8],
    ) -> Result<()> {
        let once = |(view, stream): (_, Range<u64>)| {
            check_shown_once(view, &stream)?;
            Ok((view, stream))
        };
        self.call(target, CallKind::Write, place.and_then(once), |exchange, buffers, plan, reach| {
            let counters = &*self.counters;
            let fault = TwoPhaseWrite { exchange, buffers, plan, reach, data, target, counters }.run()?;
            Ok(((), fault))
        })
    }

    /// Collective read of a range of a view's stream; returns the number of bytes before the end of the file.
    pub(crate) fn read(
        &self,
        target: &dyn AggregatorTarget,
        place: Result<(&View, Range<u64>)>,
        memory: &mut [u8],
    ) -> Result<usize> {
        self.call(target, CallKind::Read, place, |exchange, buffers, plan, reach| {
            exchange.make_windows()?;
            let counters = &*self.counters;
            TwoPhaseRead { exchange, buffers, plan, reach, memory, target, counters, file_end: None }.run()
        })
    }

    /// One collective call: announce, plan, execute by `run`.
    fn call<T: Default>(
        &self,
        target: &dyn AggregatorTarget,
        kind: CallKind,
        place: Result<(&View, Range<u64>)>,
        run: impl FnOnce(&mut Exchange, &mut Buffers, &TwoPhasePlan, &RankRange<'_>) -> CallOutcome<T>,
    ) -> Result<T> {
        if self.made_in != fork_generation() {
            return Err(Fault::new(
                Code::Closed,
                "a collectively opened file is used in a forked child; reopen it there",
            )
            .into());
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, ExchangeState::NotCreated) {
            *state =
                self.make().map_or_else(ExchangeState::Broken, |made| ExchangeState::Created(Box::new(made)));
        }
        let (exchange, buffers) = match &mut *state {
            ExchangeState::Created(made) => (&mut made.0, &mut made.1),
            ExchangeState::Broken(error) => return Err(error.clone()),
            ExchangeState::NotCreated => unreachable!("it was just made"),
        };
        let whole = View::whole();
        let reach = place.as_ref().map(|(view, stream)| RankRange { view, stream: stream.clone() });
        let reach = reach.unwrap_or(RankRange { view: &whole, stream: 0..0 });
        let carry_out = || -> CallOutcome<Result<T>> {
            let said =
                Announcement { kind: kind as u32, span: reach.span(), fault: fault_of(place.as_ref().err()) };
            let all = exchange.announce(&said)?;
            if let Some(fault) = refusal(&all, exchange.me()) {
                return Ok((Err(fault.into()), None));
            }
            let spans: Vec<Range<u64>> = all.into_iter().map(|said| said.span).collect();
            let plan = TwoPhasePlan::new(&spans, self.shape(target));
            self.counters.call(plan.iterations());
            if plan.iterations() == 0 {
                return Ok((Ok(T::default()), None));
            }
            run(exchange, buffers, &plan, &reach).map(|(result, fault)| (Ok(result), fault))
        };
        match carry_out() {
            Ok((result, None)) => result,
            Ok((_, Some(fault))) => Err(fault.into()),
            Err(error) => {
                exchange.give_up(&error);
                *state = ExchangeState::Broken(error.clone());
                Err(error)
            }
        }
    }

    fn shape(&self, target: &dyn AggregatorTarget) -> PlanShape {
        let align_bytes = target.align_bytes();
        PlanShape { aggregators: self.aggregators.len(), window_bytes: self.window_bytes, align_bytes }
    }

    fn make(&self) -> Result<(Exchange, Buffers)> {
        let (ranks, count) = (self.group.size(), self.aggregators.len());
        let window_bytes = usize::try_from(self.window_bytes).expect("checked when the hint was given");
        // Twice a rank's equal share of an iteration: lists are sent with the data.
        let even = 2 * count * window_bytes / ranks;
        let slot_bytes = even.max(count * SHARE_BYTES_MIN);
        let form = SegmentLayout { ranks, aggregators: count, slot_bytes, window_bytes };
        let counters = Arc::clone(&self.counters);
        let exchange = Exchange::new(&self.group, form, self.aggregators.clone(), counters)?;
        let own_bytes = if exchange.aggregator_index.is_some() { window_bytes } else { 0 };
        Ok((exchange, Buffers::new(own_bytes, ranks)))
    }
}

fn check(hints: &Hints) -> std::result::Result<(), Fault> {
    let bytes = hints.buffer_bytes.unwrap_or(BUFFER_BYTES);
    if !(BUFFER_BYTES_MIN..=BUFFER_BYTES_MAX).contains(&bytes) {
        let text = format!(
            "a two-phase buffer of {bytes} bytes: the limits are {BUFFER_BYTES_MIN} to {BUFFER_BYTES_MAX}"
        );
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

/// Why a call is refused: a rank cannot take part, or the ranks make different calls.
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
