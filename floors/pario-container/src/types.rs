//! Element types as text: what a reader without HDF5 needs to know about stored elements.
//!
//! Never: decides how HDF5 converts; the exact type is kept beside this description in HDF5's own encoding.

use serde::{Deserialize, Serialize};

use crate::bytes::{Hex, index, length};

/// Stored size of a variable-length element: length in elements (4 bytes), then a blob id (16 bytes).
pub(crate) const VARIABLE_SIZE: u64 = 20;

/// Tag of opaque bytes that stand for a reference.
pub const REFERENCE_TAG: &str = "pario reference";

/// Byte order of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// Member of a compound type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Name of the member.
    pub name: String,
    /// Position in the stored element, in bytes.
    pub offset: u64,
    /// Type of the member.
    #[serde(rename = "type")]
    pub element: ElementType,
}

/// Description of a stored element.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "class", rename_all = "lowercase")]
pub enum ElementType {
    /// Integers in two's complement.
    Integer {
        /// Bytes.
        size: u64,
        /// Negative values exist.
        signed: bool,
        /// Byte order.
        order: ByteOrder,
    },
    /// Floating-point numbers.
    Float {
        /// Bytes.
        size: u64,
        /// Byte order.
        order: ByteOrder,
    },
    /// Text of fixed size.
    Text {
        /// Bytes.
        size: u64,
        /// UTF-8, else ASCII.
        utf8: bool,
    },
    /// Text of variable length, in the heap.
    Variabletext {
        /// UTF-8, else ASCII.
        utf8: bool,
    },
    /// Sequence of variable length, in the heap.
    Variable {
        /// Type of the sequence's elements.
        of: Box<ElementType>,
    },
    /// Members side by side.
    Compound {
        /// Bytes.
        size: u64,
        /// The members.
        members: Vec<Member>,
    },
    /// Array of fixed shape.
    Array {
        /// Shape.
        shape: Vec<u64>,
        /// Type of the array's elements.
        of: Box<ElementType>,
    },
    /// Integers with names.
    Enumeration {
        /// The integer type.
        of: Box<ElementType>,
        /// Names and stored values.
        values: Vec<(String, Hex)>,
    },
    /// Bytes without meaning.
    Opaque {
        /// Bytes.
        size: u64,
        /// The program's tag.
        tag: String,
    },
    /// Bits.
    Bitfield {
        /// Bytes.
        size: u64,
        /// Byte order.
        order: ByteOrder,
    },
    /// Reference to an object of the same tree: its id.
    Reference {
        /// Bytes.
        size: u64,
    },
    /// A class without a description.
    Other {
        /// Bytes.
        size: u64,
        /// HDF5's number of the class.
        number: i32,
    },
}

impl ElementType {
    /// Stored size in bytes.
    pub fn size(&self) -> u64 {
        match self {
            ElementType::Integer { size, .. }
            | ElementType::Float { size, .. }
            | ElementType::Text { size, .. }
            | ElementType::Compound { size, .. }
            | ElementType::Opaque { size, .. }
            | ElementType::Bitfield { size, .. }
            | ElementType::Reference { size }
            | ElementType::Other { size, .. } => *size,
            ElementType::Variabletext { .. } | ElementType::Variable { .. } => VARIABLE_SIZE,
            ElementType::Array { shape, of } => shape.iter().product::<u64>() * of.size(),
            ElementType::Enumeration { of, .. } => of.size(),
        }
    }

    /// Whether elements refer to objects. Bytes that stand for a reference in a variable-length value are tagged as such.
    pub fn has_references(&self) -> bool {
        match self {
            ElementType::Reference { .. } => true,
            ElementType::Opaque { tag, .. } => tag == REFERENCE_TAG,
            ElementType::Variable { of } | ElementType::Array { of, .. } => of.has_references(),
            ElementType::Compound { members, .. } => {
                members.iter().any(|member| member.element.has_references())
            }
            ElementType::Integer { .. }
            | ElementType::Float { .. }
            | ElementType::Text { .. }
            | ElementType::Variabletext { .. }
            | ElementType::Enumeration { .. }
            | ElementType::Bitfield { .. }
            | ElementType::Other { .. } => false,
        }
    }

