//! Numbers of the whole tree that may only fall: size of types, names defined twice, tuple parameters, banned words, length of `mod.rs`,
//! width of documents. `cargo xtask tidy --numbers` prints them.
//!
//! Never: judges tests, except for banned words. Always: a number above its limit is one finding; after an improvement the limit is lowered
//! here, in the same commit.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::RuleFinding;
use crate::mask::{is_word, mask};
use crate::tree::{SourceFile, SourceTree};

/// Words that hide the subject of a sentence (CONTRIBUTING.md, words).
const BANNED: [&str; 16] = [
    "who",
    "whom",
    "whose",
    "whoever",
    "whomever",
    "whatever",
    "somebody",
    "someone",
    "something",
    "nobody",
    "everybody",
    "everyone",
    "anybody",
    "anyone",
    "anything",
    "whosoever",
];
/// Columns of a document.
const MARKDOWN_COLUMNS_MAX: usize = 120;

/// A number, where it comes from, and its limit in thousandths.
struct Number {
    name: &'static str,
    value: f64,
    limit: f64,
    unit: &'static str,
    worst: String,
}

/// Lines for people.
pub(crate) fn lines(tree: &SourceTree) -> Vec<String> {
    let line = |number: &Number| {
        let Number { name, value, limit, unit, worst } = number;
        format!(
            "{name:<44} {value:>8} {unit:<6} (at most {limit}){}{worst}",
            if worst.is_empty() { "" } else { ": " }
        )
    };
    all(tree).iter().map(line).collect()
}

/// Findings: numbers above their limits.
pub(crate) fn check(tree: &SourceTree) -> Vec<RuleFinding> {
    let over = all(tree).into_iter().filter(|number| number.limit < number.value);
    over.map(|number| RuleFinding {
        path: "tools/xtask/src/numbers.rs".to_owned(),
        line: 1,
        rule: "numbers",
        advice: format!("{}: {} is above {}: {}", number.name, number.value, number.limit, number.worst),
    })
    .collect()
}

fn all(tree: &SourceTree) -> Vec<Number> {
    let code: Vec<(&SourceFile, String)> = tree
        .sources
        .iter()
        .filter(|source| !is_test(&source.path))
        .map(|source| (source, mask(&source.text)))
        .collect();
    let (methods, files, worst) = largest_type(&code);
    let (twice, names, many) = defined_twice(&code);
    let (tuples, functions) = tuple_parameters(&code);
    let (banned, by_file) = banned_words(&tree.sources);
    let (longest, longest_path) = longest_mod(&code);
    let (wide, wide_path) = wide_lines(&tree.documents);
    let number = |name, value, limit, unit, worst| Number { name, value, limit, unit, worst };
    vec![
        number("methods of the largest type", exact(methods), LIMITS.methods, "", worst.0),
        number("files of the type in most files", exact(files), LIMITS.files, "", worst.1),
        number("type names defined twice or more", percent(twice, names), LIMITS.twice, "%", many),
        number(
            "functions with tuple parameters",
            percent(tuples, functions),
            LIMITS.tuples,
            "%",
            String::new(),
        ),
        number("banned words in comments and strings", exact(banned), LIMITS.banned, "", by_file),
        number("longest mod.rs", exact(longest), LIMITS.module, "lines", longest_path),
        number("Markdown lines over 120 characters", exact(wide), LIMITS.wide, "", wide_path),
    ]
}

struct Limits {
    methods: f64,
    files: f64,
    twice: f64,
    tuples: f64,
    banned: f64,
    module: f64,
    wide: f64,
}

const LIMITS: Limits =
    Limits { methods: 125.0, files: 14.0, twice: 1.5, tuples: 1.8, banned: 48.0, module: 406.0, wide: 0.0 };

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.rsplit('/').next().is_some_and(|name| name.contains("test"))
}

#[expect(clippy::cast_precision_loss, reason = "counts of lines and names are small")]
fn exact(count: usize) -> f64 {
    count as f64
}

fn percent(part: usize, whole: usize) -> f64 {
    (exact(part) * 1000.0 / exact(whole.max(1))).round() / 10.0
}

fn crate_of(path: &str) -> &str {
    path.find("/src/").map_or(path, |end| &path[..end])
}

/// A type of one crate, and what its inherent `impl` blocks have.
struct Counted<'a> {
    name: String,
    methods: usize,
    files: BTreeSet<&'a str>,
}

impl Counted<'_> {
    fn text(&self) -> String {
        format!("{}, {} methods in {} files", self.name, self.methods, self.files.len())
    }
}

