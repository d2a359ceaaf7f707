//! The registry as many processes use it. Child processes are this test program run again with a variable set.

use super::*;
use crate::partition::entry::tests::sample;
use std::process::{Child, Command, Stdio};

fn open(dir: &tempfile::TempDir) -> Registry {
    Registry::open(&dir.path().join("state/registry")).with_lock_limit(Duration::from_secs(60))
}

fn add(registry: &Registry, name: &str) {
    registry
        .update(|entries| -> Result<(), RegistryError> {
            entries.push(sample(name, 2));
            Ok(())
        })
        .unwrap();
}

#[test]
fn entries_survive_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    assert_eq!(registry.list().unwrap(), []);
    add(&registry, "b");
    add(&registry, "a");
    let mut remote = sample("c", 3);
    remote.servers[1].host = Some("n1".into());
    remote.servers[2].unix = None;
    remote.starter = Some(crate::partition::entry::ServerProcess::own());
    registry
        .update(|entries| -> Result<(), RegistryError> {
            entries.push(remote.clone());
            Ok(())
        })
        .unwrap();
    assert_eq!(registry.list().unwrap(), [sample("a", 2), sample("b", 2), remote]);
    assert_eq!(registry.get("a").unwrap().unwrap().name, "a");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(registry.path()), mode(registry.path().parent().unwrap())), (0o600, 0o700));
}

#[test]
fn an_unknown_name_lists_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let message = registry.find("x").unwrap_err().to_string();
    assert!(message.contains("no partition 'x'") && message.contains("it has none"), "{message}");
    add(&registry, "scratch");
    add(&registry, "alpha");
    let message = registry.find("x").unwrap_err().to_string();
    assert!(message.ends_with("there is: alpha, scratch"), "{message}");
}

#[test]
fn a_damaged_file_is_named_and_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    add(&registry, "a");
    let good = fs::read_to_string(registry.path()).unwrap();
    let twice = format!("{good}{}", good.split_once("format = 1\n").unwrap().1);
    let half = good[..good.len() / 2].to_owned();
    for (text, part) in [
        ("not toml at all", "line 1"),
        ("[x]\n", "no format number"),
        (half.as_str(), "is damaged"),
        (twice.as_str(), "partition 'a' is there twice"),
        (&good.replace("epoch", "epoque"), "unknown field"),
        ("format = 99\n", "has format 99"),
    ] {
        fs::write(registry.path(), text).unwrap();
        let result = registry.update(|entries| -> Result<(), RegistryError> {
            entries.clear();
            Ok(())
        });
        let message = result.unwrap_err().to_string();
        assert!(message.contains(part) && !message.contains('\n'), "{message}");
        assert!(message.contains(&registry.path().display().to_string()));
        assert!(!message.contains("abababab"), "the secret is in {message}");
        assert!(registry.list().is_err());
        assert_eq!(fs::read_to_string(registry.path()).unwrap(), text);
    }
    fs::write(registry.path(), [0xff, 0xfe]).unwrap();
    assert!(registry.list().unwrap_err().to_string().contains("it is not text"));
}

#[test]
fn a_file_that_others_can_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    add(&registry, "a");
    fs::set_permissions(registry.path(), fs::Permissions::from_mode(0o644)).unwrap();
    let message = registry.list().unwrap_err().to_string();
    assert!(message.contains("mode 644") && message.contains("chmod 600"), "{message}");
}

#[test]
fn an_empty_file_is_an_empty_registry() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("registry");
    fs::write(&path, "").unwrap();
    let registry = Registry::open(&path);
    assert_eq!(registry.list().unwrap(), []);
    add(&registry, "a");
    assert_eq!(registry.list().unwrap().len(), 1);
}

#[test]
fn a_change_that_fails_or_changes_nothing_leaves_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    add(&registry, "a");
    let before = fs::metadata(registry.path()).unwrap().modified().unwrap();
    let failed = registry.update(|entries| {
        entries.clear();
        Err::<(), _>(RegistryError::NoHome)
    });
    assert!(matches!(failed, Err(RegistryError::NoHome)));
    registry.update(|_| Ok::<(), RegistryError>(())).unwrap();
    assert_eq!(fs::metadata(registry.path()).unwrap().modified().unwrap(), before);
    assert_eq!(registry.list().unwrap().len(), 1);
}

