//! What a killed writer left behind: files of objects without a link, half-written files, nameless objects.
//!
//! Never: touches a file that is not the tree's own.

use std::collections::{HashMap, HashSet};

use crate::error::Result;
use crate::header::{HeaderRecord, Kind};
use crate::links::LinkTarget;
use crate::names::file_name;
use crate::node::OBJECTS;
use crate::place::PlaceEntry;
use crate::tree::{ROOT_ID, Tree};

/// Removes all leftovers, and corrects counts of links that a removal did not reach.
pub(crate) fn remove_leftovers(tree: &mut Tree) -> Result<()> {
    let found = examine(tree)?;
    for (id, count) in found.links {
        if tree.header(id)?.links != count {
            tree.commit_header(id, HeaderRecord::Links(count))?;
        }
    }
    for path in found.files {
        match tree.place.kind(&path)? {
            Some(PlaceEntry::Directory) => tree.place.remove_tree(&path)?,
            Some(_) => tree.place.remove_file(&path)?,
            None => (),
        }
    }
    Ok(())
}

/// Paths of files that belong to no object, in an order in which they can be removed.
pub(crate) fn leftovers(tree: &mut Tree) -> Result<Vec<String>> {
    examine(tree).map(|found| found.files)
}

/// What a walk over all links finds.
struct Examined {
    /// Files that belong to no object.
    files: Vec<String>,
    /// Hard links of each object but the root.
    links: HashMap<u64, u32>,
}

fn examine(tree: &mut Tree) -> Result<Examined> {
    let (mut found, mut shared) = (Vec::new(), HashSet::new());
    let mut links: HashMap<u64, u32> = HashMap::new();
    let mut groups = vec![ROOT_ID];
    let mut seen = HashSet::from([ROOT_ID]);
    while let Some(group) = groups.pop() {
        let mut known = HashSet::new();
        for row in tree.links(group)? {
            let leaf = file_name(&row.name);
            if let LinkTarget::Hard { id, shared: lies_apart } = row.target {
                known.insert(leaf);
                *links.entry(id).or_default() += 1;
                if lies_apart {
                    shared.insert(id.to_string());
                }
                if seen.insert(id) {
                    tree.enter(group, &row.name, id, lies_apart)?;
                    if tree.node(id)?.header.kind() == Kind::Group {
                        groups.push(id);
                    }
                }
            }
        }
        let inside = tree.paths(group)?.inside();
        strangers(tree, &inside, &known, &mut found)?;
    }
    strangers(tree, &format!("{OBJECTS}/"), &shared, &mut found)?;
    Ok(Examined { files: found, links })
}

/// Files of unknown objects in one directory.
fn strangers(tree: &Tree, dir: &str, known: &HashSet<String>, found: &mut Vec<String>) -> Result<()> {
    let place = &tree.place;
    let entries = place.list(dir.trim_end_matches('/'))?;
    for (name, kind) in &entries {
        let path = format!("{dir}{name}");
        if name.ends_with("@new") {
            found.push(path);
            continue;
        }
        if *kind == PlaceEntry::Directory {
            let ours = place.kind(&format!("{path}/.@self"))?.is_some()
                || place.kind(&format!("{path}/.@links"))?.is_some();
            if ours && !known.contains(name) {
                found.push(path);
            }
            continue;
        }
        if dir.strip_suffix('/') == Some(OBJECTS)
            && !known.contains(name)
            && name.bytes().all(|byte| byte.is_ascii_digit())
        {
            // The header has got a name already, the data has not.
            found.push(path);
            continue;
        }
        let Some(leaf) = name.strip_prefix('.').map(|rest| rest.split('@').next().unwrap_or(rest)) else {
            continue;
        };
        // `.@self` and its kind have no leaf; `.X` and `.X@heap` belong to X.
        if leaf.is_empty() || known.contains(leaf) || (!name.contains('@') && !is_header(tree, &path)?) {
            continue;
        }
        let data = format!("{dir}{leaf}");
        if !name.contains('@') && place.kind(&data)? == Some(PlaceEntry::File) {
            found.push(data);
        }
        found.push(path);
    }
    Ok(())
}

fn is_header(tree: &Tree, path: &str) -> Result<bool> {
    let bytes = tree.place.read(path)?.unwrap_or_default();
    Ok(bytes.starts_with(b"{\"crc\":\""))
}
