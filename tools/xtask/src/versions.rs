//! Rule `version`: the version numbers in `docs/formats` are those of the code.
//!
//! A description says ``FormatVersion: `CONSTANT` of `path/of/source.rs` = N``. Always: both directions are checked, so that neither a
//! number nor a new constant can be forgotten.

use crate::finding::RuleFinding;
use crate::tree::{SourceFile, SourceTree};

/// A version as either side has it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct FormatVersion {
    constant: String,
    source: String,
    number: u64,
    /// Where it stands.
    path: String,
    line: usize,
}

/// Numbers that differ, and constants or descriptions without a counterpart.
pub(crate) fn check(tree: &SourceTree) -> Vec<RuleFinding> {
    let described: Vec<FormatVersion> = tree.formats.iter().flat_map(described).collect();
    let coded: Vec<FormatVersion> = tree.sources.iter().flat_map(coded).collect();
    let same =
        |one: &FormatVersion, two: &FormatVersion| one.constant == two.constant && one.source == two.source;
    let wrong = described.iter().filter_map(|version| {
        let code = coded.iter().find(|code| same(code, version));
        let advice = match code {
            Some(code) if code.number == version.number => return None,
            Some(code) => format!("the code has {} = {}", code.constant, code.number),
            None => format!("there is no constant {} in {}", version.constant, version.source),
        };
        Some(finding(version, advice))
    });
    let missing = coded.iter().filter(|code| !described.iter().any(|version| same(code, version)));
    let missing = missing.map(|code| {
        let FormatVersion { constant, source, number, .. } = code;
        finding(code, format!("say in docs/formats: Version: `{constant}` of `{source}` = {number}"))
    });
    wrong.chain(missing).collect()
}

fn finding(version: &FormatVersion, advice: String) -> RuleFinding {
    RuleFinding { path: version.path.clone(), line: version.line, rule: "version", advice }
}

fn described(document: &SourceFile) -> Vec<FormatVersion> {
    lines(document, |line| {
        let (_, rest) = line.split_once("Version: `")?;
        let (constant, rest) = rest.split_once("` of `")?;
        let (source, rest) = rest.split_once("` = ")?;
        Some((constant.to_owned(), source.to_owned(), leading_number(rest)?))
    })
}

fn coded(source: &SourceFile) -> Vec<FormatVersion> {
    lines(source, |line| {
        let (before, rest) = line.split_once("const ")?;
        let (constant, rest) = rest.split_once(": u")?;
        let visible = before.is_empty() || before.starts_with("pub");
        let old = constant.starts_with("OLD_");
        let named = constant == "PROTOCOL" || constant.ends_with("VERSION") || constant.ends_with("_FORMAT");
        let number = leading_number(rest.split_once("= ")?.1)?;
        (visible && named && !old).then(|| (constant.to_owned(), source.path.clone(), number))
    })
}

fn lines(file: &SourceFile, parse: impl Fn(&str) -> Option<(String, String, u64)>) -> Vec<FormatVersion> {
    let found = file.text.lines().enumerate().filter_map(|(at, line)| {
        let (constant, source, number) = parse(line)?;
        Some(FormatVersion { constant, source, number, path: file.path.clone(), line: at + 1 })
    });
    found.collect()
}

fn leading_number(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), text: text.into() }
    }

    #[track_caller]
    fn check_versions(code: &str, document: &str, expected: &[(&str, &str)]) {
        let tree = SourceTree {
            sources: vec![source("a/wire.rs", code)],
            formats: vec![source("docs/formats/wire.md", document)],
            documents: vec![],
        };
        let found: Vec<(String, String)> =
            check(&tree).into_iter().map(|finding| (finding.path, finding.advice)).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for ((path, advice), (at, says)) in found.iter().zip(expected) {
            assert!(path == at && advice.contains(says), "{found:?}");
        }
    }

    #[test]
    fn documents_and_code_have_the_same_numbers() {
        let code = "/// Both.\npub const PROTOCOL: u32 = 8;\nconst OTHER: u32 = 3;\n";
        let document = "# Wire\nVersion: `PROTOCOL` of `a/wire.rs` = 8. Equal on both sides.\n";
        check_versions(code, document, &[]);
        check_versions(
            code,
            "Version: `PROTOCOL` of `a/wire.rs` = 7",
            &[("docs/formats/wire.md", "PROTOCOL = 8")],
        );
        check_versions(code, "nothing\n", &[("a/wire.rs", "Version: `PROTOCOL` of `a/wire.rs` = 8")]);
        check_versions("", document, &[("docs/formats/wire.md", "no constant PROTOCOL")]);
        check_versions("pub(super) const FILE_VERSION: u16 = 1;", "", &[("a/wire.rs", "FILE_VERSION")]);
    }
}
