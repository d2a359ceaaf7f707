//! Attributes of objects, kept in the object's header.

use crate::error::{Result, TreeError};
use crate::header::{Attribute, HeaderRecord};
use crate::heap::{BlobId, Heap};
use crate::names::LinkName;
use crate::tree::Tree;

impl Tree {
    /// Appends a change of an object's header.
    pub(crate) fn commit_header(&mut self, id: u64, record: HeaderRecord) -> Result<()> {
        self.writable()?;
        let place = self.place.clone();
        self.node_mut(id)?.commit(&*place, record)
    }

    /// Makes an attribute; its order is filled in.
    pub fn create_attribute(&mut self, id: u64, mut attribute: Attribute) -> Result<()> {
        let header = self.header(id)?;
        if header.attribute(&attribute.name).is_some() {
            return Err(TreeError::Exists(attribute.name.to_string()));
        }
        attribute.order = header.next_order;
        self.commit_header(id, HeaderRecord::Attribute(Box::new(attribute)))
    }

    /// The attribute `name` of an object.
    pub fn attribute(&self, id: u64, name: &LinkName) -> Result<&Attribute> {
        let found = self.header(id)?.attribute(name);
        found.ok_or_else(|| TreeError::NoObject(format!("attribute {name}")))
    }

    /// Replaces the stored elements of an attribute.
    pub fn write_attribute(&mut self, id: u64, name: &LinkName, value: Vec<u8>) -> Result<()> {
        let mut attribute = self.attribute(id, name)?.clone();
        attribute.value.0 = value;
        self.commit_header(id, HeaderRecord::Attribute(Box::new(attribute)))
    }

    /// Removes an attribute.
    pub fn remove_attribute(&mut self, id: u64, name: &LinkName) -> Result<()> {
        self.attribute(id, name)?;
        self.commit_header(id, HeaderRecord::NoAttribute(name.clone()))
    }

    /// Gives an attribute another name.
    pub fn rename_attribute(&mut self, id: u64, old: &LinkName, new: &LinkName) -> Result<()> {
        self.attribute(id, old)?;
        if old == new {
            return Ok(());
        }
        if self.header(id)?.attribute(new).is_some() {
            return Err(TreeError::Exists(new.to_string()));
        }
        self.commit_header(id, HeaderRecord::RenamedAttribute(old.clone(), new.clone()))
    }

    /// Sets or removes the comment of an object.
    pub fn set_comment(&mut self, id: u64, comment: Option<String>) -> Result<()> {
        self.commit_header(id, HeaderRecord::Comment(comment))
    }

    pub(crate) fn heap(&mut self, id: u64) -> Result<&mut Heap> {
        if self.node(id)?.heap.is_none() {
            let path = self.paths(id)?.part("heap");
            let heap = Heap::open(&*self.place, path)?;
            self.node_mut(id)?.heap = Some(heap);
        }
        Ok(self.node_mut(id)?.heap.as_mut().expect("opened above"))
    }

    /// Stores a variable-length value in the heap of an object; [`Tree::flush_heap`] writes it.
    pub fn put_blob(&mut self, id: u64, bytes: &[u8]) -> Result<BlobId> {
        self.writable()?;
        let place = self.place.clone();
        self.heap(id)?.put(&*place, bytes)
    }

    /// A variable-length value.
    pub fn blob(&mut self, id: u64, blob: BlobId) -> Result<Vec<u8>> {
        self.heap(id)?.get(blob)
    }

    /// A value, without a checksum: its name has no room for one.
    pub fn unchecked_blob(&mut self, id: u64, blob: BlobId) -> Result<Vec<u8>> {
        self.heap(id)?.bytes_of(blob)
    }

    /// Writes the values put since the last flush, in one write.
    pub fn flush_heap(&mut self, id: u64) -> Result<()> {
        let place = self.place.clone();
        match &mut self.node_mut(id)?.heap {
            Some(heap) => heap.flush(&*place),
            None => Ok(()),
        }
    }

    /// Writes to the heap of an object since it was opened.
    pub fn heap_appends(&self, id: u64) -> u64 {
        self.nodes.get(&id).and_then(|node| node.heap.as_ref()).map_or(0, |heap| heap.appends)
    }
}
