//! The controller: holds every request from `post` to `complete`, and asks the policy which is next.
//!
//! Never: loses a request, issues one twice, or lets a request overtake an earlier one to the same bytes when one of them writes. Always:
//! an unfinished request is held (see `order`), waiting in a virtual request, ready (its virtual request was picked), or running; the
//! policy knows exactly the waiting ones.

mod complete;
mod core;
mod post;
mod serve;
mod state;
mod watch;

pub use self::complete::RequestTimes;
pub use self::core::Controller;
use self::state::{ApplicationEntry, CounterSlots, FileQueues, RequestEntry, RunningIo, SchedulingState};
pub use self::watch::Overdue;
