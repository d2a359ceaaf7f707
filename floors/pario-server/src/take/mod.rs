//! Taking: one thread per server that moves records from the node's outboxes, and writes sent by message, into the store.
//!
//! Never: lets a record that was committed before another began win over it. Always: a cursor moves only when everything before
//! it is in the store or its error is kept.

mod ahead;
mod batch;
mod circles;
mod cut;
mod due;
mod join;
mod lives;
mod meetings;
mod outboxes;
mod patience;
mod run;
mod scan;
mod shared;
mod shares;
mod watch;
mod window;
mod writer;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError};
use pario_core::limits::FILE_BYTES_MAX;
use pario_core::{Clock, Code, Fault, InodeId, Layout, LocalOffset, Nanos, ObjectId, ServerIndex, SessionId};
use pario_net::buffers;
use pario_net::outbox::{CursorPage, OutboxReader, Sleep};
use pario_store::Store;
use pario_sys::clock::MonotonicClock;
use pario_sys::doorbell::Doorbell;
use pario_sys::kill_point::{Point, reach};
use pario_sys::piece::Piece;
use pario_view::View;

pub(crate) use self::batch::Amount;
use self::batch::{Batch, Packing, Source, Stamp, Streamed};
use self::cut::Row;
use self::lives::Lives;
pub use self::lives::LivesSpec;
use self::outboxes::{Outboxes, Pressure};
use self::patience::{Choice, Mood, Patience, Upto};
use self::scan::{Portion, Scan};
use self::shares::Shares;
use self::watch::Watch;
use self::writer::{Errors, Ground};
use crate::desk::Desk;
use crate::stats::ServerStats;
use crate::views::Views;

/// Longest sleep while outboxes are attached: what was committed below the wake threshold is taken then.
const NAP_SHORT: Duration = Duration::from_millis(50);
/// Sleep when nothing was found for a while.
const NAP_LONG: Duration = Duration::from_secs(1);
/// How soon a direct write that holds up an older record is looked at again.
const DIRECT_LOOK_NS: u64 = 500_000;
/// Memory for more rows than this, 12 MiB, is not kept from round to round.
const ROOM_ROWS_MAX: usize = 1 << 19;
/// Naps without finding anything before they become long.
const NAPS_SHORT: u32 = 20;

/// Called when something was done, from the taking thread.
pub(crate) type Done<T> = Box<dyn FnOnce(Result<T, Fault>) + Send>;

/// What the service asks of the taking thread.
pub(crate) enum Task {
    /// A session offers its outbox.
    Attach { session: SessionId, outbox: OutboxReader, cursor: CursorPage, from: u64, done: Done<()> },
    /// A session is gone: take what it had committed, then forget it.
    Detach { session: SessionId },
    /// Answer when everything committed so far by a session is in the store.
    Drain { session: SessionId, done: Done<()> },
    /// Answer when everything committed so far by anybody is in the store.
    TakeAll { done: Done<()> },
    /// Which files may be written behind has changed.
    Grant,
    /// A write that came as a message.
    Write { write: ByValue, done: Done<()> },
    /// A session makes a view known.
    DefineView { session: SessionId, view: u32, bytes: Vec<u8>, done: Done<()> },
    /// A session will not use a view again.
    ForgetView { session: SessionId, view: u32, done: Done<()> },
    /// Errors kept for a session's file.
    Errors { session: SessionId, inode: InodeId, done: Done<Vec<Fault>> },
    /// Take everything, then end.
    Stop { done: Done<()> },
}

/// A write that came as a message, with its bytes.
pub(crate) struct ByValue {
    pub(crate) object: ObjectId,
    pub(crate) to: Target,
    pub(crate) data: Vec<u8>,
}

impl ByValue {
    /// Fails if it goes beyond every file.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let Target::Bytes(at) = self.to else { return Ok(()) };
        match at.0.checked_add(self.data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX) {
            Some(_) => Ok(()),
            None => {
                Err(Fault::new(Code::TooLarge, format!("byte {} of an object is beyond every file", at.0)))
            }
        }
    }

    /// From its first to its last byte in the object of a server.
    fn bytes(&self, index: ServerIndex) -> Range<u64> {
        let (view, layout, stream) = match &self.to {
            Target::Bytes(at) => return at.0..at.0.saturating_add(self.data.len() as u64),
            Target::Stream { stream, .. } if stream.is_empty() => return 0..0,
            Target::Stream { view, layout, stream } => (view, layout, stream.clone()),
        };
        let file = match view {
            None => Some(stream),
            Some(view) => view
                .file_offset(stream.start)
                .zip(view.file_offset(stream.end - 1))
                .map(|(first, last)| first..last.saturating_add(1)),
        };
        file.map_or(0..u64::MAX, |file| layout.local_range(index, file))
    }
}

