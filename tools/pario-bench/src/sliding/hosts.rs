//! Several hosts on this machine: network namespaces joined by a switch, every link shaped to one speed in both directions, and
//! one more host that serves the file. Or hosts without a file, with this process as their switch.
//!
//! ```text
//!  host 1 ──┐                       each host is a process that holds its namespaces; it mounts the network file, and
//!  host 2 ──┼── switch ── file server     processes of the benchmark are started inside
//!  …        ┘
//! ```
//! Never: creates a name that outlives its process: namespaces, links, mounts end with their holders, and holders with the
//! benchmark. Always: each byte between two hosts crosses two shaped links.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};

use super::super::error::BenchError;
use super::remote::{FILE, mount, server};

/// An order to a host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum HostOrder {
    /// Report readiness.
    Hello,
    /// Serve a file to the others.
    Serve { path: PathBuf, at: Ipv4Addr },
    /// Mount the file of a server.
    Mount { server: SocketAddr, at: PathBuf, host: u64 },
}

/// Burst of a link, above the largest packet of the kernel.
const BURST: &str = "256kb";
/// Queue of a link, as in a switch; packets beyond it are dropped and retransmitted.
const QUEUE: &str = "2mb";
/// Marks this program as running in its own network namespace.
const OWN_NETWORK: &str = "PARIO_BENCH_OWN_NETWORK";
/// Programs that make the network.
const TOOLS: [(&str, &str); 4] =
    [("ip", "iproute2"), ("tc", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux")];

/// See the module.
#[derive(Debug)]
pub(crate) struct BenchHosts {
    hosts: Vec<HostHolder>,
    path: PathBuf,
    // Dropped after the hosts, which unmount first. `None` if the hosts share no file.
    _file_server: Option<[HostHolder; 2]>,
}

impl BenchHosts {
    /// `count` hosts with `file` at one common path, over links of this speed.
    pub(super) fn start(
        count: usize,
        link_bits_s: u64,
        file: &Path,
        place: &Path,
    ) -> Result<BenchHosts, BenchError> {
        let bench_dir = place.parent().unwrap_or(place);
        let switch = HostHolder::start(bench_dir)?;
        make_switch(switch.pid())?;
        let mut server = HostHolder::start(bench_dir)?;
        plug(switch.pid(), server.pid(), 0, link_bits_s)?;
        let said = server.send_order(&HostOrder::Serve { path: file.to_owned(), at: address(0) })?;
        let served =
            said.parse().map_err(|_| BenchError::Worker(format!("the file server said '{said}'")))?;
        let mut hosts = Vec::new();
        for number in 1..=count {
            let mut host = HostHolder::start(bench_dir)?;
            plug(switch.pid(), host.pid(), number, link_bits_s)?;
            host.send_order(&HostOrder::Mount { server: served, at: place.to_owned(), host: number as u64 })?;
            hosts.push(host);
        }
        Ok(BenchHosts { hosts, path: place.to_owned(), _file_server: Some([server, switch]) })
    }

    /// `count` hosts without a common file, joined by this process, which needs its own network namespace (see
    /// [`own_network`]): its children reach the hosts too, also after its end.
    pub(crate) fn bare(count: usize, link_bits_s: u64, bench_dir: &Path) -> Result<BenchHosts, BenchError> {
        let here = std::process::id();
        make_switch(here)?;
        inside(here, "ip", &["address", "add", &format!("{}/24", address(0)), "dev", "switch"])?;
        inside(here, "ip", &["link", "set", "lo", "up"])?;
        let mut hosts = Vec::new();
        for number in 1..=count {
            let host = HostHolder::start(bench_dir)?;
            plug(here, host.pid(), number, link_bits_s)?;
            hosts.push(host);
        }
        Ok(BenchHosts { hosts, path: bench_dir.to_owned(), _file_server: None })
    }

    /// The process that holds the namespaces of a host.
    pub(crate) fn holder(&self, host: usize) -> u32 {
        self.hosts[host].pid()
    }

    /// Address of a host.
    pub(crate) fn address(&self, host: usize) -> Ipv4Addr {
        assert!(host < self.hosts.len(), "a host that was started");
        address(host + 1)
    }

    /// The file's path on every host.
    pub(super) fn file(&self) -> PathBuf {
        self.path.join(FILE)
    }
}

/// Addresses exist inside the namespaces only.
fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 79, 1, u8::try_from(number + 1).unwrap_or(u8::MAX))
}

fn make_switch(pid: u32) -> Result<(), BenchError> {
    inside(pid, "ip", &["link", "add", "switch", "type", "bridge"])?;
    inside(pid, "ip", &["link", "set", "switch", "up"])
}

/// Joins a host to the switch by a link of this speed.
fn plug(switch: u32, host: u32, number: usize, bits_s: u64) -> Result<(), BenchError> {
    let (port, pid) = (format!("port{number}"), host.to_string());
    let link = ["link", "add", &port, "type", "veth", "peer", "name", "cable", "netns", &pid];
    inside(switch, "ip", &link)?;
    inside(switch, "ip", &["link", "set", &port, "master", "switch", "up"])?;
    inside(host, "ip", &["address", "add", &format!("{}/24", address(number)), "dev", "cable"])?;
    inside(host, "ip", &["link", "set", "lo", "up"])?;
    inside(host, "ip", &["link", "set", "cable", "up"])?;
    let rate = format!("{bits_s}bit");
    for (end, device) in [(switch, port.as_str()), (host, "cable")] {
        let shape =
            ["qdisc", "add", "dev", device, "root", "tbf", "rate", &rate, "burst", BURST, "limit", QUEUE];
        inside(end, "tc", &shape)?;
    }
    Ok(())
}

