//! Two hosts on one machine: network namespaces joined by a cable, each with a disk of its own at one and the same path.
//!
//! Always: names are this process's own; when the hosts end, also by a failed test, their processes, namespaces and files go.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;

use crate::support::{CliFixture, CommandOutput, kill, said, until};

/// Addresses of the hosts; they exist inside the namespaces only.
pub(crate) const ADDRESSES: [&str; 2] = ["10.77.1.1", "10.77.1.2"];

/// One of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TestHost {
    A,
    B,
}

impl TestHost {
    pub(crate) const BOTH: [TestHost; 2] = [TestHost::A, TestHost::B];

    pub(crate) fn at(self) -> usize {
        match self {
            TestHost::A => 0,
            TestHost::B => 1,
        }
    }

    pub(crate) fn address(self) -> &'static str {
        ADDRESSES[self.at()]
    }

    pub(crate) fn other(self) -> TestHost {
        match self {
            TestHost::A => TestHost::B,
            TestHost::B => TestHost::A,
        }
    }
}

/// See the module.
pub(crate) struct TestHosts {
    pub(crate) world: CliFixture,
    spaces: [String; 2],
}

impl TestHosts {
    /// Two hosts, or `None` with a message where they cannot be created.
    pub(crate) fn new() -> Option<TestHosts> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let skip = |why: &str| {
            eprintln!("SKIPPED, no network namespaces: {why}");
            None
        };
        if std::env::var_os("PARIO_TEST_SKIP_NETNS").is_some() {
            return skip("PARIO_TEST_SKIP_NETNS is set");
        }
        if !rustix::process::geteuid().is_root() {
            return skip("not root");
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let space = |letter: char| format!("pario-{}-{count}{letter}", std::process::id());
        // From here on a failure tidies up, since `drop` knows the names.
        let hosts = TestHosts { world: CliFixture::new(), spaces: [space('a'), space('b')] };
        hosts.connect();
        hosts.furnish();
        Some(hosts)
    }

    fn connect(&self) {
        let [a, b] = &self.spaces;
        ip(&["netns", "add", a]);
        ip(&["netns", "add", b]);
        ip(&["link", "add", "cable", "netns", a, "type", "veth", "peer", "name", "cable", "netns", b]);
        for (space, address) in self.spaces.iter().zip(ADDRESSES) {
            ip(&["-n", space, "address", "add", &format!("{address}/24"), "dev", "cable"]);
            ip(&["-n", space, "link", "set", "lo", "up"]);
            ip(&["-n", space, "link", "set", "cable", "up"]);
        }
    }

    /// A disk per host, and the script by which one gets onto a host, which is also the launch command. All hosts have the name
    /// of this machine, and it means the first of them.
    fn furnish(&self) {
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        std::fs::create_dir(self.world.path("disk")).unwrap();
        std::fs::write(self.world.path("names"), format!("127.0.0.1 localhost\n{} {own}\n", ADDRESSES[0]))
            .unwrap();
        let mut script = "#!/bin/sh\nhost=$1\nshift\ncase $host in\n".to_owned();
        for host in TestHost::BOTH {
            std::fs::create_dir(self.disk(host)).unwrap();
            let (space, disk) = (&self.spaces[host.at()], self.disk(host));
            writeln!(script, "{}) space={space} disk={} ;;", host.address(), disk.display()).unwrap();
        }
        let (place, names) = (self.world.text("disk"), self.world.text("names"));
        write!(
            script,
            "*) echo \"no such host: $host\" >&2; exit 1 ;;\nesac\n\
             exec ip netns exec $space sh -c 'mount --bind \"$0\" {place} && mount --bind {names} /etc/hosts && exec \"$@\"' $disk \"$@\"\n"
        )
        .unwrap();
        self.write_script("enter", &script);
    }

    /// Where a host's disk really is.
    pub(crate) fn disk(&self, host: TestHost) -> PathBuf {
        self.world.path(format!("disk-{}", host.at()))
    }

    /// A command line of this world, to be run on a host.
    pub(crate) fn on<S: AsRef<OsStr>>(
        &self,
        host: TestHost,
        program: impl AsRef<OsStr>,
        words: &[S],
    ) -> Command {
        let pario = self.world.command();
        let mut command = Command::new(self.world.path("enter"));
        command
            .arg(host.address())
            .arg(program)
            .args(words)
            .current_dir(self.world.path(""))
            .stdin(std::process::Stdio::null());
        for (name, value) in pario.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(run) = std::env::var_os("PARIO_TEST_RUN") {
            command.env("PARIO_TEST_RUN", run);
        }
        command
    }

    /// Runs `pario` on a host.
    pub(crate) fn pario<S: AsRef<OsStr>>(&self, host: TestHost, words: &[S]) -> CommandOutput {
        said(&self.on(host, env!("CARGO_BIN_EXE_pario"), words).output().expect("pario runs"))
    }