/// Where the bytes of a message go.
pub(crate) enum Target {
    /// To one place of the object.
    Bytes(LocalOffset),
    /// By a view; the bytes are this server's part of a range of its stream.
    Stream { view: Option<Arc<View>>, layout: Layout, stream: Range<u64> },
}

/// What the taking thread tells the service unasked.
pub(crate) type LieHandler = Box<dyn Fn(SessionId, String) + Send>;

/// Handle of the taking thread.
#[derive(Clone)]
pub(crate) struct Taker {
    tasks: Sender<Task>,
    doorbell: Arc<Doorbell>,
    views: Views,
}

impl Taker {
    /// Starts the thread of server `index`.
    pub(crate) fn start(
        index: ServerIndex,
        (store, desk, lives): (Arc<dyn Store>, Option<Arc<Desk>>, Option<&LivesSpec>),
        stats: Arc<ServerStats>,
        on_lie: LieHandler,
        on_end: Box<dyn Fn() + Send>,
    ) -> std::io::Result<Taker> {
        let (tasks, inbox) = crossbeam_channel::unbounded();
        let (doorbell, views) = (Arc::new(Doorbell::new()?), Views::default());
        let lives = lives.and_then(|spec| Lives::begin(spec, &lives::boot(), MonotonicClock.now()));
        let worker = Worker {
            index,
            store,
            desk,
            stats,
            on_lie,
            views: views.clone(),
            watch: Watch::default(),
            patience: Patience::new(std::thread::available_parallelism().map_or(1, usize::from)),
            wait_until: None,
            rests: false,
            knows_of: Waiting::default(),
            hurry: false,
            more: false,
            shares: Shares::default(),
            room: Vec::new(),
            inbox,
            doorbell: Arc::clone(&doorbell),
            outboxes: Outboxes::default(),
            lives,
            writes: Vec::new(),
            drains: Vec::new(),
            take_alls: Vec::new(),
            stop: None,
            clock: MonotonicClock,
        };
        std::thread::Builder::new().name(format!("pario-take-{index}")).spawn(move || {
            let _alarm = Alarm(on_end);
            worker.run();
        })?;
        Ok(Taker { tasks, doorbell, views })
    }

    /// Hands over a task; the channel is bounded by the requests that clients may have in flight.
    pub(crate) fn post(&self, task: Task) {
        // The thread ends only after `Stop`, and nothing is posted after that which somebody still waits for.
        if self.tasks.send(task).is_ok() {
            let _ = self.doorbell.ring();
        }
    }

    /// Views that clients have made known.
    pub(crate) fn views(&self) -> &Views {
        &self.views
    }

    /// What clients ring.
    pub(crate) fn doorbell(&self) -> Arc<Doorbell> {
        Arc::clone(&self.doorbell)
    }
}

/// Sounds when the thread dies of a bug: a server that answers but takes nothing would keep its clients waiting for ever.
struct Alarm(Box<dyn Fn() + Send>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

/// A write by message, whom to tell, and when it came.
type Message = (ByValue, Done<()>, Nanos);

/// What a round does with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MessageFate {
    Written,
    /// It is not what its view asks for.
    Refused,
    /// Older records of its bytes must be over first.
    Waits,
}

/// A drain under way: done when the session's cursor has reached the position.
struct Drain {
    session: SessionId,
    position: u64,
    done: Done<()>,
}

/// The same for all sessions.
struct TakeAll {
    positions: Vec<(SessionId, u64)>,
    done: Done<()>,
}

/// Whether somebody waits for its records, and not together with its group.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Waiting {
    any: bool,
    alone: bool,
}

impl Waiting {
    /// Whether something is new in `now`.
    fn lacks(self, now: Waiting) -> bool {
        (now.any && !self.any) || (now.alone && !self.alone)
    }
}

/// What a round did.
struct Taken {
    /// There was something to write.
    found: bool,
    /// It came further, and not all that it saw is over yet. Only asked of shared rounds.
    more: bool,
    /// Bytes that came from each outbox; empty where nobody counts them.
    by_place: Vec<u64>,
}

