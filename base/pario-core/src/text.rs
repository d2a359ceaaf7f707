//! Untrusted text made printable: one line, without terminal control sequences.
//!
//! Always: text without control characters is unchanged.

use std::borrow::Cow;
use std::fmt::Write;

/// The text with control characters and bidirectional overrides escaped, as in `\n` or `\u{1b}`.
///
/// ```
/// assert_eq!(pario_core::text::shown("a\nb\u{1b}[2J"), "a\\nb\\u{1b}[2J");
/// ```
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(is_order) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_order(letter) {
            // Writing into a string does not fail.
            let _ = write!(plain, "{}", letter.escape_default());
        } else {
            plain.push(letter);
        }
    }
    Cow::Owned(plain)
}

/// At most `most` characters of [`shown`] text; where more was said, an ellipsis follows.
///
/// ```
/// assert_eq!(pario_core::text::shown_start("\u{1b}[2Jabc", 8), "\\u{1b}[2…");
/// ```
#[must_use]
pub fn shown_start(text: &str, most: usize) -> String {
    // Each character is shown by at least one.
    let (start, all) = match text.char_indices().nth(most) {
        Some((end, _)) => (&text[..end], false),
        None => (text, true),
    };
    let shown = shown(start);
    match shown.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None if all => shown.into_owned(),
        None => format!("{shown}…"),
    }
}

fn is_order(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_written_out_and_the_rest_stays() {
        assert!(matches!(shown("plain, äöü, 日本, a\\b"), Cow::Borrowed(_)));
        assert_eq!(shown("a\r\n\tb\0"), "a\\r\\n\\tb\\u{0}");
        assert_eq!(shown_start("plain", 5), "plain");
        assert_eq!(shown_start("plainer", 5), "plain…");
        assert_eq!(shown_start("\0\0", 5), "\\u{0}…");
        assert_eq!(shown("\u{9b}2J\u{202e}x\u{7f}"), "\\u{9b}2J\\u{202e}x\\u{7f}");
    }
}
