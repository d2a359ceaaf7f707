//! The end of a command that does one thing to several names.

use crate::context::Context;
use crate::error::{CliError, CliResult};

/// The exit code of several operations after all failures were printed: partial success if any succeeded.
pub(super) fn end_of_many(context: &Context, failures: Vec<CliError>, done: usize) -> CliResult {
    if failures.is_empty() {
        return Ok(());
    }
    context.flush()?;
    let code = if done == 0 { failures[0].code() } else { crate::error::EXIT_PARTLY };
    failures.iter().for_each(|failure| context.complain(failure));
    Err(CliError::Reported { code })
}
