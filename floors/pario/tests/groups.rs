//! Groups of real processes: collectives, deaths, stops, and the hub's end.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use common::stage::{TOLD_LIMIT, job, timed, until};
use pario::group::{self, Hub, Invitation, LocalGroup, Reduce};
use rustix::process::{Pid, Signal, kill_process};

/// The work of this process if it is a rank, or a hub, of a test.
#[test]
fn child() {
    let Some(job) = job() else { return };
    if let Some(size) = job.strip_prefix("hub ") {
        return be_hub(size.parse().unwrap());
    }
    let group = match group::from_env() {
        Ok(group) => group.expect("a rank has an invitation"),
        Err(error) => return say(&format!("refused {error}")),
    };
    assert!(std::ptr::eq(
        std::sync::Arc::as_ptr(&group).cast::<u8>(),
        std::sync::Arc::as_ptr(&group::current().unwrap()).cast::<u8>()
    ));
    say("joined");
    let mut orders = std::io::stdin().lines();
    let mut other = None;
    while let Some(Ok(order)) = orders.next() {
        let done = match order.as_str() {
            "barrier" => group.barrier().map(|()| "met".to_owned()),
            "sum" => group.reduce(group.rank() as u64, Reduce::Sum).map(|sum| sum.to_string()),
            "nodes" => {
                Ok(format!("{:?}", (0..group.size()).map(|rank| group.node_of(rank)).collect::<Vec<_>>()))
            }
            "duplicate" => group.duplicate().map(|made| {
                other = Some(made);
                "made".to_owned()
            }),
            "other" => other.as_ref().unwrap().barrier().map(|()| "met".to_owned()),
            "check" => group.check().map(|()| "well".to_owned()),
            "leave" => {
                group.leave();
                Ok("left".to_owned())
            }
            "exit" => std::process::exit(0),
            odd => panic!("{odd}"),
        };
        say(&done.unwrap_or_else(|error| format!("error {error}")));
    }
}

/// Runs a hub until it is killed, and prints how to join.
fn be_hub(size: usize) {
    let hub = Hub::start(size).unwrap();
    for rank in 0..size {
        for (name, value) in hub.invitation(rank).variables() {
            say(&format!("{name}={}", value.to_str().unwrap()));
        }
    }
    let _ = std::io::stdin().read(&mut [0]);
}

fn say(line: &str) {
    let line = format!("said {line}\n");
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).unwrap();
    out.flush().unwrap();
}

/// A process of a test; killed when dropped.
struct GroupProcess {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl GroupProcess {
    fn start(job: &str, variables: Vec<(String, String)>) -> GroupProcess {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).env("PARIO_TEST_JOB", job).envs(variables);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if let Some((_, text)) = line.split_once("said ") {
                    let _ = said.send(text.to_owned());
                }
            }
        });
        GroupProcess { orders: child.stdin.take(), child, lines }
    }

    fn rank(invitation: &Invitation) -> GroupProcess {
        let text = |value: std::ffi::OsString| value.into_string().unwrap();
        let variables =
            invitation.variables().into_iter().map(|(name, value)| (name.to_owned(), text(value)));
        GroupProcess::start("rank", variables.collect())
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
    }

    #[track_caller]
    fn hear(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(60)).expect("a rank answers")
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid().try_into().unwrap()).unwrap(), signal).unwrap();
        if signal == Signal::STOP {
            assert!(until(|| is_stopped(self.pid())), "a stopped process stops");
        }
    }
}

impl Drop for GroupProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether every thread of a process is stopped.
fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(Result::unwrap);
    let stopped = |status: String| status.lines().any(|line| line.starts_with("State:\tT"));
    threads.map(|thread| std::fs::read_to_string(thread.path().join("status")).unwrap()).all(stopped)
}

/// Starts all ranks of a hub and waits until they have joined.
fn ranks(hub: &Hub) -> Vec<GroupProcess> {
    let ranks: Vec<GroupProcess> =
        (0..hub.size()).map(|rank| GroupProcess::rank(&hub.invitation(rank))).collect();
    for rank in &ranks {
        assert_eq!(rank.hear(), "joined");
    }
    ranks
}

