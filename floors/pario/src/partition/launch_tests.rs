//! Starting servers, with this test program as the server: a script stands for the `pario` command and runs
//! `fake_server`, which behaves as a file in the control directory says.

use super::*;
use crate::partition::claim::random_id;
use crate::partition::config::Layers;
use crate::partition::disk::{Deadline, pause};
use crate::partition::entry::{PartitionSecret, PartitionState, ServerProcess};
use crate::partition::identity::Identity;
use crate::partition::protocol::{Ready, ServerSide, detach, relay};
use crate::partition::server_log::{LOG_FILE, LogFile, ServerLog};
use std::fs;
use std::process::Command;

const CONTROL: &str = "PARIO_TEST_LAUNCH_CONTROL";
const LIMIT: Duration = Duration::from_secs(30);

/// Not a test of its own: the server that tests start.
#[test]
fn fake_server() {
    let Some(control) = std::env::var_os(CONTROL).map(PathBuf::from) else { return };
    let mut side = ServerSide::new(std::io::stdin(), std::io::stdout());
    let spec = side.spec().unwrap();
    let me = format!("{} {}", std::process::id(), ServerProcess::own().start_ticks);
    fs::write(control.join(format!("pid-{}", spec.index)), me).unwrap();
    let behaviour = fs::read_to_string(control.join(spec.index.to_string())).unwrap_or_default();
    if behaviour == "hang" {
        linger(&control);
    }
    if behaviour == "exit" {
        eprintln!("first words\nlast words\n");
        std::process::exit(3);
    }
    let holds = match spec.hold_directories() {
        Ok(holds) => holds,
        Err(error) => {
            side.failed(&error.to_string(), error.found()).unwrap();
            std::process::exit(1);
        }
    };
    let undo = |holds: Vec<crate::partition::HeldDirectory>| -> ! {
        holds.into_iter().for_each(|hold| hold.undo().unwrap());
        std::process::exit(1)
    };
    if behaviour == "fail" {
        side.failed("out of\nluck", None).unwrap();
        undo(holds);
    }
    side.ready(Ready::own(spec.index, Some(spec.dir.join("socket")), None)).unwrap();
    if behaviour == "hang after ready" {
        linger(&control);
    }
    let Ok(peers) = side.peers() else { undo(holds) };
    assert!(peers.iter().zip(&spec.settings.servers).all(|(peer, server)| peer.dir == server.dir));
    if behaviour == "exit after peers" {
        std::process::exit(4);
    }
    let Ok(()) = side.up() else { undo(holds) };
    detach(&ServerLog::default(), LogFile::open(&holds[0].opened).unwrap()).unwrap();
    linger(&control);
}

/// Lives until the test's directory is removed.
fn linger(control: &Path) -> ! {
    let end = Deadline::after(Duration::from_secs(120));
    while control.exists() && !end.has_passed() {
        pause(Duration::from_millis(5));
    }
    std::process::exit(0)
}

/// Not a test of its own: the command with `--background`.
#[test]
fn fake_relay() {
    let Some(control) = std::env::var_os(CONTROL).map(PathBuf::from) else { return };
    let mut server = Command::new(control.join("pario"));
    server.args(SERVE_ARGUMENTS);
    let code = relay(server, std::io::stdout()).unwrap();
    assert_eq!(code, std::process::ExitCode::SUCCESS);
}

/// Fixture of one test: control directory with the command, and data below.
struct LaunchFixture {
    root: tempfile::TempDir,
}

impl LaunchFixture {
    fn new() -> LaunchFixture {
        let stage = LaunchFixture { root: tempfile::tempdir().unwrap() };
        fs::create_dir(stage.control()).unwrap();
        fs::create_dir(stage.data()).unwrap();
        let program = std::env::current_exe().unwrap().display().to_string();
        let control = stage.control().display().to_string();
        stage.script(
            "pario",
            &format!(
                "what=fake_server\n[ \"$3\" = --background ] && what=fake_relay\n{CONTROL}='{control}' exec '{program}' \
                 --exact \"partition::launch::tests::$what\" --nocapture"
            ),
        );
        stage
    }

    fn control(&self) -> PathBuf {
        self.root.path().join("control")
    }

    fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    /// Written by a process of its own: a descriptor for writing that a neighbour's child inherits for a moment would
    /// make the script "busy".
    fn script(&self, name: &str, text: &str) {
        let mut writer = Command::new("sh")
            .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
            .arg(self.control().join(name))
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = writer.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, format!("#!/bin/sh\n{text}\n").as_bytes()).unwrap();
        drop(input);
        assert!(writer.wait().unwrap().success());
    }

    fn behave(&self, index: u16, how: &str) {
        fs::write(self.control().join(index.to_string()), how).unwrap();
    }

    /// A new partition with servers on these hosts; `""`: this machine.
    fn plan(&self, hosts: &[&str], more: &str) -> LaunchPlan {
        let server = |(at, host): (usize, &&str)| {
            let data = self.data().display().to_string();
            // Two machines share no directories.
            if *host == REMOTE {
                format!("\"{host}:{data}/remote/{at}\"")
            } else {
                let colon = if host.is_empty() { "" } else { ":" };
                format!("\"{host}{colon}{data}/x/{at}\"")
            }
        };
        let servers: Vec<String> = hosts.iter().enumerate().map(server).collect();
        let text = format!("name = \"x\"\nservers = [{}]\n{more}", servers.join(", "));
        let settings = Layers::new().text(&text, Path::new("p")).unwrap().check().unwrap();
        let entry = RegistryEntry {
            name: "x".into(),
            id: random_id(),
            epoch: 1,
            state: PartitionState::Starting,
            complete: false,
            created_unix_s: 0,
            home: own_host(),
            secret: PartitionSecret::random(),
            starter: Some(ServerProcess::own()),
            servers: vec![],
            settings,
        };
        LaunchPlan {
            entry,
            mode: StartMode::Fresh,
            binary: self.control().join("pario"),
            nodes: Vec::new(),
            living: Vec::new(),
            registry: self.control().join("registry"),
            anew: false,
            accept_loss: false,
        }
    }

    /// Every server process that ever began to serve here.
    fn processes(&self) -> Vec<ServerProcess> {
        let files = fs::read_dir(self.control()).unwrap().map(|entry| entry.unwrap());
        let pids = files.filter(|file| file.file_name().to_string_lossy().starts_with("pid-"));
        pids.map(|file| {
            let text = fs::read_to_string(file.path()).unwrap();
            let (pid, start_ticks) = text.split_once(' ').unwrap();
            ServerProcess { pid: pid.parse().unwrap(), start_ticks: start_ticks.parse().unwrap() }
        })
        .collect()
    }

    #[track_caller]
    fn check_nothing_left(&self) {
        wait_until("the servers end", || self.processes().iter().all(|process| !process.is_alive()));
        wait_until("the directories go", || fs::read_dir(self.data()).unwrap().count() == 0);
    }
}

#[track_caller]
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let end = Deadline::after(Duration::from_secs(30));
    while !condition() {
        assert!(!end.has_passed(), "waited too long until {what}");
        pause(Duration::from_millis(2));
    }
}

#[test]
fn all_come_up_and_serve_on_their_own() {
    let stage = LaunchFixture::new();
    let plan = stage.plan(&["", "localhost", "", ""], "");
    let launched = start_all(&plan, LIMIT).unwrap();
    assert_eq!(launched.servers().len(), 4);
    let servers = launched.commit();
    for (server, at) in servers.iter().zip(0..) {
        assert_eq!(server.index, ServerIndex(at));
        assert_eq!(server.unix, Some(server.dir.join("socket")));
        assert_eq!(Identity::read(&server.dir).unwrap().unwrap().made_directories, 2);
        wait_until("it has a session of its own", || session_of(server.pid) == server.pid);
        wait_until("its log is open", || server.dir.join(LOG_FILE).exists());
        assert!(server.process().is_alive());
    }
    check_secret_is_hidden(&plan, &servers);
}

fn check_secret_is_hidden(plan: &LaunchPlan, servers: &[ServerEntry]) {
    let digits = serde_json::to_string(&plan.entry.secret).unwrap();
    let digits = digits.trim_matches('"');
    for server in servers {
        for file in ["cmdline", "environ"] {
            let text = fs::read(format!("/proc/{}/{file}", server.pid)).unwrap();
            assert!(!text.is_empty());
            assert!(!String::from_utf8_lossy(&text).contains(digits), "the secret is in {file}");
        }
    }
}

#[test]
fn without_leave_they_go() {
    let stage = LaunchFixture::new();
    // The names' directory is apart from the servers', and goes as well.
    let names = stage.data().join("meta/m");
    let plan = stage.plan(&["", "", ""], &format!("metadata = \"{}\"", names.display()));
    let launched = start_all(&plan, LIMIT).unwrap();
    assert!(names.join("identity").exists());
    assert_eq!(stage.processes().iter().filter(|process| process.is_alive()).count(), 3);
    drop(launched);
    stage.check_nothing_left();
}

