//! Bytes taken one after the other from pieces.

use pario_sys::Piece;

/// See the module.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    pieces: &'a [Piece<'a>],
    taken: usize,
}

impl<'a> Source<'a> {
    pub(crate) fn new(pieces: &'a [Piece<'a>]) -> Source<'a> {
        Source { pieces, taken: 0 }
    }

    /// The next bytes, copied; there are enough.
    pub(crate) fn copy_to(&mut self, mut target: &mut [u8]) {
        while !target.is_empty() {
            let piece = self.next(target.len());
            let (head, tail) = target.split_at_mut(piece.len());
            piece.copy_to(head);
            target = tail;
        }
    }

    /// The next bytes, by reference; there are enough.
    pub(crate) fn take(&mut self, mut bytes: usize) -> Vec<Piece<'a>> {
        let mut taken = Vec::new();
        while 0 < bytes {
            let piece = self.next(bytes);
            bytes -= piece.len();
            taken.push(piece);
        }
        taken
    }

    /// At most so many of the next bytes, from one piece.
    fn next(&mut self, bytes_max: usize) -> Piece<'a> {
        let (first, rest) = self.pieces.split_first().expect("as many bytes are taken as there are");
        let (_, left) = first.split_at(self.taken);
        let (piece, _) = left.split_at(left.len().min(bytes_max));
        self.taken += piece.len();
        if self.taken == first.len() {
            self.pieces = rest;
            self.taken = 0;
        }
        piece
    }
}
