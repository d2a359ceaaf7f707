//! Bytes to be passed to a system call or copied out, without a Rust reference to them; and positioned I/O without short writes.
//!
//! Never: interprets the bytes. Always: a write is complete or an error.

#![expect(unsafe_code, reason = "raw memory is given to system calls here")]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Maximum number of buffers of one vectored call.
pub const PIECES_PER_CALL_MAX: usize = 1024;

/// Readable memory that another process may be writing: a slice without the guarantee that its bytes are constant.
#[derive(Clone, Copy, Debug)]
pub struct MemoryPiece<'a> {
    start: *const u8,
    len: usize,
    memory: PhantomData<&'a [u8]>,
}

// SAFETY: a piece only allows reading bytes that may change at any time anyway, from whichever thread.
unsafe impl Send for MemoryPiece<'_> {}
// SAFETY: as above.
unsafe impl Sync for MemoryPiece<'_> {}

impl<'a> From<&'a [u8]> for MemoryPiece<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        MemoryPiece { start: bytes.as_ptr(), len: bytes.len(), memory: PhantomData }
    }
}

impl<'a> MemoryPiece<'a> {
    /// # Safety
    /// `start..start + len` is mapped readable for as long as `'a`.
    pub(crate) unsafe fn from_raw(start: *const u8, len: usize) -> Self {
        MemoryPiece { start, len, memory: PhantomData }
    }

    /// Bytes in it.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first `at` bytes and the rest.
    #[must_use]
    pub fn split_at(self, at: usize) -> (MemoryPiece<'a>, MemoryPiece<'a>) {
        assert!(at <= self.len, "split at {at} of {}", self.len);
        // SAFETY: `at <= len`, so the result is inside the memory or one past its end.
        let middle = unsafe { self.start.add(at) };
        let head = MemoryPiece { start: self.start, len: at, memory: PhantomData };
        let tail = MemoryPiece { start: middle, len: self.len - at, memory: PhantomData };
        (head, tail)
    }

    /// `bytes` bytes from `at` on.
    #[must_use]
    #[inline]
    pub fn part(&self, at: usize, bytes: usize) -> MemoryPiece<'a> {
        assert!(at <= self.len && bytes <= self.len - at, "bytes {at}.. of {}", self.len);
        // SAFETY: `at <= len`, so the result is inside the memory or one past its end.
        let start = unsafe { self.start.add(at) };
        MemoryPiece { start, len: bytes, memory: PhantomData }
    }

    /// Copies the bytes out; `target` has the same length.
    #[inline]
    pub fn copy_to(&self, target: &mut [u8]) {
        assert_eq!(self.len, target.len(), "a piece is copied whole");
        // SAFETY: the memory is readable for `'a`; `target` is exclusively ours and so does not overlap it. A concurrent writer of the
        // source only changes the values of plain bytes.
        unsafe { copy(self.start, target.as_mut_ptr(), self.len) };
    }

    /// Copies its bytes to every multiple of `stride` in `target`, `bytes` to each.
    pub fn spread_to(&self, target: &mut [u8], (bytes, stride): (usize, usize)) {
        let count = self.len.checked_div(bytes).unwrap_or(0);
        let Some(last) = count.checked_sub(1) else { return };
        assert_eq!(self.len, bytes * count, "all are of one length");
        let end = stride.checked_mul(last).and_then(|last| last.checked_add(bytes));
        assert!(end.is_some_and(|end| end <= target.len()), "{count} of {bytes} bytes, {stride} apart");
        // A length known at compile time needs no call for each.
        match bytes {
            4 => self.spread::<4>(target, (stride, count)),
            8 => self.spread::<8>(target, (stride, count)),
            16 => self.spread::<16>(target, (stride, count)),
            _ => (0..count).for_each(|number| {
                self.part(number * bytes, bytes).copy_to(&mut target[number * stride..][..bytes]);
            }),
        }
    }

    /// Fills `target` with `bytes` bytes from every multiple of `stride` in the piece.
    pub fn pick_to(&self, target: &mut [u8], (bytes, stride): (usize, usize)) {
        let count = target.len().checked_div(bytes).unwrap_or(0);
        let Some(last) = count.checked_sub(1) else { return };
        assert_eq!(target.len(), bytes * count, "all are of one length");
        let end = stride.checked_mul(last).and_then(|last| last.checked_add(bytes));
        assert!(end.is_some_and(|end| end <= self.len), "{count} of {bytes} bytes, {stride} apart");
        match bytes {
            4 => self.pick::<4>(target, stride),
            8 => self.pick::<8>(target, stride),
            16 => self.pick::<16>(target, stride),
            _ => target.chunks_exact_mut(bytes).enumerate().for_each(|(number, to)| {
                self.part(number * stride, bytes).copy_to(to);
            }),
        }
    }

    /// The same for `BYTES` each.
    #[inline]
    fn pick<const BYTES: usize>(&self, target: &mut [u8], stride: usize) {
        let (targets, _) = target.as_chunks_mut::<BYTES>();
        let last = targets.len().saturating_sub(1);
        let end = stride.checked_mul(last).and_then(|last| last.checked_add(BYTES));
        assert!(end.is_some_and(|end| end <= self.len), "no more than is here");
        for (number, to) in targets.iter_mut().enumerate() {
            // SAFETY: the last one lies inside the piece, as checked above.
            let from = unsafe { self.start.add(number * stride) };
            // SAFETY: as in `copy_to`; `to` has as many bytes.
            unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), BYTES) };
        }
    }

    /// [`MemoryPiece::spread_to`] for `count` times `BYTES`.
    #[inline]
    fn spread<const BYTES: usize>(&self, target: &mut [u8], (stride, count): (usize, usize)) {
        assert!(count.checked_mul(BYTES).is_some_and(|bytes| bytes <= self.len), "no more than is here");
        for number in 0..count {
            let to = &mut target[number * stride..][..BYTES];
            // SAFETY: as many bytes are here, as was seen above.
            let from = unsafe { self.start.add(number * BYTES) };
            // SAFETY: as in `copy_to`; `to` has as many bytes.
            unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), BYTES) };
        }
    }
}

