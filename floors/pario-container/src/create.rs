//! New objects: header and data first, then the link, which is the commit.
//!
//! Always: an object that was not made completely has no link, and the next writer removes its files.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::bytes::Hex;
use crate::data::OpenData;
use crate::error::{Result, TreeError};
use crate::header::{
    DataLayout, DataSpace, Dataset, FilterSpec, Header, HeaderRecord, Kind, ObjectBody, TypeRecord,
};
use crate::links::{LinkRecord, LinkRow, LinkTable, LinkTarget, NewLink};
use crate::locate::parts;
use crate::log::Log;
use crate::node::{Home, Paths, TreeNode};
use crate::place::Place;
use crate::tree::Tree;

/// A dataset to be made.
#[derive(Clone, Debug)]
pub struct NewDataset {
    /// Element type.
    pub element: TypeRecord,
    /// Shape.
    pub space: DataSpace,
    /// Shape of a chunk; `None` is contiguous.
    pub chunk: Option<Vec<u64>>,
    /// One stored element for places never written.
    pub fill: Option<Hex>,
    /// Filters of chunks.
    pub filters: Vec<FilterSpec>,
    /// Creation properties in HDF5's encoding.
    pub properties: Hex,
    /// The fill value follows by [`Tree::set_fill`].
    pub fill_follows: bool,
}

impl NewDataset {
    fn check(&self) -> Result<()> {
        let invalid = |text: &str| Err(TreeError::Invalid(text.into()));
        let extent = self.space.extent();
        let bytes = extent.iter().try_fold(self.element.size, |all, one| all.checked_mul(*one));
        if bytes.is_none_or(|bytes| bytes > i64::MAX.unsigned_abs()) {
            return invalid("the dataset has more than 2^63 bytes");
        }
        let Some(chunk) = &self.chunk else {
            if let DataSpace::Simple { extent, maximum } = &self.space
                && extent.iter().zip(maximum).any(|(now, most)| *most != Some(*now))
            {
                return invalid("a dataset that can grow needs chunks");
            }
            if self.filters.iter().any(|filter| !filter.optional) {
                return invalid("filters need chunks");
            }
            return Ok(());
        };
        if chunk.len() != extent.len() || chunk.contains(&0) {
            return invalid("the shape of a chunk does not fit the shape of the dataset");
        }
        let bytes = chunk.iter().try_fold(self.element.size, |all, one| all.checked_mul(*one));
        if bytes.is_none_or(|bytes| bytes > u64::from(u32::MAX)) {
            return invalid("a chunk has 4 GiB or more");
        }
        Ok(())
    }

