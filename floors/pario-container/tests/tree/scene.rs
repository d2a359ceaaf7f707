//! What all tests use: a tree in a temporary directory, and small objects.

use std::path::Path;
use std::sync::Arc;

use pario_container::{
    Attribute, ByteOrder, DataSpace, DirectoryPlace, ElementType, FilterSpec, Found, Hex, LinkName,
    NewDataset, NewLink, ObjectBody, Place, ROOT_ID, Result, Tree, TreeAccess, TypeRecord,
};

/// A random number generator that depends on nothing: xorshift.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// The seed of random tests: `PARIO_SEED`, or one per run, printed.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("PARIO_SEED").ok();
    let given = given.and_then(|text| text.trim_start_matches("0x").parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()) << 20 | 1);
    println!("PARIO_SEED={seed}");
    seed
}

pub(crate) const WRITE: TreeAccess = TreeAccess { write: true, lock: false };
pub(crate) const READ: TreeAccess = TreeAccess { write: false, lock: false };

pub(crate) fn integers() -> TypeRecord {
    let description = ElementType::Integer { size: 4, signed: true, order: ByteOrder::Little };
    TypeRecord { encoded: Hex(vec![1]), description, size: 4, committed: None }
}

pub(crate) fn place(dir: &Path) -> Arc<dyn Place> {
    Arc::new(DirectoryPlace::new(dir.join("a.h5")))
}

pub(crate) fn create(dir: &Path) -> Tree {
    Tree::create(place(dir), false, Hex::default()).unwrap()
}

pub(crate) fn open(dir: &Path, access: TreeAccess) -> Tree {
    Tree::open(place(dir), access).unwrap()
}

pub(crate) fn group_body() -> ObjectBody {
    ObjectBody::Group { properties: Hex::default() }
}

pub(crate) fn dataset(extent: &[u64], maximum: &[Option<u64>], chunk: Option<&[u64]>) -> NewDataset {
    NewDataset {
        element: integers(),
        space: DataSpace::Simple { extent: extent.to_vec(), maximum: maximum.to_vec() },
        chunk: chunk.map(<[u64]>::to_vec),
        fill: None,
        filters: Vec::new(),
        properties: Hex::default(),
        fill_follows: false,
    }
}

pub(crate) fn line(count: u64) -> NewDataset {
    dataset(&[count], &[Some(count)], None)
}

pub(crate) fn gzip() -> FilterSpec {
    FilterSpec { number: pario_container::DEFLATE, optional: true, parameters: vec![4] }
}

pub(crate) fn add_group(tree: &mut Tree, at: u64, name: &str) -> Result<u64> {
    tree.create_named(NewLink { group: at, name: &LinkName::from(name), utf8: true }, group_body(), false)
}

pub(crate) fn add_dataset(tree: &mut Tree, at: u64, name: &str, new: NewDataset) -> Result<u64> {
    tree.create_named(NewLink { group: at, name: &LinkName::from(name), utf8: true }, new.body()?, false)
}

pub(crate) fn attribute(name: &str, value: i32) -> Attribute {
    Attribute {
        name: LinkName::from(name),
        utf8: true,
        order: 0,
        element: integers(),
        space: DataSpace::Scalar,
        value: Hex(value.to_le_bytes().to_vec()),
    }
}

pub(crate) fn find(tree: &mut Tree, path: &str) -> Option<u64> {
    match tree.find(ROOT_ID, path.as_bytes()) {
        Ok(Found::Object(id)) => Some(id),
        Ok(Found::External { .. }) | Err(_) => None,
    }
}

pub(crate) fn bytes(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub(crate) fn read(tree: &mut Tree, id: u64, count: u64) -> Vec<i32> {
    let mut buffer = vec![0; usize::try_from(count).unwrap() * 4];
    tree.read_elements(id, &[(0, count)], &mut buffer).unwrap();
    buffer.chunks(4).map(|part| i32::from_le_bytes(part.try_into().unwrap())).collect()
}
