//! Copies of objects, inside a tree and between trees: files are copied as they are, ids are new.
//!
//! Always: the copy is built without a name; its link is the commit.

use std::collections::HashMap;
use std::sync::Arc;

use crate::bytes::index;
use crate::error::{Result, TreeError};
use crate::header::{Kind, ObjectBody, TypeRecord};
use crate::links::{LinkTarget, NewLink};
use crate::names::LinkName;
use crate::place::Place;
use crate::tree::Tree;

/// Bytes copied at once.
const STEP: u64 = 4 << 20;

/// What is copied of an object, read before the copy begins.
#[derive(Debug)]
pub struct CopySource {
    place: Arc<dyn Place>,
    root: u64,
    objects: HashMap<u64, SourceObject>,
}

#[derive(Debug)]
struct SourceObject {
    body: ObjectBody,
    attributes: Vec<crate::header::Attribute>,
    created: u64,
    /// Files to copy: source path and part.
    files: Vec<(String, &'static str)>,
    links: Vec<(LinkName, bool, LinkTarget)>,
}

/// How objects are copied.
#[derive(Clone, Copy, Debug, Default)]
pub struct ObjectCopyOptions {
    /// Members of a group, but not theirs.
    pub shallow: bool,
    /// Attributes stay behind.
    pub without_attributes: bool,
}

impl Tree {
    /// Reads what is needed for a copy of `id`.
    pub fn copy_source(&mut self, id: u64, options: ObjectCopyOptions) -> Result<CopySource> {
        self.flush()?;
        let mut source = CopySource { place: self.place.clone(), root: id, objects: HashMap::new() };
        let mut open = vec![(id, 0)];
        while let Some((one, depth)) = open.pop() {
            if source.objects.contains_key(&one) {
                continue;
            }
            let mut object = self.source_object(one, options)?;
            if object.body_kind() == Kind::Group && !(options.shallow && depth > 0) {
                for row in self.links(one)? {
                    if let LinkTarget::Hard { id: inner, shared } = row.target {
                        self.enter(one, &row.name, inner, shared)?;
                        open.push((inner, depth + 1));
                    }
                    object.links.push((row.name, row.utf8, row.target));
                }
            }
            source.objects.insert(one, object);
        }
        Ok(source)
    }

    fn source_object(&self, id: u64, options: ObjectCopyOptions) -> Result<SourceObject> {
        let (header, paths) = (self.header(id)?.clone(), self.paths(id)?);
        let files = match header.kind() {
            Kind::Group | Kind::Type => vec![(paths.part("heap"), "heap")],
            Kind::Dataset => {
                vec![(paths.main(), ""), (paths.part("chunks"), "chunks"), (paths.part("heap"), "heap")]
            }
        };
        let attributes = if options.without_attributes { Vec::new() } else { header.attributes };
        Ok(SourceObject { body: header.body, attributes, created: header.created, files, links: Vec::new() })
    }

    /// Makes a copy and gives it a name.
    pub fn paste(&mut self, at: NewLink<'_>, source: &CopySource) -> Result<u64> {
        let NewLink { group, name, utf8 } = at;
        self.writable()?;
        if self.table(group)?.get(name).is_some() {
            return Err(TreeError::Exists(name.to_string()));
        }
        let mut made = HashMap::new();
        self.paste_object(NewLink { group, name, utf8 }, source, source.root, &mut made)
    }

    fn paste_object(
        &mut self,
        at: NewLink<'_>,
        source: &CopySource,
        from: u64,
        made: &mut HashMap<u64, u64>,
    ) -> Result<u64> {
        let NewLink { group, name, utf8 } = at;
        if let Some(id) = made.get(&from) {
            self.link_hard(NewLink { group, name, utf8 }, *id)?;
            return Ok(*id);
        }
        let object = &source.objects[&from];
        let id = self.create_anonymous(object.uncommitted(), object.created != 0)?;
        made.insert(from, id);
        self.hold(id)?;
        let paths = self.paths(id)?;
        for (path, part) in &object.files {
            let to = if part.is_empty() { paths.main() } else { paths.part(part) };
            copy_file(&*source.place, path, &*self.place, &to)?;
        }
        for attribute in &object.attributes {
            self.create_attribute(id, attribute.clone())?;
        }
        for (inner, inner_utf8, target) in &object.links {
            match target {
                LinkTarget::Hard { id: next, .. } => {
                    self.paste_object(
                        NewLink { group: id, name: inner, utf8: *inner_utf8 },
                        source,
                        *next,
                        made,
                    )?;
                }
                LinkTarget::Soft(_) | LinkTarget::External { .. } | LinkTarget::User { .. } => {
                    self.link_other(NewLink { group: id, name: inner, utf8: *inner_utf8 }, target.clone())?;
                }
            }
        }
        self.link_hard(NewLink { group, name, utf8 }, id)?;
        self.release(id)?;
        Ok(id)
    }
}

impl CopySource {
    /// Whether elements or attributes refer to objects, by ids that mean nothing in another tree.
    pub fn has_references(&self) -> bool {
        self.objects.values().any(|object| {
            let own = match &object.body {
                ObjectBody::Dataset(dataset) => dataset.element.description.has_references(),
                ObjectBody::Group { .. } | ObjectBody::Type { .. } => false,
            };
            own || object.attributes.iter().any(|attribute| attribute.element.description.has_references())
        })
    }
}

impl SourceObject {
    fn body_kind(&self) -> Kind {
        match self.body {
            ObjectBody::Group { .. } => Kind::Group,
            ObjectBody::Dataset(_) => Kind::Dataset,
            ObjectBody::Type { .. } => Kind::Type,
        }
    }

    /// The body without ids of the source tree.
    fn uncommitted(&self) -> ObjectBody {
        let mut body = self.body.clone();
        let forget = |element: &mut TypeRecord| element.committed = None;
        match &mut body {
            ObjectBody::Dataset(dataset) => forget(&mut dataset.element),
            ObjectBody::Type { element, .. } => forget(element),
            ObjectBody::Group { .. } => (),
        }
        body
    }
}

fn copy_file(from: &dyn Place, path: &str, to: &dyn Place, target: &str) -> Result<()> {
    if from.kind(path)?.is_none() {
        return Ok(());
    }
    let (source, copy) = (from.open(path, false)?, to.open(target, true)?);
    let size = source.size()?;
    copy.set_size(size)?;
    let (mut at, mut buffer) = (0, vec![0; index(STEP.min(size))]);
    while at < size {
        let count = source.read_at(at, &mut buffer)?;
        if count == 0 {
            break;
        }
        // Holes stay holes.
        if buffer[..count].iter().any(|byte| *byte != 0) {
            copy.write_at(at, &buffer[..count])?;
        }
        at += crate::bytes::length(count);
    }
    Ok(())
}
