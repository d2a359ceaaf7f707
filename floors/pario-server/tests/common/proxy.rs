//! A man in the middle: forwards connections to a server over TCP, captures the traffic, and tampers with one record on command.
//!
//! Always: ends with the test; handles whole records, since their length is readable.

#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses its own part")]
#![allow(unreachable_pub, reason = "a module of test files")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pario_net::frame::{FrameKind, HEAD_BYTES};

/// The attack on the next record of a direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attack {
    /// Flips one bit in its middle.
    Flip,
    /// Sends it twice.
    Repeat,
    /// Leaves it out.
    Drop,
    /// Sends it after the following one.
    Swap,
    /// Sends its first half and closes the connection.
    Cut,
    /// Sends bytes of its own before it.
    Insert,
}

pub const ATTACKS: [Attack; 6] =
    [Attack::Flip, Attack::Repeat, Attack::Drop, Attack::Swap, Attack::Cut, Attack::Insert];

/// Direction of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Toward {
    Server,
    Client,
}

#[derive(Debug, Default)]
struct ProxyShared {
    armed: Mutex<Option<(Toward, Attack)>>,
    seen: Mutex<Vec<u8>>,
    done: AtomicBool,
}

/// See the module.
#[derive(Debug)]
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<ProxyShared>,
}

impl Proxy {
    /// In front of a server; `protected`: records follow the greeting.
    pub fn start(server: SocketAddr, protected: bool) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(ProxyShared::default());
        let all = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { return };
                if all.done.load(Ordering::Acquire) {
                    return;
                }
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let ways = [
                    (Toward::Server, client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (Toward::Client, server, client),
                ];
                for (toward, from, to) in ways {
                    let pump = Pump { toward, protected, shared: Arc::clone(&all), held: None };
                    std::thread::spawn(move || pump.run(from, to));
                }
            }
        });
        Proxy { address, shared }
    }

    /// Tampers with the next record in this direction.
    pub fn arm(&self, toward: Toward, attack: Attack) {
        *self.shared.armed.lock().unwrap() = Some((toward, attack));
    }

    /// Whether the attack was carried out.
    pub fn has_struck(&self) -> bool {
        self.shared.armed.lock().unwrap().is_none()
    }

    /// The captured bytes.
    pub fn seen(&self) -> Vec<u8> {
        self.shared.seen.lock().unwrap().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.done.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

struct Pump {
    toward: Toward,
    protected: bool,
    shared: Arc<ProxyShared>,
    /// A record that is sent after the next.
    held: Option<Vec<u8>>,
}

impl Pump {
    fn run(mut self, mut from: TcpStream, mut to: TcpStream) {
        // Either side may close the connection at any time: then both end.
        let _ = self.pass(&mut from, &mut to);
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    fn pass(&mut self, from: &mut TcpStream, to: &mut TcpStream) -> std::io::Result<()> {
        loop {
            let kind = self.pass_frame(from, to)?;
            let last = match self.toward {
                Toward::Server => FrameKind::Proof,
                Toward::Client => FrameKind::Challenge,
            };
            if self.protected && kind == last as u16 {
                break;
            }
        }
        loop {
            let mut length = [0; 4];
            from.read_exact(&mut length)?;
            let mut record = length.to_vec();
            record.resize(4 + u32::from_le_bytes(length) as usize + 16, 0);
            from.read_exact(&mut record[4..])?;
            self.see(&record);
            self.tamper(record, to)?;
        }
    }

    /// One plain frame, unchanged; returns its kind.
    fn pass_frame(&self, from: &mut TcpStream, to: &mut TcpStream) -> std::io::Result<u16> {
        let mut head = [0; HEAD_BYTES];
        from.read_exact(&mut head)?;
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()) as usize;
        let mut rest = vec![0; word(8) + word(12)];
        from.read_exact(&mut rest)?;
        self.see(&head);
        self.see(&rest);
        to.write_all(&[&head[..], &rest].concat())?;
        Ok(u16::from_le_bytes([head[4], head[5]]))
    }

    fn see(&self, bytes: &[u8]) {
        self.shared.seen.lock().unwrap().extend_from_slice(bytes);
    }

    fn tamper(&mut self, mut record: Vec<u8>, to: &mut TcpStream) -> std::io::Result<()> {
        if let Some(held) = self.held.take() {
            to.write_all(&record)?;
            return to.write_all(&held);
        }
        let attack = self.shared.armed.lock().unwrap().take_if(|armed| armed.0 == self.toward);
        match attack.map(|armed| armed.1) {
            None => to.write_all(&record),
            Some(Attack::Flip) => {
                let middle = record.len() / 2;
                record[middle] ^= 4;
                to.write_all(&record)
            }
            Some(Attack::Repeat) => to.write_all(&[&record[..], &record[..]].concat()),
            Some(Attack::Drop) => Ok(()),
            Some(Attack::Swap) => {
                self.held = Some(record);
                Ok(())
            }
            Some(Attack::Cut) => {
                to.write_all(&record[..record.len() / 2])?;
                Err(std::io::ErrorKind::ConnectionAborted.into())
            }
            Some(Attack::Insert) => to.write_all(&[&[9, 0, 0, 0][..], &[7; 25], &record].concat()),
        }
    }
}
