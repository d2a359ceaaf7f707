//! Heap memory aligned for O_DIRECT, and heap memory with fallible allocation.

#![expect(unsafe_code, reason = "the allocator's own interface is needed for an alignment")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of every [`AlignedBuffer`], in memory and in length: sufficient for O_DIRECT on any device.
pub const ALIGNMENT: usize = 4096;

/// Bytes, zero at first, aligned to [`ALIGNMENT`].
#[derive(Debug)]
pub struct AlignedBuffer {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is owned by the buffer alone, like a `Vec`'s.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// A buffer of `bytes` zeros; a positive multiple of [`ALIGNMENT`].
    #[must_use]
    pub fn zeroed(bytes: usize) -> AlignedBuffer {
        assert!(
            0 < bytes && bytes.is_multiple_of(ALIGNMENT),
            "{bytes} is not a positive multiple of {ALIGNMENT}"
        );
        let layout =
            Layout::from_size_align(bytes, ALIGNMENT).expect("sizes are far below the address space");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        AlignedBuffer { start, layout }
    }
}

/// `bytes` zeros, not touched yet; `None` if there is not enough memory.
#[must_use]
pub fn try_zeroed(bytes: usize) -> Option<Box<[u8]>> {
    if bytes == 0 {
        return Some(Box::default());
    }
    let layout = Layout::array::<u8>(bytes).ok()?;
    // SAFETY: the layout's size is not zero.
    let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
    let slice = NonNull::slice_from_raw_parts(start, bytes);
    // SAFETY: allocated just now with the layout of such a slice, initialised with zeros, and without another owner.
    Some(unsafe { Box::from_raw(slice.as_ptr()) })
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `zeroed` allocated and initialised that many bytes, and only `drop` frees them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `&mut self` makes it the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `zeroed` with this very layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_cannot_be_had_is_told() {
        assert_eq!(try_zeroed(5000).unwrap(), vec![0; 5000].into());
        assert_eq!(try_zeroed(0).unwrap().len(), 0);
        assert!(try_zeroed(usize::MAX / 4).is_none());
        assert!(try_zeroed(usize::MAX).is_none());
    }

    #[test]
    fn is_aligned_zero_and_writable() {
        let mut buffer = AlignedBuffer::zeroed(3 * ALIGNMENT);
        assert_eq!(buffer.as_ptr().addr() % ALIGNMENT, 0);
        assert!(buffer.iter().all(|&byte| byte == 0));
        buffer[3 * ALIGNMENT - 1] = 9;
        assert_eq!(buffer[3 * ALIGNMENT - 1], 9);
        assert_eq!(buffer.len(), 3 * ALIGNMENT);
    }

    #[test]
    #[should_panic(expected = "not a positive multiple")]
    fn refuses_odd_lengths() {
        let _ = AlignedBuffer::zeroed(100);
    }
}
