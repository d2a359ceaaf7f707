//! Messages, frames, handshake, outbox and transports between clients and servers.
//!
//! Never: interprets a message. Always: bytes from a peer are checked before they are used.

pub mod message;

pub mod frame;
pub mod greeting;

pub mod buffers;
pub mod connection;
pub mod deadlines;
mod peer;
pub mod protect;
pub mod stream;

pub mod outbox;
pub mod pointer;
