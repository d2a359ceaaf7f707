//! The header of an object: what it is, and its attributes. Stored as a log: a snapshot, then changes. Layout:
//! docs/formats/hdf5-tree.md.
//!
//! Always: applying the records of the log in order gives the header.

use serde::{Deserialize, Serialize};

use crate::bytes::Hex;
use crate::names::LinkName;
use crate::types::ElementType;

/// Kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A group.
    Group,
    /// A dataset.
    Dataset,
    /// A committed datatype.
    Type,
}

impl Kind {
    /// The kind in messages.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Group => "group",
            Kind::Dataset => "dataset",
            Kind::Type => "datatype",
        }
    }
}

/// A stored element type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeRecord {
    /// The type in HDF5's encoding.
    pub encoded: Hex,
    /// The type in words.
    pub description: ElementType,
    /// Stored size of one element in bytes.
    pub size: u64,
    /// Id of the committed type that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed: Option<u64>,
}

/// Shape of a dataset or attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataSpace {
    /// No element.
    Null,
    /// One element.
    Scalar,
    /// An array.
    Simple {
        /// Current extent of each dimension.
        extent: Vec<u64>,
        /// Largest extent of each dimension; `null` is unlimited.
        maximum: Vec<Option<u64>>,
    },
}

impl DataSpace {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        match self {
            DataSpace::Null => 0,
            DataSpace::Scalar => 1,
            DataSpace::Simple { extent, .. } => extent.iter().product(),
        }
    }

    /// Extent of each dimension; none for scalars.
    pub fn extent(&self) -> &[u64] {
        match self {
            DataSpace::Simple { extent, .. } => extent,
            DataSpace::Null | DataSpace::Scalar => &[],
        }
    }
}

/// How elements are arranged in the data file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataLayout {
    /// Row-major.
    Contiguous,
    /// Chunk n at n chunk sizes, row-major over the grid of chunks.
    Ordered {
        /// Shape of a chunk.
        chunk: Vec<u64>,
    },
    /// Chunks in any order, found by an index.
    Indexed {
        /// Shape of a chunk.
        chunk: Vec<u64>,
    },
}

/// One filter of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterSpec {
    /// HDF5's number of the filter.
    pub number: i32,
    /// A failure of this filter stores the chunk without it.
    pub optional: bool,
    /// Parameters.
    pub parameters: Vec<u32>,
}

/// What a dataset is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dataset {
    /// Element type.
    #[serde(rename = "type")]
    pub element: TypeRecord,
    /// Shape.
    pub space: DataSpace,
    /// Arrangement in the data file.
    pub layout: DataLayout,
    /// One stored element for places never written; zero if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<Hex>,
    /// Filters of chunks, in the order of writing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<FilterSpec>,
    /// Creation properties in HDF5's encoding.
    pub properties: Hex,
    /// The data file of a contiguous dataset with a fill value is complete.
    #[serde(default)]
    pub allocated: bool,
    /// The extent shrank, and elements outside may still be in the data file.
    #[serde(default)]
    pub untrimmed: bool,
}

/// What an object is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectBody {
    /// A group.
    Group {
        /// Creation properties in HDF5's encoding.
        properties: Hex,
    },
    /// A dataset.
    Dataset(Box<Dataset>),
    /// A committed datatype.
    Type {
        /// The type.
        #[serde(rename = "type")]
        element: TypeRecord,
        /// Creation properties in HDF5's encoding.
        properties: Hex,
    },
}

/// An attribute with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// Its name.
    pub name: LinkName,
    /// The name is UTF-8.
    pub utf8: bool,
    /// Number in the order of creation.
    pub order: u64,
    /// Element type.
    #[serde(rename = "type")]
    pub element: TypeRecord,
    /// Shape.
    pub space: DataSpace,
    /// Stored elements.
    pub value: Hex,
}

