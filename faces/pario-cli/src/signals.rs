//! Signals that end a long operation: noticed, not obeyed on the spot, so that nothing half-made stays behind.
//!
//! Always: the second signal of a kind ends the process at once; a person who asks twice means it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::{CliError, Outcome, signal_code};

/// The signals that end things.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Those of them that this process was not told to ignore, as `nohup` and shells do for commands in the background.
pub(crate) fn heeded() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ENDING.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect()
}

/// Whether to stop, shared by all threads of an operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// Stops with this signal.
    pub(crate) fn set(&self, signal: i32) {
        self.signal.store(usize::try_from(signal).unwrap_or(0), Ordering::Release);
    }

    /// The signal that came, if one did.
    pub(crate) fn signal(&self) -> Option<i32> {
        i32::try_from(self.signal.load(Ordering::Acquire)).ok().filter(|signal| *signal != 0)
    }

    /// Fails when a signal came.
    pub(crate) fn check(&self) -> Outcome {
        match self.signal() {
            Some(signal) => Err(CliError::Interrupted { signal }),
            None => Ok(()),
        }
    }

    /// From now on the ending signals set this instead of ending the process; the second of a kind ends it.
    pub(crate) fn catch(&self) -> Outcome {
        for signal in heeded() {
            let again = Arc::new(AtomicBool::new(false));
            let number = usize::try_from(signal).unwrap_or(0);
            let code = i32::from(signal_code(signal));
            // In this order: the first signal finds `again` unset and sets it behind.
            signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&again))
                .and_then(|_| signal_hook::flag::register(signal, again))
                .and_then(|_| signal_hook::flag::register_usize(signal, Arc::clone(&self.signal), number))
                .map_err(|error| CliError::failed(format!("cannot catch signal {signal}: {error}")))?;
        }
        Ok(())
    }
}
