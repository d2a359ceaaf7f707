//! Peers with another user or another secret: refused, the reason is logged, and other clients continue undisturbed.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::client::{CHILD, ClientProcess, program};
use crate::hosts::install_copy;
use crate::support::{CliFixture, CommandOutput, said, until};

/// An unprivileged user id.
const NOBODY_UID: u32 = 65534;

/// A client with an open file, which must stay undisturbed.
fn bystander(world: &CliFixture, partition: &str) -> ClientProcess {
    let mut client = ClientProcess::start(program(world).args(CHILD), partition);
    client.execute("create open 2 0").ok();
    client.execute("write open 1 100000").ok();
    client
}

#[track_caller]
fn still_works(mut client: ClientProcess) {
    client.execute("check open 1 100000").ok();
    client.execute("write open 2 100000").ok();
    client.execute("close open").ok();
    assert_eq!(client.end(), 0);
}

fn open_to_all(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// That user, with a program and a registry of its own that has the right secret.
struct OtherUser<'a>(&'a CliFixture);

impl OtherUser<'_> {
    fn prepare(world: &CliFixture) -> OtherUser<'_> {
        open_to_all(&world.path(""), 0o755);
        // The program itself may be in a directory accessible only to its owner.
        install_copy(Path::new(env!("CARGO_BIN_EXE_pario")), &world.path("pario"));
        std::fs::create_dir(world.path("stranger")).unwrap();
        std::fs::copy(world.registry(), world.path("stranger/registry")).unwrap();
        open_to_all(&world.path("stranger/registry"), 0o600);
        for path in ["stranger", "stranger/registry"] {
            std::os::unix::fs::chown(world.path(path), Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
        }
        OtherUser(world)
    }

    fn runs(&self, words: &[&str]) -> CommandOutput {
        let mut command = Command::new(self.0.path("pario"));
        command.env_clear().env("PARIO_REGISTRY", self.0.path("stranger/registry")).args(words);
        said(&command.uid(NOBODY_UID).gid(NOBODY_UID).current_dir("/").output().unwrap())
    }
}

#[test]
fn another_user_is_refused_needs_root() {
    if std::env::var_os("PARIO_TEST_SKIP_ROOT").is_some() || !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED, needs root: cannot act as another user");
        return;
    }
    let world = CliFixture::new();
    let data = world.text("data");
    // Over TCP the secret alone counts; this test connects through socket files only.
    world.ok(&["up", "--name", "s", "--servers", "2", "--dir", &data, "--transport", "unix"]);
    let client = bystander(&world, "s");
    let stranger = OtherUser::prepare(&world);
    let log = || std::fs::read_to_string(world.server_dir("s", 0).join("log")).unwrap_or_default();
    // The socket file itself keeps others out.
    let said = stranger.runs(&["ls", "pario://s/"]);
    assert!(said.code == 1 && said.err.contains("belongs to user 0, this is user 65534"), "{said:?}");
    assert!(!said.err.contains("pario up"), "no cure that is none: {said:?}");
    assert!(!log().contains("65534"), "{}", log());
    // Where it does not, the server does.
    for dir in ["data", "data/s", "data/s/server-0"] {
        open_to_all(&world.path(dir), 0o755);
    }
    open_to_all(&world.server_dir("s", 0).join("socket"), 0o666);
    let said = stranger.runs(&["ls", "pario://s/"]);
    assert!(said.code == 1 && said.err.lines().count() == 1 && said.err.contains("server 0"), "{said:?}");
    assert!(said.err.contains("belongs to user 0, this is user 65534"), "{said:?}");
    let status = stranger.runs(&["status", "s"]);
    assert_eq!(status.code, 3, "{status:?}");
    assert!(status.out.contains("belongs to user 0") && !status.out.contains("pario up"), "{status:?}");
    assert_eq!(said.out, "");
    assert!(until(|| log().contains("of user 65534")), "the reason is logged: {:?}", log());
    let counter = &world.json(&["status", "s"])[0]["servers"][0]["status"]["counters"]["refused"];
    let lines = log().lines().filter(|line| line.contains("refused a connection")).count();
    assert_eq!(counter.as_u64(), Some(lines as u64), "a line for each that was refused: {}", log());
    still_works(client);
}

#[test]
fn a_wrong_secret_disturbs_nobody() {
    let world = CliFixture::new();
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
        still_works(client);
        assert_eq!(world.processes().len(), 2, "the servers go on");
        world.ok(&["rm", "pario://s/open"]);
    }
}
