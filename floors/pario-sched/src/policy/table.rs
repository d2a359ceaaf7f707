//! The table of all policies by name.
//!
//! Always: one line per policy; tests and benchmarks run over the table.

use super::{Policy, deadline, fifo, mlf, sjf, tbf, wfq, wsjf};
use crate::error::SetupError;
use crate::options::Options;

type MakePolicy = fn(&Options) -> Box<dyn Policy>;

/// Every policy by name.
const TABLE: &[(&str, MakePolicy)] = &[
    ("fifo", |_| Box::new(fifo::Fifo::default())),
    ("mlf", |options| Box::new(mlf::Mlf::new(options))),
    ("wsjf", |options| Box::new(wsjf::Wsjf::new(options))),
    ("sjf", |_| Box::new(sjf::Sjf::default())),
    ("deadline", |options| Box::new(deadline::DeadlinePolicy::new(options))),
    ("tbf", |options| Box::new(tbf::Tbf::new(options))),
    ("wfq", |_| Box::new(wfq::Wfq::default())),
];

/// The names of all policies.
#[must_use]
pub fn policy_names() -> Vec<&'static str> {
    TABLE.iter().map(|(name, _)| *name).collect()
}

/// The policy of this name.
pub(crate) fn by_name(name: &str, options: &Options) -> Result<Box<dyn Policy>, SetupError> {
    match TABLE.iter().find(|(known, _)| *known == name) {
        Some((_, make)) => Ok(make(options)),
        None => Err(SetupError::UnknownPolicy { name: name.to_owned(), known: policy_names() }),
    }
}