#[test]
fn those_that_fail_are_listed_and_the_others_go() {
    let stage = LaunchFixture::new();
    stage.behave(0, "fail");
    stage.behave(2, "exit");
    stage.behave(3, "hang");
    let plan = stage.plan(&["", "", "", ""], "");
    let error = start_all(&plan, Duration::from_secs(8)).unwrap_err();
    let message = error.to_string();
    let dir = |at: u16| stage.data().join(format!("x/{at}")).display().to_string();
    assert_eq!(
        message,
        format!(
            "partition 'x': 3 of 4 servers did not start: server 0 ({}): out of; luck; server 2 ({}): ended with exit \
             status: 3: last words; server 3 ({}): no answer within 8 s: running 1 test",
            dir(0),
            dir(2),
            dir(3)
        )
    );
    assert_eq!(error.found(), None);
    stage.check_nothing_left();
}

#[test]
fn one_that_fails_after_all_were_ready_takes_the_others_along() {
    for how in ["exit after peers", "hang after ready"] {
        let stage = LaunchFixture::new();
        stage.behave(1, how);
        let message =
            start_all(&stage.plan(&["", "", ""], ""), Duration::from_secs(6)).unwrap_err().to_string();
        assert!(message.contains("1 of 3 servers did not start: server 1"), "{message}");
        stage.check_nothing_left();
    }
}

#[test]
fn a_command_that_cannot_be_run_is_named() {
    let stage = LaunchFixture::new();
    let plan = LaunchPlan { binary: "/no/such/pario".into(), ..stage.plan(&["", ""], "") };
    let message = start_all(&plan, LIMIT).unwrap_err().to_string();
    assert!(
        message.contains("2 of 2") && message.contains("cannot run /no/such/pario: No such file"),
        "{message}"
    );
}

#[test]
fn directories_of_a_lost_partition_tell_who_they_are() {
    let stage = LaunchFixture::new();
    let old = stage.plan(&["", ""], "");
    let old_id = old.entry.id;
    for spec in old.specs() {
        drop(spec.hold_directories().unwrap());
    }
    let error = start_all(&stage.plan(&["", ""], ""), LIMIT).unwrap_err();
    assert!(error.to_string().contains("belongs to partition 'x'"), "{error}");
    assert_eq!(error.found(), Some(old_id));
    let plan = LaunchPlan { mode: StartMode::Existing, ..old };
    drop(start_all(&plan, LIMIT).unwrap());
    assert_eq!(
        Identity::read(&stage.data().join("x/0")).unwrap().unwrap().partition,
        old_id,
        "it is not ours to remove"
    );
}

const REMOTE: &str = "192.0.2.7";

#[test]
fn other_hosts_are_reached_by_the_launch_command() {
    let stage = LaunchFixture::new();
    let control = stage.control().display().to_string();
    stage.script(
        "shell",
        &format!("echo \"$1\" >> {control}/hosts\nshift\necho welcome to this machine\nexec \"$@\""),
    );
    let plan = stage.plan(&["", REMOTE], &format!("launch = \"{control}/shell {{host}} {{command}}\""));
    let servers = start_all(&plan, LIMIT).unwrap().commit();
    assert_eq!(fs::read_to_string(stage.control().join("hosts")).unwrap(), format!("{REMOTE}\n"));
    assert_eq!(servers[1].host.as_deref(), Some(REMOTE));
    check_secret_is_hidden(&plan, &servers);
    wait_until("the server lets go of the launch command", || {
        parent_of(servers[1].pid) != std::process::id()
    });
    wait_until("the launch command returns", || {
        reap();
        parent_of(servers[1].pid) != 0 && !parent_is_relay(servers[1].pid)
    });
    assert!(servers.iter().all(|server| server.process().is_alive()));
}

/// The parent of a process, from /proc.
fn parent_of(pid: u32) -> u32 {
    stat_field(pid, 4)
}

/// The session of a process, from /proc; 0 while that is one of another pid namespace, which `rustix::process::getsid` cannot represent.
fn session_of(pid: u32) -> u32 {
    stat_field(pid, 6)
}

