//! Messages, frames, handshake, outbox and transports between clients and servers.
//!
//! Never: knows what a message means to a file. Always: what a peer sends is checked before it is believed.

pub mod message;

pub mod frame;
pub mod greeting;

pub mod buffers;
pub mod connection;
pub mod stream;

pub mod outbox;
pub mod pointer;