#[test]
fn a_lock_that_is_kept_is_an_error_that_names_its_holder() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir).with_lock_limit(Duration::from_millis(50));
    add(&registry, "a");
    let _lock = registry.lock(&registry.make_directory().unwrap()).unwrap();
    let message = registry.update(|_| Ok::<(), RegistryError>(())).unwrap_err().to_string();
    assert!(message.contains("locked for 0.05 s"), "{message}");
    assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
    assert_eq!(registry.list().unwrap().len(), 1, "readers need no lock");
}

#[test]
fn a_symbolic_link_stays_one() {
    let dir = tempfile::tempdir().unwrap();
    add(&Registry::open(&dir.path().join("real")), "a");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path().join("real"), &link).unwrap();
    add(&Registry::open(&link), "b");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(Registry::open(&dir.path().join("real")).list().unwrap().len(), 2);
}

#[test]
fn the_default_place_follows_the_environment() {
    let path = |pairs: &[(&str, &str)]| {
        default_path(|variable| {
            pairs.iter().find(|(name, _)| *name == variable).map(|(_, value)| value.into())
        })
    };
    let all = [("PARIO_REGISTRY", "/r"), ("XDG_STATE_HOME", "/s"), ("HOME", "/h")];
    assert_eq!(path(&all).unwrap(), Path::new("/r"));
    assert_eq!(path(&all[1..]).unwrap(), Path::new("/s/pario/registry"));
    assert_eq!(path(&all[2..]).unwrap(), Path::new("/h/.local/state/pario/registry"));
    assert_eq!(
        path(&[("XDG_STATE_HOME", "s"), ("HOME", "/h")]).unwrap(),
        Path::new("/h/.local/state/pario/registry")
    );
    let message = path(&[("HOME", "")]).unwrap_err().to_string();
    assert!(message.contains("PARIO_REGISTRY") && message.contains("HOME"), "{message}");
}

const CHILD: &str = "PARIO_TEST_REGISTRY_CHILD";

/// Not a test of its own: what child processes run. `PATH NAME COUNT`: adds so many to a number kept in the registry.
#[test]
fn child_counts_up() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let [path, name, count] = order.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let registry = Registry::open(Path::new(path)).with_lock_limit(Duration::from_secs(60));
    for round in 0..count.parse().unwrap() {
        let change = |entries: &mut Vec<RegistryEntry>| -> Result<(), RegistryError> {
            let shared = entries.iter_mut().find(|entry| entry.name == "shared").unwrap();
            shared.epoch += 1;
            match entries.iter_mut().find(|entry| entry.name == name) {
                Some(own) => own.epoch = round + 1,
                None => entries.push(RegistryEntry { epoch: round + 1, ..sample(name, 1) }),
            }
            Ok(())
        };
        registry.update(change).unwrap();
    }
}

fn start_child(registry: &Registry, name: &str, count: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "partition::registry::tests::child_counts_up"])
        .env(CHILD, format!("{} {name} {count}", registry.path().display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn epoch_of(registry: &Registry, name: &str) -> u64 {
    registry.get(name).unwrap().map_or(0, |entry| entry.epoch)
}

#[test]
fn many_processes_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    add(&registry, "shared");
    let before = epoch_of(&registry, "shared");
    let children: Vec<Child> = (0..8).map(|at| start_child(&registry, &format!("child{at}"), 50)).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(epoch_of(&registry, "shared"), before + 400);
    assert!((0..8).all(|at| epoch_of(&registry, &format!("child{at}")) == 50));
}

#[test]
fn a_process_killed_in_the_middle_leaves_a_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    add(&registry, "shared");
    for round in 0..20 {
        let name = format!("child{round}");
        let mut child = start_child(&registry, &name, 1_000_000);
        // After a few changes the child is in the middle of one, at a position that differs between iterations.
        let goal = 1 + round % 4;
        let end = disk::Deadline::after(Duration::from_secs(60));
        while epoch_of(&registry, &name) < goal {
            assert!(!end.has_passed(), "the child does not get on");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(goal <= epoch_of(&registry, &name));
        let before = registry.list().unwrap();
        add(&registry, &format!("after{round}"));
        assert_eq!(registry.list().unwrap().len(), before.len() + 1);
    }
    let shared = epoch_of(&registry, "shared") - sample("shared", 2).epoch;
    let own: u64 = (0..20).map(|round| epoch_of(&registry, &format!("child{round}"))).sum();
    assert_eq!(shared, own, "both numbers change in one step");
}
