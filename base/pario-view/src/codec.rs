//! Encoding of views: shipped once per server, and hashed to a view's id. Layout: docs/formats/view.md.
//!
//! Never: trusts decoded bytes; allocates more than a small multiple of the bytes received. Always: a view has exactly one encoding, so
//! that equal views have equal ids; decoded bytes are a legal view in that encoding.

use pario_core::codec::{Malformed, Reader, Writer};
use pario_core::limits;

use crate::build::{Builder, continues};
use crate::error::ViewError;
use crate::program::{ItemList, Items, Node, NodeId, NodeShape, Placed, ViewProgram};
use crate::sequence::running_sum;
use crate::varint::{get, get_count, get_positive, get_series, get_signed, put, put_series, put_signed};
use crate::view::View;

/// Most bytes of a view that may travel: it fits in one frame.
pub const VIEW_BYTES_MAX: usize = limits::FRAME_DATA_BYTES_MAX;
/// Most nodes of a view that may travel.
pub const VIEW_NODES_MAX: usize = 1 << 18;

const VERSION: u8 = 1;
const RUN: u8 = 0;
const LOOP: u8 = 1;
const EQUAL: u8 = 2;
const RUNS: u8 = 3;
const MIXED: u8 = 4;

impl View {
    /// Its bytes; an error if they are more than may travel.
    pub fn encode(&self) -> Result<Vec<u8>, ViewError> {
        self.encode_placed(self.displacement(), self.filetype().root.map(|root| root.at))
    }

    /// Encoding of the view's shape (the view translated so that its first byte is the file's first) and the displacement that
    /// [`View::displaced`] needs to restore it. Equal accesses at different offsets of a file have one shape.
    pub fn encode_shape(&self) -> Result<(Vec<u8>, u64), ViewError> {
        let root = self.filetype().root.map_or(0, |root| root.at);
        // File types begin at 0 or later, and a view's displacement and bounds fit together in 63 bits.
        let moved = self.displacement() + root.cast_unsigned();
        let bytes = self.encode_placed(0, self.filetype().root.map(|_| 0))?;
        Ok((bytes, moved))
    }

    fn encode_placed(&self, displacement: u64, root: Option<i64>) -> Result<Vec<u8>, ViewError> {
        let program = self.filetype();
        let mut writer = Writer::default();
        writer.put(&VERSION);
        put(&mut writer, displacement);
        put(&mut writer, self.etype_bytes());
        put_signed(&mut writer, self.filetype_extent());
        put(&mut writer, program.nodes.len() as u64);
        if let Some(at) = root {
            put(&mut writer, at.cast_unsigned());
        }
        for (index, node) in program.nodes.iter().enumerate() {
            put_node(&mut writer, index, node);
        }
        let (bytes, nodes) = (writer.into_bytes(), program.nodes.len());
        if VIEW_BYTES_MAX < bytes.len() || VIEW_NODES_MAX < nodes {
            let (bytes_max, nodes_max) = (VIEW_BYTES_MAX, VIEW_NODES_MAX);
            return Err(ViewError::TooBig { bytes: bytes.len(), nodes, bytes_max, nodes_max });
        }
        Ok(bytes)
    }

    /// Decodes a view; only legal views are accepted.
    pub fn decode(bytes: &[u8]) -> Result<View, Malformed> {
        if VIEW_BYTES_MAX < bytes.len() {
            return Err(Malformed("view larger than may travel"));
        }
        let mut reader = Reader::new(bytes);
        if reader.get::<u8>()? != VERSION {
            return Err(Malformed("view of an unknown version"));
        }
        let displacement = get_positive(&mut reader)?.cast_unsigned();
        let etype_bytes = get(&mut reader)?;
        let extent = get_signed(&mut reader)?;
        let program = get_program(&mut reader)?;
        reader.finish()?;
        if etype_bytes == 0 || !program.size().is_multiple_of(etype_bytes) {
            return Err(Malformed("file type is no multiple of its elementary type"));
        }
        let view = View::from_parts(displacement, etype_bytes, extent, program)
            .map_err(|_| Malformed("view beyond the largest file"))?;
        // One view, one form: a second form of the same view would have a second id.
        let canonical = view.encode().map_err(|_| Malformed("view larger than may travel"))?;
        if canonical == bytes { Ok(view) } else { Err(Malformed("view not in its one form")) }
    }
}

fn put_node(writer: &mut Writer, index: usize, node: &Node) {
    let back = |body: &NodeId| (index - body.0 as usize) as u64;
    match &node.shape {
        NodeShape::Run => {
            writer.put(&RUN);
            put(writer, node.size);
        }
        NodeShape::Loop { count, stride, body } => {
            writer.put(&LOOP);
            put(writer, *count);
            put_signed(writer, *stride);
            put(writer, back(body));
        }
        NodeShape::List(list) => {
            let tag = match &list.items {
                Items::Same(_) => EQUAL,
                Items::Runs { .. } => RUNS,
                Items::Mixed { .. } => MIXED,
            };
            writer.put(&tag);
            put(writer, list.at.len() as u64);
            put_series(writer, &steps(list));
            match &list.items {
                Items::Same(body) => put(writer, back(body)),
                Items::Runs { before } => {
                    let lengths = before.windows(2).map(|pair| (pair[1] - pair[0]).cast_signed());
                    put_series(writer, &lengths.collect::<Vec<_>>());
                }
                Items::Mixed { nodes, .. } => nodes.iter().for_each(|node| put(writer, back(node))),
            }
        }
    }
}

