//! What a rule says about one line of one file.

use std::fmt;

/// A broken rule, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    /// The file, from the workspace's root.
    pub(crate) path: String,
    /// From 1.
    pub(crate) line: usize,
    /// The rule's name.
    pub(crate) rule: &'static str,
    /// What to do.
    pub(crate) advice: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_one_line() {
        let finding = Finding { path: "a/b.rs".into(), line: 7, rule: "length", advice: "split it".into() };
        assert_eq!(finding.to_string(), "a/b.rs:7: length: split it");
    }
}
