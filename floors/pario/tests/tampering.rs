//! An attacker between a partition's servers and a client (man in the middle): for every change of a record the client continues or gets
//! an error, and data acknowledged by `sync` is present.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;
#[path = "../../pario-server/tests/common/proxy.rs"]
mod proxy;

use std::sync::Arc;

use common::{difference, pattern};
use pario::client::{Endpoint, MountSpec};
use pario::{ByAddress, Partition};
use pario_core::{Code, Layout, PartitionId, ServerIndex};
use pario_net::greeting::Secret;
use pario_net::protect::Protect;
use pario_net::stream::Address;
use pario_server::stores::{StoreChoice, names_in};
use pario_server::{Connect, Server, ServerIdentity, ServerSpec};
use proxy::{ATTACKS, Proxy, Toward};

const SERVERS: u16 = 2;
const BYTES: usize = 500_000;

/// Protected servers on loopback, with an attacker in front of each.
struct TamperingFixture {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    _dir: tempfile::TempDir,
}

impl TamperingFixture {
    fn start() -> TamperingFixture {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(64 << 10, SERVERS, 0, SERVERS).unwrap();
        let spec = |index: u16| {
            let store = StoreChoice::Memory { bytes: 64 << 20 }.open().unwrap();
            let identity = ServerIdentity {
                partition: PartitionId([7; 16]),
                name: "middle".into(),
                index: ServerIndex(index),
                servers: usize::from(SERVERS),
                secret: Secret([9; 32]),
            };
            ServerSpec {
                protect: Protect::All,
                volatile: false,
                lends: false,
                lends_writing: false,
                names: (index == 0).then(|| names_in(&dir.path().join("names"), layout)),
                outbox_bytes: 256 << 10,
                transfer_bytes: 128 << 10,
                tcp: Some(([127, 0, 0, 1], 0).into()),
                ..ServerSpec::new(identity, store)
            }
        };
        let servers: Vec<Server> = (0..SERVERS).map(|index| Server::start(spec(index)).unwrap()).collect();
        let address = |server: &Server| server.tcp_address().unwrap();
        let proxies = servers.iter().map(|server| Proxy::start(address(server), true)).collect();
        let direct = servers.iter().map(|server| vec![Address::Tcp(address(server))]).collect();
        let connect: Arc<dyn Connect> = Arc::new(ByAddress { servers: direct });
        servers[0].set_peers(connect);
        TamperingFixture { servers, proxies, _dir: dir }
    }

    fn mount(&self, through_him: bool) -> Partition {
        let addresses = self.servers.iter().zip(&self.proxies).map(|(server, proxy)| {
            let address = if through_him { proxy.address } else { server.tcp_address().unwrap() };
            vec![Address::Tcp(address)]
        });
        let connect: Arc<dyn Connect> = Arc::new(ByAddress { servers: addresses.collect() });
        Partition::from_spec(MountSpec {
            name: "middle".into(),
            partition: PartitionId([7; 16]),
            endpoint: Endpoint { secret: Secret([9; 32]), connect, protect: Protect::All },
            servers: usize::from(SERVERS),
            locate: None,
            outbox_bytes: 0,
            method: pario::Method::Auto,
            tied: None,
            application: pario::Application::new("middle", 1),
        })
    }
}

#[test]
fn what_was_acknowledged_survives_every_attack() {
    let world = TamperingFixture::start();
    let direct = world.mount(false);
    let mut told = 0;
    for (round, attack) in ATTACKS.into_iter().enumerate() {
        for (toward, victim) in
            [(Toward::Server, 0), (Toward::Client, 0), (Toward::Server, 1), (Toward::Client, 1)]
        {
            let what = format!("{attack:?} toward {toward:?} at server {victim}");
            let partition = world.mount(true);
            let name = format!("{round}-{toward:?}-{victim}");
            let file = partition.create(&name).unwrap();
            let first = pattern(BYTES, round as u64);
            file.write_at(0, &first).unwrap();
            file.sync().unwrap();
            world.proxies[victim].arm(toward, attack);
            // After the acknowledged data; acknowledged itself only if all of it succeeds.
            let second = pattern(BYTES, 100 + round as u64);
            let written = file.write_at(BYTES as u64, &second).and_then(|()| file.sync());
            let mut found = vec![0; BYTES];
            let read = file.read_exact_at(0, &mut found);
            assert!(
                common::stage::until(|| {
                    // A repeated record is detected when the server reads on; this sends it more to read.
                    let _ = file.sync();
                    world.proxies[victim].has_struck()
                }),
                "{what}"
            );
            match read {
                Ok(()) => assert_eq!(difference(&first, &found), None, "{what}"),
                Err(error) => assert_eq!(error.code(), Code::Unreachable, "{what}: {error}"),
            }
            told += u32::from(written.is_err());
            drop(file);
            drop(partition);
            // By a connection without the attacker.
            let there = direct.open(&name).unwrap();
            there.read_exact_at(0, &mut found).unwrap();
            assert_eq!(difference(&first, &found), None, "{what}: acknowledged");
            if written.is_ok() {
                there.read_exact_at(BYTES as u64, &mut found).unwrap();
                assert_eq!(difference(&second, &found), None, "{what}: acknowledged after the attack");
            }
        }
    }
    eprintln!("{told} of {} writes reported an attack, the others were repeated", 4 * ATTACKS.len());
}
