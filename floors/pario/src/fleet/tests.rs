//! A fleet with servers on some ranks only, each above plain files of its own directory.

use std::path::Path;
use std::sync::Arc;

use pario_core::{Layout, ServerIndex};
use pario_net::protect::Protect;
use pario_server::store::{FilesStore, MemoryDisk};
use pario_server::stores::OpenStore;
use pario_server::{NamesSpec, ServerIdentity, ServerSpec};

use super::{Fleet, FleetListen, FleetPlan, FleetStore, start_fleet};
use crate::client::{Application, OpenOptions};
use crate::error::Result;
use crate::group::{Group, threads_on};

impl FleetStore for FilesStore {}

fn plan(ranks: &[usize]) -> FleetPlan {
    FleetPlan {
        name: "test fleet".into(),
        ranks: ranks.to_vec(),
        protect: Protect::default(),
        application: Application::new("test", 1),
        outbox_bytes: 256 << 10,
        listen: FleetListen::At([127, 0, 0, 1].into()),
    }
}

/// One thread for the store: a server inside an application can be small.
fn open(identity: ServerIdentity, dir: &Path) -> Result<(Arc<FilesStore>, ServerSpec)> {
    let store = Arc::new(FilesStore::open(dir).map_err(pario_core::Fault::from)?);
    let opened = OpenStore {
        store: Arc::<FilesStore>::clone(&store),
        volatile: false,
        lends: true,
        lends_writing: true,
    };
    let names = (identity.index == ServerIndex::MANAGER).then(|| NamesSpec {
        dir: "/names".into(),
        disk: Arc::new(MemoryDisk::new(Path::new("/names"), 1 << 24)),
        defaults: Layout::new(64 << 10, 2, 0, 2).unwrap(),
    });
    Ok((store, ServerSpec { names, pool_threads: 1, ..ServerSpec::new(identity, opened) }))
}

fn on_all_ranks<T: Send>(nodes: &[usize], body: impl Fn(Arc<dyn Group>) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let members: Vec<_> =
            threads_on(nodes).into_iter().map(|group| scope.spawn(|| body(group))).collect();
        members.into_iter().map(|member| member.join().unwrap()).collect()
    })
}

#[test]
fn all_ranks_use_the_servers_of_some() {
    let dir = tempfile::tempdir().unwrap();
    let written: Vec<u8> = (0..300_000u32).map(|number| number.to_le_bytes()[0]).collect();
    (0..3)
        .filter(|rank| *rank != 1)
        .for_each(|rank| std::fs::create_dir(dir.path().join(rank.to_string())).unwrap());
    let roles = on_all_ranks(&[0, 1, 1], |group| {
        let own = dir.path().join(group.rank().to_string());
        let fleet: Fleet<FilesStore> =
            start_fleet(&group, plan(&[2, 0]), |identity| open(identity, &own)).unwrap();
        if group.rank() == 1 {
            let file = OpenOptions::new(&fleet.session).read(true).write(true).create(true);
            let file = file.open("field").unwrap();
            file.write_at(0, &written).unwrap();
            file.close().unwrap();
        }
        group.barrier().unwrap();
        let mut read = vec![0; written.len()];
        let file = OpenOptions::new(&fleet.session).read(true).open("field").unwrap();
        assert_eq!(file.read_at(0, &mut read).unwrap(), written.len());
        assert!(read == written, "rank {} reads other bytes", group.rank());
        file.close().unwrap();
        group.barrier().unwrap();
        fleet.own.as_ref().map(|own| own.index.0)
    });
    assert_eq!(roles, [Some(1), None, Some(0)]);
    let is_empty = |rank: &str| std::fs::read_dir(dir.path().join(rank)).unwrap().next().is_none();
    assert!(!is_empty("0") && !is_empty("2"), "both servers hold a part of the file");
}

#[test]
fn a_rank_that_cannot_start_is_named_on_all_ranks() {
    let dir = tempfile::tempdir().unwrap();
    // The directory of rank 1 is missing.
    std::fs::create_dir(dir.path().join("0")).unwrap();
    let errors = on_all_ranks(&[0, 0, 0], |group| {
        let own = dir.path().join(group.rank().to_string());
        start_fleet(&group, plan(&[0, 1]), |identity| open(identity, &own)).unwrap_err().to_string()
    });
    assert!(errors[0].contains("rank 1 could not start its server of the test fleet"), "{}", errors[0]);
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
}
