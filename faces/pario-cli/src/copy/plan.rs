//! Which source goes where, by the rules of `cp`.
//!
//! A target that is a directory, or that ends in a slash (it is made then), takes the sources under their own names. Any other
//! target is the new name of the one source. A source without a name of its own, such as a partition's root, gives its contents.

use super::Pair;
use crate::error::{CliError, Outcome};
use crate::place::Place;

/// Pairs each source with its place.
pub(crate) fn pair(sources: Vec<Place>, target: &Place) -> Outcome<Vec<Pair>> {
    let into = target.is_directory()?;
    if !into && 1 < sources.len() && !target.has_slash() {
        let text = format!("{target}: is not a directory, and {} sources go into it", sources.len());
        return Err(CliError::with_cure(text, "end it with a slash to have it made"));
    }
    // A tree without a name becomes the target itself, so that nothing need be made for it.
    let named = sources.iter().any(|source| source.name().is_some());
    if !into && target.has_slash() && named {
        target.make_directories()?;
    }
    let into = into || (target.has_slash() && named);
    let place = |from: Place| {
        let to = match from.name() {
            Some(name) if into => target.child(name),
            Some(_) | None => target.clone(),
        };
        Pair { from, to }
    };
    Ok(sources.into_iter().map(place).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Tree;
    use std::path::Path;

    fn local(path: impl AsRef<Path>) -> Place {
        Place { tree: Tree::Local, path: path.as_ref().to_owned() }
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
    fn several_sources_need_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let error = pair(vec![local("a"), local("b")], &local(dir.path().join("x"))).unwrap_err().to_string();
        assert!(error.contains("not a directory") && error.contains("slash"), "{error}");
    }
}