/// A field of `/proc/PID/stat`, counted as `proc(5)` does; the fields after the name only.
fn stat_field(pid: u32, number: usize) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, after_name) = stat.rsplit_once(") ").unwrap();
    after_name.split_ascii_whitespace().nth(number - 3).unwrap().parse().unwrap()
}

fn parent_is_relay(pid: u32) -> bool {
    let command = fs::read(format!("/proc/{}/cmdline", parent_of(pid))).unwrap_or_default();
    String::from_utf8_lossy(&command).contains("fake_relay")
}

#[test]
fn a_launcher_can_keep_its_server() {
    let stage = LaunchFixture::new();
    let plan = stage.plan(&[REMOTE], "launch = \"env HOST={host} {foreground}\"");
    let servers = start_all(&plan, LIMIT).unwrap().commit();
    assert_eq!(parent_of(servers[0].pid), std::process::id(), "env became the server itself");
}

#[test]
fn a_launcher_that_fails_is_heard() {
    let stage = LaunchFixture::new();
    let plan =
        stage.plan(&["", REMOTE], "launch = \"sh -c 'echo no route to {host} >&2; exit 255; {command}'\"");
    let message = start_all(&plan, LIMIT).unwrap_err().to_string();
    assert!(
        message.contains("1 of 2") && message.contains("exit status: 255: no route to 192.0.2.7"),
        "{message}"
    );
    stage.check_nothing_left();
}

const STARTER: &str = "PARIO_TEST_LAUNCH_STARTER";

/// Not a test of its own: a starter that gets as far as everything being up, and waits to be killed.
#[test]
fn child_starts() {
    let Some(order) = std::env::var_os(STARTER) else { return };
    let plan = fs::read_to_string(&order).unwrap();
    let (binary, entry) = plan.split_once('\n').unwrap();
    let plan = LaunchPlan {
        entry: toml::from_str(entry).unwrap(),
        mode: StartMode::Fresh,
        binary: binary.into(),
        nodes: Vec::new(),
        living: Vec::new(),
        registry: "/tmp/registry".into(),
        anew: false,
        accept_loss: false,
    };
    let _launched = start_all(&plan, LIMIT).unwrap();
    fs::write(Path::new(&order).with_extension("up"), "").unwrap();
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
}

#[test]
fn a_starter_that_is_killed_leaves_nothing_behind() {
    let stage = LaunchFixture::new();
    let plan = stage.plan(&["", "", REMOTE], "launch = \"env HOST={host} {command}\"");
    let order = stage.control().join("order");
    fs::write(&order, format!("{}\n{}", plan.binary.display(), toml::to_string(&plan.entry).unwrap()))
        .unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "partition::launch::tests::child_starts"])
        .env(STARTER, &order)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_until("all are up", || order.with_extension("up").exists());
    assert_eq!(stage.processes().iter().filter(|process| process.is_alive()).count(), 3);
    child.kill().unwrap();
    child.wait().unwrap();
    stage.check_nothing_left();
}

#[test]
fn unix_sockets_stay_on_this_machine() {
    let stage = LaunchFixture::new();
    let message =
        start_all(&stage.plan(&["", REMOTE], "transport = \"unix\""), LIMIT).unwrap_err().to_string();
    assert_eq!(
        message,
        "partition 'x': transport = \"unix\" does not reach server 1 on 192.0.2.7: use \"auto\" or \"tcp\""
    );
}

#[test]
fn servers_listen_on_loopback_unless_hosts_are_named() {
    let stage = LaunchFixture::new();
    let listen = |hosts: &[&str], more: &str| -> Vec<Listen> {
        stage.plan(hosts, more).specs().into_iter().map(|spec| spec.listen).collect()
    };
    let tcp = |host: Option<&str>, port| Some(ListenTcp { host: host.map(str::to_owned), port });
    assert_eq!(
        listen(&["", "127.0.0.1"], "[network]\nport = 7000"),
        [Listen { unix: true, tcp: tcp(None, 7000) }, Listen { unix: true, tcp: tcp(None, 7001) }]
    );
    assert_eq!(listen(&[""], "transport = \"unix\""), [Listen { unix: true, tcp: None }]);
    assert_eq!(listen(&[""], "transport = \"tcp\""), [Listen { unix: false, tcp: tcp(None, 0) }]);
    let own = own_host();
    assert_eq!(
        listen(&["", REMOTE], ""),
        [Listen { unix: true, tcp: tcp(Some(&own), 0) }, Listen { unix: true, tcp: tcp(Some(REMOTE), 0) }]
    );
}
