//! A group with ranks on two hosts: every collective method, verified against a byte array, without shared memory between hosts.
//!
//! Ranks are this test binary again, [`child_rank`], started by `pario run`; the script `rank` moves each onto its host.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use pario::{Datatype, GroupFile, Hints, Method, Partition};

use crate::hosts::{ADDRESSES, TestHost, TestHosts};
use crate::sharing::holdings;
use crate::support::until;

const RANKS: usize = 4;
const PIECE: usize = 3000;
const PIECES: usize = 200;
const METHODS: [Method; 4] = [Method::ServerDirected, Method::ClientDirected, Method::TwoPhase, Method::Auto];
const LIMIT: Duration = Duration::from_secs(60);
const GO: &str = "PARIO_TEST_GO";

/// The whole file, of which rank r has every fourth piece.
fn contents(method: Method) -> Vec<u8> {
    let seed = method.word().len();
    (0..RANKS * PIECE * PIECES).map(|at| u8::try_from((at * 7 + at / 251 + seed) % 256).unwrap()).collect()
}

fn part(method: Method, rank: usize) -> Vec<u8> {
    contents(method).chunks(PIECE).skip(rank).step_by(RANKS).flatten().copied().collect()
}

fn see(file: &GroupFile, rank: usize) {
    let number = |n: usize| i64::try_from(n).unwrap();
    let byte = Datatype::elementary(1).unwrap();
    let piece = Datatype::contiguous(number(PIECE), &byte).unwrap();
    let filetype = piece.resized(0, number(PIECE * RANKS)).unwrap();
    file.set_view(number(PIECE * rank), &byte, &filetype).unwrap();
}

fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("said {line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Not a test of its own: one rank.
#[test]
fn child_rank() {
    let Ok(go) = std::env::var(GO) else { return };
    let group = pario::group::from_env().unwrap().expect("a rank has an invitation");
    let rank = group.rank();
    let nodes: Vec<usize> = (0..RANKS).map(|rank| group.node_of(rank)).collect();
    assert_eq!(nodes, [0, 0, 1, 1]);
    let partition = Partition::mount("two").unwrap();
    let options = partition.options().create(true).read(true).write(true);
    let mut files = Vec::new();
    for method in METHODS {
        let hints = Hints { method: Some(method), ..Hints::default() };
        let file = options.open_all(&group, method.word(), &hints).unwrap();
        if method == Method::Auto {
            assert_eq!(file.method(), Method::ClientDirected, "it hides the network");
        }
        see(&file, rank);
        let mine = part(method, rank);
        let (first, second) = mine.split_at(mine.len() / 2);
        file.write_at_all(0, first).unwrap();
        file.write_at_all(first.len() as u64, second).unwrap();
        group.barrier().unwrap();
        // A rank on the other host wrote this.
        let other = (rank + 2) % RANKS;
        see(&file, other);
        let mut found = vec![0; mine.len()];
        assert_eq!(file.read_at_all(0, &mut found).unwrap(), found.len());
        assert!(found == part(method, other), "{method:?}: rank {rank} reads what rank {other} wrote");
        files.push(file);
    }
    // Everything is mapped that ever will be: now the test looks.
    print_line(&format!("{}", std::process::id()));
    assert!(until(|| Path::new(&go).exists()), "the test lets go");
    for file in files {
        file.close().unwrap();
    }
    print_line("right");
    group.leave();
}

/// `pario run` on the first host; its ranks end with it.
struct RankProcesses {
    child: Child,
    lines: Receiver<(usize, String)>,
}

impl RankProcesses {
    fn start(hosts: &TestHosts) -> RankProcesses {
        let script = format!(
            "#!/bin/sh\ncase $PARIO_RANK in\n0|1) host={} ;;\n*) host={} ;;\nesac\nexec {} $host \"$@\"\n",
            ADDRESSES[0],
            ADDRESSES[1],
            hosts.world.text("enter-node")
        );
        hosts.write_script("rank", &script);
        let exe = std::env::current_exe().unwrap();
        let (rank, exe) = (hosts.world.text("rank"), exe.to_str().unwrap());
        let size = RANKS.to_string();
        let words = ["run", "-n", &size, "--partition", "two", "--tag-output", "--", &rank, exe];
        let words = [&words[..], &["--exact", "collective::child_rank", "--nocapture"]].concat();
        let mut command: Command = hosts.on(TestHost::A, env!("CARGO_BIN_EXE_pario"), &words);
        command.env(GO, hosts.world.path("go")).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let Some((tag, text)) = line.split_once("] ") else { continue };
                let (Some(rank), Some((_, text))) = (tag.strip_prefix('['), text.split_once("said ")) else {
                    continue;
                };
                let _ = said.send((rank.parse().unwrap(), text.to_owned()));
            }
        });
        RankProcesses { child, lines }
    }

    /// The next line of every rank.
    #[track_caller]
    fn next_lines(&self) -> Vec<String> {
        let next = |_| self.lines.recv_timeout(LIMIT).expect("ranks print a line");
        let heard: BTreeMap<usize, String> = (0..RANKS).map(next).collect();
        assert_eq!(heard.len(), RANKS, "{heard:?}");
        heard.into_values().collect()
    }
}

impl Drop for RankProcesses {
    fn drop(&mut self) {
        // The processes end with their hosts, also after a failure.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn netns_ranks_on_two_hosts_write_and_read_by_every_method() {
    let Some(hosts) = TestHosts::new() else { return };
    hosts.up_labelled();
    let mut run = RankProcesses::start(&hosts);
    let ranks: Vec<i32> = run.next_lines().iter().map(|pid| pid.parse().unwrap()).collect();
    let servers = hosts.server_pids();
    let of = |host: TestHost| {
        let at = host.at();
        [ranks[2 * at], ranks[2 * at + 1], servers[at]]
    };
    for a in of(TestHost::A) {
        for b in of(TestHost::B) {
            let common: Vec<_> = holdings(a).intersection(&holdings(b)).copied().collect();
            assert!(common.is_empty(), "processes {a} and {b} of two hosts share {common:?}");
        }
    }
    for host in TestHost::BOTH {
        let [first, second, server] = of(host).map(holdings);
        assert!(first.intersection(&server).count() > 0, "{host:?}: a rank shares memory with its server");
        assert!(first.intersection(&second).count() > 0, "{host:?}: ranks share memory with each other");
    }
    std::fs::write(hosts.world.path("go"), "").unwrap();
    assert!(run.next_lines().iter().all(|said| said == "right"));
    assert!(run.child.wait().unwrap().success());
    for method in METHODS {
        for host in TestHost::BOTH {
            let path = format!("pario://two/{}", method.word());
            let printed = hosts.on(host, env!("CARGO_BIN_EXE_pario"), &["cat", &path]).output().unwrap();
            assert!(printed.stdout == contents(method), "{path} as {host:?} sees it");
        }
    }
    hosts.ok(TestHost::B, &["down", "two", "--destroy"]);
    for name in ["rank", "enter-node", "go"] {
        std::fs::remove_file(hosts.world.path(name)).unwrap();
    }
    hosts.assert_nothing_left();
}
