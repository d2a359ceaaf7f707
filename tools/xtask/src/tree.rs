//! The files that rules look at, read once.
//!
//! Never: follows a symbolic link, enters a build directory or a hidden one. Always: in the order of their paths.

use std::fs;
use std::io;
use std::path::Path;

/// Folders of the workspace that hold crates.
const ROOTS: [&str; 4] = ["base", "floors", "faces", "tools"];
/// Where bytes on disk and wire are drawn.
const FORMATS: &str = "docs/formats";

/// One Rust file.
#[derive(Debug)]
pub(crate) struct Source {
    /// From the workspace's root, with forward slashes.
    pub(crate) path: String,
    /// What it holds.
    pub(crate) text: String,
}

/// All files that rules look at.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Every Rust file of every crate.
    pub(crate) sources: Vec<Source>,
    /// Paths of the descriptions of formats.
    pub(crate) formats: Vec<String>,
}

impl Tree {
    /// Reads the workspace at `root`.
    pub(crate) fn read(root: &Path) -> io::Result<Tree> {
        let mut paths = Vec::new();
        for folder in ROOTS {
            walk(root, folder, &mut paths)?;
        }
        let mut sources = Vec::new();
        for path in paths.into_iter().filter(|path| path.ends_with(".rs")) {
            let text = fs::read_to_string(root.join(&path)).map_err(|error| at(&path, &error))?;
            sources.push(Source { path, text });
        }
        let mut formats = Vec::new();
        walk(root, FORMATS, &mut formats)?;
        Ok(Tree { sources, formats })
    }
}

/// Appends every file under `folder`; a folder that is not there holds none.
fn walk(root: &Path, folder: &str, paths: &mut Vec<String>) -> io::Result<()> {
    let entries = match fs::read_dir(root.join(folder)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(at(folder, &error)),
    };
    let mut entries = entries.collect::<io::Result<Vec<_>>>().map_err(|error| at(folder, &error))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{folder}/{name}");
        let kind = entry.file_type().map_err(|error| at(&path, &error))?;
        if kind.is_dir() && name != "target" && !name.starts_with('.') {
            walk(root, &path, paths)?;
        } else if kind.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}

fn at(path: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_crates_and_formats_and_nothing_else() {
        let root = std::env::temp_dir().join(format!("pario-xtask-tree-{}", std::process::id()));
        let files = [
            "base/b/src/lib.rs",
            "base/a/tests/it.rs",
            "base/a/Cargo.toml",
            "tools/t/target/made.rs",
            "tools/.hidden/x.rs",
            "elsewhere/x.rs",
            "docs/formats/wire.md",
        ];
        for file in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "//! Text.\n").unwrap();
        }
        let tree = Tree::read(&root);
        fs::remove_dir_all(&root).unwrap();
        let tree = tree.unwrap();
        let paths: Vec<&str> = tree.sources.iter().map(|source| source.path.as_str()).collect();
        assert_eq!(paths, ["base/a/tests/it.rs", "base/b/src/lib.rs"]);
        assert_eq!(tree.sources[0].text, "//! Text.\n");
        assert_eq!(tree.formats, ["docs/formats/wire.md"]);
    }
}
