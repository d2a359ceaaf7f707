//! The handshake: both sides prove knowledge of the partition's secret, and neither sends it.
//!
//! ```text
//! client                                   server
//!   Hello{identity, nonce c}       ──►
//!                                  ◄──     Challenge{nonce s, HMAC("server" | Hello | s)}
//!   Proof{HMAC("client" | Hello | s)} ──►
//!                                  ◄──     Welcome{settings}
//! ```
//! A protected connection (`Hello::protect`, which both proofs cover) is encrypted from the Welcome on. A client that reaches a server
//! through a relay proves itself to the relay first, is answered by `Relayed`, and then greets the target server.
//!
//! Never: compares proofs in time that depends on them. Always: different labels for the two sides, so that a proof cannot be reflected
//! to its sender; nonces are fresh; an unauthenticated peer receives no id.

use hmac::{Hmac, KeyInit, Mac};
use pario_core::codec;
use pario_core::{Code, Fault, Incarnation, PartitionId, ServerIndex, SessionId, encode_enum, encode_struct};
use sha2::Sha256;

use crate::frame::PROTOCOL;

/// The partition's secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// A new one.
    pub fn random() -> Secret {
        Secret(nonce())
    }
}

/// Purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionPurpose {
    /// Requests and their replies.
    Requests {},
    /// Notices from the server.
    Notices {},
    /// Requests of the manager to one of its peers.
    Peer {},
}
encode_enum!(ConnectionPurpose { 1 => Requests {}, 2 => Notices {}, 3 => Peer {} });

/// Sign of a process with a session that may hold leases: a restarted manager checks it.
#[must_use]
pub fn session_sign(session: SessionId) -> String {
    format!("pario-session-{session}")
}

/// First message of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Protocol version; first, so that every version can read it.
    pub protocol: u32,
    /// The target partition.
    pub partition: PartitionId,
    /// The target server.
    pub server: ServerIndex,
    /// Its session, the same on all its connections.
    pub session: SessionId,
    /// Purpose of the connection.
    pub purpose: ConnectionPurpose,
    /// Host name.
    pub host: String,
    /// Process.
    pub pid: u32,
    /// Start time of the process, so that a reused number is not mistaken for it.
    pub start_ticks: u64,
    /// Program name, for `status`.
    pub program: String,
    /// The application that the process belongs to; service is shared between applications.
    pub application: String,
    /// Its scheduling weight, unless the partition overrides it.
    pub weight: u32,
    /// Whether another server may relay the connection to the target.
    pub relay: bool,
    /// Whether all bytes after the client's proof are encrypted and authenticated.
    pub protect: bool,
    /// Fresh random bytes.
    pub nonce: [u8; 32],
}
encode_struct!(Hello {
    protocol,
    partition,
    server,
    session,
    purpose,
    host,
    pid,
    start_ticks,
    program,
    application,
    weight,
    relay,
    protect,
    nonce
});

/// The server's half of the proof.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Challenge {
    /// Fresh random bytes.
    pub nonce: [u8; 32],
    /// Proof of the server's knowledge of the secret.
    pub proof: [u8; 32],
}
encode_struct!(Challenge { nonce, proof });

/// The client's half of the proof.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proof {
    /// Proof of the client's knowledge of the secret.
    pub proof: [u8; 32],
}
encode_struct!(Proof { proof });

/// Facts of the route after a relaying server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relayed {
    /// Whether the route from the relay to the target server must be protected.
    pub protect: bool,
}
encode_struct!(Relayed { protect });

/// Facts of the server for the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The server's incarnation.
    pub incarnation: Incarnation,
    /// Whether drained data is lost with the server's process (memory and direct stores).
    pub volatile: bool,
    /// Whether the server lends descriptors for reading on the same node.
    pub lends: bool,
    /// Whether it lends them for writing too: only where the store itself rejects writes without space.
    pub lends_writing: bool,
    /// Outbox size for clients.
    pub outbox_bytes: u64,
    /// Preferred amount of data per message.
    pub transfer_bytes: u32,
}
encode_struct!(Welcome { incarnation, volatile, lends, lends_writing, outbox_bytes, transfer_bytes });

/// 32 random bytes.
pub fn nonce() -> [u8; 32] {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).expect("the kernel has random bytes");
    bytes
}

/// A random number, for sessions and incarnations.
pub fn random_number() -> u64 {
    let bytes = nonce();
    u64::from_le_bytes(bytes[..8].try_into().expect("8 of 32 bytes"))
}

/// Server side: answers a greeting, or returns the reason of the refusal.
pub fn challenge(secret: &Secret, hello: &Hello, me: (PartitionId, ServerIndex)) -> Result<Challenge, Fault> {
    if hello.protocol != PROTOCOL {
        let text = format!(
            "this server speaks protocol {PROTOCOL}, the client speaks {}: use the same Pario release for both",
            hello.protocol
        );
        return Err(Fault::new(Code::Protocol, text));
    }
    let relays = hello.relay && hello.partition == me.0;
    if (hello.partition, hello.server) != me && !relays {
        // The client has proved nothing yet: the text names neither partition nor server.
        let text = "another server or partition listens at this address: the registry entry is stale; \
                    look with `pario status`, start with `pario up`";
        return Err(Fault::new(Code::Stale, text));
    }
    let nonce = nonce();
    Ok(Challenge { nonce, proof: prove(secret, HandshakeSide::Server, hello, &nonce) })
}

