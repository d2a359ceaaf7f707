//! What must be written so that the partition has some dirty blocks: parts that lie side by side in the file in one write, and many
//! small ones with holes between them as one stream of a view.
//!
//! Never: a byte that is not dirty. Always: copies only where parts are put together; in the order of the file.

use std::borrow::Cow;

use pario_server::store::cache::Block;

/// Blocks that are written together.
pub(super) const RUN_BLOCKS_MAX: usize = 16;
/// Parts are put together up to this size; beyond it one more write costs less than the copy.
const GATHER_BYTES_MAX: usize = 1 << 20;
/// From so many writes on they travel as one stream.
const STREAM_WRITES_MIN: usize = 16;

/// Bytes that lie side by side in the file.
#[derive(Debug)]
pub(super) struct Write<'a> {
    pub(super) offset: u64,
    pub(super) data: Cow<'a, [u8]>,
}

impl Write<'_> {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

/// What is dirty of blocks, given with their places in the file, in order.
pub(super) fn plan<'a>(blocks: impl Iterator<Item = (u64, &'a Block)>) -> Vec<Write<'a>> {
    let mut writes: Vec<Write<'a>> = Vec::new();
    for (start, block) in blocks {
        for (span, data) in block.dirty() {
            let offset = start + span.start as u64;
            match writes.last_mut() {
                Some(last) if last.end() == offset && last.data.len() + data.len() <= GATHER_BYTES_MAX => {
                    last.data.to_mut().extend_from_slice(data);
                }
                _ => writes.push(Write { offset, data: Cow::Borrowed(data) }),
            }
        }
    }
    writes
}

/// Writes that travel together: many small ones, or one.
pub(super) fn together<'w, 'a>(writes: &'w [Write<'a>]) -> impl Iterator<Item = &'w [Write<'a>]> {
    let mut rest = writes;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let mut bytes = first.data.len();
        let fits = |next: &&Write<'a>| {
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
        assert_eq!(together(&writes).map(<[Write<'_>]>::len).collect::<Vec<_>>(), [1, 1, 1]);
    }

    #[test]
    fn many_small_ones_are_one_stream_of_bounded_size() {
        let (small, large) = (vec![1; 1000], vec![2; GATHER_BYTES_MAX]);
        let write = |n: u64, data| Write { offset: n * 10_000, data: Cow::Borrowed(data) };
        let mut writes: Vec<Write<'_>> = (0..1500).map(|n| write(n, &small[..])).collect();
        writes.push(write(1500, &large[..]));
        writes.extend((0..3).map(|n| write(3000 + n, &small[..])));
        let sizes: Vec<usize> = together(&writes).map(<[Write<'_>]>::len).collect();
        assert_eq!(sizes, [1048, 452, 1, 1, 1, 1]);
    }
}
