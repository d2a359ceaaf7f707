//! Pario inside programs that are not Rust's own: SIGPIPE kills them, and they fork while files are open.
//!
//! Such a program is this binary again, with `foreign.c` loaded before the C library: it leaves SIGPIPE at its default, and gives
//! safe Rust a `fork`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use pario::Partition;
use rustix::process::{Pid, Signal, WaitOptions, waitpid};

use crate::client::{CHILD, ClientProcess, program};
use crate::support::{CliFixture, kill, said, until};

const FORK: &str = "PARIO_TEST_FORK";
const TRANSPORTS: [&str; 2] = ["unix", "tcp"];
/// Exit code of a forked child that completed its part.
const CHILD_DONE: i32 = 42;

/// The library made from `foreign.c`; `None` with a message without a C compiler.
fn foreign(world: &CliFixture) -> Option<PathBuf> {
    let (source, library) = (world.path("foreign.c"), world.path("foreign.so"));
    std::fs::write(&source, include_str!("foreign.c")).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&library).arg(&source).arg("-ldl");
    match compiler.stdin(Stdio::null()).output() {
        Ok(output) => {
            assert!(output.status.success(), "{:?}", said(&output));
            Some(library)
        }
        Err(error) => {
            eprintln!("SKIPPED, no C compiler to make a foreign program with: {error}");
            None
        }
    }
}

/// Whether a process would die of SIGPIPE: it neither ignores, blocks nor catches it.
fn dies_of_sigpipe(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    let bit = 1 << (Signal::PIPE.as_raw() - 1);
    (set("SigIgn:") | set("SigBlk:") | set("SigCgt:")) & bit == 0
}

#[test]
fn a_server_that_dies_does_not_kill_its_clients_by_sigpipe() {
    let world = CliFixture::new();
    let Some(foreign) = foreign(&world) else { return };
    for transport in TRANSPORTS {
        world.up("s", 2);
        let mut command = program(&world);
        command.args(CHILD).env("LD_PRELOAD", &foreign).env("PARIO_TRANSPORT", transport);
        let mut client = ClientProcess::start(&mut command, "s");
        for (path, layout) in [("first", "1 0"), ("second", "1 1")] {
            client.execute(&format!("create {path} {layout}")).ok();
            client.execute(&format!("write {path} 1 100000")).ok();
            client.execute(&format!("sync {path}")).ok();
        }
        assert!(dies_of_sigpipe(client.pid()), "otherwise this shows nothing");
        for pid in world.server_pids("s") {
            kill(pid, Signal::KILL);
        }
        assert!(until(|| world.processes() == [client.pid()]), "the servers are gone");
        // Both sockets are closed at the other end now; each of these orders sends or tries to send a message.
        for order in ["stat first", "write second 2 100000", "sync first", "sync second", "stat second"] {
            let fault = client.execute(order).fault();
            assert!(fault.contains("server "), "{order}: {fault}");
        }
        world.ok(&["up", "s"]);
        for path in ["first", "second"] {
            assert!(
                until(|| client.execute(&format!("write {path} 3 100000")).fault.is_none()),
                "{path} works on"
            );
            assert!(
                until(|| client.execute(&format!("sync {path}")).fault.is_none()),
                "what was lost is told, once"
            );
            client.execute(&format!("check {path} 3 100000")).ok();
        }
        assert_eq!(client.end(), 0, "it ended by itself");
        world.ok(&["down", "s", "--destroy"]);
    }
}

#[test]
fn a_program_may_fork_while_files_are_open() {
    let world = CliFixture::new();
    let Some(foreign) = foreign(&world) else { return };
    world.up("s", 2);
    for transport in TRANSPORTS {
        let mut command = program(&world);
        command.args(["--exact", "--nocapture", "linked::child_forks"]).env(FORK, "s");
        command.env("LD_PRELOAD", &foreign).env("PARIO_TRANSPORT", transport);
        let said = said(&command.output().unwrap());
        assert_eq!(said.code, 0, "{transport}: {said:?}");
        assert_eq!(said.err, "child: done\nparent: done\n", "{transport}: {}", said.out);
        world.ok(&["rm", "pario://s/parent", "pario://s/child"]);
    }
    assert_eq!(world.processes().len(), 2, "the servers go on");
}

/// Not a test of its own: a program that forks.
#[test]
fn child_forks() {
    let Some(name) = std::env::var_os(FORK) else { return };
    let name = name.to_str().unwrap();
    let partition = Partition::mount(name).unwrap();
    let file = partition.options().create(true).read(true).write(true).open("parent").unwrap();
    // Small writes stay in the outbox, under a lease, across the fork.
    for at in 0..10 {
        file.write_at(at * 1000, &[7; 1000]).unwrap();
    }
    match i32::try_from(std::os::unix::process::parent_id()).unwrap() {
        0 => {
            let part = std::panic::AssertUnwindSafe(|| in_child(name, partition, file));
            std::process::exit(if std::panic::catch_unwind(part).is_ok() { CHILD_DONE } else { 1 });
        }
        child => in_parent(child, &partition, file),
    }
}

/// What was opened before is the parent's; what is opened now works, and also reads what the parent wrote behind.
fn in_child(name: &str, parents: Partition, file: pario::File) {
    for refused in [file.write_at(0, b"x"), file.read_at(0, &mut [0]).map(drop), file.sync()] {
        let text = refused.expect_err("it is the parent's").to_string();
        assert!(text.contains("mount it again after fork"), "{text}");
    }
    assert!(parents.metadata("parent").is_err() && parents.create("child").is_err());
    drop((file, parents));
    let own = Partition::mount(name).unwrap();
    let mut found = vec![0; 10_000];
    own.open("parent").unwrap().read_exact_at(0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 7));
    let file = own.create("child").unwrap();
    file.write_at(0, b"from the child").unwrap();
    file.close().unwrap();
    eprintln!("child: done");
}

/// Nothing has changed for the parent.
fn in_parent(child: i32, partition: &Partition, file: pario::File) {
    let mut ended = None;
    let gone = until(|| {
        ended = waitpid(Pid::from_raw(child), WaitOptions::NOHANG).unwrap().map(|(_, status)| status);
        ended.is_some()
    });
    assert!(gone, "the child hangs");
    assert_eq!(ended.unwrap().exit_status(), Some(CHILD_DONE));
    file.write_at(10_000, &[8; 1000]).unwrap();
    file.sync().unwrap();
    let mut found = vec![0; 11_000];
    file.read_exact_at(0, &mut found).unwrap();
    assert!(found[..10_000].iter().all(|byte| *byte == 7) && found[10_000..].iter().all(|byte| *byte == 8));
    file.close().unwrap();
    let mut found = [0; 14];
    partition.open("child").unwrap().read_exact_at(0, &mut found).unwrap();
    assert_eq!(&found, b"from the child");
    eprintln!("parent: done");
}
