//! Sequential reader over the bytes of pieces.

use pario_sys::MemoryPiece;

/// See the module.
#[derive(Debug)]
pub(crate) struct PieceReader<'a> {
    pieces: &'a [MemoryPiece<'a>],
    consumed: usize,
}

impl<'a> PieceReader<'a> {
    pub(crate) fn new(pieces: &'a [MemoryPiece<'a>]) -> PieceReader<'a> {
        PieceReader { pieces, consumed: 0 }
    }

    /// Copies the next bytes; there must be enough.
    pub(crate) fn copy_to(&mut self, mut target: &mut [u8]) {
        while !target.is_empty() {
            let piece = self.next(target.len());
            let (head, tail) = target.split_at_mut(piece.len());
            piece.copy_to(head);
            target = tail;
        }
    }

    /// The next bytes, by reference; there must be enough.
    pub(crate) fn take(&mut self, mut bytes: usize) -> Vec<MemoryPiece<'a>> {
        let mut taken = Vec::new();
        while 0 < bytes {
            let piece = self.next(bytes);
            bytes -= piece.len();
            taken.push(piece);
        }
        taken
    }

    /// At most `bytes_max` of the next bytes, from one piece.
    fn next(&mut self, bytes_max: usize) -> MemoryPiece<'a> {
        let (first, rest) = self.pieces.split_first().expect("not more bytes than the pieces have");
        let (_, left) = first.split_at(self.consumed);
        let (piece, _) = left.split_at(left.len().min(bytes_max));
        self.consumed += piece.len();
        if self.consumed == first.len() {
            self.pieces = rest;
            self.consumed = 0;
        }
        piece
    }
}
