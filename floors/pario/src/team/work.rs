//! Work items: reading and writing through memory that other members lent.

use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use pario_sys::lent::{LentBorrow, LentSlot};

use super::core::TeamCore;
use super::error::{TeamCode, TeamError, TeamResult};
use super::plan::ItemPiece;
use super::round::{MemberMemory, Round, TakenItem};

/// Pieces of an item for which no memory is allocated.
const PIECES_ON_STACK: usize = 16;

thread_local! {
    /// The list of the last item of this thread, empty: the next one needs no memory.
    static SPARE: Cell<Vec<PieceSource>> = const { Cell::new(Vec::new()) };
}

/// An item with the memory of its pieces, taken out of its round.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) round: u64,
    pub(super) taken: TakenItem,
    is_write: bool,
    sources: Vec<PieceSource>,
}

#[derive(Clone, Debug)]
struct PieceSource {
    piece: ItemPiece,
    memory: MemberMemory,
}

impl Work {
    /// Takes the next item of a round.
    pub(super) fn take(round: &mut Round) -> Option<Work> {
        let taken = round.take_item()?;
        let mut sources = SPARE.take();
        let with_memory = |piece: &ItemPiece| PieceSource {
            piece: *piece,
            memory: round.arrived[piece.owner].memory.clone(),
        };
        sources.extend(round.plan.pieces_of(&taken.item).iter().map(with_memory));
        Some(Work { round: round.number, taken, is_write: round.function.is_write(), sources })
    }

    /// Carries it out; returns the bytes that were read or written.
    pub(super) fn run(&self, core: &TeamCore) -> TeamResult<u64> {
        if self.is_write { self.write(core) } else { self.read(core) }
    }

    fn write(&self, core: &TeamCore) -> TeamResult<u64> {
        let item = self.taken.item;
        let borrows: Borrows<'_> = Borrows::of(&self.sources)?;
        let pieces = self.sources.iter().enumerate().map(|(at, source)| borrows.bytes(at, source));
        if self.sources.len() <= PIECES_ON_STACK {
            let mut list = [IoSlice::new(&[]); PIECES_ON_STACK];
            list.iter_mut().zip(pieces).for_each(|(slot, bytes)| *slot = IoSlice::new(bytes));
            core.target.write(item.offset, &mut list[..self.sources.len()])?;
        } else {
            let mut list: Vec<IoSlice<'_>> = pieces.map(IoSlice::new).collect();
            core.target.write(item.offset, &mut list)?;
        }
        Ok(item.bytes)
    }

    fn read(&self, core: &TeamCore) -> TeamResult<u64> {
        let item = self.taken.item;
        let borrows: Borrows<'_> = Borrows::of(&self.sources)?;
        let pieces = self.sources.iter().enumerate().map(|(at, source)| borrows.target(at, source));
        if self.sources.len() <= PIECES_ON_STACK {
            let mut list: [IoSliceMut<'_>; PIECES_ON_STACK] =
                std::array::from_fn(|_| IoSliceMut::new(&mut []));
            list.iter_mut().zip(pieces).for_each(|(slot, bytes)| *slot = IoSliceMut::new(bytes));
            core.target.read(item.offset, &mut list[..self.sources.len()])
        } else {
            let mut list: Vec<IoSliceMut<'_>> = pieces.map(IoSliceMut::new).collect();
            core.target.read(item.offset, &mut list)
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut sources = std::mem::take(&mut self.sources);
        sources.clear();
        // While a thread ends there is no next item.
        let _ = SPARE.try_with(|spare| spare.set(sources));
    }
}

/// The memory of an item's pieces: one borrow for pieces of one member that follow each other.
struct Borrows<'w> {
    first: [Option<LentBorrow<'w>>; PIECES_ON_STACK],
    more: Vec<Option<LentBorrow<'w>>>,
}

impl<'w> Borrows<'w> {
    fn of(sources: &'w [PieceSource]) -> TeamResult<Borrows<'w>> {
        let mut borrows = Borrows { first: Default::default(), more: Vec::new() };
        for (at, source) in sources.iter().enumerate() {
            let borrow = match &source.memory {
                MemberMemory::Lent(slot) => Some(borrow(slot)?),
                MemberMemory::Nothing | MemberMemory::Own | MemberMemory::Copied(_) => None,
            };
            match borrows.first.get_mut(at) {
                Some(place) => *place = borrow,
                None => borrows.more.push(borrow),
            }
        }
        Ok(borrows)
    }

    fn get(&self, at: usize) -> Option<&LentBorrow<'w>> {
        let place = self.first.get(at).or_else(|| self.more.get(at - PIECES_ON_STACK));
        place.and_then(Option::as_ref)
    }

    fn bytes<'a>(&'a self, at: usize, source: &'a PieceSource) -> &'a [u8] {
        let PieceSource { piece, memory } = source;
        let length = index(piece.bytes);
        match (memory, self.get(at)) {
            (MemberMemory::Copied(bytes), _) => &bytes[index(piece.list_start)..][..length],
            (_, Some(borrow)) => &borrow.sources()[piece.buffer][index(piece.start)..][..length],
            (MemberMemory::Nothing | MemberMemory::Own | MemberMemory::Lent(_), None) => &[],
        }
    }

    fn target<'a>(&'a self, at: usize, source: &PieceSource) -> &'a mut [u8] {
        let piece = source.piece;
        let start = index(piece.start);
        match self.get(at) {
            Some(borrow) => borrow.claim(piece.buffer, start..start + index(piece.bytes)),
            None => &mut [],
        }
    }
}

fn borrow(slot: &Arc<LentSlot>) -> TeamResult<LentBorrow<'_>> {
    let ended = || TeamError::new(TeamCode::Lost, "a member ended while its memory was needed");
    slot.borrow().ok_or_else(ended)
}

/// An offset in memory.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("inside of a member's memory")
}
