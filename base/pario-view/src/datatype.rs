//! Datatypes as in MPI: a value tree of constructors, cheap to clone, with MPI's bounds.
//!
//! Never: expands a typemap; keeps a type with numbers beyond 63 bits. Always: size and bounds are known in O(1), and nesting is at most
//! [`NESTING_MAX`] deep, so that recursion over the tree cannot overflow the stack.

mod arrays;
mod lists;

use std::fmt;
use std::sync::Arc;

pub use arrays::{ArrayOrder, DarrayDimension, Distribution, SubarrayDimension};
pub use lists::StructMember;

use crate::bounds::Bounds;
use crate::error::TypeError;

/// How deep datatypes may be nested. `dup` does not count.
pub const NESTING_MAX: u32 = 256;

/// An MPI datatype: a pattern of bytes, with a lower and an upper bound at which copies of it follow each other.
#[derive(Clone)]
pub struct Datatype(Arc<Inner>);

struct Inner {
    kind: DatatypeKind,
    bounds: Bounds,
    depth: u32,
}

/// How a datatype is made. All displacements and strides are bytes.
#[derive(Clone)]
pub(crate) enum DatatypeKind {
    /// Contiguous bytes.
    Elementary,
    /// `count` blocks of `block` elements, their starts `stride` apart.
    Strided { count: u64, block: u64, stride: i64, element: Datatype },
    /// Blocks at given displacements.
    Blocks { at: Arc<[i64]>, lengths: Lengths, element: Datatype },
    /// Elements of different types at given displacements.
    Structure { members: Arc<[StructMember]> },
    /// A part of an array, fastest-changing dimension first.
    Array { dimensions: Arc<[Dimension]>, element: Datatype },
    /// Another type with other bounds.
    Resized { element: Datatype },
}

/// Elements in each block of a list.
#[derive(Clone)]
pub(crate) enum Lengths {
    Equal(u64),
    Each(Arc<[u64]>),
}

/// Selected indices of one dimension of an array: `full` blocks of `block` indices from `first` on, their starts `step` apart, then one
/// of `tail`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Dimension {
    pub(crate) size: u64,
    pub(crate) first: u64,
    pub(crate) block: u64,
    pub(crate) full: u64,
    pub(crate) step: u64,
    pub(crate) tail: u64,
}

impl Datatype {
    /// An elementary type of `bytes` contiguous bytes, without alignment.
    pub fn elementary(bytes: u64) -> Result<Self, TypeError> {
        Datatype::named(bytes, 1)
    }

    /// A predefined type of `bytes` contiguous bytes that a compiler aligns to `align`. Where no bounds are set, the extent of
    /// a type is rounded up to its strictest alignment, as the standard says.
    pub fn named(bytes: u64, align: u64) -> Result<Self, TypeError> {
        if bytes == 0 || align == 0 || !bytes.is_multiple_of(align) {
            return Err(TypeError::Elementary { bytes, align });
        }
        let bounds = Bounds::elementary(bytes, align);
        Datatype::make(DatatypeKind::Elementary, bounds, 0)
    }

    /// `count` elements, concatenated.
    pub fn contiguous(count: i64, element: &Datatype) -> Result<Self, TypeError> {
        let count = checked_count(count)?;
        Datatype::strided(1, count, 0, element)
    }

    /// `count` blocks of `block` elements, their starts `stride` elements apart.
    pub fn vector(count: i64, block: i64, stride: i64, element: &Datatype) -> Result<Self, TypeError> {
        let stride = stride.checked_mul(element.extent()).ok_or(TOO_FAR)?;
        Datatype::hvector(count, block, stride, element)
    }

    /// `count` blocks of `block` elements, their starts `stride` bytes apart.
    pub fn hvector(count: i64, block: i64, stride: i64, element: &Datatype) -> Result<Self, TypeError> {
        let block = checked_entry("block length", 0, block)?;
        Datatype::strided(checked_count(count)?, block, stride, element)
    }

    /// The same type with lower bound `lb` and upper bound `lb + extent`.
    pub fn resized(&self, lb: i64, extent: i64) -> Result<Self, TypeError> {
        let ub = lb.checked_add(extent).ok_or(TypeError::TooLarge { what: "upper bound" })?;
        let bounds = self.0.bounds.marked(lb, ub);
        Datatype::make(DatatypeKind::Resized { element: self.clone() }, Some(bounds), self.0.depth)
    }

    /// The same type again.
    #[must_use]
    pub fn dup(&self) -> Self {
        self.clone()
    }

