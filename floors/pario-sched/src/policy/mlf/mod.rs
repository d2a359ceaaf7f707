//! `mlf`: the paper's multilevel feedback for requests that aggregate.
//!
//! `rounds` is the base algorithm. On top of it each file has a quantum that follows its history (`history`), and a file that was chosen
//! with more quantum than its virtual request needs keeps the rest: the request that continues it is served next, without a choice, and
//! if there is none it may be worth waiting for it. That is one *turn*. Bytes served beyond the first virtual request count as rounds,
//! one for each base quantum: the quanta of all other requests grow by them.
//!
//! Promises: a request of `b` bytes is served within `ceil(max(b, aggregate_bytes_max) / quantum.bytes_min) + 17 n +
//! quantum.patience_choices` turns, where `n` is the largest number of virtual requests waiting meanwhile; a turn serves at most
//! `max(quantum.bytes_max, b)` bytes, with every virtual request counted as at least `quantum.bytes_min`.
//! Without adaptation a turn is one virtual request.
//!
//! Additions to the paper: a served file queue moves to the back of the order between files; the two queues of a file are ordered
//! separately; a queue that was served far more than others is deferred; bytes served beyond a choice count as rounds; a quantum does not
//! shrink below the size of one choice of its file; weights; and the bound above.

mod history;
mod rounds;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use self::history::{History, QuantumUse, SwitchMeter};
use self::rounds::{Brief, ChosenRequest, FileQueueKey, MlfRounds};
use super::{Policy, PolicyChoice, RunDone, Virtual, WaitingFigures};
use crate::options::{Options, QuantumOptions};
use crate::request::{ApplicationId, FileId};

/// A file's quantum in use.
#[derive(Debug, Clone, Copy)]
struct FileTurn {
    queue: FileQueueKey,
    /// End of the last virtual request.
    next: u64,
    given: u64,
    used: u64,
    /// Of these, the size of the choice itself.
    first: u64,
    /// Bytes issued and not finished.
    under_way: u64,
    /// Until when others are held back while a run is in progress.
    hold_until_us: Option<u64>,
    wait: Option<StreamWait>,
}

#[derive(Debug, Clone, Copy)]
struct StreamWait {
    until_us: u64,
    /// Since when another request could have been served instead.
    costs_since_us: Option<u64>,
}

/// Multilevel feedback.
#[derive(Debug)]
pub(crate) struct Mlf {
    options: QuantumOptions,
    rounds: MlfRounds,
    histories: HashMap<FileId, History>,
    meter: SwitchMeter,
    turn: Option<FileTurn>,
    figures: WaitingFigures,
}

impl Mlf {
    pub(crate) fn new(options: &Options) -> Self {
        let options = options.quantum;
        let rate_min = if options.adaptive { options.bytes_min } else { options.base_bytes };
        Self {
            rounds: MlfRounds::new(rate_min, options.patience_choices),
            histories: HashMap::new(),
            meter: SwitchMeter::new(options.switch),
            turn: None,
            figures: WaitingFigures::default(),
            options,
        }
    }

    fn rate(&self, file: FileId) -> u64 {
        self.histories.get(&file).map_or(self.options.base_bytes, History::quantum)
    }

    fn history(&mut self, file: FileId) -> &mut History {
        let (options, switch_us) = (&self.options, self.meter.switch_us());
        self.histories.entry(file).or_insert_with(|| History::new(options, switch_us))
    }

    /// The part of the turn's quantum that a virtual request uses.
    fn cost(&self, of: &Brief) -> u64 {
        of.bytes.max(self.options.bytes_min)
    }

    /// Continues the turn, or ends it (`None`).
    fn continue_turn(&mut self, now_us: u64) -> Option<PolicyChoice> {
        let turn = self.turn?;
        match self.continuation(&turn) {
            Some(of) if self.cost(&of) <= turn.given - turn.used => Some(self.serve_on(turn, of, now_us)),
            Some(_) => {
                self.end_turn(QuantumUse::Up);
                None
            }
            None => self.wait_on(turn, now_us),
        }
    }

    /// The request that continues the turn: the next one at or after its end, else the nearest before it, both within the window.
    fn continuation(&self, turn: &FileTurn) -> Option<Brief> {
        let window = self.options.window_bytes;
        let ahead = self.rounds.first_from(turn.queue, turn.next).filter(|of| of.start - turn.next <= window);
        ahead.or_else(|| {
            let behind = self.rounds.first_from(turn.queue, turn.next.saturating_sub(window))?;
            (behind.start < turn.next).then_some(behind)
        })
    }

    fn serve_on(&mut self, mut turn: FileTurn, of: Brief, now_us: u64) -> PolicyChoice {
        if let Some(since_us) = turn.wait.take().and_then(|wait| wait.costs_since_us) {
            let (waited_us, switch_us) = (now_us.saturating_sub(since_us), self.meter.switch_us());
            self.figures.won_us += self.history(turn.queue.file).hit(waited_us, switch_us);
            self.figures.hits += 1;
            self.figures.waited_hit_us += waited_us;
        }
        if let Some(taken) = self.rounds.take(of.id) {
            self.rounds.charge(&taken);
        }
        turn.used += self.cost(&of);
        turn.next = turn.next.max(of.end);
        turn.under_way += of.bytes;
        turn.hold_until_us = None;
        self.turn = Some(turn);
        if turn.used == turn.given {
            self.end_turn(QuantumUse::Up);
        }
        PolicyChoice::Serve(of.id)
    }