/// Copies bytes; the commonest small elements without a call, which would cost more than they do.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    match bytes {
        // SAFETY: guaranteed by the caller.
        4 => unsafe { std::ptr::copy_nonoverlapping(from, to, 4) },
        // SAFETY: guaranteed by the caller.
        8 => unsafe { std::ptr::copy_nonoverlapping(from, to, 8) },
        // SAFETY: guaranteed by the caller.
        _ => unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) },
    }
}

/// Writes the concatenated pieces from `offset` on: all of them, or an error.
pub fn write_pieces_at(fd: BorrowedFd<'_>, pieces: &[MemoryPiece<'_>], offset: u64) -> io::Result<()> {
    let mut offset = offset;
    for group in pieces.chunks(PIECES_PER_CALL_MAX) {
        let mut vectors: Vec<libc::iovec> =
            group.iter().filter(|piece| !piece.is_empty()).map(to_iovec).collect();
        let mut rest = &mut vectors[..];
        while !rest.is_empty() {
            let written = pwritev(fd, rest, offset)?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            offset += written as u64;
            rest = advance(rest, written);
        }
    }
    Ok(())
}

/// Reads from `offset` on until `target` is full or the file ends; returns how many bytes there were.
pub fn read_exact_or_end_at(fd: BorrowedFd<'_>, target: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < target.len() {
        match rustix::io::pread(fd, &mut target[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}

fn to_iovec(piece: &MemoryPiece<'_>) -> libc::iovec {
    libc::iovec { iov_base: piece.start.cast_mut().cast(), iov_len: piece.len }
}

fn pwritev(fd: BorrowedFd<'_>, vectors: &[libc::iovec], offset: u64) -> io::Result<usize> {
    let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    let count = libc::c_int::try_from(vectors.len()).expect("groups are small");
    loop {
        // SAFETY: each vector is a piece (or the rest of one) with memory readable while `write_pieces_at` borrows it; the call only
        // reads.
        let written = unsafe { libc::pwritev(fd.as_raw_fd(), vectors.as_ptr(), count, offset) };
        if let Ok(written) = usize::try_from(written) {
            return Ok(written);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// The rest of `vectors` after their first `written` bytes.
fn advance(vectors: &mut [libc::iovec], mut written: usize) -> &mut [libc::iovec] {
    let mut whole = 0;
    while whole < vectors.len() && vectors[whole].iov_len <= written {
        written -= vectors[whole].iov_len;
        whole += 1;
    }
    let rest = &mut vectors[whole..];
    if let Some(first) = rest.first_mut() {
        // `wrapping_add` needs no promise here; the loop above left `written < iov_len`.
        first.iov_base = first.iov_base.cast::<u8>().wrapping_add(written).cast();
        first.iov_len -= written;
    }
    rest
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn writes_more_pieces_than_one_call_takes() {
        let file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..5000u32).map(|i| i.to_le_bytes()[0]).collect();
        let pieces: Vec<MemoryPiece<'_>> = bytes.chunks(2).map(MemoryPiece::from).collect();
        assert!(2 * PIECES_PER_CALL_MAX < pieces.len());
        write_pieces_at(file.as_fd(), &pieces, 7).unwrap();
        let mut back = vec![1; 5010];
        assert_eq!(read_exact_or_end_at(file.as_fd(), &mut back, 0).unwrap(), 5007);
        assert_eq!(&back[..7], [0; 7]);
        assert_eq!(&back[7..5007], &bytes[..]);
    }

    #[test]
    fn bytes_are_spread_to_equal_distances_and_nowhere_else() {
        let source: Vec<u8> = (1..=240).collect();
        for (bytes, stride) in [(4, 16), (8, 8), (16, 17), (3, 5), (24, 30), (240, 0), (1, 4)] {
            let count = 240 / bytes;
            let length = (count - 1) * stride + bytes;
            let mut target = vec![0; length];
            MemoryPiece::from(&source[..]).spread_to(&mut target, (bytes, stride));
            let mut expected = vec![0; length];
            for (number, part) in source.chunks(bytes).enumerate() {
                expected[number * stride..][..bytes].copy_from_slice(part);
            }
            assert_eq!(target, expected, "{bytes} {stride}");
        }
        MemoryPiece::from(&[][..]).spread_to(&mut [], (4, 8));
    }

    #[test]
    fn what_was_spread_is_picked_again() {
        let source: Vec<u8> = (1..=240).collect();
        for (bytes, stride) in [(4, 16), (8, 8), (16, 17), (3, 5), (24, 30), (240, 0), (1, 4)] {
            let mut spread = vec![0; (240 / bytes - 1) * stride + bytes];
            MemoryPiece::from(&source[..]).spread_to(&mut spread, (bytes, stride));
            let mut back = vec![0; 240];
            MemoryPiece::from(&spread[..]).pick_to(&mut back, (bytes, stride));
            assert_eq!(back, source, "{bytes} {stride}");
        }
        MemoryPiece::from(&[][..]).pick_to(&mut [], (4, 8));
    }

    #[test]
    #[should_panic(expected = "4 of 4 bytes, 5 apart")]
    fn bytes_are_picked_no_further_than_there_are_some() {
        MemoryPiece::from(&[7; 18][..]).pick_to(&mut [0; 16], (4, 5));
    }

    #[test]
    #[should_panic(expected = "4 of 4 bytes, 5 apart")]
    fn bytes_are_spread_no_further_than_there_is_room() {
        MemoryPiece::from(&[7; 16][..]).spread_to(&mut [0; 18], (4, 5));
    }

    #[test]
    fn nothing_to_write_is_fine() {
        let file = tempfile::tempfile().unwrap();
        write_pieces_at(file.as_fd(), &[], 0).unwrap();
        write_pieces_at(file.as_fd(), &[MemoryPiece::from(&b""[..])], 10).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[test]
    fn goes_on_after_a_short_write() {
        let mut store = *b"abcdefghij";
        let base = store.as_mut_ptr();
        let mut vectors = [(0, 3), (3, 4), (7, 3)]
            .map(|(at, len)| libc::iovec { iov_base: base.wrapping_add(at).cast(), iov_len: len });
        let rest = advance(&mut vectors, 5);
        assert_eq!(rest.len(), 2);
        assert_eq!((rest[0].iov_base.cast(), rest[0].iov_len), (base.wrapping_add(5), 2));
        assert_eq!(advance(rest, 5).len(), 0);
    }

    #[test]
    fn splits_and_copies() {
        let (head, tail) = MemoryPiece::from(&b"abcde"[..]).split_at(2);
        let (mut a, mut b) = ([0; 2], [0; 3]);
        head.copy_to(&mut a);
        tail.copy_to(&mut b);
        assert_eq!((&a, &b), (b"ab", b"cde"));
        assert!(tail.split_at(3).1.is_empty());
    }

    #[test]
    fn refuses_an_offset_beyond_off_t() {
        let file = tempfile::tempfile().unwrap();
        let error = write_pieces_at(file.as_fd(), &[MemoryPiece::from(&b"x"[..])], u64::MAX - 5).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
    }
}
