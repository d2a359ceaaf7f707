//! Several hosts on this machine: network namespaces joined by a switch, every link shaped to one speed in both directions, and one more
//! host that serves the file.
//!
//! ```text
//!  host 1 ──┐                       each host is a process that holds its namespaces; it mounts the network file, and
//!  host 2 ──┼── switch ── file server     processes of the benchmark are started inside
//!  …        ┘
//! ```
//! Never: gives anything a name that outlives its process: namespaces, links, mounts end with their holders, and holders with the
//! benchmark, however it ends. Always: each byte between two hosts crosses two shaped links.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};

use super::super::error::BenchError;
use super::remote::{FILE, mount, server};

/// What a host is told.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Say that you are there.
    Hello,
    /// Serve a file to the others.
    Serve { path: PathBuf, at: Ipv4Addr },
    /// Mount what is served there.
    Mount { server: SocketAddr, at: PathBuf, host: u64 },
}

/// Bytes that a link lets through at once, more than the largest packet that the kernel hands over.
const BURST: &str = "256kb";
/// Bytes that wait at a link, as in a switch; what comes beyond is lost and sent again.
const QUEUE: &str = "2mb";
/// Programs that make the network.
const TOOLS: [(&str, &str); 4] =
    [("ip", "iproute2"), ("tc", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux")];

/// See the module.
#[derive(Debug)]
pub(super) struct Hosts {
    hosts: Vec<Holder>,
    place: PathBuf,
    // After the hosts: they let go first.
    _server: Holder,
    _switch: Holder,
}

impl Hosts {
    /// So many hosts that see `file` at one and the same path, over links of that speed.
    pub(super) fn start(
        count: usize,
        link_bits_s: u64,
        file: &Path,
        place: &Path,
    ) -> Result<Hosts, BenchError> {
        let whose = place.parent().unwrap_or(place);
        let switch = Holder::start(whose)?;
        switch.inside("ip", &["link", "add", "switch", "type", "bridge"])?;
        switch.inside("ip", &["link", "set", "switch", "up"])?;
        let mut server = Holder::start(whose)?;
        plug(&switch, &server, 0, link_bits_s)?;
        let said = server.tell(&Order::Serve { path: file.to_owned(), at: address(0) })?;
        let served =
            said.parse().map_err(|_| BenchError::Worker(format!("the file server said '{said}'")))?;
        let mut hosts = Vec::new();
        for number in 1..=count {
            let mut host = Holder::start(whose)?;
            plug(&switch, &host, number, link_bits_s)?;
            host.tell(&Order::Mount { server: served, at: place.to_owned(), host: number as u64 })?;
            hosts.push(host);
        }
        Ok(Hosts { hosts, place: place.to_owned(), _server: server, _switch: switch })
    }

    /// The process inside whose namespaces those of a host are started.
    pub(super) fn holder(&self, host: usize) -> u32 {
        self.hosts[host].child.id()
    }

    /// The file, as every host sees it.
    pub(super) fn file(&self) -> PathBuf {
        self.place.join(FILE)
    }
}

/// Addresses exist inside the namespaces only.
fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 79, 1, u8::try_from(number + 1).unwrap_or(u8::MAX))
}

/// Joins a host to the switch by a link of that speed.
fn plug(switch: &Holder, host: &Holder, number: usize, bits_s: u64) -> Result<(), BenchError> {
    let (port, pid) = (format!("port{number}"), host.child.id().to_string());
    let link = ["link", "add", &port, "type", "veth", "peer", "name", "cable", "netns", &pid];
    switch.inside("ip", &link)?;
    switch.inside("ip", &["link", "set", &port, "master", "switch", "up"])?;
    host.inside("ip", &["address", "add", &format!("{}/24", address(number)), "dev", "cable"])?;
    host.inside("ip", &["link", "set", "lo", "up"])?;
    host.inside("ip", &["link", "set", "cable", "up"])?;
    let rate = format!("{bits_s}bit");
    for (end, device) in [(switch, port.as_str()), (host, "cable")] {
        let shape =
            ["qdisc", "add", "dev", device, "root", "tbf", "rate", &rate, "burst", BURST, "limit", QUEUE];
        end.inside("tc", &shape)?;
    }
    Ok(())
}

/// Whether hosts can be had at all, in words that say what to do.
pub(super) fn check_machine() -> Result<(), BenchError> {
    let refuse = |text: String| Err(BenchError::Worker(text));
    if !rustix::process::geteuid().is_root() {
        return refuse("several hosts are network namespaces, which only root can make: run it as root, or with --hosts 1".to_owned());
    }
    if !Path::new("/dev/fuse").exists() {
        return refuse("/dev/fuse is missing: the hosts reach their file through FUSE; load the module fuse, or use --hosts 1".to_owned());
    }
    for (tool, package) in TOOLS {
        let found = Command::new(tool).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if found.is_err() {
            return refuse(format!("'{tool}' is missing: install the package {package}, or use --hosts 1"));
        }
    }
    Ok(())
}

/// A process that holds the namespaces of a host, and does what it is told there.
#[derive(Debug)]
struct Holder {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Holder {
    /// `whose`: the benchmark's directory, by which people tell whose host a process is.
    fn start(whose: &Path) -> Result<Holder, BenchError> {
        let program = std::env::current_exe().map_err(BenchError::when("looking for this program"))?;
        let mut child = Command::new("unshare")
            .args(["--net", "--mount", "--propagation", "private", "--"])
            .arg(program)
            .args(["bench", "host"])
            .arg(whose)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(BenchError::when("starting a host"))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let mut holder = Holder { child, input, output };
        // From its answer on, the namespaces are there.
        holder.tell(&Order::Hello)?;
        Ok(holder)
    }

    /// Runs a command in the network of this host.
    fn inside(&self, tool: &str, words: &[&str]) -> Result<(), BenchError> {
        let pid = self.child.id().to_string();
        let output = Command::new("nsenter")
            .args(["--target", &pid, "--net", "--", tool])
            .args(words)
            .output()
            .map_err(BenchError::when("entering a host"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(BenchError::Worker(format!("{tool} {}: {}", words.join(" "), said.trim())))
    }

    /// Tells it what to do; what it says.
    fn tell(&mut self, order: &Order) -> Result<String, BenchError> {
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

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.input.take());
        if let Err(error) = self.child.wait() {
            tracing::warn!(%error, "a host cannot be waited for");
        }
    }
}

/// The body of a host: does what it is told until its input ends; then everything that it held is gone.
pub(crate) fn serve() -> Result<(), BenchError> {
    // Without the benchmark nobody wants the network.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(BenchError::when("waiting for orders"))?;
        let said: Result<String, String> = match serde_json::from_str(&line) {
            Ok(order) => carry_out(&order).map_err(|error| error.to_string()),
            Err(error) => Err(format!("an order that nobody understands: {error}")),
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

fn carry_out(order: &Order) -> Result<String, BenchError> {
    match order {
        Order::Hello => Ok(String::new()),
        Order::Serve { path, at } => {
            let address = server::start(path, *at).map_err(BenchError::at("serving", path))?;
            Ok(address.to_string())
        }
        Order::Mount { server, at, host } => {
            mount::start(*server, at, *host).map_err(BenchError::at("mounting the network file at", at))?;
            Ok(String::new())
        }
    }
}
