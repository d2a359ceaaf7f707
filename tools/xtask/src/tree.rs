//! The files checked by rules, read once.
//!
//! Never: follows a symbolic link, enters a build directory or a hidden one. Always: in the order of their paths.

use std::fs;
use std::io;
use std::path::Path;

/// Folders of the workspace that hold crates.
const ROOTS: [&str; 4] = ["base", "floors", "faces", "tools"];
/// Where bytes on disk and wire are drawn.
const FORMATS: &str = "docs/formats";

/// One file.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// From the workspace's root, with forward slashes.
    pub(crate) path: String,
    /// Contents of the file.
    pub(crate) text: String,
}

/// All files checked by rules.
#[derive(Debug)]
pub(crate) struct SourceTree {
    /// Every Rust file of every crate.
    pub(crate) sources: Vec<SourceFile>,
    /// The descriptions of formats.
    pub(crate) formats: Vec<SourceFile>,
    /// Every document.
    pub(crate) documents: Vec<SourceFile>,
}

impl SourceTree {
    /// Reads the workspace at `root`.
    pub(crate) fn read(root: &Path) -> io::Result<SourceTree> {
        let mut paths = Vec::new();
        for folder in ROOTS {
            walk(root, folder, &mut paths)?;
        }
        paths.retain(|path| path.ends_with(".rs"));
        let mut formats = Vec::new();
        walk(root, FORMATS, &mut formats)?;
        let mut documents = Vec::new();
        walk(root, ".", &mut documents)?;
        documents.retain(|path| path.ends_with(".md"));
        Ok(SourceTree {
            sources: read_all(root, paths)?,
            formats: read_all(root, formats)?,
            documents: read_all(root, documents)?,
        })
    }
}

fn read_all(root: &Path, paths: Vec<String>) -> io::Result<Vec<SourceFile>> {
    let read = |path: String| {
        let text = fs::read_to_string(root.join(&path)).map_err(|error| at(&path, &error))?;
        Ok(SourceFile { path, text })
    };
    paths.into_iter().map(read).collect()
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
        let tree = SourceTree::read(&root);
        fs::remove_dir_all(&root).unwrap();
        let tree = tree.unwrap();
        let paths: Vec<&str> = tree.sources.iter().map(|source| source.path.as_str()).collect();
        assert_eq!(paths, ["base/a/tests/it.rs", "base/b/src/lib.rs"]);
        assert_eq!(tree.sources[0].text, "//! Text.\n");
        assert_eq!(tree.formats[0].path, "docs/formats/wire.md");
        assert_eq!(tree.formats.len(), 1);
    }
}
