//! Rule `format`: every file in `docs/formats` is named by the source that reads and writes those bytes.

use crate::finding::RuleFinding;
use crate::tree::{SourceFile, SourceTree};

/// Descriptions that no source names.
pub(crate) fn check(tree: &SourceTree) -> Vec<RuleFinding> {
    let unnamed =
        |format: &&SourceFile| !tree.sources.iter().any(|source| source.text.contains(&format.path));
    tree.formats
        .iter()
        .filter(unnamed)
        .map(|format| RuleFinding {
            path: format.path.clone(),
            line: 1,
            rule: "format",
            advice: "name this file in the comment of the type that has these bytes, or remove it".into(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wants_each_format_named_by_a_source() {
        let source = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
        let code = |text: &str| source("base/a/src/lib.rs", text);
        let tree = SourceTree {
            sources: vec![code("//! Words.\n"), code("/// Layout: docs/formats/named.md, section 2.\n")],
            formats: vec![source("docs/formats/named.md", ""), source("docs/formats/unnamed.md", "")],
            documents: vec![],
        };
        let paths: Vec<String> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["docs/formats/unnamed.md"]);
    }
}