/// Runs a command in the network of a process.
fn inside(pid: u32, tool: &str, words: &[&str]) -> Result<(), BenchError> {
    let output = Command::new("nsenter")
        .args(["--target", &pid.to_string(), "--net", "--", tool])
        .args(words)
        .output()
        .map_err(BenchError::when("entering a host"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(BenchError::Worker(format!("{tool} {}: {}", words.join(" "), said.trim())))
}

/// Executes this program again with the same arguments in its own network namespace, unless it has one.
pub(crate) fn own_network() -> Result<(), BenchError> {
    if std::env::var_os(OWN_NETWORK).is_some() {
        return Ok(());
    }
    check_tools()?;
    let program = std::env::current_exe().map_err(BenchError::when("looking for this program"))?;
    let error = Command::new("unshare")
        .args(["--net", "--"])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(OWN_NETWORK, "1")
        .exec();
    Err(BenchError::when("making a network")(error))
}

/// Checks whether hosts can be created; the error names the cure.
pub(super) fn check_machine() -> Result<(), BenchError> {
    check_tools()?;
    if !Path::new("/dev/fuse").exists() {
        let text = "/dev/fuse is missing: the hosts reach their file through FUSE; load the module fuse, or use --hosts 1";
        return Err(BenchError::Worker(text.to_owned()));
    }
    Ok(())
}

fn check_tools() -> Result<(), BenchError> {
    let refuse = |text: String| Err(BenchError::Worker(text));
    if !rustix::process::geteuid().is_root() {
        return refuse("several hosts are network namespaces, which only root can make: run it as root, or with --hosts 1".to_owned());
    }
    for (tool, package) in TOOLS {
        let found = Command::new(tool).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if found.is_err() {
            return refuse(format!("'{tool}' is missing: install the package {package}, or use --hosts 1"));
        }
    }
    Ok(())
}

/// A process that holds the namespaces of a host, and executes orders there.
#[derive(Debug)]
struct HostHolder {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl HostHolder {
    /// `bench_dir`: the benchmark's directory, on the command line so that users can identify the process.
    fn start(bench_dir: &Path) -> Result<HostHolder, BenchError> {
        let program = std::env::current_exe().map_err(BenchError::when("looking for this program"))?;
        let mut child = Command::new("unshare")
            .args(["--net", "--mount", "--propagation", "private", "--"])
            .arg(program)
            .arg("host")
            .arg(bench_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(BenchError::when("starting a host"))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let mut holder = HostHolder { child, input, output };
        // Once it answers, the namespaces exist.
        holder.send_order(&HostOrder::Hello)?;
        Ok(holder)
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends an order; returns the answer.
    fn send_order(&mut self, order: &HostOrder) -> Result<String, BenchError> {
        let mut line = serde_json::to_string(order).expect("orders are plain data");
        line.push('\n');
        let input = self.input.as_mut().expect("open until the host is dropped");
        input.write_all(line.as_bytes()).map_err(BenchError::when("telling a host what to do"))?;
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(BenchError::when("waiting for a host"))?;
        let said: Result<String, String> = serde_json::from_str(&line)
            .map_err(|_| BenchError::Worker("a host ended before it was ready".to_owned()))?;
        said.map_err(BenchError::Worker)
    }
}

impl Drop for HostHolder {
    fn drop(&mut self) {
        drop(self.input.take());
        if let Err(error) = self.child.wait() {
            tracing::warn!(%error, "a host cannot be waited for");
        }
    }
}

/// Body of a host: executes orders until its input ends; then its namespaces and mounts end.
pub(crate) fn serve() -> Result<(), BenchError> {
    // The network ends with the benchmark.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(BenchError::when("waiting for orders"))?;
        let said: Result<String, String> = match serde_json::from_str(&line) {
            Ok(order) => carry_out(&order).map_err(|error| error.to_string()),
            Err(error) => Err(format!("unknown order: {error}")),
        };
        let mut answer = serde_json::to_string(&said).expect("answers are plain data");
        answer.push('\n');
        let mut output = std::io::stdout().lock();
        output
            .write_all(answer.as_bytes())
            .and_then(|()| output.flush())
            .map_err(BenchError::when("answering"))?;
    }
    Ok(())
}

fn carry_out(order: &HostOrder) -> Result<String, BenchError> {
    match order {
        HostOrder::Hello => Ok(String::new()),
        HostOrder::Serve { path, at } => {
            let address = server::start(path, *at).map_err(BenchError::at("serving", path))?;
            Ok(address.to_string())
        }
        HostOrder::Mount { server, at, host } => {
            mount::start(*server, at, *host).map_err(BenchError::at("mounting the network file at", at))?;
            Ok(String::new())
        }
    }
}