struct Worker {
    index: ServerIndex,
    store: Arc<dyn Store>,
    desk: Option<Arc<Desk>>,
    stats: Arc<ServerStats>,
    on_lie: LieHandler,
    inbox: Receiver<Task>,
    doorbell: Arc<Doorbell>,
    outboxes: Outboxes,
    /// What is known of earlier lives of this server, where there can be some.
    lives: Option<Lives>,
    views: Views,
    patience: Patience,
    watch: Watch,
    /// Records are left alone until then, unless something new comes.
    wait_until: Option<Nanos>,
    /// Until then what comes is not even looked at, while nobody waits and no outbox is half full.
    rests: bool,
    /// Who waited for its records, as the last round knew.
    knows_of: Waiting,
    /// Records were taken in part that must be over before newer ones are.
    hurry: bool,
    /// The last round left something for the next one.
    more: bool,
    shares: Shares,
    /// Memory for the next round's pieces, while there are rounds.
    room: Vec<Row>,
    writes: Vec<Message>,
    drains: Vec<Drain>,
    take_alls: Vec<TakeAll>,
    stop: Option<Done<()>>,
    clock: MonotonicClock,
}

impl Worker {
    fn run(mut self) {
        let mut idle_naps = 0;
        self.watch = Watch::of_this_thread();
        loop {
            self.read_tasks();
            let found = self.round();
            self.finish_drains();
            if self.stop.is_some() && self.outboxes.reached_stop() && self.writes.is_empty() {
                if let Some(lives) = self.lives.take().filter(|_| self.outboxes.is_empty()) {
                    lives.end();
                }
                if let Some(done) = self.stop.take() {
                    done(Ok(()));
                }
                return;
            }
            idle_naps = if found { 0 } else { idle_naps + 1 };
            self.sleep(idle_naps);
        }
    }

