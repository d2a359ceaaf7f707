//! A rule violation at one line of one file.

use std::fmt;

/// A violated rule, and its cure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RuleFinding {
    /// The file, from the workspace's root.
    pub(crate) path: String,
    /// From 1.
    pub(crate) line: usize,
    /// The rule's name.
    pub(crate) rule: &'static str,
    /// What to do.
    pub(crate) advice: String,
}

impl fmt::Display for RuleFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_one_line() {
        let finding =
            RuleFinding { path: "a/b.rs".into(), line: 7, rule: "length", advice: "split it".into() };
        assert_eq!(finding.to_string(), "a/b.rs:7: length: split it");
    }
}
