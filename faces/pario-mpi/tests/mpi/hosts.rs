//! Two hosts as network namespaces under one `mpiexec`: a partition with a server on each, ranks on both.
//!
//! Always: names are unique to this process; when the hosts end, also by a failed test, their processes, namespaces and files are
//! removed.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::fixture::{MpiFixture, ProgramRun};
use crate::installations::{MpiInstallation, install, output, target};

/// They exist inside the namespaces only.
const ADDRESSES: [&str; 2] = ["10.78.1.1", "10.78.1.2"];

struct TwoHosts {
    world: MpiFixture,
    spaces: [String; 2],
}

impl TwoHosts {
    /// Two hosts, or `None` with a message where namespaces are unavailable.
    fn new(installation: MpiInstallation) -> Option<TwoHosts> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if std::env::var_os("PARIO_TEST_SKIP_NETNS").is_some() || !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED, no network namespaces: not root, or PARIO_TEST_SKIP_NETNS is set");
            return None;
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let space = |letter: char| format!("pario-mpi-{}-{count}{letter}", std::process::id());
        // From here on a failure cleans up, since `drop` knows the names.
        let hosts = TwoHosts { world: MpiFixture::new(installation), spaces: [space('a'), space('b')] };
        hosts.connect();
        hosts.furnish();
        Some(hosts)
    }

    fn connect(&self) {
        let [a, b] = &self.spaces;
        let ip = |words: &[&str]| drop(output(Command::new("ip").args(words)));
        ip(&["netns", "add", a]);
        ip(&["netns", "add", b]);
        ip(&["link", "add", "cable", "netns", a, "type", "veth", "peer", "name", "cable", "netns", b]);
        for (space, address) in self.spaces.iter().zip(ADDRESSES) {
            ip(&["-n", space, "address", "add", &format!("{address}/24"), "dev", "cable"]);
            ip(&["-n", space, "link", "set", "lo", "up"]);
            ip(&["-n", space, "link", "set", "cable", "up"]);
        }
    }

    /// The script that enters a host, as `ssh` would: launchers call it with options, a host and a command. Each host has its own
    /// names, and a label, since all share the kernel and its `/proc`, through which memory is found.
    fn furnish(&self) {
        let names = self.world.path("names");
        let mut list = "127.0.0.1 localhost\n".to_owned();
        let mut script = "#!/bin/sh\nwhile case $1 in -*) true ;; *) false ;; esac; do shift; done\nhost=$1\nshift\ncase $host in\n".to_owned();
        for (at, (space, address)) in self.spaces.iter().zip(ADDRESSES).enumerate() {
            let temporary = self.world.path(&format!("tmp-{at}"));
            std::fs::create_dir(&temporary).unwrap();
            writeln!(list, "{address} host-{at}").unwrap();
            let names = format!("space={space} name=host-{at} tmp={}", temporary.display());
            writeln!(script, "{address}|host-{at}) {names} ;;").unwrap();
        }
        std::fs::write(&names, list).unwrap();
        write!(
            script,
            "*) echo \"no such host: $host\" >&2; exit 1 ;;\nesac\nexport PARIO_NODE=$name TMPDIR=$tmp\n\
             exec ip netns exec $space unshare --uts sh -c \
             'hostname \"$0\" && mount --bind {} /etc/hosts && exec sh -c \"$*\"' $name \"$@\"\n",
            names.display()
        )
        .unwrap();
        let enter = self.world.path("enter");
        install(&script, &enter);
    }

    /// A command on the first host.
    fn on_first(&self, words: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "240"]).arg(self.world.path("enter")).arg(ADDRESSES[0]).arg(words);
        command.env("PARIO_REGISTRY", self.world.path("registry")).current_dir(self.world.path(""));
        command.stdin(Stdio::null());
        command
    }

    /// Starts `two`, with a server on each host.
    fn up(&self) {
        let servers = ADDRESSES.map(|address| format!("{address}:{}", self.storage(address).display()));
        let launch = format!("{} {{host}} {{command}}", self.world.path("enter").display());
        let file = format!("name = \"two\"\nstripe = \"4KiB\"\nservers = {servers:?}\nlaunch = {launch:?}\n");
        std::fs::write(self.world.path("two.toml"), file).unwrap();
        output(&mut self.on_first(&format!("{} up two.toml", target().join("pario").display())));
    }

    fn storage(&self, address: &str) -> std::path::PathBuf {
        self.world.path(&format!("storage-{address}"))
    }

    /// Runs a program with two ranks on each host.
    fn mpiexec(&self, program: &Path) -> ProgramRun {
        let (installation, enter) = (self.world.installation, self.world.path("enter"));
        let mut words = vec![installation.launcher().display().to_string()];
        let hosts = ADDRESSES.map(|address| format!("{address}:2")).join(",");
        let options = match installation {
            MpiInstallation::OpenMpi | MpiInstallation::OpenMpi5 => format!(
                "--host {hosts} --mca plm_rsh_agent {} --mca btl_tcp_if_include cable --mca oob_tcp_if_include cable",
                enter.display()
            ),
            MpiInstallation::Mpich
            | MpiInstallation::Mpich5
            | MpiInstallation::Standard
            | MpiInstallation::Intel => {
                format!("-hosts {hosts} -iface cable -launcher ssh -launcher-exec {}", enter.display())
            }
        };
        // Launchers may give all ranks the environment of their own host.
        let each = |at: usize| {
            let (program, dir) = (program.display(), self.world.path(""));
            format!("-n 2 env PARIO_NODE=host-{at} {program} pario://two/ {}", dir.display())
        };
        words.extend([options, format!("{} : {}", each(0), each(1))]);
        let mut command = self.on_first(&words.join(" "));
        installation.settings(&mut command);
        for name in ["HYDRA_IFACE", "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include"] {
            command.env_remove(name);
        }
        command.env("FI_TCP_IFACE", "cable").env("UCX_NET_DEVICES", "cable");
        command.env("LD_PRELOAD", installation.preload()).env("PARIO_STATS", "1").env("PARIO_EXPLAIN", "1");
        command.env("PARIO_CACHE", "1");
        ProgramRun::of(&mut command)
    }
}

