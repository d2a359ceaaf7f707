//! Variables of the environment that are read where they are used, in one form.
//!
//! Never: ignores a value that it does not know. Always: an empty variable counts as not set; an error names variable, value and rule.

use std::ffi::OsString;
use std::str::FromStr;

use crate::error::{Error, Result};

/// Reports counters at close.
pub const STATS_VARIABLE: &str = "PARIO_STATS";
/// Prints the chosen method and the reason.
pub const EXPLAIN_VARIABLE: &str = "PARIO_EXPLAIN";

/// Whether a variable is `1`; not if it is `0` or not set.
pub fn flag(variable: &str) -> Result<bool> {
    flag_of(variable, std::env::var_os(variable))
}

fn flag_of(variable: &str, value: Option<OsString>) -> Result<bool> {
    match text_of(variable, value)?.as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(Error::Setup(format!("environment {variable}: {other:?}: must be 0 or 1"))),
    }
}

/// The value of a variable that is a choice of words.
pub(crate) fn choice<T: FromStr<Err: std::fmt::Display>>(variable: &str) -> Result<Option<T>> {
    choice_of(variable, std::env::var_os(variable))
}

fn choice_of<T: FromStr<Err: std::fmt::Display>>(
    variable: &str,
    value: Option<OsString>,
) -> Result<Option<T>> {
    let Some(word) = text_of(variable, value)? else { return Ok(None) };
    let known =
        word.parse().map_err(|rule| Error::Setup(format!("environment {variable}: {word:?}: {rule}")));
    known.map(Some)
}

/// The text of a variable; `None` if it is not set.
pub fn text(variable: &str) -> Result<Option<String>> {
    text_of(variable, std::env::var_os(variable))
}

fn text_of(variable: &str, value: Option<OsString>) -> Result<Option<String>> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    let text =
        value.into_string().map_err(|_| Error::Setup(format!("environment {variable}: not valid UTF-8")));
    text.map(Some)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;
    use crate::partition::TransportChoice;

    #[test]
    fn a_flag_is_0_or_1() {
        for (value, enabled) in [(None, false), (Some(""), false), (Some("0"), false), (Some("1"), true)] {
            assert_eq!(flag_of("PARIO_STATS", value.map(OsString::from)).ok(), Some(enabled), "{value:?}");
        }
        for value in [OsString::from("yes"), OsString::from_vec(vec![0xff])] {
            let error = flag_of("PARIO_STATS", Some(value)).unwrap_err().to_string();
            assert!(error.contains("PARIO_STATS"), "{error}");
        }
    }

    #[test]
    fn an_unknown_word_is_an_error_with_the_words_that_are_known() {
        let choice = |value: &str| choice_of::<TransportChoice>("PARIO_TRANSPORT", Some(value.into()));
        assert_eq!(choice("").ok(), Some(None));
        assert_eq!(choice("tcp").ok(), Some(Some(TransportChoice::Tcp)));
        let error = choice("infiniband").unwrap_err().to_string();
        assert!(
            ["PARIO_TRANSPORT", "infiniband", "auto", "unix"].iter().all(|word| error.contains(word)),
            "{error}"
        );
    }
}
