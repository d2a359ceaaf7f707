//! Settings behind the connector's name, as in `HDF5_VOL_CONNECTOR="pario word"`.
//!
//! Never: ignores a word. There is none yet that is known.

/// Checks the settings of a text.
pub(crate) fn check(text: &str) -> Result<(), String> {
    match text.split_whitespace().next() {
        None => Ok(()),
        Some(word) => Err(format!("unknown setting `{word}` of the pario connector; it has none yet")),
    }
}
