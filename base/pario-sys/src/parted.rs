//! A buffer in parts that are filled independently, by whichever threads hold them.
//!
//! [`PartedBuffer`] owns a buffer and hands out a [`BufferPart`] for each of several disjoint sets of ranges; when the parts are gone, the
//! buffer is taken back. [`lend_parts`] does the same with a borrowed buffer and returns after the last part is gone.
//!
//! Never: hands the same byte to two parts; touches the buffer while a part exists. Always: a part keeps its memory alive.

#![expect(unsafe_code, reason = "parts of one buffer are written by several threads")]

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks whether the parts of a lent buffer are gone.
const LOOK: Duration = Duration::from_micros(50);

/// A buffer in parts.
pub struct PartedBuffer<B> {
    keeper: Arc<Keeper<B>>,
}

/// Owns the buffer on the heap: it does not move while parts exist.
struct Keeper<B> {
    buffer: Unshared<B>,
}

/// A value that is not touched while it is shared between threads.
struct Unshared<B>(B);

// SAFETY: a shared reference gives access to nothing: the field is private and is only taken out by value, by the last owner.
unsafe impl<B: Send> Sync for Unshared<B> {}

/// The ranges of a buffer that one holder fills.
pub struct BufferPart {
    pieces: Vec<(*mut u8, usize)>,
    /// Keeps the memory alive; the owner of a lent buffer waits until it is gone.
    _keeper: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pieces are exclusive to this part, and their memory is kept by `_keeper`.
unsafe impl Send for BufferPart {}

impl std::fmt::Debug for BufferPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BufferPart").field("bytes", &self.len()).finish_non_exhaustive()
    }
}

impl<B> std::fmt::Debug for PartedBuffer<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PartedBuffer")
    }
}

impl<B: AsMut<[u8]> + Send + 'static> PartedBuffer<B> {
    /// The buffer, and one part for each list of ranges.
    ///
    /// # Panics
    /// If ranges overlap or lie outside of the buffer.
    #[must_use]
    pub fn new(buffer: B, parts: &[Vec<Range<usize>>]) -> (PartedBuffer<B>, Vec<BufferPart>) {
        let mut keeper = Arc::new(Keeper { buffer: Unshared(buffer) });
        let memory = Arc::get_mut(&mut keeper).expect("not shared yet").buffer.0.as_mut();
        let (start, len) = (memory.as_mut_ptr(), memory.len());
        check(parts, len);
        let cut = |ranges: &Vec<Range<usize>>| BufferPart {
            pieces: pieces(start, ranges),
            _keeper: Arc::<Keeper<B>>::clone(&keeper),
        };
        let parts = parts.iter().map(cut).collect();
        (PartedBuffer { keeper }, parts)
    }
}

impl<B> PartedBuffer<B> {
    /// The buffer again; `Err` while a part exists.
    pub fn into_inner(self) -> Result<B, PartedBuffer<B>> {
        Arc::try_unwrap(self.keeper).map(|keeper| keeper.buffer.0).map_err(|keeper| PartedBuffer { keeper })
    }
}

impl BufferPart {
    /// Bytes of the part.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|(_, len)| len).sum()
    }

    /// Whether it has no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its memory, in the order of its ranges.
    pub fn pieces(&mut self) -> impl Iterator<Item = &mut [u8]> {
        // SAFETY: the memory is alive and exclusive to this part, which is borrowed for as long as the slices live; pieces are disjoint.
        self.pieces.iter().map(|(start, len)| unsafe { std::slice::from_raw_parts_mut(*start, *len) })
    }
}

/// Lends the parts of a buffer to `work`; returns after the last part is gone, also when `work` panics.
///
/// # Panics
/// If ranges overlap or lie outside of the buffer.
pub fn lend_parts<T>(
    buffer: &mut [u8],
    parts: &[Vec<Range<usize>>],
    work: impl FnOnce(Vec<BufferPart>) -> T,
) -> T {
    check(parts, buffer.len());
    let start = buffer.as_mut_ptr();
    let guard = LoanEnd(Arc::new(()));
    let cut = |ranges: &Vec<Range<usize>>| BufferPart {
        pieces: pieces(start, ranges),
        _keeper: Arc::<()>::clone(&guard.0),
    };
    work(parts.iter().map(cut).collect())
    // The guard is dropped here or while unwinding: `buffer` stays borrowed until then.
}

/// Waits for the end of the last part.
struct LoanEnd(Arc<()>);

impl Drop for LoanEnd {
    fn drop(&mut self) {
        // `get_mut` synchronises with the drop of the last part.
        while Arc::get_mut(&mut self.0).is_none() {
            std::thread::park_timeout(LOOK);
        }
    }
}

fn pieces(start: *mut u8, ranges: &[Range<usize>]) -> Vec<(*mut u8, usize)> {
    // `wrapping_add` needs no promise; the ranges were checked against the buffer.
    ranges.iter().map(|range| (start.wrapping_add(range.start), range.len())).collect()
}

fn check(parts: &[Vec<Range<usize>>], len: usize) {
    let mut all: Vec<&Range<usize>> = parts.iter().flatten().filter(|range| !range.is_empty()).collect();
    all.sort_by_key(|range| range.start);
    let apart = all.windows(2).all(|two| two[0].end <= two[1].start);
    assert!(apart && all.last().is_none_or(|last| last.end <= len), "parts overlap or leave the buffer");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(list: &[(usize, usize)]) -> Vec<Range<usize>> {
        list.iter().map(|(from, to)| *from..*to).collect()
    }

    #[test]
    fn parts_are_filled_by_threads_and_the_buffer_comes_back() {
        let (buffer, parts) =
            PartedBuffer::new(vec![0u8; 10], &[ranges(&[(0, 2), (8, 10)]), ranges(&[(2, 8)])]);
        let Err(buffer) = buffer.into_inner() else { panic!("parts exist") };
        std::thread::scope(|scope| {
            for (number, mut part) in parts.into_iter().enumerate() {
                let fill = u8::try_from(number).unwrap() + 1;
                scope.spawn(move || part.pieces().for_each(|piece| piece.fill(fill)));
            }
        });
        assert_eq!(buffer.into_inner().unwrap(), [1, 1, 2, 2, 2, 2, 2, 2, 1, 1]);
    }

    #[test]
    fn a_loan_ends_after_its_last_part() {
        let mut buffer = vec![0u8; 6];
        let whole = ranges(&[(0, 6)]);
        let thread = lend_parts(&mut buffer, &[whole], |mut parts| {
            let mut part = parts.pop().unwrap();
            std::thread::spawn(move || {
                std::thread::yield_now();
                part.pieces().for_each(|piece| piece.fill(7));
            })
        });
        assert_eq!(buffer, [7; 6]);
        thread.join().unwrap();
    }

    #[test]
    #[should_panic(expected = "overlap")]
    fn overlapping_parts_are_refused() {
        let _ = PartedBuffer::new(vec![0u8; 4], &[ranges(&[(0, 3)]), ranges(&[(2, 4)])]);
    }
}