/// Methods and files of the types with the most of each, and their names.
fn largest_type(code: &[(&SourceFile, String)]) -> (usize, usize, (String, String)) {
    let mut types: BTreeMap<String, Counted<'_>> = BTreeMap::new();
    for (source, text) in code {
        for (name, body) in inherent_impls(text) {
            let name = format!("{name} of {}", crate_of(&source.path));
            let new = || Counted { name: name.clone(), methods: 0, files: BTreeSet::new() };
            let counted = types.entry(name.clone()).or_insert_with(new);
            counted.methods += functions_at_depth_one(body);
            counted.files.insert(&source.path);
        }
    }
    let methods = types.values().max_by_key(|counted| counted.methods);
    let files = types.values().max_by_key(|counted| counted.files.len());
    let text = |found: Option<&Counted<'_>>| found.map_or(String::new(), Counted::text);
    let counts = (methods.map_or(0, |found| found.methods), files.map_or(0, |found| found.files.len()));
    (counts.0, counts.1, (text(methods), text(files)))
}

/// Name and body of each `impl` block without a trait.
fn inherent_impls(code: &str) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find("impl") {
        let is_item = rest[..at].rsplit('\n').next().is_some_and(|before| before.trim().is_empty());
        let after = &rest[at + 4..];
        rest = after;
        let Some(open) = after.find('{') else { break };
        let head = &after[..open];
        if !is_item || !head.starts_with([' ', '<']) || head.contains(" for ") || head.contains(';') {
            continue;
        }
        let head = head.split(" where").next().unwrap_or_default();
        let head = if head.starts_with('<') { &head[closing(head, ('<', '>'))..] } else { head };
        let name: String =
            head.trim().chars().take_while(|&c| c.is_alphanumeric() || c == '_' || c == ':').collect();
        let body = &after[open..];
        found.push((
            name.rsplit("::").next().unwrap_or_default().to_owned(),
            &body[..closing(body, ('{', '}'))],
        ));
    }
    found
}

/// Length of the part of `text` that its first bracket opens.
fn closing(text: &str, (open, close): (char, char)) -> usize {
    let mut depth = 0;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close && before != '-' {
            depth -= 1;
            if depth == 0 {
                return at + 1;
            }
        }
        before = c;
    }
    text.len()
}

fn functions_at_depth_one(body: &str) -> usize {
    let mut depth = 0;
    let mut count = 0;
    for line in body.lines() {
        if depth == 1 && has_word(line, "fn") {
            count += 1;
        }
        depth += line.matches('{').count();
        depth -= line.matches('}').count().min(depth);
    }
    count
}

fn has_word(line: &str, word: &str) -> bool {
    let bytes = line.as_bytes();
    line.match_indices(word).any(|(at, _)| {
        let end = at + word.len();
        (at == 0 || !is_word(bytes[at - 1])) && bytes.get(end).is_none_or(|&byte| !is_word(byte))
    })
}

/// Names of types that are defined more than once, all names, and the most frequent ones.
fn defined_twice(code: &[(&SourceFile, String)]) -> (usize, usize, String) {
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for line in code.iter().flat_map(|(_, text)| text.lines()) {
        if let Some(name) = defined_type(line) {
            *names.entry(name).or_default() += 1;
        }
    }
    let mut twice: Vec<(&String, &usize)> = names.iter().filter(|(_, count)| 1 < **count).collect();
    twice.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let most: Vec<String> = twice.iter().take(6).map(|(name, count)| format!("{name} {count}")).collect();
    (twice.len(), names.len(), most.join(", "))
}

fn defined_type(line: &str) -> Option<String> {
    let indented = line.starts_with(' ');
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest[closing(rest, ('(', ')'))..].trim_start(),
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let kinds: &[&str] =
        if indented { &["struct ", "enum ", "trait "] } else { &["struct ", "enum ", "trait ", "type "] };
    let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    let name: String = rest.chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect();
    name.starts_with(char::is_uppercase).then_some(name)
}

/// Functions with a parameter that is a tuple, and all functions.
fn tuple_parameters(code: &[(&SourceFile, String)]) -> (usize, usize) {
    let (mut tuples, mut functions) = (0, 0);
    for (_, text) in code {
        for (at, _) in text.match_indices("fn ") {
            let name = &text[at + 3..];
            let starts = 0 < at && is_word(text.as_bytes()[at - 1]);
            let Some(open) = name
                .find('(')
                .filter(|_| !starts && name.starts_with(|c: char| c.is_alphabetic() || c == '_'))
            else {
                continue;
            };
            functions += 1;
            let list = &name[open..];
            let list = &list[1..closing(list, ('(', ')')).max(2) - 1];
            tuples += usize::from(parameters(list).any(is_tuple));
        }
    }
    (tuples, functions)
}

/// A list cut at its commas, not at those inside brackets.
fn parameters(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let mut before = ' ';
    list.split(move |c| {
        depth += i32::from(matches!(c, '(' | '[' | '<' | '{'));
        depth -= i32::from(matches!(c, ')' | ']' | '}') || c == '>' && before != '-');
        before = c;
        c == ',' && depth == 0
    })
}