    fn read_tasks(&mut self) {
        loop {
            match self.inbox.try_recv() {
                Ok(task) => self.accept(task),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.stop.get_or_insert_with(|| Box::new(|_| ()));
                    return;
                }
            }
        }
    }

    fn accept(&mut self, task: Task) {
        match task {
            Task::Attach { session, outbox, cursor, from, done } => {
                self.outboxes.attach(session, outbox, cursor, from);
                if let Some(lives) = &mut self.lives {
                    lives.came(session, self.clock.now());
                }
                self.patience.forget_places();
                self.outboxes.grant(self.store.as_ref());
                reach(Point::OfferTaken);
                done(Ok(()));
            }
            Task::Detach { session } => {
                if !self.outboxes.leave(session) {
                    self.views.end(session);
                }
            }
            Task::DefineView { session, view, bytes, done } => done(self.views.define(session, view, &bytes)),
            Task::ForgetView { session, view, done } => {
                self.views.forget(session, view);
                self.outboxes.forget_read();
                done(Ok(()));
            }
            Task::Drain { session, done } => match self.outboxes.tail(session) {
                Some(position) => self.drains.push(Drain { session, position, done }),
                None => done(Ok(())),
            },
            Task::TakeAll { done } => {
                self.outboxes.grant(self.store.as_ref());
                self.take_alls.push(TakeAll { positions: self.outboxes.tails(), done });
            }
            Task::Grant => self.outboxes.grant(self.store.as_ref()),
            Task::Write { write, done } => self.writes.push((write, done, self.clock.now())),
            Task::Errors { session, inode, done } => done(Ok(self.outboxes.take_errors(session, inode))),
            Task::Stop { done } => {
                self.outboxes.mark_stop();
                self.stop = Some(done);
            }
        }
    }

    /// Takes what is there. Only records committed before the round began: then every record that had been committed before
    /// one of them is among them, whichever outbox it is in, and the order of commits is the order in the store.
    fn round(&mut self) -> bool {
        self.outboxes.begin_round();
        let scan = self.outboxes.scan(self.index, &self.views);
        (self.more, self.rests) = (false, false);
        if let Some(circles) = self.circles(&scan) {
            return self.shared_round(scan, &circles);
        }
        let upto = self.upto(&scan);
        self.take(scan, &Portion::Same(upto)).found
    }

    /// Writes what is to be taken and moves the cursors.
    fn take(&mut self, mut scan: Scan, portion: &Portion) -> Taken {
        let writes = std::mem::take(&mut self.writes);
        let mut batch = Batch::with_room(self.index, std::mem::take(&mut self.room));
        let ahead = self.lives.as_ref().and_then(Lives::ahead);
        let mut advance = scan.fill(&self.outboxes, portion, (&mut batch, ahead));
        let mut fates = vec![MessageFate::Written; writes.len()];
        for (number, (write, _, arrived)) in writes.iter().enumerate() {
            // Were they written now, those records would come over them: in a later round, or taken by a successor.
            if scan.leaves_older(&advance, (write.object, &write.bytes(self.index)), *arrived) {
                fates[number] = MessageFate::Waits;
            } else if !add_message(&mut batch, write, number, *arrived) {
                fates[number] = MessageFate::Refused;
            }
        }
        let found = !batch.is_empty();
        if found {
            reach(Point::DrainHeads);
        }
        let ground = Ground {
            store: self.store.as_ref(),
            desk: self.desk.as_ref(),
            stats: &self.stats,
            outboxes: Some(&self.outboxes),
            ahead,
        };
        let began = if found { self.watch.look(self.clock.now()) } else { None };
        let mut errors = batch.apply(&ground);
        let ended = if found { self.watch.look(self.clock.now()) } else { None };
        self.watch.note(began, ended);
        let by_place = self.count(&batch);
        self.room =
            Some(batch.into_room()).filter(|room| room.capacity() <= ROOM_ROWS_MAX).unwrap_or_default();
        if found {
            reach(Point::DrainRound);
        }
        self.outboxes.end_round();
        if let Some((lives, marks)) = self.lives.as_mut().zip(errors.marks.take()) {
            lives.note(marks, self.clock.now());
        }
        let out_of_order = portion.is_by_place() && (errors.overlap || scan.crosses(portion, &advance));
        let more = matches!(portion, Portion::Each(_))
            && scan.first_left(&advance, &|_| true).is_some()
            && (found || advance.positions != self.outboxes.positions());
        if out_of_order {
            advance = scan.in_order(&self.outboxes, advance, portion);
        }
        let ended = self.outboxes.settle(&advance, &errors, &self.stats);
        let lies = std::mem::take(&mut scan.lies);
        if ended.is_empty() && lies.is_empty() {
            self.outboxes.keep(scan);
        }
        for session in ended {
            self.views.end(session);
            self.patience.forget_places();
        }
        // Until nothing is taken in part: a direct write under way may keep some of it back for a while.
        self.hurry = out_of_order || (self.hurry && self.outboxes.has_parts());
        // Not before the cursors have moved: a successor would take those records again, over what was answered.
        self.answer_messages(writes, &errors, &fates);
        for (session, what) in lies {
            self.outboxes.shut_out(session);
            self.views.end(session);
            self.patience.forget_places();
            (self.on_lie)(session, what);
        }
        if found {
            self.outboxes.grant(self.store.as_ref());
        }
        Taken { found, more, by_place }
    }

    /// Tells the desk, if there is one, whose records are taken.
    fn count(&self, batch: &Batch<'_>) -> Vec<u64> {
        let Some(desk) = &self.desk else { return Vec::new() };
        let amounts = batch.by_place(self.outboxes.len());
        let some = amounts.iter().enumerate().filter(|(_, amount)| 0 < amount.records);
        if some.clone().next().is_some() {
            desk.count_taken(some.map(|(place, amount)| (self.outboxes.at(place).session, *amount)));
        }
        amounts.iter().map(|amount| amount.bytes).collect()
    }

    /// What this round takes of all outboxes.
    fn upto(&mut self, scan: &Scan) -> Upto {
        // A message must not overtake records that were committed before it came.
        let mood = self.mood(!self.writes.is_empty());
        let (upto, until) = self.decide(scan, mood, &|_| true);
        self.wait_until = until;
        upto
    }

    /// How things stand around the records.
    fn mood(&mut self, urgent: bool) -> Mood {
        let Pressure { leaving, waits, alone, full, half } = self.outboxes.pressure();
        self.knows_of = Waiting { any: waits, alone };
        self.patience.see_gathering(self.outboxes.gathering());
        let waited_for = !self.drains.is_empty() || !self.take_alls.is_empty();
        let urgent = urgent || leaving || waited_for || self.stop.is_some() || self.hurry;
        let slow = self.watch.store_is_slow();
        Mood { now: self.clock.now(), urgent, waits, gathers: waits && !alone, full, half, slow }
    }

    /// How much of some outboxes may be taken now, and when to look again at the rest.
    fn decide(&mut self, scan: &Scan, mood: Mood, of: &dyn Fn(usize) -> bool) -> (Upto, Option<Nanos>) {
        let choice = self.patience.choose(&scan.due(of), mood);
        let look_again = Nanos(self.clock.now().0 + DIRECT_LOOK_NS);
        match (choice, scan.held_up(&self.outboxes, of)) {
            (Choice::Wait { until }, _) => (Upto::NOTHING, Some(until)),
            (Choice::Rest { until }, _) => {
                self.rests = true;
                (Upto::NOTHING, Some(until))
            }
            (Choice::Take(Upto::Committed(before)), Some(held_up)) => {
                (Upto::Committed(before.min(held_up)), Some(look_again))
            }
            (Choice::Take(Upto::Below(_)), Some(held_up)) => (Upto::Committed(held_up), Some(look_again)),
            (Choice::Take(upto), None) => (upto, None),
        }
    }

    fn answer_messages(&mut self, writes: Vec<Message>, errors: &Errors, fates: &[MessageFate]) {
        for (number, (write, done, arrived)) in writes.into_iter().enumerate() {
            if fates[number] == MessageFate::Waits {
                self.writes.push((write, done, arrived));
                continue;
            }
            let what = format!("writing {} bytes of object {}", write.data.len(), write.object);
            match errors.of_message(number) {
                _ if fates[number] == MessageFate::Refused => {
                    done(Err(Fault::new(Code::Protocol, format!("{what}: not what the view asks for"))));
                }
                Some(error) => done(Err(error.clone().at(what))),
                None => done(Ok(())),
            }
            buffers::give_back(write.data);
        }
    }

    fn finish_drains(&mut self) {
        let outboxes = &self.outboxes;
        let ready = |drain: &Drain| outboxes.taken(drain.session).is_none_or(|taken| drain.position <= taken);
        let (finished, waiting) = std::mem::take(&mut self.drains).into_iter().partition::<Vec<_>, _>(ready);
        self.drains = waiting;
        for drain in finished {
            (drain.done)(Ok(()));
        }
        let outboxes = &self.outboxes;
        let reached = |(session, position): &(SessionId, u64)| {
            outboxes.taken(*session).is_none_or(|taken| *position <= taken)
        };
        let ready = |all: &TakeAll| all.positions.iter().all(reached);
        let (finished, waiting) =
            std::mem::take(&mut self.take_alls).into_iter().partition::<Vec<_>, _>(ready);
        self.take_alls = waiting;
        for all in finished {
            (all.done)(Ok(()));
        }
    }

    /// Sleeps until a client or the service rings, or a nap is over. Says so first, then looks a last time.
    fn sleep(&mut self, idle_naps: u32) {
        self.outboxes.fall_asleep(if self.rests { Sleep::Resting } else { Sleep::Light });
        let waited_for = !self.drains.is_empty() || !self.take_alls.is_empty();
        let presses = self.hurry || waited_for || self.stop.is_some() || !self.writes.is_empty();
        let busy = self.more || (self.wait_until.is_none() && presses);
        let pressure = self.outboxes.pressure();
        let is_disturbed = self.rests && (pressure.half || pressure.full);
        let waiting = Waiting { any: pressure.waits, alone: pressure.alone };
        let news = pressure.leaving || self.knows_of.lacks(waiting) || is_disturbed;
        let waits = self.wait_until.is_some() && !news;
        if self.inbox.is_empty() && !busy && (waits || !self.outboxes.wants_service()) {
            let limit = match (self.wait_until, self.outboxes.is_empty(), idle_naps < NAPS_SHORT) {
                (Some(until), _, _) => Some(until.since(self.clock.now())),
                (None, true, _) => None,
                (None, false, true) => Some(NAP_SHORT),
                (None, false, false) => Some(NAP_LONG),
            };
            if limit.is_none_or(|limit| NAP_LONG <= limit) {
                self.room = Vec::new();
                self.outboxes.rest();
            }
            if let Err(error) = self.doorbell.wait(limit) {
                tracing::warn!(%error, "the taking thread cannot wait for its doorbell");
            }
        }
        // Rung or not, the next round looks everywhere.
        let _ = self.doorbell.take();
        self.outboxes.fall_asleep(Sleep::Awake);
    }
}

fn add_message<'a>(batch: &mut Batch<'a>, write: &'a ByValue, number: usize, arrived: Nanos) -> bool {
    let stamp = Stamp { committed: arrived, source: Source::Message(number), position: 0 };
    let data = Piece::from(write.data.as_slice());
    match &write.to {
        Target::Bytes(at) => {
            batch.add_bytes(write.object, *at, stamp, data);
            true
        }
        Target::Stream { view, layout, stream } => {
            let streamed = Streamed {
                view: view.as_deref(),
                layout: *layout,
                stream: stream.clone(),
                local: 0..u64::MAX,
            };
            batch.add_stream(write.object, stamp, &streamed, (Packing::Part, data))
        }
    }
}

/// The fault of a store, told with its server.
pub(crate) fn store_fault(index: ServerIndex, error: &pario_store::StoreError) -> Fault {
    let fault = Fault::from(error);
    if fault.code == Code::NoSpace {
        return Fault::new(Code::NoSpace, format!("server {index} is full: {}", fault.text));
    }
    fault.at(format!("server {index}"))
}

#[cfg(test)]
#[path = "take_tests.rs"]
mod tests;
