//! File contents of kernels: every byte is a function of its offset in the file, so that a reader can verify it. Pure.
//!
//! Timed runs write the same bytes in every step, except for a step number at the start of a rank's stream: refilling buffers
//! would take longer than the measured I/O. Verifying runs fill and check every byte.

use std::ops::Range;

use pario::View;

/// Bytes of the step number at the start of each rank's stream.
pub(super) const STAMP_BYTES: usize = 8;

/// The eight bytes of the file from `8 * index` on.
fn word(index: u64) -> [u8; 8] {
    let mixed = (index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).to_le_bytes()
}

/// Fills a contiguous piece that starts at a file offset.
pub(crate) fn fill_run(target: &mut [u8], file_offset: u64) {
    let skip = usize::try_from(file_offset % 8).unwrap_or(0);
    let mut index = file_offset / 8;
    let (head, rest) = target.split_at_mut(target.len().min((8 - skip) % 8));
    if !head.is_empty() {
        head.copy_from_slice(&word(index)[skip..skip + head.len()]);
        index += 1;
    }
    for chunk in rest.chunks_mut(8) {
        chunk.copy_from_slice(&word(index)[..chunk.len()]);
        index += 1;
    }
}

/// Fills the stream of a range of a view.
pub(super) fn fill(view: &View, stream: Range<u64>, target: &mut [u8]) {
    let mut rest = target;
    for extent in view.extents(stream) {
        let (run, behind) = rest.split_at_mut(usize::try_from(extent.bytes).unwrap_or(usize::MAX));
        fill_run(run, extent.file_offset);
        rest = behind;
    }
    assert!(rest.is_empty(), "the target is as long as the stream");
}

/// The first file offset with a wrong byte.
pub(super) fn first_wrong(view: &View, stream: Range<u64>, data: &[u8]) -> Option<u64> {
    let mut expected = Vec::new();
    let mut rest = data;
    for extent in view.extents(stream) {
        let bytes = usize::try_from(extent.bytes).unwrap_or(usize::MAX);
        let run = &rest[..bytes.min(rest.len())];
        expected.resize(bytes, 0);
        fill_run(&mut expected, extent.file_offset);
        let same = run.iter().zip(&expected).take_while(|(is, should)| is == should).count();
        if same < bytes {
            return Some(extent.file_offset + same as u64);
        }
        rest = &rest[bytes..];
    }
    None
}

#[cfg(test)]
mod tests {
    use pario::Datatype;
    use pario::view::ViewAccess;

    use super::*;

    #[test]
    fn a_byte_depends_on_its_offset_alone() {
        let mut whole = vec![0; 100];
        fill_run(&mut whole, 0);
        for start in 0..40 {
            for end in start..60 {
                let mut part = vec![0; end - start];
                fill_run(&mut part, start as u64);
                assert_eq!(part, whole[start..end], "{start}..{end}");
            }
        }
        assert_ne!(whole[..8], whole[8..16]);
    }

    #[test]
    fn what_is_wrong_is_found_at_its_place_in_the_file() {
        let byte = Datatype::elementary(1).unwrap();
        let triples = Datatype::contiguous(3, &byte).unwrap().resized(0, 10).unwrap();
        let view = View::new(5, &byte, &triples, ViewAccess::Write).unwrap();
        let mut data = vec![0; 9];
        fill(&view, 6..15, &mut data);
        assert_eq!(first_wrong(&view, 6..15, &data), None);
        data[4] ^= 1;
        assert_eq!(first_wrong(&view, 6..15, &data), Some(36));
        assert_eq!(first_wrong(&view, 6..15, &data[..2]), Some(27), "what is missing is wrong");
    }
}
