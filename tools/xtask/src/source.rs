//! Rules about one Rust file: `head`, `length`, `unfinished`, `unsafe`.
//!
//! Never: checks comments and literals, except for the head comment.

use crate::finding::RuleFinding;
use crate::mask::{is_word, mask};
use crate::tree::SourceFile;

/// A longer file holds two ideas.
const LINES_MAX: usize = 900;
/// Macros that may not stay.
const UNFINISHED: [&str; 3] = ["todo", "unimplemented", "dbg"];
/// The crate that owns the unsafe edges.
const UNSAFE_HOME: &str = "base/pario-sys/";

/// All findings of one file.
pub(crate) fn check(source: &SourceFile) -> Vec<RuleFinding> {
    let code = mask(&source.text);
    let mut findings = Vec::new();
    findings.extend(head(source));
    findings.extend(length(source));
    findings.extend(unfinished(source, &code));
    findings.extend(unsafe_outside(source, &code));
    findings
}

fn head(source: &SourceFile) -> Option<RuleFinding> {
    let first = source.text.lines().next().unwrap_or("");
    let said = first.strip_prefix("//!").is_some_and(|text| !text.trim().is_empty());
    let advice = "begin the file with a `//!` comment: what it owns, what it never does, what always holds";
    (!said).then(|| finding(source, 1, "head", advice))
}

fn length(source: &SourceFile) -> Option<RuleFinding> {
    let lines = source.text.lines().count();
    let advice = format!("{lines} lines, at most {LINES_MAX}: split it by idea");
    (LINES_MAX < lines).then(|| finding(source, LINES_MAX + 1, "length", advice))
}

fn unfinished(source: &SourceFile, code: &str) -> Vec<RuleFinding> {
    let marks = words(code).filter(|word| UNFINISHED.contains(&word.text) && word.rest.starts_with('!'));
    marks
        .map(|word| finding(source, word.line, "unfinished", format!("finish it: no `{}!`", word.text)))
        .collect()
}

fn unsafe_outside(source: &SourceFile, code: &str) -> Vec<RuleFinding> {
    // A face with a C interface keeps it in a file, or in a folder (decision 0008).
    let face = source.path.starts_with("faces/") && source.path.contains("/ffi/");
    if source.path.starts_with(UNSAFE_HOME) || source.path.ends_with("/ffi.rs") || face {
        return Vec::new();
    }
    let opens = |rest: &str| {
        let rest = rest.trim_start();
        rest.starts_with('{')
            || words(rest).next().is_some_and(|next| {
                rest.starts_with(next.text) && ["fn", "impl", "extern", "trait"].contains(&next.text)
            })
    };
    let uses = words(code).filter(|word| word.text == "unsafe" && opens(word.rest));
    let advice = "move it into a safe function of pario-sys, or into a face's ffi.rs or ffi/";
    uses.map(|word| finding(source, word.line, "unsafe", advice)).collect()
}

fn finding(source: &SourceFile, line: usize, rule: &'static str, advice: impl Into<String>) -> RuleFinding {
    RuleFinding { path: source.path.clone(), line, rule, advice: advice.into() }
}

/// A word of code, its line, and the text after it.
struct CodeWord<'a> {
    text: &'a str,
    line: usize,
    rest: &'a str,
}

fn words(code: &str) -> impl Iterator<Item = CodeWord<'_>> {
    let bytes = code.as_bytes();
    let (mut at, mut line) = (0, 1);
    std::iter::from_fn(move || {
        while at < bytes.len() && !is_word(bytes[at]) {
            line += usize::from(bytes[at] == b'\n');
            at += 1;
        }
        let start = at;
        while at < bytes.len() && is_word(bytes[at]) {
            at += 1;
        }
        (start < at).then(|| CodeWord { text: &code[start..at], line, rest: &code[at..] })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_at(path: &str, text: &str, expected: &[(usize, &str)]) {
        let findings = check(&SourceFile { path: path.into(), text: text.into() });
        let found: Vec<(usize, &str)> = findings.iter().map(|finding| (finding.line, finding.rule)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[track_caller]
    fn check_text(text: &str, expected: &[(usize, &str)]) {
        check_at("floors/pario/src/lib.rs", text, expected);
    }

    #[test]
    fn wants_a_head_comment_first() {
        check_text("//! Words.\nfn f() {}\n", &[]);
        check_text("", &[(1, "head")]);
        check_text("//!\nfn f() {}\n", &[(1, "head")]);
        check_text("// Words.\n//! Words.\n", &[(1, "head")]);
        check_at("floors/pario/tests/it.rs", "fn f() {}\n", &[(1, "head")]);
    }

    #[test]
    fn limits_the_length() {
        let text = |lines: usize| format!("//! Words.\n{}", "\n".repeat(lines - 1));
        check_text(&text(LINES_MAX), &[]);
        check_text(&text(LINES_MAX + 1), &[(901, "length")]);
    }

    #[test]
    fn finds_what_is_unfinished_in_code_only() {
        check_text("//! Words.\nfn f() {\n    todo!()\n}\n", &[(3, "unfinished")]);
        check_text(
            "//! W.\nfn f() { unimplemented!(\"x\"); dbg!(1); }\n",
            &[(2, "unfinished"), (2, "unfinished")],
        );
        check_text("//! No todo!() here.\n// dbg!(x)\nconst S: &str = \"todo!()\";\n", &[]);
        check_text("//! W.\nfn f() { my_todo!(); let todo = 1; assert!(todo != 2); }\n", &[]);
    }

    #[test]
    fn finds_unsafe_outside_its_home() {
        let uses = "//! W.\nunsafe fn f() {}\nfn g() { unsafe { f() } }\nunsafe impl Send for X {}\n";
        check_text(uses, &[(2, "unsafe"), (3, "unsafe"), (4, "unsafe")]);
        check_text(
            "//! W.\nunsafe extern \"C\" {}\nfn g() { unsafe\n{} }\n",
            &[(2, "unsafe"), (3, "unsafe")],
        );
        check_at("base/pario-sys/src/map.rs", uses, &[]);
        check_at("faces/pario-c/src/ffi.rs", uses, &[]);
        check_at("faces/pario-mpi/ffi/exports/control.rs", uses, &[]);
        check_at("floors/pario/src/ffi/x.rs", "//! W.\nunsafe fn f() {}\n", &[(2, "unsafe")]);
        check_at("faces/pario-c/src/not_ffi.rs", "//! W.\nunsafe fn f() {}\n", &[(2, "unsafe")]);
        check_text(
            "//! unsafe { }\n// unsafe fn\n#![deny(unsafe_code)]\nconst S: &str = \"unsafe {\";\n",
            &[],
        );
    }
}
