//! Plans the write-back of dirty blocks: parts that are contiguous in the file become one write, and many small parts with holes
//! between them one stream of a view.
//!
//! Never: writes a byte that is not dirty. Always: copies only where parts are joined; writes in file order.

use std::borrow::Cow;

use pario_server::store::cache::Block;

/// Limit of blocks written together.
pub(super) const RUN_BLOCKS_MAX: usize = 16;
/// Parts are joined up to this size; beyond it one more write costs less than the copy.
const GATHER_BYTES_MAX: usize = 1 << 20;
/// Number of writes from which they are sent as one stream.
const STREAM_WRITES_MIN: usize = 16;

/// Bytes that are contiguous in the file.
#[derive(Debug)]
pub(super) struct DirtyRun<'a> {
    pub(super) offset: u64,
    pub(super) data: Cow<'a, [u8]>,
}

impl DirtyRun<'_> {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

/// The dirty parts of blocks, which are given with their file offsets, in order.
pub(super) fn plan<'a>(blocks: impl Iterator<Item = (u64, &'a Block)>) -> Vec<DirtyRun<'a>> {
    let mut writes: Vec<DirtyRun<'a>> = Vec::new();
    for (start, block) in blocks {
        for (span, data) in block.dirty() {
            let offset = start + span.start as u64;
            match writes.last_mut() {
                Some(last) if last.end() == offset && last.data.len() + data.len() <= GATHER_BYTES_MAX => {
                    last.data.to_mut().extend_from_slice(data);
                }
                _ => writes.push(DirtyRun { offset, data: Cow::Borrowed(data) }),
            }
        }
    }
    writes
}

/// Groups of writes sent together: many small ones, or a single one.
pub(super) fn batches<'w, 'a>(writes: &'w [DirtyRun<'a>]) -> impl Iterator<Item = &'w [DirtyRun<'a>]> {
    let mut rest = writes;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let mut bytes = first.data.len();
        let fits = |next: &&DirtyRun<'a>| {
            bytes += next.data.len();
            bytes <= GATHER_BYTES_MAX
        };
        let count = 1 + rest[1..].iter().take_while(fits).count();
        let (head, tail) = rest.split_at(if count < STREAM_WRITES_MIN { 1 } else { count });
        rest = tail;
        Some(head)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_go_together_and_holes_stay() {
        let mut blocks: Vec<Block> = (0..3).map(|_| Block::new(100)).collect();
        for (block, span) in [(0, 10..20), (0, 90..100), (1, 0..100), (2, 0..5), (2, 50..60)] {
            blocks[block].overwrite(span).fill(u8::try_from(block).unwrap() + 1);
        }
        let writes = plan([100, 200, 300].into_iter().zip(&blocks));
        let places: Vec<(u64, usize)> = writes.iter().map(|write| (write.offset, write.data.len())).collect();
        assert_eq!(places, [(110, 10), (190, 115), (350, 10)]);
        let data = &writes[1].data;
        assert_eq!((data[9], data[10], data[109], data[110]), (1, 2, 2, 3));
        assert_eq!(batches(&writes).map(<[DirtyRun<'_>]>::len).collect::<Vec<_>>(), [1, 1, 1]);
    }

    #[test]
    fn many_small_ones_are_one_stream_of_bounded_size() {
        let (small, large) = (vec![1; 1000], vec![2; GATHER_BYTES_MAX]);
        let write = |n: u64, data| DirtyRun { offset: n * 10_000, data: Cow::Borrowed(data) };
        let mut writes: Vec<DirtyRun<'_>> = (0..1500).map(|n| write(n, &small[..])).collect();
        writes.push(write(1500, &large[..]));
        writes.extend((0..3).map(|n| write(3000 + n, &small[..])));
        let sizes: Vec<usize> = batches(&writes).map(<[DirtyRun<'_>]>::len).collect();
        assert_eq!(sizes, [1048, 452, 1, 1, 1, 1]);
    }
}