impl Drop for TwoHosts {
    fn drop(&mut self) {
        for space in &self.spaces {
            let pids = Command::new("ip").args(["netns", "pids", space]).output();
            let pids = pids.map(|ran| String::from_utf8_lossy(&ran.stdout).into_owned()).unwrap_or_default();
            for pid in pids.lines() {
                let _ = Command::new("kill").args(["-KILL", pid]).output();
            }
            let _ = Command::new("ip").args(["netns", "delete", space]).output();
        }
    }
}

fn on_two_hosts(installation: MpiInstallation) {
    let Some(hosts) = TwoHosts::new(installation) else { return };
    let options = ["-std=c99", "-Wno-unused-function"];
    let program = hosts.world.compile(&installation.compiler(), "c/access.c", &options);
    hosts.up();
    let ran = hosts.mpiexec(&program);
    let name = installation.name();
    assert!(ran.ok && ran.out.contains(", 0 failures"), "{name}: {}\n{}", ran.out, ran.complaints());
    assert!(4 * 5 <= ran.served_call("open"), "{name}: {}", ran.err);
    assert!(4 <= ran.served_call("write_all"), "{name}: {}", ran.err);
    // Ranks of both hosts took part, and both servers have some of the data.
    let down = format!("{} --json status two", target().join("pario").display());
    let status: serde_json::Value = serde_json::from_str(&output(&mut hosts.on_first(&down))).unwrap();
    let healthy = status[0]["servers"].as_array().unwrap().iter().filter(|server| server["health"] == "ok");
    assert_eq!(healthy.count(), 2, "{status}");
    for address in ADDRESSES {
        let objects = hosts.storage(address).join("objects");
        assert!(objects.exists(), "{}", objects.display());
    }
    output(&mut hosts.on_first(&format!("{} down two --destroy", target().join("pario").display())));
}

#[test]
fn two_hosts_under_one_mpiexec_netns_mpich() {
    on_two_hosts(MpiInstallation::Mpich);
}

#[test]
fn two_hosts_under_one_mpiexec_netns_open_mpi() {
    on_two_hosts(MpiInstallation::OpenMpi);
}
