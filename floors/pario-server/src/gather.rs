//! Reading this server's part of a view's stream: gathered here, so that only what is wanted travels.
//!
//! Pieces that lie close together are read in one call and picked out of it; far ones each by itself.
//!
//! Never: more than a frame carries. Always: as many bytes as the view puts on this server; zeros where nothing was written.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use pario_core::limits::FRAME_DATA_BYTES_MAX;
use pario_core::{Layout, LocalOffset, ObjectId, ServerIndex, SessionId};
use pario_net::buffers;
use pario_store::{Store, StoreError};
use pario_view::View;

use crate::desk::{Desk, ReadDone, Wish};

/// Bytes read in one call where pieces lie close together.
const WINDOW_BYTES: u64 = 1 << 20;
/// A hole of this size is read over rather than around.
const HOLE_BYTES: u64 = 32 << 10;

/// Windows of one answer that wait for their turn at a time.
const WINDOWS_AT_ONCE: usize = 32;

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
        let (pieces, mut data) = self.plan();
        let block = store.places().and_then(|places| places.block_bytes(object.inode));
        for window in windows(&pieces, block) {
            if let [piece] = window {
                let target = &mut data[piece.at..piece.at + length(piece.bytes)];
                let count = store.read(object, LocalOffset(piece.local), target)?;
                target[count..].fill(0);
                continue;
            }
            let mut bytes = buffers::take(length(span(window).end - span(window).start));
            let count = store.read(object, LocalOffset(span(window).start), &mut bytes)?;
            pick_out(window, &bytes[..count], &mut data);
            buffers::give_back(bytes);
        }
        Ok(data)
    }

    /// The same when it is its turn, window by window; a few are asked for at a time.
    pub(crate) fn read_in_turn(&self, desk: &Arc<Desk>, whose: (SessionId, ObjectId), done: ReadDone) {
        let (pieces, data) = self.plan();
        let windows: Vec<Vec<Piece>> = windows(&pieces, None).map(<[Piece]>::to_vec).collect();
        if windows.is_empty() {
            return done(Ok(data));
        }
        let left = windows.len();
        let so_far = SoFar { data, failed: None, next: 0, left, done: Some(done) };
        let gathering = Gathering { desk: Arc::clone(desk), whose, windows, so_far: Mutex::new(so_far) };
        let gathering = Arc::new(gathering);
        (0..left.min(WINDOWS_AT_ONCE)).for_each(|_| gathering.ask());
    }

    /// What is wanted, and room for it.
    fn plan(&self) -> (Vec<Piece>, Vec<u8>) {
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
        let data = buffers::take(total as usize);
        (pieces, data)
    }
}

/// Pieces that are read together. Of blocks that have no fixed place, those of which nothing is wanted are left alone: whoever
/// touches one gets it.
fn windows(pieces: &[Piece], block: Option<u64>) -> impl Iterator<Item = &[Piece]> {
    let mut rest = pieces;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let mut end = first.local + first.bytes;
        let joins = |piece: &&Piece| {
            let joins = end <= piece.local
                && piece.local - end <= HOLE_BYTES
                && block.is_none_or(|block| piece.local / block <= end.saturating_sub(1) / block + 1)
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

/// From where to where a window reaches.
fn span(window: &[Piece]) -> Range<u64> {
    let end = window.last().map_or(0, |last| last.local + last.bytes);
    window.first().map_or(end, |first| first.local)..end
}

/// Puts the pieces of a window where they go; what was not there is zeros.
fn pick_out(window: &[Piece], bytes: &[u8], data: &mut [u8]) {
    let start = span(window).start;
    for piece in window {
        let target = &mut data[piece.at..piece.at + length(piece.bytes)];
        let from = length(piece.local - start).min(bytes.len());
        let there = &bytes[from..(from + target.len()).min(bytes.len())];
        target[..there.len()].copy_from_slice(there);
        target[there.len()..].fill(0);
    }
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).expect("at most a frame's data")
}

/// An answer that is gathered window by window, each in its turn.
struct Gathering {
    desk: Arc<Desk>,
    whose: (SessionId, ObjectId),
    windows: Vec<Vec<Piece>>,
    so_far: Mutex<SoFar>,
}

struct SoFar {
    data: Vec<u8>,
    failed: Option<StoreError>,
    /// The next window to ask for, and how many have not come.
    next: usize,
    left: usize,
    done: Option<ReadDone>,
}

impl Gathering {
    fn ask(self: &Arc<Self>) {
        let number = {
            let mut so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
            so_far.next += 1;
            so_far.next - 1
        };
        let Some(window) = self.windows.get(number) else { return };
        let (session, object) = self.whose;
        let wish = Wish { session, object, bytes: span(window) };
        let gathering = Arc::clone(self);
        self.desk.read(&wish, Box::new(move |result| gathering.came(number, result)));
    }

    fn came(self: Arc<Self>, number: usize, result: Result<Vec<u8>, StoreError>) {
        let over = {
            let mut so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(bytes) => {
                    pick_out(&self.windows[number], &bytes, &mut so_far.data);
                    buffers::give_back(bytes);
                }
                Err(error) => so_far.failed = Some(error),
            }
            so_far.left -= 1;
            (so_far.left == 0).then(|| {
                let data = std::mem::take(&mut so_far.data);
                (so_far.done.take(), so_far.failed.take().map_or(Ok(data), Err))
            })
        };
        match over {
            Some((Some(done), result)) => done(result),
            Some((None, _)) => {}
            None => self.ask(),
        }
    }
}