    /// No request continues the turn now: waits if that can save time, else ends the turn.
    fn wait_on(&mut self, mut turn: FileTurn, now_us: u64) -> Option<PolicyChoice> {
        let until_us = match turn.wait {
            Some(wait) => wait.until_us,
            None => self.begin_wait(&mut turn, now_us),
        };
        if until_us <= now_us {
            self.end_turn(QuantumUse::Partly { used: turn.used, given: turn.given });
            self.note_miss(&turn);
            return None;
        }
        if let Some(wait) =
            turn.wait.as_mut().filter(|wait| wait.costs_since_us.is_none() && !self.rounds.is_empty())
        {
            self.figures.waits += 1;
            wait.costs_since_us = Some(now_us);
        }
        self.turn = Some(turn);
        Some(if self.rounds.is_empty() { PolicyChoice::Nothing } else { PolicyChoice::Wait { until_us } })
    }

    /// Until when to wait. A synchronous stream cannot continue while its request is in progress, and the store is busy with that: others
    /// are held back, for a limited time, and the wait proper begins with the completion.
    fn begin_wait(&mut self, turn: &mut FileTurn, now_us: u64) -> u64 {
        let (switch_us, options) = (self.meter.switch_us(), self.options);
        let patience_us = self.history(turn.queue.file).wait_limit_us(switch_us, &options);
        if patience_us == 0 {
            return now_us;
        }
        if 0 < turn.under_way {
            return *turn.hold_until_us.get_or_insert(now_us.saturating_add(options.wait_us_max));
        }
        let until_us = now_us.saturating_add(patience_us);
        turn.wait = Some(StreamWait { until_us, costs_since_us: None });
        until_us
    }

    fn note_miss(&mut self, turn: &FileTurn) {
        let Some(StreamWait { until_us, costs_since_us: Some(since_us) }) = turn.wait else { return };
        let waited_us = until_us.saturating_sub(since_us);
        self.history(turn.queue.file).missed(waited_us);
        self.figures.waited_miss_us += waited_us;
    }

    fn end_turn(&mut self, used: QuantumUse) {
        if let Some(turn) = self.turn.take() {
            let options = self.options;
            self.history(turn.queue.file).adapt(used, turn.first, &options);
            self.rounds.pass((turn.used - turn.first) / options.base_bytes);
        }
    }

    /// Ends the turn of a file without recording the use of its quantum.
    fn drop_turn(&mut self, file: FileId) {
        if let Some(turn) = self.turn.take_if(|turn| turn.queue.file == file) {
            self.rounds.pass((turn.used - turn.first) / self.options.base_bytes);
        }
    }

    /// A new turn for the request that a round has chosen.
    fn begin_turn(&mut self, taken: &ChosenRequest) {
        if !self.options.adaptive {
            return;
        }
        let used = self.cost(&taken.of);
        let given = taken.quantum.min(self.options.bytes_max).max(used);
        let (lane, next, under_way) = (taken.queue, taken.of.end, taken.of.bytes);
        self.turn = Some(FileTurn {
            queue: lane,
            next,
            given,
            used,
            first: used,
            under_way,
            hold_until_us: None,
            wait: None,
        });
        if used == given {
            self.end_turn(QuantumUse::Up);
        }
    }
}

impl Policy for Mlf {
    fn insert(&mut self, new: &Virtual, _now_us: u64) {
        let (options, switch_us) = (self.options, self.meter.switch_us());
        let waits = self.turn.is_some_and(|turn| turn.queue.file == new.file);
        if options.adaptive
            && let Some(history) = self.histories.get_mut(&new.file)
        {
            let thought = history.request_arrived(new.kind, new.start, new.arrival_us, &options);
            if let Some(thought_us) = thought.filter(|_| !waits) {
                history.would_have_hit(thought_us, switch_us);
            }
        }
        self.rounds.insert(new, self.rate(new.file));
    }

    fn update(&mut self, changed: &Virtual, _now_us: u64) {
        self.rounds.update(changed, self.rate(changed.file));
    }

    fn merge(&mut self, into: &Virtual, gone: &Virtual, _now_us: u64) {
        self.rounds.merge(into, gone, self.rate(into.file));
    }

    fn remove(&mut self, gone: &Virtual) {
        self.rounds.take(gone.id);
    }

    fn pick(&mut self, now_us: u64) -> PolicyChoice {
        if let Some(choice) = self.continue_turn(now_us) {
            return choice;
        }
        let Some(taken) = self.rounds.choose() else { return PolicyChoice::Nothing };
        self.begin_turn(&taken);
        PolicyChoice::Serve(taken.of.id)
    }

    fn finished(&mut self, run: &RunDone, now_us: u64) {
        if !self.options.adaptive {
            return;
        }
        self.meter.run_ended(run.bytes, run.service_us, run.follows);
        let options = self.options;
        self.history(run.file).run_ended(run.kind, run.end, now_us);
        if let Some(turn) =
            self.turn.as_mut().filter(|turn| (turn.queue.file, turn.queue.kind) == (run.file, run.kind))
        {
            turn.under_way = turn.under_way.saturating_sub(run.bytes);
        }
        if run.short {
            self.history(run.file).reset(&options);
            self.drop_turn(run.file);
        }
    }

    fn set_weight(&mut self, application: ApplicationId, weight: u32) {
        self.rounds.set_weight(application, weight);
    }

    fn forget_file(&mut self, file: FileId) {
        self.histories.remove(&file);
        self.drop_turn(file);
        self.rounds.forget_file(file);
    }

    fn forget_application(&mut self, application: ApplicationId) {
        self.rounds.forget_application(application);
    }

    fn take_visited(&mut self) -> u64 {
        self.rounds.take_visited()
    }

    fn waiting(&self) -> WaitingFigures {
        self.figures
    }
}