/// Gaps between the items of a list: from the end of a run, from the offset of any other item, to the next.
fn steps(list: &ItemList) -> Vec<i64> {
    let gaps = list.at.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
    match &list.items {
        Items::Same(_) | Items::Mixed { .. } => gaps.collect(),
        Items::Runs { before } => {
            let lengths = before.windows(2).map(|pair| (pair[1] - pair[0]).cast_signed());
            gaps.zip(lengths).map(|(gap, length)| gap.wrapping_sub(length)).collect()
        }
    }
}

fn get_program(reader: &mut Reader<'_>) -> Result<ViewProgram, Malformed> {
    let count = get_count(reader)?;
    if VIEW_NODES_MAX < count {
        return Err(Malformed("more nodes than may travel"));
    }
    let mut builder = Builder::default();
    if count == 0 {
        return builder.finish(None).map_err(|_| DOES_NOT_FIT);
    }
    let at = get_positive(reader)?;
    for index in 0..count {
        let id = get_node(reader, &mut builder, index)?;
        if id.0 as usize != index {
            return Err(Malformed("node described twice"));
        }
    }
    let root = builder.last().ok_or(Malformed("no nodes"))?;
    if !builder.node(root).ascending {
        return Err(Malformed("displacements decrease"));
    }
    let program = builder.finish(Some(Placed { at, node: root })).map_err(|_| DOES_NOT_FIT)?;
    if program.nodes.len() == count { Ok(program) } else { Err(Malformed("node that nothing uses")) }
}

const DOES_NOT_FIT: Malformed = Malformed("view too large or too deep");

fn get_node(reader: &mut Reader<'_>, builder: &mut Builder, index: usize) -> Result<NodeId, Malformed> {
    let made = match reader.get::<u8>()? {
        RUN => match get(reader)? {
            0 => return Err(Malformed("run of nothing")),
            bytes => builder.run(bytes),
        },
        LOOP => {
            let (count, stride) = (get(reader)?, get_signed(reader)?);
            let body = get_body(reader, index)?;
            check_loop(builder, count, stride, body)?;
            builder.looped(count, stride, body)
        }
        EQUAL => {
            let at = offsets_from_gaps(&get_steps(reader)?, |_| 0)?;
            let body = get_body(reader, index)?;
            check_gaps(&at, builder.node(body))?;
            builder.list(at, Items::Same(body))
        }
        RUNS => get_runs(reader, builder)?,
        MIXED => get_mixed(reader, builder, index)?,
        _ => return Err(Malformed("unknown kind of node")),
    };
    made.map_err(|_| DOES_NOT_FIT)
}

type BuiltNode = Result<NodeId, crate::error::TypeError>;

fn get_runs(reader: &mut Reader<'_>, builder: &mut Builder) -> Result<BuiltNode, Malformed> {
    let gaps = get_steps(reader)?;
    let lengths = get_series(reader, gaps.len() + 1)?;
    if lengths.iter().any(|length| *length < 1) || gaps.contains(&0) {
        return Err(Malformed("runs that are empty or touch"));
    }
    let at = offsets_from_gaps(&gaps, |index| lengths[index])?;
    let before = running_sum(lengths.iter().map(|length| length.cast_unsigned()));
    Ok(before.and_then(|before| builder.list(at, Items::Runs { before })))
}

fn get_mixed(reader: &mut Reader<'_>, builder: &mut Builder, index: usize) -> Result<BuiltNode, Malformed> {
    let at = offsets_from_gaps(&get_steps(reader)?, |_| 0)?;
    let nodes: Box<[NodeId]> = at.iter().map(|_| get_body(reader, index)).collect::<Result<_, _>>()?;
    let before = running_sum(nodes.iter().map(|node| builder.node(*node).size));
    Ok(before.and_then(|before| builder.list(at, Items::Mixed { nodes, before })))
}

/// The steps of a list; there is one item more.
fn get_steps(reader: &mut Reader<'_>) -> Result<Vec<i64>, Malformed> {
    match get_count(reader)? {
        0 | 1 => Err(Malformed("list of less than two items")),
        count => get_series(reader, count - 1),
    }
}

/// Offsets of items from the gaps between them.
fn offsets_from_gaps(steps: &[i64], length: impl Fn(usize) -> i64) -> Result<Box<[i64]>, Malformed> {
    let mut at = Vec::with_capacity(steps.len() + 1);
    let mut last = 0i64;
    at.push(last);
    for (index, step) in steps.iter().enumerate() {
        last = last.checked_add(length(index)).and_then(|end| end.checked_add(*step)).ok_or(DOES_NOT_FIT)?;
        at.push(last);
    }
    Ok(at.into())
}

/// The id of an earlier node.
fn get_body(reader: &mut Reader<'_>, index: usize) -> Result<NodeId, Malformed> {
    let back = usize::try_from(get(reader)?).map_err(|_| Malformed("no such node"))?;
    let body = index.checked_sub(back).filter(|_| 0 < back).ok_or(Malformed("no such node"))?;
    u32::try_from(body).map(NodeId).map_err(|_| Malformed("no such node"))
}

fn check_loop(builder: &Builder, count: u64, stride: i64, body: NodeId) -> Result<(), Malformed> {
    let of = builder.node(body);
    let collapses = match of.shape {
        NodeShape::Run => of.hi == stride,
        NodeShape::Loop { count, stride: step, .. } => continues(count, step, stride),
        NodeShape::List(_) => false,
    };
    if count < 2 || collapses { Err(Malformed("loop that is none")) } else { Ok(()) }
}

/// Runs of equal length may not touch.
fn check_gaps(at: &[i64], body: &Node) -> Result<(), Malformed> {
    let touch = |pair: &[i64]| pair[0].checked_add(body.hi) == Some(pair[1]);
    let touching = body.shape == NodeShape::Run && at.windows(2).any(touch);
    if touching { Err(Malformed("runs that touch")) } else { Ok(()) }
}
