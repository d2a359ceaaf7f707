//! Reading this server's part of a view's stream: gathered here, so that only what is wanted travels.
//!
//! Pieces that lie close together are read in one call and picked out of it; far ones each by itself.
//!
//! Never: more than a frame carries. Always: as many bytes as the view puts on this server; zeros where nothing was written.

use std::ops::Range;
use std::sync::Arc;

use pario_core::limits::FRAME_DATA_BYTES_MAX;
use pario_core::{Layout, LocalOffset, ObjectId, ServerIndex};
use pario_net::buffers;
use pario_store::{Store, StoreError};
use pario_view::View;

/// Bytes read in one call where pieces lie close together.
const WINDOW_BYTES: u64 = 1 << 20;
/// A hole of this size is read over rather than around.
const HOLE_BYTES: u64 = 32 << 10;

/// A range of a view's stream, as far as it lies on one server.
pub(crate) struct Part {
    pub(crate) view: Option<Arc<View>>,
    pub(crate) layout: Layout,
    pub(crate) stream: Range<u64>,
    pub(crate) server: ServerIndex,
}

/// A piece of the object and where it goes in the answer.
#[derive(Clone, Copy)]
struct Piece {
    local: u64,
    bytes: u64,
    at: usize,
}

impl Part {
    /// The bytes, in stream order.
    pub(crate) fn read(&self, store: &dyn Store, object: ObjectId) -> Result<Vec<u8>, StoreError> {
        let mut pieces = Vec::new();
        let mut total: u64 = 0;
        let mut add = |local: LocalOffset, bytes: u64| {
            // A client that wants more than travels gets what travels, and sees that it is short.
            let bytes = bytes.min(FRAME_DATA_BYTES_MAX as u64 - total);
            #[expect(clippy::cast_possible_truncation, reason = "at most a frame's data")]
            pieces.push(Piece { local: local.0, bytes, at: total as usize });
            total += bytes;
            total < FRAME_DATA_BYTES_MAX as u64
        };
        let (layout, stream) = (&self.layout, self.stream.clone());
        match &self.view {
            Some(view) => view.on_server(layout, self.server, stream).all(|part| add(part.local, part.bytes)),
            None => layout.pieces_on(self.server, stream).all(|piece| add(piece.local, piece.bytes)),
        };
        #[expect(clippy::cast_possible_truncation, reason = "at most a frame's data")]
        let mut data = buffers::take(total as usize);
        for window in windows(&pieces) {
            read_window(store, object, window, &mut data)?;
        }
        Ok(data)
    }
}

/// Pieces that are read together.
fn windows(pieces: &[Piece]) -> impl Iterator<Item = &[Piece]> {
    let mut rest = pieces;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let mut end = first.local + first.bytes;
        let joins = |piece: &&Piece| {
            let joins = end <= piece.local
                && piece.local - end <= HOLE_BYTES
                && piece.local + piece.bytes - first.local <= WINDOW_BYTES;
            end = piece.local + piece.bytes;
            joins
        };
        let count = 1 + rest[1..].iter().take_while(joins).count();
        let (window, others) = rest.split_at(count);
        rest = others;
        Some(window)
    })
}

fn read_window(
    store: &dyn Store,
    object: ObjectId,
    window: &[Piece],
    data: &mut [u8],
) -> Result<(), StoreError> {
    let (Some(first), Some(last)) = (window.first(), window.last()) else { return Ok(()) };
    let length = |bytes: u64| usize::try_from(bytes).expect("at most a frame's data");
    if window.len() == 1 {
        let target = &mut data[first.at..first.at + length(first.bytes)];
        let count = store.read(object, LocalOffset(first.local), target)?;
        target[count..].fill(0);
        return Ok(());
    }
    let mut bytes = buffers::take(length(last.local + last.bytes - first.local));
    let count = store.read(object, LocalOffset(first.local), &mut bytes)?;
    bytes[count..].fill(0);
    for piece in window {
        let from = length(piece.local - first.local);
        let size = length(piece.bytes);
        data[piece.at..piece.at + size].copy_from_slice(&bytes[from..from + size]);
    }
    buffers::give_back(bytes);
    Ok(())
}
