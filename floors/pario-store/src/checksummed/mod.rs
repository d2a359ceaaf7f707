//! Checksums of stored bytes, around a store that keeps them: CRC32C of each granule of 16 KiB, in a table beside each object. States,
//! order and reasons: decision 0019; disk format: `docs/formats/store.md`.
//!
//! Never: reports bytes as wrong that a killed writer or a power cut left: those are unknown; returns bytes that do not match a known
//! checksum. Always: a known entry is made unknown before its granule's bytes change, and known again afterwards; changes of an object
//! exclude each other and its reads; locks are taken in the order table, inner store, table files.

mod change;
mod loans;
mod object;
mod store;
mod summed;
mod table;
#[cfg(test)]
mod tests;

pub use loans::{lock_entries, unlock_entries};
pub use summed::Checksummed;
pub use table::{
    GRANULE, GRANULE_BYTES, GranuleSum, HEAD_BYTES, SUM_BYTES, decode_sums, encode_sums, granule_crc,
    place_of,
};
