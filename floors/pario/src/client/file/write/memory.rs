//! The caller's memory: contiguous bytes, or the elements that a datatype selects.
//!
//! Never: makes an intermediate copy: elements are copied directly from the caller's memory into the outbox.

use std::ops::Range;

use pario_core::{Code, Fault};
use pario_view::Elements;

/// The data to write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteSource<'a> {
    /// Contiguous bytes.
    Bytes(&'a [u8]),
    /// The bytes that `elements` describe around byte `origin` of `memory`; checked to lie inside.
    Elements { memory: &'a [u8], origin: usize, elements: &'a Elements },
}

impl<'a> WriteSource<'a> {
    /// The bytes that `elements` describe around byte `origin` of `memory`.
    pub(crate) fn elements(
        memory: &'a [u8],
        origin: usize,
        elements: &'a Elements,
    ) -> Result<WriteSource<'a>, Fault> {
        elements
            .pack(memory, origin, 0, &mut [])
            .map_err(|error| Fault::new(Code::Invalid, error.to_string()))?;
        let start =
            elements.contiguous_at().and_then(|at| usize::try_from(origin as i128 + i128::from(at)).ok());
        let bytes = usize::try_from(elements.bytes()).unwrap_or(usize::MAX);
        Ok(match start {
            Some(start) if bytes <= memory.len().saturating_sub(start) => {
                WriteSource::Bytes(&memory[start..start + bytes])
            }
            Some(_) | None => WriteSource::Elements { memory, origin, elements },
        })
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            WriteSource::Bytes(bytes) => bytes.len(),
            WriteSource::Elements { elements, .. } => usize::try_from(elements.bytes()).unwrap_or(usize::MAX),
        }
    }

    /// Passes the bytes of `range` to `give` piece by piece, with their indices counted from its start.
    pub(in crate::client) fn visit(&self, range: Range<usize>, give: &mut dyn FnMut(usize, &[u8])) {
        match self {
            WriteSource::Bytes(bytes) => give(0, &bytes[range]),
            WriteSource::Elements { memory, origin, elements } => {
                let mut done = 0;
                for run in elements.runs(range.start as u64..range.end as u64) {
                    let at =
                        usize::try_from(*origin as i128 + i128::from(run.at)).expect("checked when made");
                    let bytes = usize::try_from(run.bytes).expect("inside memory");
                    give(done, &memory[at..at + bytes]);
                    done += bytes;
                }
            }
        }
    }

    /// All bytes contiguously, copied only if they are not contiguous.
    pub(crate) fn contiguous(&self) -> std::borrow::Cow<'a, [u8]> {
        match self {
            WriteSource::Bytes(bytes) => std::borrow::Cow::Borrowed(bytes),
            WriteSource::Elements { .. } => {
                let mut packed = vec![0; self.len()];
                self.visit(0..packed.len(), &mut |at, bytes| {
                    packed[at..at + bytes.len()].copy_from_slice(bytes)
                });
                std::borrow::Cow::Owned(packed)
            }
        }
    }
}
