//! Strangers at the door: another user, another secret. They are refused, the server says why, and nobody else notices.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::client::{CHILD, Client, program};
use crate::hosts::install_copy;
use crate::support::{Said, World, said, until};

/// Belongs to nobody.
const NOBODY: u32 = 65534;

/// A client with an open file, for showing that it goes on undisturbed.
fn bystander(world: &World, partition: &str) -> Client {
    let mut client = Client::start(program(world).args(CHILD), partition);
    client.ask("create open 2 0").ok();
    client.ask("write open 1 100000").ok();
    client
}

#[track_caller]
fn goes_on(mut client: Client) {
    client.ask("check open 1 100000").ok();
    client.ask("write open 2 100000").ok();
    client.ask("close open").ok();
    assert_eq!(client.end(), 0);
}

fn open_to_all(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Nobody, with a program and a registry of its own that has the right secret.
struct Stranger<'a>(&'a World);

impl Stranger<'_> {
    fn prepare(world: &World) -> Stranger<'_> {
        open_to_all(&world.path(""), 0o755);
        // The program itself may lie where only its owner can go.
        install_copy(Path::new(env!("CARGO_BIN_EXE_pario")), &world.path("pario"));
        std::fs::create_dir(world.path("stranger")).unwrap();
        std::fs::copy(world.registry(), world.path("stranger/registry")).unwrap();
        open_to_all(&world.path("stranger/registry"), 0o600);
        for path in ["stranger", "stranger/registry"] {
            std::os::unix::fs::chown(world.path(path), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Stranger(world)
    }

    fn runs(&self, words: &[&str]) -> Said {
        let mut command = Command::new(self.0.path("pario"));
        command.env_clear().env("PARIO_REGISTRY", self.0.path("stranger/registry")).args(words);
        said(&command.uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap())
    }
}

#[test]
fn another_user_is_refused_needs_root() {
    if std::env::var_os("PARIO_TEST_SKIP_ROOT").is_some() || !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED, needs root: cannot act as another user");
        return;
    }
    let world = World::new();
    let data = world.text("data");
    // Over TCP the secret alone counts; here the socket files are the only way.
    world.ok(&["up", "--name", "s", "--servers", "2", "--dir", &data, "--transport", "unix"]);
    let client = bystander(&world, "s");
    let stranger = Stranger::prepare(&world);
    let log = || std::fs::read_to_string(world.server_dir("s", 0).join("log")).unwrap_or_default();
    // The socket file itself keeps others out.
    let said = stranger.runs(&["ls", "pario://s/"]);
    assert!(said.code != 0 && said.err.contains("Permission denied"), "{said:?}");
    assert!(!log().contains("65534"), "{}", log());
    // Where it does not, the server does.
    for dir in ["data", "data/s", "data/s/server-0"] {
        open_to_all(&world.path(dir), 0o755);
    }
    open_to_all(&world.server_dir("s", 0).join("socket"), 0o666);
    let said = stranger.runs(&["ls", "pario://s/"]);
    assert!(said.code == 1 && said.err.lines().count() == 1 && said.err.contains("server 0"), "{said:?}");
    assert_eq!(said.out, "");
    assert!(until(|| log().contains("of user 65534")), "the reason is logged: {:?}", log());
    let counter = &world.json(&["status", "s"])[0]["servers"][0]["status"]["counters"]["refused"];
    let lines = log().lines().filter(|line| line.contains("refused a connection")).count();
    assert_eq!(counter.as_u64(), Some(lines as u64), "a line for each that was refused: {}", log());
    goes_on(client);
}

#[test]
fn a_wrong_secret_disturbs_nobody() {
    let world = World::new();
    world.up("s", 2);
    for transport in ["unix", "tcp"] {
        let client = bystander(&world, "s");
        let good = std::fs::read_to_string(world.registry()).unwrap();
        let secret = good.lines().find(|line| line.starts_with("secret = ")).unwrap();
        let wrong = world.path("wrong");
        std::fs::write(&wrong, good.replace(secret, &format!("secret = \"{}\"", "0f".repeat(32)))).unwrap();
        open_to_all(&wrong, 0o600);
        for words in [["ls", "pario://s/"], ["cat", "pario://s/open"], ["down", "s"]] {
            let mut command = world.command();
            command.env("PARIO_REGISTRY", &wrong).env("PARIO_TRANSPORT", transport);
            let said = said(&command.args(words).output().unwrap());
            assert_eq!((said.code, said.err.lines().count()), (1, 1), "{words:?}: {said:?}");
            assert!(said.err.contains("secret") && said.out.is_empty(), "{words:?}: {said:?}");
        }
        goes_on(client);
        assert_eq!(world.processes().len(), 2, "the servers go on");
        world.ok(&["rm", "pario://s/open"]);
    }
}