    /// Runs it and insists on success without complaint.
    #[track_caller]
    pub(crate) fn ok<S: AsRef<OsStr>>(&self, host: TestHost, words: &[S]) -> String {
        let said = self.pario(host, words);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "on {host:?}: {said:?}");
        said.out
    }

    /// Runs it with `--json`.
    #[track_caller]
    pub(crate) fn json(&self, host: TestHost, words: &[&str]) -> serde_json::Value {
        let words: Vec<&str> = ["--json"].iter().chain(words).copied().collect();
        serde_json::from_str(&self.ok(host, &words)).expect("--json prints JSON")
    }

    /// Brings `two` up from the first host, with servers such as `{A}:/dir` on the given directories.
    #[track_caller]
    pub(crate) fn up(&self, servers: &[String]) {
        self.up_by(servers, "enter", &[]);
    }

    /// The usual partition on hosts that carry labels. They share the kernel here, and with it `/proc`, through which memory is found:
    /// labels keep it apart as separate machines would. The script `enter-node` gets one onto a host, with its label.
    #[track_caller]
    pub(crate) fn up_labelled(&self) {
        let script =
            format!("#!/bin/sh\nexport PARIO_NODE=\"$1\"\nexec {} \"$@\"\n", self.world.text("enter"));
        self.write_script("enter-node", &script);
        let dir = self.world.text("disk/data");
        let servers = ADDRESSES.map(|address| format!("{address}:{dir}"));
        // The first host's own server is not launched by a script.
        self.up_by(&servers, "enter-node", &[("PARIO_NODE", ADDRESSES[0])]);
    }

    #[track_caller]
    fn up_by(&self, servers: &[String], script: &str, labels: &[(&str, &str)]) {
        let list: Vec<String> = servers.iter().map(|server| format!("{server:?}")).collect();
        let launch = format!("{} {{host}} {{command}}", self.world.text(script));
        let file = format!(
            "name = \"two\"\nstripe = \"64KiB\"\nservers = [{}]\nlaunch = {launch:?}\n",
            list.join(", ")
        );
        std::fs::write(self.world.path("two.toml"), file).unwrap();
        let mut command = self.on(TestHost::A, env!("CARGO_BIN_EXE_pario"), &["up", "two.toml"]);
        let said = said(&command.envs(labels.iter().copied()).output().expect("pario runs"));
        let ready = format!("two: {} servers ready", servers.len());
        assert!(said.code == 0 && said.err.is_empty() && said.out.starts_with(&ready), "{said:?}");
    }

    /// A program of this world.
    pub(crate) fn write_script(&self, name: &str, text: &str) {
        install(text, &self.world.path(name));
    }

    /// The usual partition: a server on each host, in directories with one path.
    #[track_caller]
    pub(crate) fn up_same_path(&self) {
        let dir = self.world.text("disk/data");
        self.up(&ADDRESSES.map(|address| format!("{address}:{dir}")));
    }

    /// Process numbers of the servers, in order.
    pub(crate) fn server_pids(&self) -> Vec<i32> {
        let status = self.json(TestHost::A, &["status", "two"]);
        let pid = |server: &serde_json::Value| i32::try_from(server["pid"].as_i64().unwrap()).unwrap();
        status[0]["servers"].as_array().unwrap().iter().map(pid).collect()
    }

    /// Pulls the cable, or plugs it in.
    pub(crate) fn set_cable(&self, state: &str) {
        ip(&["-n", &self.spaces[0], "link", "set", "cable", state]);
    }

    /// Processes on both hosts.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let pids = |space: &String| {
            let output = Command::new("ip").args(["netns", "pids", space]).output().expect("ip runs");
            String::from_utf8_lossy(&output.stdout)
                .lines()
                .filter_map(|line| line.parse().ok())
                .collect::<Vec<i32>>()
        };
        self.spaces.iter().flat_map(pids).collect()
    }

    /// No process, no file on either disk, no entry.
    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        assert!(until(|| self.processes().is_empty()), "processes are left: {:?}", self.processes());
        for host in TestHost::BOTH {
            assert_eq!(self.world.tree(&format!("disk-{}", host.at())), Vec::<String>::new(), "on {host:?}");
        }
        self.world.assert_nothing_left();
    }
}

impl Drop for TestHosts {
    fn drop(&mut self) {
        // By force and without the registry: outside the namespaces, the hosts' addresses may belong to other machines.
        let _ = std::fs::remove_file(self.world.registry());
        until(|| {
            let left = self.processes();
            left.iter().for_each(|pid| kill(*pid, Signal::KILL));
            left.is_empty()
        });
        for space in &self.spaces {
            let _ = Command::new("ip").args(["netns", "delete", space]).output();
        }
    }
}

#[track_caller]
fn ip(words: &[&str]) {
    let said = said(&Command::new("ip").args(words).output().expect("ip is there, package iproute2"));
    assert_eq!(said.code, 0, "ip {}: {}", words.join(" "), said.err);
}

/// Makes a script that can be run. Another process writes it: one that a test forks at that moment would hold it open, and it could not be
/// run ("text file busy").
pub(crate) fn install(text: &str, program: &Path) {
    let source = program.with_extension("text");
    std::fs::write(&source, text).unwrap();
    install_copy(&source, program);
}

/// The same of a program that is there.
pub(crate) fn install_copy(source: &Path, program: &Path) {
    let made = Command::new("install").args(["-m", "755"]).args([source, program]).status().unwrap();
    assert!(made.success(), "{}", program.display());
}