fn order(ranks: &mut [GroupProcess], order: &str) {
    ranks.iter_mut().for_each(|rank| rank.order(order));
}

#[track_caller]
fn all_say(ranks: &[GroupProcess], text: &str) {
    for rank in ranks {
        assert_eq!(rank.hear(), text);
    }
}

/// Asserts that ranks get an error within the limit that another rank has died.
#[track_caller]
fn told<'a>(ranks: impl IntoIterator<Item = &'a GroupProcess>, parts: &[&str]) {
    for rank in ranks {
        let (said, took) = timed(|| rank.hear());
        assert!(said.starts_with("error ") && parts.iter().all(|part| said.contains(part)), "{said}");
        assert!(took < TOLD_LIMIT, "{took:?}: {said}");
    }
}

#[test]
fn one_to_nine_ranks_meet_on_one_node() {
    for size in [1, 2, 5, 9] {
        let hub = Hub::start(size).unwrap();
        let mut ranks = ranks(&hub);
        order(&mut ranks, "sum");
        all_say(&ranks, &(size * (size - 1) / 2).to_string());
        order(&mut ranks, "nodes");
        all_say(&ranks, &format!("{:?}", vec![0; size]));
    }
}

#[test]
fn a_killed_rank_is_named_to_those_who_wait_and_those_who_come_later() {
    let hub = Hub::start(4).unwrap();
    let mut ranks = ranks(&hub);
    order(&mut ranks, "duplicate");
    all_say(&ranks, "made");
    ranks[0].order("barrier");
    ranks[1].order("other");
    // A wrong answer here would be "met"; that they wait cannot be observed from outside.
    let pid = format!("process {}", ranks[2].pid());
    ranks[2].signal(Signal::KILL);
    let parts = ["rank 2", &pid, "groups", "without leaving"];
    told(&ranks[..2], &parts);
    for later in ["barrier", "other", "check", "duplicate"] {
        ranks[3].order(later);
        ranks[0].order(later);
        told([&ranks[3], &ranks[0]], &parts);
    }
}

#[test]
fn a_stopped_rank_is_waited_for() {
    let hub = Hub::start(3).unwrap();
    let mut ranks = ranks(&hub);
    ranks[1].signal(Signal::STOP);
    order(&mut ranks, "barrier");
    assert_eq!(ranks[0].lines.recv_timeout(Duration::from_millis(700)), Err(RecvTimeoutError::Timeout));
    assert!(ranks[2].lines.try_recv().is_err(), "no rank continues without it");
    ranks[1].signal(Signal::CONT);
    all_say(&ranks, "met");
    order(&mut ranks, "barrier");
    all_say(&ranks, "met");
}

#[test]
fn a_rank_that_exits_without_leaving_is_gone_and_one_that_left_has_left() {
    let hub = Hub::start(3).unwrap();
    let mut ranks = ranks(&hub);
    ranks[1].order("leave");
    assert_eq!(ranks[1].hear(), "left");
    ranks[0].order("barrier");
    let pid = format!("process {}", ranks[1].pid());
    told([&ranks[0]], &["rank 1", &pid, "has left the group"]);
    ranks[2].order("exit");
    assert!(ranks[2].child.wait().unwrap().success());
    // The hub notices its end asynchronously.
    let gone = until_said(&mut ranks[0], "check", |said| !said.contains("has left"));
    assert!(gone.contains("rank 2") && gone.contains("without leaving"), "{gone}");
}

#[test]
fn different_collectives_are_told_to_all() {
    let hub = Hub::start(3).unwrap();
    let mut ranks = ranks(&hub);
    order(&mut ranks[..2], "barrier");
    ranks[2].order("duplicate");
    told(&ranks, &["rank 0 barrier, rank 2 duplicate"]);
    order(&mut ranks, "barrier");
    all_say(&ranks, "met");
}

