//! A batch: puts and deletes of the ledger that are applied atomically. Bytes: `docs/formats/names.md`, "Batch".
//!
//! Always: the bytes of a batch are those of its log record, so it is encoded once, while it is made.

use pario_core::codec::Malformed;

const PUT: u8 = 1;
const DELETE: u8 = 2;
/// Tag, key length, value length.
const ROW_HEAD_BYTES: usize = 1 + 2 + 4;

/// Changes of rows, in order; a later one of the same key wins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    frees: bool,
}

/// One change of a batch: a key with its new value, or none for a deleted row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchRow<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its new value.
    pub value: Option<&'a [u8]>,
}

impl Batch {
    /// Sets a row.
    ///
    /// # Panics
    /// If the key has 64 KiB or the value 4 GiB: both are bounded far below by the callers.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        let length = u32::try_from(value.len()).expect("values of the ledger are far below 4 GiB");
        self.head(PUT, key, length);
        self.bytes.extend_from_slice(value);
    }

    /// Removes a row, if there is one.
    pub fn delete(&mut self, key: &[u8]) {
        self.head(DELETE, key, 0);
    }

    /// Marks the batch as freeing space, so that a full disk must not refuse it.
    pub fn set_frees(&mut self) {
        self.frees = true;
    }

    /// Whether it may use the reserve of a full disk.
    #[must_use]
    pub fn frees(&self) -> bool {
        self.frees
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The batch as the log stores it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The changes, in order.
    pub fn rows(&self) -> impl Iterator<Item = BatchRow<'_>> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || take_row(&mut rest).expect("a batch is well formed by its making"))
    }

    fn head(&mut self, tag: u8, key: &[u8], value_bytes: u32) {
        let key_bytes = u16::try_from(key.len()).expect("keys of the ledger are far below 64 KiB");
        self.bytes.reserve(ROW_HEAD_BYTES + key.len() + value_bytes as usize);
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&key_bytes.to_le_bytes());
        self.bytes.extend_from_slice(&value_bytes.to_le_bytes());
        self.bytes.extend_from_slice(key);
    }
}

impl TryFrom<&[u8]> for Batch {
    type Error = Malformed;

    fn try_from(bytes: &[u8]) -> Result<Batch, Malformed> {
        let mut rest = bytes;
        while take_row(&mut rest)?.is_some() {}
        Ok(Batch { bytes: bytes.to_vec(), frees: false })
    }
}

/// The first row of `rest`, which then starts after it; `None` at the end.
fn take_row<'a>(rest: &mut &'a [u8]) -> Result<Option<BatchRow<'a>>, Malformed> {
    if rest.is_empty() {
        return Ok(None);
    }
    let short = Malformed("batch too short");
    let (head, behind) = rest.split_first_chunk::<ROW_HEAD_BYTES>().ok_or(short)?;
    let [tag, k0, k1, v0, v1, v2, v3] = *head;
    let (key, behind) = behind.split_at_checked(usize::from(u16::from_le_bytes([k0, k1]))).ok_or(short)?;
    let value_bytes = u32::from_le_bytes([v0, v1, v2, v3]) as usize;
    let (value, behind) = behind.split_at_checked(value_bytes).ok_or(short)?;
    *rest = behind;
    match tag {
        PUT => Ok(Some(BatchRow { key, value: Some(value) })),
        DELETE if value.is_empty() => Ok(Some(BatchRow { key, value: None })),
        _ => Err(Malformed("unknown kind of row")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Batch {
        let mut batch = Batch::default();
        batch.put(b"k", b"val");
        batch.delete(b"no");
        batch
    }

    #[test]
    fn bytes_are_pinned() {
        let expected = [1, 1, 0, 3, 0, 0, 0, b'k', b'v', b'a', b'l', 2, 2, 0, 0, 0, 0, 0, b'n', b'o'];
        assert_eq!(sample().as_bytes(), expected);
    }

    #[test]
    fn rows_come_back_in_order() {
        let batch = Batch::try_from(sample().as_bytes()).unwrap();
        let rows: Vec<_> = batch.rows().collect();
        assert_eq!(rows, [BatchRow { key: b"k", value: Some(b"val") }, BatchRow { key: b"no", value: None }]);
    }

    #[test]
    fn lies_are_refused() {
        let good = sample();
        for cut in (1..good.as_bytes().len()).filter(|cut| *cut != 11) {
            assert!(Batch::try_from(&good.as_bytes()[..cut]).is_err(), "cut at {cut}");
        }
        assert!(Batch::try_from(&[3, 0, 0, 0, 0, 0, 0][..]).is_err());
    }
}
