//! Reading this server's part of a view's stream: collected here, so that only requested bytes are sent.
//!
//! Pieces that are close together are read in one call and copied out of it; distant ones each by itself.
//!
//! Never: more than a frame carries. Always: as many bytes as the view maps to this server; zeros where nothing was written.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use pario_core::limits::FRAME_DATA_BYTES_MAX;
use pario_core::{Layout, LocalOffset, ObjectId, ServerIndex, SessionId};
use pario_net::buffers;
use pario_store::{Store, StoreError};
use pario_view::View;

use crate::io_queue::{IoQueue, IoRequest, ReadDone};

/// Bytes read in one call where pieces are close together.
const READ_BYTES: u64 = 1 << 20;
/// A hole of this size is read and discarded.
const HOLE_BYTES: u64 = 32 << 10;

/// Concurrent queued reads of one reply.
const READS_QUEUED_MAX: usize = 32;

/// A range of a view's stream on one server.
pub(crate) struct StreamPart {
    pub(crate) view: Option<Arc<View>>,
    pub(crate) layout: Layout,
    pub(crate) stream: Range<u64>,
    pub(crate) server: ServerIndex,
}

/// A piece of the object and its offset in the reply.
#[derive(Clone, Copy)]
struct ReadPiece {
    local: u64,
    bytes: u64,
    at: usize,
}

impl StreamPart {
    /// The bytes, in stream order.
    pub(crate) fn read(&self, store: &dyn Store, object: ObjectId) -> Result<Vec<u8>, StoreError> {
        let (pieces, mut data) = self.plan();
        let block = store.peer_service().and_then(|places| places.block_bytes(object.inode));
        for window in joint_reads(&pieces, block) {
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

    /// The same through the I/O queue, read by read; a few are queued at a time.
    pub(crate) fn read_in_turn(&self, desk: &Arc<IoQueue>, whose: (SessionId, ObjectId), done: ReadDone) {
        let (pieces, data) = self.plan();
        let windows: Vec<Vec<ReadPiece>> = joint_reads(&pieces, None).map(<[ReadPiece]>::to_vec).collect();
        if windows.is_empty() {
            return done(Ok(data));
        }
        let left = windows.len();
        let so_far = SoFar { data, failed: None, next: 0, left, done: Some(done) };
        let gathering = QueuedGather {
            io_queue: Arc::clone(desk),
            origin: whose,
            reads: windows,
            so_far: Mutex::new(so_far),
        };
        let gathering = Arc::new(gathering);
        (0..left.min(READS_QUEUED_MAX)).for_each(|_| gathering.ask());
    }

    /// The requested pieces, and a buffer for them.
    fn plan(&self) -> (Vec<ReadPiece>, Vec<u8>) {
        let mut pieces = Vec::new();
        let mut total: u64 = 0;
        let mut add = |local: LocalOffset, bytes: u64| {
            // A client that requests more than a frame gets a frame, and sees that it is short.
            let bytes = bytes.min(FRAME_DATA_BYTES_MAX as u64 - total);
            #[expect(clippy::cast_possible_truncation, reason = "at most a frame's data")]
            pieces.push(ReadPiece { local: local.0, bytes, at: total as usize });
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

/// Pieces that are read together. In cached files, blocks without a requested byte are not touched: reading a block may make this server
/// its owner.
fn joint_reads(pieces: &[ReadPiece], block: Option<u64>) -> impl Iterator<Item = &[ReadPiece]> {
    let mut rest = pieces;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let mut end = first.local + first.bytes;
        let joins = |piece: &&ReadPiece| {
            let joins = end <= piece.local
                && piece.local - end <= HOLE_BYTES
                && block.is_none_or(|block| piece.local / block <= end.saturating_sub(1) / block + 1)
                && piece.local + piece.bytes - first.local <= READ_BYTES;
            end = piece.local + piece.bytes;
            joins
        };
        let count = 1 + rest[1..].iter().take_while(joins).count();
        let (window, others) = rest.split_at(count);
        rest = others;
        Some(window)
    })
}

/// The range of a read.
fn span(window: &[ReadPiece]) -> Range<u64> {
    let end = window.last().map_or(0, |last| last.local + last.bytes);
    window.first().map_or(end, |first| first.local)..end
}

/// Copies the pieces of a read to the reply; missing bytes are zeros.
fn pick_out(window: &[ReadPiece], bytes: &[u8], data: &mut [u8]) {
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

/// A reply that is collected read by read, each in its turn.
struct QueuedGather {
    io_queue: Arc<IoQueue>,
    origin: (SessionId, ObjectId),
    reads: Vec<Vec<ReadPiece>>,
    so_far: Mutex<SoFar>,
}

struct SoFar {
    data: Vec<u8>,
    failed: Option<StoreError>,
    /// The next read to queue, and the number of outstanding ones.
    next: usize,
    left: usize,
    done: Option<ReadDone>,
}

impl QueuedGather {
    fn ask(self: &Arc<Self>) {
        let number = {
            let mut so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
            so_far.next += 1;
            so_far.next - 1
        };
        let Some(window) = self.reads.get(number) else { return };
        let (session, object) = self.origin;
        let wish = IoRequest { session, object, bytes: span(window) };
        let gathering = Arc::clone(self);
        self.io_queue.read(&wish, Box::new(move |result| gathering.read_done(number, result)));
    }

    fn read_done(self: Arc<Self>, number: usize, result: Result<Vec<u8>, StoreError>) {
        let over = {
            let mut so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(bytes) => {
                    pick_out(&self.reads[number], &bytes, &mut so_far.data);
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
