//! Rule `format`: every file in `docs/formats` is named by the source that reads and writes those bytes.

use crate::finding::Finding;
use crate::tree::Tree;

/// Descriptions that no source names.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let unnamed = |format: &&String| !tree.sources.iter().any(|source| source.text.contains(format.as_str()));
    tree.formats
        .iter()
        .filter(unnamed)
        .map(|format| Finding {
            path: format.clone(),
            line: 1,
            rule: "format",
            advice: "name this file in the comment of the type that has these bytes, or remove it".into(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Source;

    #[test]
    fn wants_each_format_named_by_a_source() {
        let source = |text: &str| Source { path: "base/a/src/lib.rs".into(), text: text.into() };
        let tree = Tree {
            sources: vec![source("//! Words.\n"), source("/// Layout: docs/formats/named.md, section 2.\n")],
            formats: vec!["docs/formats/named.md".into(), "docs/formats/unnamed.md".into()],
        };
        let paths: Vec<String> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["docs/formats/unnamed.md"]);
    }
}
