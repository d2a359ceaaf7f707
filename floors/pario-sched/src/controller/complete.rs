//! `complete`: a request is finished. Always: requests blocked by its bytes are checked again before the call returns.

use super::{Controller, SchedulingState};
use crate::error::NotRunning;
use crate::policy::RunDone;
use crate::request::{IoKind, Outcome, RequestId};
use crate::trace::TraceEvent;

/// Times of a finished request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTimes {
    /// From arrival to `next`.
    pub waited_us: u64,
    /// From `next` to `complete`.
    pub service_us: u64,
}

impl Controller {
    /// A part of a run is finished. Each part is reported separately, in any order.
    ///
    /// # Errors
    /// The request is not running; the controller is unchanged.
    pub fn complete(
        &mut self,
        id: RequestId,
        now_us: u64,
        outcome: Outcome,
    ) -> Result<RequestTimes, NotRunning> {
        let now_us = self.tick(now_us);
        let entry = self.entry(id).ok_or(NotRunning(id))?;
        let SchedulingState::Running { since_us, run } = entry.state else { return Err(NotRunning(id)) };
        let (request, places) = (entry.request, entry.slots());
        self.running.remove(&(since_us, id));
        self.trace.note(now_us, id.sequence, TraceEvent::Complete { outcome });
        let service_us = now_us.saturating_sub(since_us);
        let late = request.deadline_us.is_some_and(|deadline_us| deadline_us < now_us);
        self.count(places, |totals| {
            totals.service_us.record(service_us);
            totals.late += u64::from(late);
            match outcome {
                Outcome::Done { bytes } => totals.note_done(request.kind, bytes),
                Outcome::Failed => totals.failed += 1,
            }
        });
        let short = request.kind == IoKind::Read
            && matches!(outcome, Outcome::Done { bytes } if bytes < request.length);
        self.end_part(run, short, now_us);
        self.leave(id);
        self.forget_if_gone(request.application, places.application);
        Ok(RequestTimes { waited_us: since_us.saturating_sub(request.arrival_us), service_us })
    }

    /// The policy is informed of a run when its last part is finished.
    fn end_part(&mut self, slot: usize, short: bool, now_us: u64) {
        let Some(run) = self.runs[slot].as_mut() else { return };
        run.parts_left -= 1;
        run.short |= short;
        if run.parts_left == 0
            && let Some(run) = self.runs[slot].take()
        {
            self.runs_free.push(slot);
            let service_us = now_us.saturating_sub(run.since_us);
            let super::RunningIo { file, kind, end, bytes, follows, short, .. } = run;
            self.policy.finished(&RunDone { file, kind, end, bytes, service_us, follows, short }, now_us);
        }
    }
}
