//! Blanks comments, strings and characters of Rust text, so that a rule about code ignores words.
//!
//! Always: every line keeps its number and every byte of code its column.

/// `source` with a space for each byte of a comment or literal.
pub(crate) fn mask(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut masked = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let after_word = 0 < at && is_word(bytes[at - 1]);
        let hidden = hidden_bytes(&bytes[at..], after_word);
        if hidden == 0 {
            masked.push(bytes[at]);
            at += 1;
        } else {
            let end = bytes.len().min(at + hidden);
            masked.extend(bytes[at..end].iter().map(|&byte| if byte == b'\n' { b'\n' } else { b' ' }));
            at = end;
        }
    }
    String::from_utf8_lossy(&masked).into_owned()
}

/// Whether a byte can be part of a name.
pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Length of the comment or literal at the start of `rest`; 0 if there is none.
fn hidden_bytes(rest: &[u8], after_word: bool) -> usize {
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment_bytes(rest),
        [b'"', ..] => string_bytes(rest),
        [b'\'', ..] => character_bytes(rest),
        [b'r', b'"' | b'#', ..] if !after_word => raw_string_bytes(rest, 1),
        [b'b' | b'c', b'r', b'"' | b'#', ..] if !after_word => raw_string_bytes(rest, 2),
        _ => 0,
    }
}

fn block_comment_bytes(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at + 1 < rest.len() {
        match (rest[at], rest[at + 1]) {
            (b'/', b'*') => depth += 1,
            (b'*', b'/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn string_bytes(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// A character literal has its closing quote right after it; a lifetime has none.
fn character_bytes(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        let close = rest.iter().skip(3).position(|&byte| byte == b'\'');
        return close.map_or(0, |close| 3 + close + 1);
    }
    // The bytes of a character after its first one are 0b10xx_xxxx.
    let more = rest.iter().skip(2).take_while(|&&byte| byte & 0xc0 == 0x80).count();
    if rest.get(2 + more) == Some(&b'\'') { 3 + more } else { 0 }
}

/// `prefix` letters, hashes, a quote, anything, a quote, as many hashes.
fn raw_string_bytes(rest: &[u8], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|&&byte| byte == b'#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&b'"') {
        return 0;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let inside = &rest[open + 1..];
    inside
        .windows(close.len())
        .position(|window| window == close)
        .map_or(rest.len(), |at| open + 1 + at + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: &str) {
        assert_eq!(mask(source), expected);
    }

    #[test]
    fn blanks_comments_and_keeps_lines() {
        check("a // b\nc", "a     \nc");
        check("a /* b /* c */ d\n */ e", "a               \n    e");
        check("a /* open", "a        ");
    }

    #[test]
    fn blanks_literals() {
        check(r#"f("a \" b", x)"#, "f(        , x)");
        check("f(r#\"a \" b\"#, x)", "f(          , x)");
        check("f(br\"a\\\", x)", "f(      , x)");
        check(r"f('\'', '\u{1F}', 'é', x)", "f(    ,         ,     , x)");
        check("f(\"open", "f(     ");
    }

    #[test]
    fn leaves_code_alone() {
        check(
            "fn f<'a>(x: &'a str, r#type: u8) -> &'a str { x }",
            "fn f<'a>(x: &'a str, r#type: u8) -> &'a str { x }",
        );
        check("let bar = r / 2; let x = a * b;", "let bar = r / 2; let x = a * b;");
    }
}