/// The header of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Id of the object, unique in its tree.
    pub id: u64,
    /// What it is.
    pub body: ObjectBody,
    /// Seconds since 1970 at creation; 0 if times are not tracked.
    pub created: u64,
    /// Number of hard links.
    pub links: u32,
    /// Comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Attributes in the order of creation.
    #[serde(default)]
    pub attributes: Vec<Attribute>,
    /// Number of the next attribute.
    #[serde(default)]
    pub next_order: u64,
}

/// A line of a header.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HeaderRecord {
    /// Everything.
    Object(Box<Header>),
    /// Another extent; elements outside are to be trimmed if it shrank.
    Extent { extent: Vec<u64>, shrank: bool },
    /// Elements outside the extent are gone.
    Trimmed(bool),
    /// The data file is complete.
    Allocated(bool),
    /// A new attribute, or a new value.
    Attribute(Box<Attribute>),
    /// An attribute is gone.
    NoAttribute(LinkName),
    /// An attribute has another name.
    RenamedAttribute(LinkName, LinkName),
    /// Number of hard links.
    Links(u32),
    /// Comment.
    Comment(Option<String>),
}

impl Header {
    /// Kind of the object.
    pub fn kind(&self) -> Kind {
        match self.body {
            ObjectBody::Group { .. } => Kind::Group,
            ObjectBody::Dataset(_) => Kind::Dataset,
            ObjectBody::Type { .. } => Kind::Type,
        }
    }

    /// What it is as a dataset.
    pub fn dataset(&self) -> Option<&Dataset> {
        match &self.body {
            ObjectBody::Dataset(dataset) => Some(dataset),
            ObjectBody::Group { .. } | ObjectBody::Type { .. } => None,
        }
    }

    /// The attribute `name`.
    pub fn attribute(&self, name: &LinkName) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.name == *name)
    }

    /// The header of these records; a cause if the first is no snapshot.
    pub(crate) fn from_records(records: Vec<HeaderRecord>) -> Result<Header, String> {
        let mut records = records.into_iter();
        let Some(HeaderRecord::Object(header)) = records.next() else {
            return Err("the first line describes no object".into());
        };
        let mut header = *header;
        records.for_each(|record| header.apply(record));
        Ok(header)
    }

    pub(crate) fn apply(&mut self, record: HeaderRecord) {
        match record {
            HeaderRecord::Object(header) => *self = *header,
            HeaderRecord::Attribute(attribute) => self.put_attribute(*attribute),
            HeaderRecord::NoAttribute(name) => self.attributes.retain(|attribute| attribute.name != name),
            HeaderRecord::RenamedAttribute(old, new) => {
                let renamed = self.attributes.iter_mut().filter(|attribute| attribute.name == old);
                renamed.for_each(|attribute| attribute.name = new.clone());
            }
            HeaderRecord::Links(links) => self.links = links,
            HeaderRecord::Comment(comment) => self.comment = comment,
            HeaderRecord::Extent { .. } | HeaderRecord::Trimmed(_) | HeaderRecord::Allocated(_) => {
                if let ObjectBody::Dataset(dataset) = &mut self.body {
                    dataset.apply(record);
                }
            }
        }
    }

    fn put_attribute(&mut self, attribute: Attribute) {
        self.next_order = self.next_order.max(attribute.order + 1);
        match self.attributes.iter_mut().find(|known| known.name == attribute.name) {
            Some(known) => *known = attribute,
            None => self.attributes.push(attribute),
        }
    }
}

impl Dataset {
    fn apply(&mut self, record: HeaderRecord) {
        match (record, &mut self.space) {
            (HeaderRecord::Extent { extent, shrank }, DataSpace::Simple { extent: current, .. }) => {
                *current = extent;
                self.untrimmed |= shrank;
            }
            (HeaderRecord::Trimmed(_), _) => self.untrimmed = false,
            (HeaderRecord::Allocated(allocated), _) => self.allocated = allocated,
            _ => (),
        }
    }

    /// Bytes of all elements.
    pub fn bytes(&self) -> u64 {
        self.space.elements().saturating_mul(self.element.size)
    }
}
