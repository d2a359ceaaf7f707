//! The caller's memory: bytes in a row, or what a datatype picks out of them.
//!
//! Never: copies without need: elements go straight from where they lie into the outbox.

use std::ops::Range;

use pario_core::{Code, Fault};
use pario_view::Elements;

/// What is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// Bytes in a row.
    Bytes(&'a [u8]),
    /// What `elements` describe around byte `origin` of `memory`; checked to lie inside.
    Elements { memory: &'a [u8], origin: usize, elements: &'a Elements },
}

impl<'a> Source<'a> {
    /// What `elements` describe around byte `origin` of `memory`.
    pub(crate) fn elements(
        memory: &'a [u8],
        origin: usize,
        elements: &'a Elements,
    ) -> Result<Source<'a>, Fault> {
        elements
            .pack(memory, origin, 0, &mut [])
            .map_err(|error| Fault::new(Code::Invalid, error.to_string()))?;
        let start =
            elements.contiguous_at().and_then(|at| usize::try_from(origin as i128 + i128::from(at)).ok());
        let bytes = usize::try_from(elements.bytes()).unwrap_or(usize::MAX);
        Ok(match start {
            Some(start) if bytes <= memory.len().saturating_sub(start) => {
                Source::Bytes(&memory[start..start + bytes])
            }
            Some(_) | None => Source::Elements { memory, origin, elements },
        })
    }

    /// How many bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Source::Bytes(bytes) => bytes.len(),
            Source::Elements { elements, .. } => usize::try_from(elements.bytes()).unwrap_or(usize::MAX),
        }
    }

    /// Gives the bytes of `range` piece by piece, with their places counted from its start.
    pub(super) fn visit(&self, range: Range<usize>, give: &mut dyn FnMut(usize, &[u8])) {
        match self {
            Source::Bytes(bytes) => give(0, &bytes[range]),
            Source::Elements { memory, origin, elements } => {
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

    /// All bytes in a row, copied only if they do not lie so.
    pub(crate) fn in_a_row(&self) -> std::borrow::Cow<'a, [u8]> {
        match self {
            Source::Bytes(bytes) => std::borrow::Cow::Borrowed(bytes),
            Source::Elements { .. } => {
                let mut packed = vec![0; self.len()];
                self.visit(0..packed.len(), &mut |at, bytes| {
                    packed[at..at + bytes.len()].copy_from_slice(bytes)
                });
                std::borrow::Cow::Owned(packed)
            }
        }
    }
}