fn is_tuple(parameter: &str) -> bool {
    let parameter = parameter.trim();
    let kind = if parameter.starts_with('(') {
        &parameter[closing(parameter, ('(', ')'))..]
    } else {
        parameter.split_once(':').map_or("", |(_, kind)| kind)
    };
    let kind = kind.trim_start_matches([':', ' ', '&']).trim_start_matches("mut ");
    kind.starts_with('(') && kind != "()"
}

/// Banned words in comments and strings, and the files with the most.
fn banned_words(sources: &[SourceFile]) -> (usize, String) {
    let mut by_file: Vec<(usize, &str)> = Vec::new();
    for source in sources.iter().filter(|source| !source.path.ends_with("xtask/src/numbers.rs")) {
        let code = mask(&source.text);
        let hidden: String = source
            .text
            .bytes()
            .zip(code.bytes())
            .map(|(text, code)| if text == code { ' ' } else { text as char })
            .collect();
        let words = hidden.split(|c: char| !c.is_alphanumeric() && c != '_');
        let count = words.filter(|word| BANNED.contains(&word.to_ascii_lowercase().as_str())).count();
        by_file.push((count, &source.path));
    }
    by_file.sort_unstable_by(|a, b| b.cmp(a));
    let most: Vec<String> = by_file
        .iter()
        .take(3)
        .filter(|(count, _)| 0 < *count)
        .map(|(count, path)| format!("{path} {count}"))
        .collect();
    (by_file.iter().map(|(count, _)| count).sum(), most.join(", "))
}

/// Lines of the longest `mod.rs`, without its tests.
fn longest_mod(code: &[(&SourceFile, String)]) -> (usize, String) {
    let lines = |text: &str| text.lines().take_while(|line| !line.contains("#[cfg(test)]")).count();
    let all = code.iter().filter(|(source, _)| source.path.ends_with("/mod.rs"));
    let longest = all.map(|(source, text)| (lines(text), source.path.clone())).max();
    longest.unwrap_or_default()
}

fn wide_lines(documents: &[SourceFile]) -> (usize, String) {
    let wide = |source: &SourceFile| {
        source.text.lines().filter(|line| MARKDOWN_COLUMNS_MAX < line.chars().count()).count()
    };
    let mut counts: Vec<(usize, &str)> =
        documents.iter().map(|source| (wide(source), source.path.as_str())).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let worst = counts.first().filter(|(count, _)| 0 < *count).map(|(count, path)| format!("{path} {count}"));
    (counts.iter().map(|(count, _)| count).sum(), worst.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> (SourceFile, String) {
        let source = SourceFile { path: "floors/a/src/b.rs".to_owned(), text: text.to_owned() };
        let masked = mask(text);
        (source, masked)
    }

    #[test]
    fn counts_methods_of_inherent_blocks() {
        let (source, masked) = code(
            "impl<T: Fn() -> u8> A<T> {\n    fn a() {\n        fn inner() {}\n    }\n    pub fn b() {}\n}\nimpl X for A {\n    fn c() {}\n}\nimpl m::A {\n    fn d() {}\n}\n",
        );
        let (methods, files, _) = largest_type(&[(&source, masked)]);
        assert_eq!((methods, files), (3, 1));
    }

    #[test]
    fn finds_tuples_among_parameters() {
        let found = |text: &str| {
            let (source, masked) = code(text);
            tuple_parameters(&[(&source, masked)])
        };
        assert_eq!(found("fn a(x: (u8, u8)) {}"), (1, 1));
        assert_eq!(found("fn a(&self, (x, y): &(u8, u8)) {}"), (1, 1));
        assert_eq!(found("fn a(x: Vec<(u8, u8)>, f: impl Fn(u8) -> (u8, u8)) -> (u8, u8) {}"), (0, 1));
        assert_eq!(found("fn a(x: HashMap<u8, u8>, y: ()) {}\nfn b() {}"), (0, 2));
    }

    #[test]
    fn finds_types_and_banned_words() {
        assert_eq!(defined_type("pub(crate) struct Abc<T> {").as_deref(), Some("Abc"));
        assert_eq!(defined_type("    type Item = u8;"), None);
        assert_eq!(defined_type("structure Abc"), None);
        let (source, _) = code("// Nobody knows.\nlet whose = \"for whoever\"; /* no_one who_else */\n");
        assert_eq!(banned_words(&[source]).0, 2);
    }

    #[test]
    fn measures_documents_by_characters() {
        let source = SourceFile {
            path: "README.md".to_owned(),
            text: format!("{}\n{}é\n", "é".repeat(120), "é".repeat(120)),
        };
        assert_eq!(wide_lines(&[source]).0, 1);
    }
}
