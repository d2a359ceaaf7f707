//! The handshake: both sides prove that they know the partition's secret, and neither sends it.
//!
//! ```text
//! client                                   server
//!   Hello{who, nonce c}            ──►
//!                                  ◄──     Challenge{nonce s, HMAC("server" | Hello | s)}
//!   Proof{HMAC("client" | Hello | s)} ──►
//!                                  ◄──     Welcome{settings}
//! ```
//! Never: compares proofs in time that depends on them. Always: different labels for the two sides, so that a proof cannot be
//! sent back to where it came from; nonces are fresh.

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

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Requests and their replies.
    Requests {},
    /// Notices from the server.
    Notices {},
    /// Requests of the manager to one of its peers.
    Peer {},
}
encode_enum!(Purpose { 1 => Requests {}, 2 => Notices {}, 3 => Peer {} });

/// The sign that a process shows while one of its sessions may hold leases: a manager that was restarted looks for it.
#[must_use]
pub fn session_sign(session: SessionId) -> String {
    format!("pario-session-{session}")
}

/// Who calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Protocol version; first, so that every version can read it.
    pub protocol: u32,
    /// The partition it wants.
    pub partition: PartitionId,
    /// The server it wants.
    pub server: ServerIndex,
    /// Its session, the same on all its connections.
    pub session: SessionId,
    /// What the connection is for.
    pub purpose: Purpose,
    /// Host, as it calls itself.
    pub host: String,
    /// Process.
    pub pid: u32,
    /// When the process started, so that a reused number is not mistaken for it.
    pub start_ticks: u64,
    /// Program name, for `status`.
    pub program: String,
    /// The application that the process belongs to; service is shared between applications.
    pub application: String,
    /// Its weight, unless the partition says otherwise.
    pub weight: u32,
    /// Whether a server that is not the wanted one may pass the connection on.
    pub relay: bool,
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
    nonce
});

/// The server's half of the proof.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Challenge {
    /// Fresh random bytes.
    pub nonce: [u8; 32],
    /// The server knows the secret.
    pub proof: [u8; 32],
}
encode_struct!(Challenge { nonce, proof });

/// The client's half of the proof.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proof {
    /// The client knows the secret.
    pub proof: [u8; 32],
}
encode_struct!(Proof { proof });

/// What the client needs to know of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// This life of the server.
    pub incarnation: Incarnation,
    /// Whether data that the server has taken dies with its process (memory and direct stores).
    pub volatile: bool,
    /// Whether the server lends descriptors for reading on the same node.
    pub lends: bool,
    /// Whether it lends them for writing too: only where the store itself refuses what has no room.
    pub lends_writing: bool,
    /// Outbox that clients should make.
    pub outbox_bytes: u64,
    /// Data that one message should carry.
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

/// Server side: answers a greeting, or says why not.
pub fn challenge(secret: &Secret, hello: &Hello, me: (PartitionId, ServerIndex)) -> Result<Challenge, Fault> {
    if hello.protocol != PROTOCOL {
        let text = format!(
            "this server speaks protocol {PROTOCOL}, the client speaks {}: use the same Pario release for both",
            hello.protocol
        );
        return Err(Fault::new(Code::Protocol, text));
    }
    if (hello.partition, hello.server) != me {
        let text = format!(
            "server {} of partition {} answers here, not server {} of {}: the registry entry is stale",
            me.1, me.0, hello.server, hello.partition
        );
        return Err(Fault::new(Code::Stale, text));
    }
    let nonce = nonce();
    Ok(Challenge { nonce, proof: prove(secret, Side::Server, hello, &nonce) })
}

/// Client side: checks the server's proof and makes its own.
pub fn answer(secret: &Secret, hello: &Hello, challenge: &Challenge) -> Result<Proof, Fault> {
    if !check(secret, Side::Server, hello, &challenge.nonce, &challenge.proof) {
        return Err(Fault::new(Code::WrongSecret, "the server does not know this partition's secret"));
    }
    Ok(Proof { proof: prove(secret, Side::Client, hello, &challenge.nonce) })
}

/// Server side: checks the client's proof.
pub fn verify(secret: &Secret, hello: &Hello, challenge: &Challenge, proof: &Proof) -> Result<(), Fault> {
    if check(secret, Side::Client, hello, &challenge.nonce, &proof.proof) {
        return Ok(());
    }
    Err(Fault::new(Code::WrongSecret, "wrong secret for this partition"))
}

#[derive(Clone, Copy)]
enum Side {
    Server,
    Client,
}

fn mac(secret: &Secret, side: Side, hello: &Hello, nonce: &[u8; 32]) -> Hmac<Sha256> {
    let mut mac =
        <Hmac<Sha256> as KeyInit>::new_from_slice(&secret.0).expect("HMAC takes keys of any length");
    mac.update(match side {
        Side::Server => b"pario server 1\0",
        Side::Client => b"pario client 1\0",
    });
    mac.update(&codec::to_bytes(hello));
    mac.update(nonce);
    mac
}

fn prove(secret: &Secret, side: Side, hello: &Hello, nonce: &[u8; 32]) -> [u8; 32] {
    mac(secret, side, hello, nonce).finalize().into_bytes().into()
}

fn check(secret: &Secret, side: Side, hello: &Hello, nonce: &[u8; 32], proof: &[u8; 32]) -> bool {
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
            purpose: Purpose::Requests {},
            host: "here".into(),
            pid: 4,
            start_ticks: 5,
            program: "test".into(),
            application: "test".into(),
            weight: 1,
            relay: false,
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
        let forged = Proof { proof: prove(&Secret([8; 32]), Side::Client, &hello(), &asked.nonce) };
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
        assert_eq!(challenge(&secret, &other, ME).unwrap_err().code, Code::Stale);
    }
}