#[test]
fn a_hub_that_is_killed_is_named() {
    let keeper = GroupProcess::start("hub 3", Vec::new());
    let mut ranks: Vec<GroupProcess> = (0..3)
        .map(|_| {
            let variables = (0..4).map(|_| {
                let said = keeper.hear();
                let (name, value) = said.split_once('=').unwrap();
                (name.to_owned(), value.to_owned())
            });
            GroupProcess::start("rank", variables.collect())
        })
        .collect();
    for rank in &ranks {
        assert_eq!(rank.hear(), "joined");
    }
    ranks[0].order("barrier");
    keeper.signal(Signal::KILL);
    let pid = format!("process {}", keeper.pid());
    told([&ranks[0]], &["the hub", &pid]);
    ranks[1].order("barrier");
    told([&ranks[1]], &["the hub", &pid]);
    for rank in &mut ranks {
        // A killed process closes its sockets one after the other.
        let said = until_said(rank, "check", |said| said.starts_with("error "));
        assert!(said.contains("the hub"), "{said}");
    }
}

/// Repeats an order until the expected answer arrives.
fn until_said(rank: &mut GroupProcess, order: &str, is_it: impl Fn(&str) -> bool) -> String {
    let mut said = String::new();
    let heard = until(|| {
        rank.order(order);
        said = rank.hear();
        is_it(&said)
    });
    assert!(heard, "{order}: {said}");
    said
}

#[test]
fn a_rank_that_was_not_invited_is_refused() {
    let hub = Hub::start(1).unwrap();
    let variables = hub.invitation(0).variables().into_iter().map(|(name, value)| {
        let value = value.into_string().unwrap();
        let value = if name == group::TOKEN_VARIABLE { "0".repeat(32) } else { value };
        (name.to_owned(), value)
    });
    let stranger = GroupProcess::start("rank", variables.collect());
    assert!(stranger.hear().contains("was not invited"));
    // The rank number is still free.
    let mut rank = GroupProcess::rank(&hub.invitation(0));
    assert_eq!(rank.hear(), "joined");
    rank.order("barrier");
    assert_eq!(rank.hear(), "met");
}

#[test]
fn labels_make_nodes_of_processes() {
    let hub = Hub::start(4).unwrap();
    let start = |rank: usize| {
        let label = ("PARIO_NODE".to_owned(), format!("n{}", rank / 2));
        let text = |value: std::ffi::OsString| value.into_string().unwrap();
        let variables = hub.invitation(rank).variables().into_iter();
        let variables = variables.map(|(name, value)| (name.to_owned(), text(value)));
        GroupProcess::start("rank", variables.chain([label]).collect())
    };
    let mut ranks: Vec<GroupProcess> = (0..4).map(start).collect();
    for rank in &ranks {
        assert_eq!(rank.hear(), "joined");
    }
    order(&mut ranks, "nodes");
    all_say(&ranks, "[0, 0, 1, 1]");
}

/// A child of a rank that holds the rank's socket does not keep the rank alive.
#[test]
fn the_end_of_a_process_is_noticed_while_another_holds_its_socket() {
    let hub = Hub::start(2).unwrap();
    let first = GroupProcess::rank(&hub.invitation(0));
    let here = LocalGroup::join(&hub.invitation(1), None).unwrap();
    assert_eq!(first.hear(), "joined");
    let socket = socket_of(first.pid());
    let process = rustix::process::pidfd_open(
        Pid::from_raw(first.pid().try_into().unwrap()).unwrap(),
        rustix::process::PidfdFlags::empty(),
    );
    // Containers may forbid it; the rest of this test needs a copy of the descriptor.
    let Ok(copy) = process.and_then(|process| {
        rustix::process::pidfd_getfd(&process, socket, rustix::process::PidfdGetfdFlags::empty())
    }) else {
        eprintln!("SKIPPED: descriptors of other processes cannot be copied here");
        return;
    };
    first.signal(Signal::KILL);
    use pario::Group;
    let error = here.barrier().unwrap_err().to_string();
    assert!(error.contains("rank 0") && error.contains("without leaving"), "{error}");
    drop(copy);
}

/// The descriptor number of a process's only socket.
fn socket_of(pid: u32) -> i32 {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(Result::unwrap);
    let sockets: Vec<i32> = entries
        .filter(|entry| {
            std::fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().starts_with("socket:"))
        })
        .map(|entry| entry.file_name().to_str().unwrap().parse().unwrap())
        .collect();
    assert_eq!(sockets.len(), 1, "{sockets:?}");
    sockets[0]
}
