//! The only module that catches panics of redb.
//!
//! redb validates its input by assertions: a damaged page makes it panic rather than fail. The manager must survive that, so every call
//! into redb goes through [`guarded`], which turns a panic into [`Code::Corrupt`]. Always: a database is not used again after a panic; it
//! is reopened, which checks all of its pages, or replaced by the second copy.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pario_core::{Code, Fault};

/// Runs `work`, which uses redb; a panic in it means that the database is damaged.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    // State changed by `work` is not used after a panic: see the module.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        let text = text.lines().next().unwrap_or_default();
        Err(Fault::new(Code::Corrupt, format!("names: the database is damaged (redb: {text})")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_fault() {
        let fault = guarded::<()>(|| panic!("page {} is odd", 3)).unwrap_err();
        assert_eq!(fault.code, Code::Corrupt);
        assert!(fault.text.contains("page 3 is odd"), "{fault}");
        assert_eq!(guarded(|| Ok(7)).unwrap(), 7);
    }
}
