//! Writing dirty blocks to the partition: what lies side by side in the file goes in one write.
//!
//! Never: writes a byte that is not dirty. Always: copies only where parts of several blocks are put together.

use std::borrow::Cow;

use pario_core::Fault;

use super::block::Block;

/// Blocks that are written together.
pub(super) const RUN_BLOCKS_MAX: usize = 16;
/// Parts are put together up to this size; beyond it one more write costs less than the copy.
const GATHER_BYTES_MAX: usize = 1 << 20;

/// A write that is being put together.
struct Write<'a> {
    offset: u64,
    data: Cow<'a, [u8]>,
}

impl Write<'_> {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

/// Writes what is dirty of blocks, given with their places in the file, in order; returns how many bytes in how many writes.
pub(super) fn write_out<'a>(
    blocks: impl Iterator<Item = (u64, &'a Block)>,
    mut write: impl FnMut(u64, &[u8]) -> Result<(), Fault>,
) -> Result<(u64, u64), Fault> {
    let (mut bytes, mut writes) = (0, 0);
    let mut emit = |next: Option<Write<'a>>| {
        let Some(next) = next else { return Ok(()) };
        (bytes, writes) = (bytes + next.data.len() as u64, writes + 1);
        write(next.offset, &next.data)
    };
    let mut pending: Option<Write<'a>> = None;
    for (start, block) in blocks {
        for (span, data) in block.dirty() {
            let offset = start + span.start as u64;
            match &mut pending {
                Some(last) if last.end() == offset && last.data.len() + data.len() <= GATHER_BYTES_MAX => {
                    last.data.to_mut().extend_from_slice(data);
                }
                _ => emit(pending.replace(Write { offset, data: Cow::Borrowed(data) }))?,
            }
        }
    }
    emit(pending)?;
    Ok((bytes, writes))
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
        let mut file = [0u8; 400];
        let mut seen = Vec::new();
        let places = [100, 200, 300].into_iter().zip(&blocks);
        let counts = write_out(places, |offset, data| {
            let at = usize::try_from(offset).unwrap();
            file[at..at + data.len()].copy_from_slice(data);
            seen.push(at..at + data.len());
            Ok(())
        });
        assert_eq!(counts.unwrap(), (135, 3));
        assert_eq!(seen, [110..120, 190..305, 350..360]);
        assert_eq!((file[190], file[200], file[304], file[305]), (1, 2, 3, 0));
    }
}