    /// Bytes of data in one element.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.bounds.size
    }

    /// Distance between elements that follow each other: upper less lower bound.
    #[must_use]
    pub fn extent(&self) -> i64 {
        self.ub() - self.lb()
    }

    /// Lower bound.
    #[must_use]
    pub fn lb(&self) -> i64 {
        self.0.bounds.lb()
    }

    /// Upper bound.
    #[must_use]
    pub fn ub(&self) -> i64 {
        self.0.bounds.ub().expect("make() rejects types with bounds beyond 63 bits")
    }

    /// Displacement of the lowest byte of data; 0 without data.
    #[must_use]
    pub fn true_lb(&self) -> i64 {
        self.0.bounds.data.map_or(0, |data| data.lo)
    }

    /// Displacement one past the highest byte of data; 0 without data.
    #[must_use]
    pub fn true_ub(&self) -> i64 {
        self.0.bounds.data.map_or(0, |data| data.hi)
    }

    /// Bytes from the lowest to the highest byte of data.
    #[must_use]
    pub fn true_extent(&self) -> i64 {
        self.true_ub() - self.true_lb()
    }

    /// Whether displacements in the typemap never decrease, as a file type's must not.
    #[must_use]
    pub fn is_ascending(&self) -> bool {
        self.0.bounds.data.is_none_or(|data| data.ascending)
    }

    pub(crate) fn kind(&self) -> &DatatypeKind {
        &self.0.kind
    }

    /// A number shared by clones and by no other type, as long as this value exists.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    fn strided(count: u64, block: u64, stride: i64, element: &Datatype) -> Result<Self, TypeError> {
        let bounds = element.0.bounds.repeated(block, element.extent());
        let bounds = bounds.and_then(|bounds| bounds.repeated(count, stride));
        let kind = DatatypeKind::Strided { count, block, stride, element: element.clone() };
        Datatype::make(kind, bounds, element.0.depth)
    }

    fn make(kind: DatatypeKind, bounds: Option<Bounds>, below: u32) -> Result<Self, TypeError> {
        let bounds = bounds.filter(Bounds::fits).ok_or(TypeError::TooLarge { what: "the type" })?;
        if below == NESTING_MAX {
            return Err(TypeError::TooDeep { limit: NESTING_MAX });
        }
        Ok(Datatype(Arc::new(Inner { kind, bounds, depth: below + 1 })))
    }
}

impl fmt::Debug for Datatype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match &self.0.kind {
            DatatypeKind::Elementary => "elementary",
            DatatypeKind::Strided { .. } => "strided",
            DatatypeKind::Blocks { .. } => "blocks",
            DatatypeKind::Structure { .. } => "structure",
            DatatypeKind::Array { .. } => "array",
            DatatypeKind::Resized { .. } => "resized",
        };
        write!(f, "{name}({} B in {}..{}, depth {})", self.size(), self.lb(), self.ub(), self.0.depth)
    }
}

const TOO_FAR: TypeError = TypeError::TooLarge { what: "a displacement" };

fn checked_count(value: i64) -> Result<u64, TypeError> {
    u64::try_from(value).map_err(|_| TypeError::NegativeCount { value })
}

fn checked_entry(what: &'static str, index: usize, value: i64) -> Result<u64, TypeError> {
    u64::try_from(value).map_err(|_| TypeError::Negative { what, index, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorClass;

    #[test]
    fn knows_the_bounds_of_a_vector() {
        let int = Datatype::named(4, 4).unwrap();
        let vector = Datatype::vector(3, 2, 5, &int).unwrap();
        assert_eq!((vector.size(), vector.lb(), vector.ub()), (24, 0, 48));
        let resized = vector.resized(-4, 100).unwrap();
        assert_eq!((resized.lb(), resized.extent()), (-4, 100));
        assert_eq!((resized.true_lb(), resized.true_extent()), (0, 48));
        let backwards = Datatype::vector(3, 2, -5, &int).unwrap();
        assert_eq!((backwards.lb(), backwards.ub(), backwards.is_ascending()), (-40, 8, false));
    }

    #[test]
    fn counts_of_nothing_make_empty_types() {
        let int = Datatype::named(4, 4).unwrap();
        let empty = Datatype::contiguous(0, &int).unwrap();
        assert_eq!((empty.size(), empty.lb(), empty.ub(), empty.true_extent()), (0, 0, 0, 0));
    }

    #[test]
    fn says_what_is_wrong() {
        let int = Datatype::named(4, 4).unwrap();
        let negative = Datatype::contiguous(-1, &int).unwrap_err();
        assert_eq!((negative, negative.class()), (TypeError::NegativeCount { value: -1 }, ErrorClass::Count));
        let block = Datatype::hvector(1, -2, 0, &int).unwrap_err();
        assert_eq!(block.to_string(), "block length 0 is negative: -2");
        assert!(matches!(Datatype::named(6, 4), Err(TypeError::Elementary { bytes: 6, align: 4 })));
        let far = Datatype::vector(2, 1, i64::MAX, &int).unwrap_err();
        assert_eq!(far.class(), ErrorClass::ValueTooLarge);
    }

    #[test]
    fn nesting_is_limited() {
        let mut datatype = Datatype::elementary(1).unwrap();
        for _ in 1..NESTING_MAX {
            datatype = Datatype::contiguous(1, &datatype).unwrap().dup();
        }
        let error = Datatype::contiguous(1, &datatype).unwrap_err();
        assert_eq!(error, TypeError::TooDeep { limit: NESTING_MAX });
    }
}
