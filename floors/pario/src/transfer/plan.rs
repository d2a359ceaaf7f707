//! Pairs sources with targets, by the rules of `cp`.
//!
//! A target that is a directory, or that ends in a slash (it is made then), gets the sources under their own names. Any other
//! target is the new name of the only source. A source without a name, such as a partition's root, is copied by contents.

use std::collections::HashMap;

use super::{CopyPair, TransferError, TransferResult, TreePath};

/// Pairs each source with the path of its copy.
pub fn pair(sources: Vec<TreePath>, target: &TreePath) -> TransferResult<Vec<CopyPair>> {
    let into = target.is_directory()?;
    if !into && 1 < sources.len() && !target.has_slash() {
        let text = format!("{target}: is not a directory, and {} sources go into it", sources.len());
        return Err(TransferError::with_cure(text, "end it with a slash to have it made"));
    }
    check_names_differ(&sources)?;
    // A source without a name becomes the target itself: no directory needs to be made.
    let named = sources.iter().any(|source| source.name().is_some());
    if !into && target.has_slash() && named {
        target.create_dir_all()?;
    }
    let into = into || (target.has_slash() && named);
    // Entries of the target directory were not named by the user: a link there is not followed.
    let inside = if into { target.as_target()? } else { target.clone() };
    let place = |from: TreePath| {
        let to = match from.name() {
            Some(name) if into => inside.child(name),
            Some(_) | None => target.clone(),
        };
        CopyPair { from, to }
    };
    Ok(sources.into_iter().map(place).collect())
}

/// Two sources of one name would overwrite each other. Sources without a name are copied by contents, and may share a directory.
fn check_names_differ(sources: &[TreePath]) -> TransferResult {
    let mut seen = HashMap::new();
    for source in sources {
        if let Some(name) = source.name()
            && let Some(first) = seen.insert(name, source)
        {
            let text = format!("{source}: will not overwrite just-created {}, from {first}", name.display());
            return Err(TransferError::with_cure(text, "copy one of them under another name"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(path: impl Into<std::path::PathBuf>) -> TreePath {
        TreePath::local(path)
    }

    #[track_caller]
    fn check(source: &str, target: &str, expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("there")).unwrap();
        let target = local(format!("{}/{target}", dir.path().display()));
        let pairs = pair(vec![local(source)], &target).unwrap();
        assert_eq!(pairs[0].to.path, dir.path().join(expected));
    }

    #[test]
    fn a_directory_takes_sources_under_their_names() {
        check("a/b", "there", "there/b");
        check("a/b/", "there/", "there/b");
        check("a", "new/", "new/a");
    }

    #[test]
    fn another_target_is_the_new_name() {
        check("a", "new", "new");
        check("a", "there/x", "there/x");
    }

    #[test]
    fn a_root_gives_its_contents() {
        check("/", "there", "there");
        check(".", "new", "new");
    }

    #[test]
    fn two_sources_of_one_name_are_refused_before_anything_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let target = local(format!("{}/new/", dir.path().display()));
        let error = pair(vec![local("a/x"), local("y"), local("b/x")], &target).unwrap_err().to_string();
        assert!(error.contains("b/x: will not overwrite just-created x, from a/x"), "{error}");
        assert!(!dir.path().join("new").exists());
        pair(vec![local("."), local("/")], &local(dir.path())).unwrap();
    }

    #[test]
    fn several_sources_need_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let error = pair(vec![local("a"), local("b")], &local(dir.path().join("x"))).unwrap_err().to_string();
        assert!(error.contains("not a directory") && error.contains("slash"), "{error}");
    }
}
