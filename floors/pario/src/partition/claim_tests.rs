//! Claims of a partition. The child process is this test program run again with a variable set.

use super::*;
use crate::partition::config::Layers;
use crate::partition::entry::tests::sample;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;

fn open(dir: &tempfile::TempDir) -> Registry {
    Registry::open(&dir.path().join("registry")).with_lock_limit(std::time::Duration::from_secs(60))
}

fn no_probe(_: &ServerEntry) -> bool {
    panic!("all servers are local")
}

fn claim(registry: &Registry) -> Result<Claimed, RegistryError> {
    registry.claim(&sample("x", 2).settings, IdentityOrigin::New, no_probe)
}

fn dead(mut servers: Vec<ServerEntry>) -> Vec<ServerEntry> {
    servers.iter_mut().for_each(|server| server.start_ticks += 1);
    servers
}

#[test]
fn a_partition_lives_dies_and_lives_again() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let first = claim(&registry).unwrap();
    assert_eq!((first.entry.epoch, first.mode()), (1, StartMode::Fresh));
    assert_eq!(first.previous, None);
    let running = registry.finish(&first, sample("x", 2).servers).unwrap();
    assert_eq!((running.state, running.starter), (PartitionState::Running, None));
    let message = claim(&registry).unwrap_err().to_string();
    assert!(message.contains("'x' is already running"), "{message}");
    registry.mark_down(&running).unwrap();
    let second = claim(&registry).unwrap();
    assert_eq!((second.entry.epoch, second.mode()), (2, StartMode::Existing));
    assert_eq!(second.entry.id, first.entry.id);
    assert_ne!(second.entry.secret, first.entry.secret);
    assert_eq!(second.entry.created_unix_s, first.entry.created_unix_s);
    registry.finish(&second, dead(sample("x", 2).servers)).unwrap();
    let third = claim(&registry).unwrap();
    assert_eq!(third.previous.unwrap().epoch, 2);
    registry.forget(&third.entry).unwrap();
    assert_eq!(registry.list().unwrap(), []);
}

#[test]
fn a_partition_of_which_a_server_lives_is_not_started() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let first = claim(&registry).unwrap();
    let mut servers = sample("x", 2).servers;
    servers[1].pid = u32::MAX;
    let running = registry.finish(&first, servers).unwrap();
    let message = claim(&registry).unwrap_err().to_string();
    assert!(message.contains("'x' is already running"), "{message}");
    assert_eq!(registry.get("x").unwrap(), Some(running));
}

#[test]
fn one_of_many_wins() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let start = Barrier::new(8);
    let won: Vec<bool> = std::thread::scope(|scope| {
        let tries: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    match claim(&registry) {
                        Ok(_) => true,
                        Err(RegistryError::BeingStarted { pid, .. }) => {
                            assert_eq!(pid, std::process::id());
                            false
                        }
                        Err(error) => panic!("{error}"),
                    }
                })
            })
            .collect();
        tries.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(won.iter().filter(|won| **won).count(), 1);
}

const CHILD: &str = "PARIO_TEST_CLAIM_CHILD";

/// Not a test of its own: what the child process runs. Claims and waits to be killed.
#[test]
fn child_claims() {
    let Ok(path) = std::env::var(CHILD) else { return };
    claim(&Registry::open(Path::new(&path))).unwrap();
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
}

#[test]
fn a_starter_that_died_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "partition::claim::tests::child_claims"])
        .env(CHILD, registry.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let end = super::super::disk::Deadline::after(std::time::Duration::from_secs(60));
    while registry.get("x").unwrap().is_none() {
        assert!(!end.has_passed(), "the child does not claim");
    }
    let message = claim(&registry).unwrap_err().to_string();
    assert!(message.contains(&format!("'x' is being started by process {}", child.id())), "{message}");
    child.kill().unwrap();
    child.wait().unwrap();
    let taken = claim(&registry).unwrap();
    assert_eq!((taken.entry.epoch, taken.mode()), (2, StartMode::Fresh));
    assert_eq!(taken.entry.id, taken.previous.unwrap().id);
}

#[test]
fn a_lost_claim_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let first = claim(&registry).unwrap();
    registry
        .update(|entries| -> Result<(), RegistryError> {
            entries[0].epoch += 1;
            Ok(())
        })
        .unwrap();
    let before = registry.list().unwrap();
    assert!(matches!(registry.finish(&first, vec![]), Err(RegistryError::ClaimLost { .. })));
    assert!(matches!(registry.abandon(&first), Err(RegistryError::ClaimLost { .. })));
    assert!(matches!(registry.forget(&first.entry), Err(RegistryError::ClaimLost { .. })));
    assert_eq!(registry.list().unwrap(), before);
}

#[test]
fn a_failed_start_forgets_the_new_and_keeps_the_old() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    registry.abandon(&claim(&registry).unwrap()).unwrap();
    assert_eq!(registry.list().unwrap(), []);
    let found = registry
        .claim(&sample("x", 2).settings, IdentityOrigin::Found(PartitionId([3; 16])), no_probe)
        .unwrap();
    assert_eq!((found.entry.id, found.mode()), (PartitionId([3; 16]), StartMode::Existing));
    registry.abandon(&found).unwrap();
    assert_eq!(registry.list().unwrap(), []);
    let first = claim(&registry).unwrap();
    let lived = registry.finish(&first, dead(sample("x", 2).servers)).unwrap();
    registry.abandon(&claim(&registry).unwrap()).unwrap();
    // Its servers may be alive but unreachable: they can still be ended later.
    let kept = registry.find("x").unwrap();
    assert_eq!(kept, RegistryEntry { epoch: 2, ..lived });
    registry.mark_down(&kept).unwrap();
    registry.abandon(&claim(&registry).unwrap()).unwrap();
    assert_eq!(registry.find("x").unwrap().state, PartitionState::Down);
}

#[test]
fn structural_settings_are_checked_under_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let first = claim(&registry).unwrap();
    registry.mark_down(&registry.finish(&first, vec![]).unwrap()).unwrap();
    let text = "name = \"x\"\nservers = [\"/tmp/x/0\", \"/tmp/x/1\"]\nstripe = \"4KiB\"";
    let settings = Layers::new().text(text, Path::new("p")).unwrap().check().unwrap();
    let message = registry.claim(&settings, IdentityOrigin::New, no_probe).unwrap_err().to_string();
    assert!(message.contains("created with \"1MiB\"") && message.contains("stripe = \"4KiB\""), "{message}");
}