    fn layout(&self) -> DataLayout {
        let Some(chunk) = self.chunk.clone() else { return DataLayout::Contiguous };
        let first_grows_only = match &self.space {
            DataSpace::Simple { extent, maximum } => {
                extent.iter().zip(maximum).skip(1).all(|(now, most)| *most == Some(*now))
            }
            DataSpace::Null | DataSpace::Scalar => false,
        };
        if self.filters.is_empty() && self.fill.is_none() && !self.fill_follows && first_grows_only {
            DataLayout::Ordered { chunk }
        } else {
            DataLayout::Indexed { chunk }
        }
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

impl Tree {
    /// Makes the groups of `path` that are missing, all but the last name.
    pub fn create_parents(&mut self, start: u64, path: &[u8], properties: &Hex) -> Result<()> {
        let mut at = if path.first() == Some(&b'/') { crate::tree::ROOT_ID } else { start };
        let names = parts(path);
        for name in &names[..names.len().saturating_sub(1)] {
            at = match self.find(at, &name.0) {
                Ok(crate::Found::Object(id)) => id,
                Ok(crate::Found::External { .. }) => {
                    return Err(TreeError::Unsupported(format!(
                        "making groups behind the external link `{name}`"
                    )));
                }
                Err(TreeError::NoObject(_)) if self.table(at)?.get(name).is_none() => {
                    let utf8 = std::str::from_utf8(&name.0).is_ok();
                    let body = ObjectBody::Group { properties: properties.clone() };
                    let group = self.create_named(NewLink { group: at, name, utf8 }, body, false)?;
                    self.node_mut(group)?.close();
                    group
                }
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// Makes an object without a name; it ends with its last handle unless [`Tree::link_hard`] names it.
    pub fn create_anonymous(&mut self, body: ObjectBody, timed: bool) -> Result<u64> {
        self.writable()?;
        let id = self.new_id()?;
        let created = if timed { now() } else { 0 };
        let header =
            Header { id, body, created, links: 0, comment: None, attributes: Vec::new(), next_order: 0 };
        let paths = Paths::shared(id, header.kind());
        let node = make(&*self.place, &paths, Home::Shared, header)?;
        self.nodes.insert(id, node);
        Ok(id)
    }

    /// Makes an object and its first name in one go; the object's files lie in the group's directory.
    pub fn create_named(&mut self, at: NewLink<'_>, body: ObjectBody, timed: bool) -> Result<u64> {
        let NewLink { group, name, utf8 } = at;
        self.writable()?;
        if self.table(group)?.get(name).is_some() {
            return Err(TreeError::Exists(name.to_string()));
        }
        let id = self.new_id()?;
        let created = if timed { now() } else { 0 };
        let header =
            Header { id, body, created, links: 1, comment: None, attributes: Vec::new(), next_order: 0 };
        let paths = Paths::named(self.paths(group)?.inside(), name, header.kind());
        self.clear(&paths)?;
        let node = make(&*self.place, &paths, Home::Named { parent: group, name: name.clone() }, header)?;
        let row =
            LinkRow { name: name.clone(), target: LinkTarget::Hard { id, shared: false }, order: 0, utf8 };
        self.put_link(group, row)?;
        self.nodes.insert(id, node);
        Ok(id)
    }

    /// Sets the fill value of a new dataset, for values that only its own heap can hold.
    pub fn set_fill(&mut self, id: u64, fill: Vec<u8>) -> Result<()> {
        let mut header = self.header(id)?.clone();
        if let ObjectBody::Dataset(dataset) = &mut header.body {
            dataset.fill = Some(Hex(fill)).filter(|value| value.0.iter().any(|byte| *byte != 0));
        }
        self.commit_header(id, HeaderRecord::Object(Box::new(header)))
    }

    /// Adds a link to a group; the order of creation is filled in.
    pub(crate) fn put_link(&mut self, group: u64, mut row: LinkRow) -> Result<()> {
        let place = self.place.clone();
        let table = self.table(group)?;
        row.order = table.next();
        table.commit(&*place, LinkRecord::Put(row))
    }

    /// Removes files of an object that was never committed.
    pub(crate) fn clear(&self, paths: &Paths) -> Result<()> {
        for kind in [Kind::Group, Kind::Dataset] {
            let paths = Paths { kind, ..paths.clone() };
            if kind == Kind::Group && self.place.kind(&paths.header())?.is_some() {
                self.place.remove_tree(&paths.main())?;
            } else if kind == Kind::Dataset && self.place.kind(&paths.header())?.is_some() {
                paths.all().iter().try_for_each(|path| self.place.remove_file(path))?;
            }
        }
        Ok(())
    }
}

impl NewDataset {
    /// The checked body of a dataset.
    pub fn body(self) -> Result<ObjectBody> {
        self.check()?;
        let layout = self.layout();
        let NewDataset { element, space, fill, filters, properties, .. } = self;
        let filters = if layout == DataLayout::Contiguous { Vec::new() } else { filters };
        let fill = fill.filter(|value| value.0.iter().any(|byte| *byte != 0));
        Ok(ObjectBody::Dataset(Box::new(Dataset {
            element,
            space,
            layout,
            fill,
            filters,
            properties,
            allocated: false,
            untrimmed: false,
        })))
    }
}

/// The files of a new object, the header first: a file beside a header without a link is removed with it.
fn make(place: &dyn Place, paths: &Paths, home: Home, header: Header) -> Result<TreeNode> {
    let mut links = None;
    if header.kind() == Kind::Group {
        place.create_dir(&paths.main())?;
        links = Some(LinkTable::create_unlinked(place, &paths.links())?);
    }
    let record = HeaderRecord::Object(Box::new(header));
    let log = Log::create_unlinked(place, &paths.header(), std::slice::from_ref(&record))?;
    let HeaderRecord::Object(header) = record else { unreachable!("made above") };
    let mut data = None;
    if let Some(dataset) = header.dataset()
        && dataset.layout == DataLayout::Contiguous
    {
        let file = place.create(&paths.main())?;
        if dataset.fill.is_none() && dataset.bytes() > 0 {
            file.set_size(dataset.bytes())?;
        }
        data = Some(OpenData::contiguous(file));
    }
    let mut node = TreeNode::new(home, *header, log);
    (node.links, node.data) = (links, data);
    Ok(node)
}
