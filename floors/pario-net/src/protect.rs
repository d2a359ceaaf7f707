//! Protection of connections between hosts: which ones are protected, their keys, and protected records. Layout: `docs/formats/wire.md`,
//! section "Protected records"; reasons in decision 0016.
//!
//! ```text
//!  secret, both nonces of the greeting ─HKDF─┬─► client to server: traffic secret ─► key 0, key 1, …
//!                                            └─► server to client: traffic secret ─► key 0, key 1, …
//!  frame bytes ─► record: length | AES-128-GCM(bytes) | tag ─► socket
//! ```
//! Never: uses a nonce twice under one key (a counter per direction, which no peer can set), or one key for both directions.
//! Always: a record that is altered, repeated, out of order or missing is an error, and its bytes reach no caller.

mod stream;

use std::fmt;

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};

pub use self::stream::Protected;
use crate::greeting::{Challenge, Hello, Secret};
use crate::stream::Stream;

/// Maximum plaintext of one record: long enough that its 20 extra bytes do not matter, short enough to stay in a core's cache.
pub const PROTECTED_BYTES_MAX: usize = 64 << 10;
/// Bytes in front of a record: the length of its plaintext. They are covered by the tag.
pub const LENGTH_BYTES: usize = 4;
/// Bytes after a record.
pub const TAG_BYTES: usize = 16;
/// Records under one key, then both sides derive the next: at most 64 GiB, a sixth of what RFC 8446 (5.5) allows AES-GCM.
pub const RECORDS_PER_KEY: u64 = 1 << 20;

const _: () = assert!((RECORDS_PER_KEY as u128) * (PROTECTED_BYTES_MAX as u128) <= 1 << 36);

/// Which connections of a partition are protected: setting `network.protect`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protect {
    /// TCP between hosts.
    #[default]
    Full,
    /// None.
    None,
    /// TCP between hosts and TCP on loopback.
    All,
}

impl Protect {
    /// Whether the setting requires protection of this connection. Unix sockets never: the kernel identifies their peer.
    #[must_use]
    pub fn wants(self, stream: &Stream) -> bool {
        match (self, stream.network_addresses()) {
            (Protect::None, _) | (_, None) => false,
            (Protect::All, Some(_)) => true,
            (Protect::Full, Some((_, peer))) => !peer.ip().to_canonical().is_loopback(),
        }
    }
}

/// This process's end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The end that sent the Hello.
    Client,
    /// The end that answered it.
    Server,
}

/// The traffic secrets of one connection, as one of its ends uses them.
pub struct Keys {
    sending: Traffic,
    receiving: Traffic,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(…)")
    }
}

impl Keys {
    /// From the partition's secret and the nonces of a greeting with verified proofs.
    #[must_use]
    pub fn of_greeting(secret: &Secret, hello: &Hello, challenge: &Challenge, end: End) -> Keys {
        Keys::derive(&secret.0, (&hello.nonce, &challenge.nonce), end)
    }

    /// From any secret shared by both ends and a fresh nonce of each: of the client, then of the server.
    #[must_use]
    pub fn derive(secret: &[u8], nonces: (&[u8; 32], &[u8; 32]), end: End) -> Keys {
        let salt = [nonces.0.as_slice(), nonces.1.as_slice()].concat();
        let root = Salt::new(HKDF_SHA256, &salt).extract(secret);
        let to_server = Traffic::new(next(&root, b"pario 8 client to server"));
        let to_client = Traffic::new(next(&root, b"pario 8 server to client"));
        match end {
            End::Client => Keys { sending: to_server, receiving: to_client },
            End::Server => Keys { sending: to_client, receiving: to_server },
        }
    }
}

fn next(secret: &Prk, label: &[u8]) -> Prk {
    Prk::from(secret.expand(&[label], HKDF_SHA256).expect("a digest's length is a possible length"))
}

/// A record that failed verification.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// Its tag is wrong: altered, repeated, out of order, or one before it is missing.
    #[error(
        "record {0} of the protected connection is not what the peer sent next: it was altered, repeated, dropped or moved on the network"
    )]
    Forged(u64),
    /// Its length is impossible.
    #[error(
        "a protected record of {0} bytes: altered on the network, or the peer does not protect (`network.protect`)"
    )]
    Length(u32),
    /// The connection ended before the record did.
    #[error("the protected connection was cut off inside a record")]
    Cut,
}

impl From<RecordError> for std::io::Error {
    fn from(error: RecordError) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::InvalidData, error)
    }
}

/// One direction: its secret, the key in use, and the number of the next record.
struct Traffic {
    secret: Prk,
    key: LessSafeKey,
    /// Of the next record under this key.
    record: u64,
    /// Records under earlier keys.
    before: u64,
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traffic").field("record", &(self.before + self.record)).finish_non_exhaustive()
    }
}

impl Traffic {
    fn new(secret: Prk) -> Traffic {
        let key = Traffic::key(&secret);
        Traffic { secret, key, record: 0, before: 0 }
    }

    fn key(secret: &Prk) -> LessSafeKey {
        let bytes = secret.expand(&[b"key"], &AES_128_GCM).expect("a key's length is a possible length");
        LessSafeKey::new(UnboundKey::from(bytes))
    }

    /// The next nonce, each once; the key changes when it has served its records.
    fn step(&mut self) -> Nonce {
        if self.record == RECORDS_PER_KEY {
            self.secret = next(&self.secret, b"next");
            self.key = Traffic::key(&self.secret);
            self.before += self.record;
            self.record = 0;
        }
        let mut nonce = [0; NONCE_LEN];
        nonce[NONCE_LEN - 8..].copy_from_slice(&self.record.to_le_bytes());
        self.record += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// Seals `place` as a record: its plaintext is between the bytes reserved for the length and for the tag.
    fn seal(&mut self, place: &mut [u8]) {
        let plain = place.len() - LENGTH_BYTES - TAG_BYTES;
        assert!(0 < plain && plain <= PROTECTED_BYTES_MAX, "a record of {plain} bytes");
        let nonce = self.step();
        let (length, rest) = place.split_at_mut(LENGTH_BYTES);
        length.copy_from_slice(&u32::try_from(plain).expect("checked above").to_le_bytes());
        let (bytes, room) = rest.split_at_mut(plain);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(&*length), bytes);
        room.copy_from_slice(tag.expect("the length is far below the cipher's limit").as_ref());
    }

    /// Full length of the record that begins with these bytes; `None` if too few.
    fn length(begin: &[u8]) -> Result<Option<usize>, RecordError> {
        let Some(length) = begin.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length);
        match length as usize {
            bytes @ 1..=PROTECTED_BYTES_MAX => Ok(Some(LENGTH_BYTES + bytes + TAG_BYTES)),
            _ => Err(RecordError::Length(length)),
        }
    }

    /// Decrypts one whole record in place; its plaintext follows the length.
    fn open(&mut self, record: &mut [u8]) -> Result<(), RecordError> {
        let number = self.before + self.record;
        let nonce = self.step();
        let (length, sealed) = record.split_at_mut(LENGTH_BYTES);
        match self.key.open_in_place(nonce, Aad::from(&*length), sealed) {
            Ok(_) => Ok(()),
            Err(_) => Err(RecordError::Forged(number)),
        }
    }
}

#[cfg(test)]
#[path = "protect/tests.rs"]
mod tests;