/// Client side: checks the server's proof and makes its own.
pub fn answer(secret: &Secret, hello: &Hello, challenge: &Challenge) -> Result<Proof, Fault> {
    if !check(secret, HandshakeSide::Server, hello, &challenge.nonce, &challenge.proof) {
        return Err(Fault::new(Code::WrongSecret, "the server does not know this partition's secret"));
    }
    Ok(Proof { proof: prove(secret, HandshakeSide::Client, hello, &challenge.nonce) })
}

/// Server side: checks the client's proof.
pub fn verify(secret: &Secret, hello: &Hello, challenge: &Challenge, proof: &Proof) -> Result<(), Fault> {
    if check(secret, HandshakeSide::Client, hello, &challenge.nonce, &proof.proof) {
        return Ok(());
    }
    Err(Fault::new(Code::WrongSecret, "wrong secret for this partition"))
}

#[derive(Clone, Copy)]
enum HandshakeSide {
    Server,
    Client,
}

fn mac(secret: &Secret, side: HandshakeSide, hello: &Hello, nonce: &[u8; 32]) -> Hmac<Sha256> {
    let mut mac =
        <Hmac<Sha256> as KeyInit>::new_from_slice(&secret.0).expect("HMAC takes keys of any length");
    mac.update(match side {
        HandshakeSide::Server => b"pario server 1\0",
        HandshakeSide::Client => b"pario client 1\0",
    });
    mac.update(&codec::to_bytes(hello));
    mac.update(nonce);
    mac
}

fn prove(secret: &Secret, side: HandshakeSide, hello: &Hello, nonce: &[u8; 32]) -> [u8; 32] {
    mac(secret, side, hello, nonce).finalize().into_bytes().into()
}

fn check(secret: &Secret, side: HandshakeSide, hello: &Hello, nonce: &[u8; 32], proof: &[u8; 32]) -> bool {
    mac(secret, side, hello, nonce).verify_slice(proof).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            protocol: PROTOCOL,
            partition: PartitionId([1; 16]),
            server: ServerIndex(2),
            session: SessionId(3),
            purpose: ConnectionPurpose::Requests {},
            host: "here".into(),
            pid: 4,
            start_ticks: 5,
            program: "test".into(),
            application: "test".into(),
            weight: 1,
            relay: false,
            protect: false,
            nonce: [6; 32],
        }
    }

    const ME: (PartitionId, ServerIndex) = (PartitionId([1; 16]), ServerIndex(2));

    #[test]
    fn both_sides_with_the_secret_agree() {
        let secret = Secret([7; 32]);
        let asked = challenge(&secret, &hello(), ME).unwrap();
        let proof = answer(&secret, &hello(), &asked).unwrap();
        verify(&secret, &hello(), &asked, &proof).unwrap();
    }

    #[test]
    fn a_wrong_secret_fails_on_either_side() {
        let asked = challenge(&Secret([7; 32]), &hello(), ME).unwrap();
        assert_eq!(answer(&Secret([8; 32]), &hello(), &asked).unwrap_err().code, Code::WrongSecret);
        // A client that skips the check still cannot prove anything.
        let forged = Proof { proof: prove(&Secret([8; 32]), HandshakeSide::Client, &hello(), &asked.nonce) };
        assert!(verify(&Secret([7; 32]), &hello(), &asked, &forged).is_err());
    }

    #[test]
    fn a_proof_cannot_be_reflected() {
        let asked = challenge(&Secret([7; 32]), &hello(), ME).unwrap();
        let reflected = Proof { proof: asked.proof };
        assert!(verify(&Secret([7; 32]), &hello(), &asked, &reflected).is_err());
    }

    #[test]
    fn another_protocol_or_partition_is_named() {
        let secret = Secret([7; 32]);
        let newer = Hello { protocol: PROTOCOL + 1, ..hello() };
        let text = challenge(&secret, &newer, ME).unwrap_err().text;
        assert!(text.contains(&format!("the client speaks {}", PROTOCOL + 1)), "{text}");
        let other = Hello { server: ServerIndex(1), ..hello() };
        let stale = challenge(&secret, &other, ME).unwrap_err();
        assert_eq!(stale.code, Code::Stale);
        let id = ME.0.to_string();
        assert!(!stale.text.contains(&id) && stale.text.contains("registry entry is stale"), "{stale}");
        let relayed = Hello { relay: true, ..other };
        assert!(challenge(&secret, &relayed, ME).is_ok());
        let foreign = Hello { partition: PartitionId([9; 16]), relay: true, ..hello() };
        assert_eq!(challenge(&secret, &foreign, ME).unwrap_err().code, Code::Stale);
    }

    #[test]
    fn the_wish_for_protection_cannot_be_changed_on_the_way() {
        let secret = Secret([7; 32]);
        let sent = Hello { protect: true, ..hello() };
        let stripped = Hello { protect: false, ..sent.clone() };
        let asked = challenge(&secret, &stripped, ME).unwrap();
        assert_eq!(answer(&secret, &sent, &asked).unwrap_err().code, Code::WrongSecret);
    }
}
