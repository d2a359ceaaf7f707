//! File handles: the partition's identity and the inode's number.
//!
//! ```text
//!  0   version (4 bytes)
//!  4   identity of the partition (16)
//!  20  inode (8)
//! ```
//! Inode numbers are used once, so the handle needs no generation. Always: a handle means the same inode after a restart of the export and
//! of the partition; one of another partition is stale.

use pario::core::{InodeId, PartitionId};

use super::status::{NfsResult, NfsStatus};
use super::xdr::{Decoded, XdrReader};

/// Begins every handle.
const VERSION: [u8; 4] = *b"PNH1";
/// Limit of RFC 1813.
const PROTOCOL_BYTES_MAX: usize = 64;
/// Bytes of a handle.
pub(super) const HANDLE_BYTES: usize = 28;

/// The handle of an inode.
pub(super) fn encode(partition: PartitionId, inode: InodeId) -> [u8; HANDLE_BYTES] {
    let mut bytes = [0; HANDLE_BYTES];
    bytes[..4].copy_from_slice(&VERSION);
    bytes[4..20].copy_from_slice(&partition.0);
    bytes[20..].copy_from_slice(&inode.0.to_be_bytes());
    bytes
}

/// Reads a handle of any origin.
pub(super) fn read<'a>(args: &mut XdrReader<'a>) -> Decoded<&'a [u8]> {
    args.opaque(PROTOCOL_BYTES_MAX)
}

/// The inode of a handle.
pub(super) fn decode(partition: PartitionId, handle: &[u8]) -> NfsResult<InodeId> {
    let bytes: &[u8; HANDLE_BYTES] = handle.try_into().map_err(|_| NfsStatus::BadHandle)?;
    let mut fields = XdrReader::new(bytes);
    let decoded = (fields.array::<4>(), fields.array::<16>(), fields.u64());
    let (Ok(version), Ok(identity), Ok(inode)) = decoded else { return Err(NfsStatus::BadHandle) };
    if version != VERSION {
        return Err(NfsStatus::BadHandle);
    }
    if identity != partition.0 || inode == 0 {
        return Err(NfsStatus::Stale);
    }
    Ok(InodeId(inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_leads_to_its_inode_only() {
        let (here, elsewhere) = (PartitionId([1; 16]), PartitionId([2; 16]));
        let handle = encode(here, InodeId(77));
        assert_eq!(decode(here, &handle), Ok(InodeId(77)));
        assert_eq!(decode(elsewhere, &handle), Err(NfsStatus::Stale));
        assert_eq!(decode(here, &handle[1..]), Err(NfsStatus::BadHandle));
        assert_eq!(decode(here, &[]), Err(NfsStatus::BadHandle));
        assert_eq!(decode(here, &[0; HANDLE_BYTES]), Err(NfsStatus::BadHandle));
        assert_eq!(decode(here, &encode(here, InodeId(0))), Err(NfsStatus::Stale));
    }
}
