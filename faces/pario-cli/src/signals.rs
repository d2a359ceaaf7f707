//! Signals that end a long operation: noted and checked, so that no partial result is left.
//!
//! Always: the second signal of a kind ends the process immediately.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use pario::transfer::{TransferError, TransferResult};

use crate::error::{CliError, CliResult, signal_code};

/// Signals that end an operation.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Those not ignored by this process (`nohup` and shells ignore some for background commands).
pub(crate) fn heeded() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ENDING.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect()
}

/// Stop flag, shared by all threads of an operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// Stops with this signal.
    pub(crate) fn set(&self, signal: i32) {
        self.signal.store(usize::try_from(signal).unwrap_or(0), Ordering::Release);
    }

    /// The signal received, if any.
    pub(crate) fn signal(&self) -> Option<i32> {
        i32::try_from(self.signal.load(Ordering::Acquire)).ok().filter(|signal| *signal != 0)
    }

    /// Fails if a signal was received.
    pub(crate) fn check(&self) -> CliResult {
        match self.signal() {
            Some(signal) => Err(CliError::Interrupted { signal }),
            None => Ok(()),
        }
    }

    /// The result of a library operation that this flag may have stopped.
    pub(crate) fn outcome<T>(&self, done: TransferResult<T>) -> CliResult<T> {
        if matches!(done, Err(TransferError::Stopped)) {
            self.check()?;
        }
        Ok(done?)
    }

    /// From now on these signals set the flag instead of ending the process; the second of a kind ends it.
    pub(crate) fn catch(&self) -> CliResult {
        for signal in heeded() {
            let again = Arc::new(AtomicBool::new(false));
            let number = usize::try_from(signal).unwrap_or(0);
            let code = i32::from(signal_code(signal));
            // Registration order matters: the first signal finds `again` unset and then sets it.
            signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&again))
                .and_then(|_| signal_hook::flag::register(signal, again))
                .and_then(|_| signal_hook::flag::register_usize(signal, Arc::clone(&self.signal), number))
                .map_err(|error| CliError::failed(format!("cannot catch signal {signal}: {error}")))?;
        }
        Ok(())
    }
}