    /// A short name, such as `int32` or `text[8]`.
    pub fn label(&self) -> String {
        let swapped = |order: &ByteOrder| if *order == ByteOrder::Big { " big-endian" } else { "" };
        match self {
            ElementType::Integer { size, signed, order } => {
                format!("{}int{}{}", if *signed { "" } else { "u" }, size * 8, swapped(order))
            }
            ElementType::Float { size, order } => format!("float{}{}", size * 8, swapped(order)),
            ElementType::Text { size, .. } => format!("text[{size}]"),
            ElementType::Variabletext { .. } => "text".into(),
            ElementType::Variable { of } => format!("sequence of {}", of.label()),
            ElementType::Compound { members, .. } => {
                let members: Vec<String> = members
                    .iter()
                    .map(|member| format!("{}: {}", member.name, member.element.label()))
                    .collect();
                format!("{{{}}}", members.join(", "))
            }
            ElementType::Array { shape, of } => format!("{}{shape:?}", of.label()),
            ElementType::Enumeration { of, .. } => format!("enumeration of {}", of.label()),
            ElementType::Opaque { size, .. } => format!("opaque[{size}]"),
            ElementType::Bitfield { size, .. } => format!("bits{}", size * 8),
            ElementType::Reference { .. } => "reference".into(),
            ElementType::Other { size, number } => format!("class {number} of {size} bytes"),
        }
    }

    /// One stored element as text. `blob` returns the bytes of a variable-length element.
    pub fn shown(&self, bytes: &[u8], blob: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) -> String {
        match self {
            ElementType::Integer { signed, order, .. } => integer(bytes, *signed, *order),
            ElementType::Float { order, .. } => float(bytes, *order),
            ElementType::Text { .. } => text(bytes),
            ElementType::Variabletext { .. } => blob(bytes).map_or("(damaged)".into(), |found| text(&found)),
            ElementType::Variable { of } => {
                let Some(found) = blob(bytes) else { return "(damaged)".into() };
                list(of, &found, blob)
            }
            ElementType::Compound { members, .. } => {
                let shown = members.iter().map(|member| {
                    let at = index(member.offset);
                    let inner = bytes.get(at..at + index(member.element.size())).unwrap_or_default();
                    format!("{}: {}", member.name, member.element.shown(inner, blob))
                });
                let shown: Vec<String> = shown.collect();
                format!("{{{}}}", shown.join(", "))
            }
            ElementType::Array { of, .. } => list(of, bytes, blob),
            ElementType::Enumeration { of, values } => {
                let named = values.iter().find(|(_, value)| value.0 == bytes);
                named.map_or_else(|| of.shown(bytes, blob), |(name, _)| name.clone())
            }
            ElementType::Reference { .. } if bytes.len() == 8 => {
                format!("object {}", integer(bytes, false, ByteOrder::Little))
            }
            ElementType::Opaque { .. }
            | ElementType::Bitfield { .. }
            | ElementType::Reference { .. }
            | ElementType::Other { .. } => format!("0x{}", Hex(bytes.to_vec()).text()),
        }
    }
}

fn list(of: &ElementType, bytes: &[u8], blob: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) -> String {
    let size = index(of.size()).max(1);
    let shown: Vec<String> = bytes.chunks_exact(size).map(|element| of.shown(element, blob)).collect();
    format!("[{}]", shown.join(", "))
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    format!("{:?}", String::from_utf8_lossy(&bytes[..end]))
}

fn little(bytes: &[u8], order: ByteOrder) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if order == ByteOrder::Big {
        bytes.reverse();
    }
    bytes
}

fn integer(bytes: &[u8], signed: bool, order: ByteOrder) -> String {
    let bytes = little(bytes, order);
    if bytes.is_empty() || length(bytes.len()) > 16 {
        return format!("0x{}", Hex(bytes).text());
    }
    let negative = signed && bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = if negative { [0xff; 16] } else { [0; 16] };
    wide[..bytes.len()].copy_from_slice(&bytes);
    if signed { i128::from_le_bytes(wide).to_string() } else { u128::from_le_bytes(wide).to_string() }
}

fn float(bytes: &[u8], order: ByteOrder) -> String {
    let bytes = little(bytes, order);
    match bytes.len() {
        4 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).to_string(),
        8 => f64::from_le_bytes(bytes.try_into().expect("eight bytes")).to_string(),
        _ => format!("0x{}", Hex(bytes).text()),
    }
}
