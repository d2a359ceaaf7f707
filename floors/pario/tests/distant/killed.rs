//! Members that are processes, some of which are killed or stopped: calls that need them fail in time and name them, all others go on, and
//! nothing is left behind.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use pario::distant::{Distant, DistantOptions, DistantRequest, SharedFile, SharedFileOptions};
use pario::group::{self, Group, Hub};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::pattern;
use crate::common::stage::{TOLD_LIMIT, job, timed, until};
use crate::members::HomeDirs;

/// Bytes of one record; block `n` lies on home `n % 4`.
const RECORD: usize = 8192;

/// The work of this process if it is a member of a test.
#[test]
fn child() {
    let Some(dir) = job() else { return };
    let group = group::from_env().unwrap().expect("a member has an invitation");
    let own = Path::new(&dir).join(group.rank().to_string());
    let distant = Distant::join(&group, &DistantOptions::in_dir(own)).unwrap();
    let shared = distant.create(&SharedFileOptions::for_requests(RECORD as u64)).unwrap();
    let mut state = MemberState { group, distant: Some(distant), shared: Some(shared), pending: Vec::new() };
    say("ready");
    let mut orders = std::io::stdin().lines();
    while let Some(Ok(order)) = orders.next() {
        let words: Vec<&str> = order.split(' ').collect();
        let (done, took) = timed(|| state.carry_out(&words));
        let took = took.as_millis();
        say(&done.map_or_else(|error| format!("error {took} {error}"), |said| format!("done {said}")));
    }
}

struct MemberState {
    group: Arc<dyn Group>,
    distant: Option<Distant>,
    shared: Option<SharedFile>,
    pending: Vec<DistantRequest<Vec<u8>>>,
}

impl MemberState {
    fn carry_out(&mut self, words: &[&str]) -> pario::Result<String> {
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let shared = self.shared.as_ref();
        match words[0] {
            "write" => {
                let at = number(1) * RECORD as u64;
                shared.unwrap().write_at(at, &pattern(RECORD, number(2))).map(|()| String::new())
            }
            "read" => {
                let mut found = vec![0; RECORD];
                shared.unwrap().read_at(number(1) * RECORD as u64, &mut found)?;
                Ok((found == pattern(RECORD, number(2))).to_string())
            }
            // So many requests to one home are left under way.
            "start" => {
                for round in 0..number(2) {
                    let block = number(1) + 4 * round;
                    let data = pattern(RECORD, round);
                    self.pending.push(shared.unwrap().start_write_at(block * RECORD as u64, data)?);
                }
                Ok(String::new())
            }
            "wait" => {
                let mut failed = 0;
                let mut last = String::new();
                for request in self.pending.drain(..) {
                    if let Err(error) = request.wait() {
                        failed += 1;
                        last = error.to_string();
                    }
                }
                Ok(format!("{failed} {last}"))
            }
            "destroy" => {
                let shared = self.shared.take().unwrap();
                shared.destroy(self.distant.as_ref().unwrap()).map(|()| String::new())
            }
            "leave" => {
                let left = self.distant.take().unwrap().leave();
                self.group.leave();
                left.map(|()| String::new())
            }
            odd => panic!("{odd}"),
        }
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("said {line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// A member of a test; killed when dropped.
struct Member {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Member {
    fn start(hub: &Hub, rank: usize, node: &str, dirs: &HomeDirs) -> Member {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "killed::child", "--nocapture"]).env("PARIO_TEST_JOB", dirs.0.path());
        command.envs(hub.invitation(rank).variables()).env("PARIO_NODE", node);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(std::result::Result::ok) {
                if let Some((_, text)) = line.split_once("said ") {
                    let _ = said.send(text.to_owned());
                }
            }
        });
        Member { orders: child.stdin.take(), child, lines }
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
    }

    #[track_caller]
    fn hear(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(60)).expect("a member answers")
    }

    #[track_caller]
    fn ask(&mut self, order: &str) -> String {
        self.order(order);
        self.hear()
    }

    /// Asserts that an order succeeds.
    #[track_caller]
    fn does(&mut self, order: &str) -> String {
        let said = self.ask(order);
        said.strip_prefix("done ").unwrap_or_else(|| panic!("{order}: {said}")).to_owned()
    }

    /// Asserts that an order fails, in time, with an error that names a rank.
    #[track_caller]
    fn fails(&mut self, order: &str, rank: usize) {
        let said = self.ask(order);
        let told = said.strip_prefix("error ").unwrap_or_else(|| panic!("{order}: {said}"));
        let (millis, error) = told.split_once(' ').unwrap();
        let took = Duration::from_millis(millis.parse().unwrap());
        assert!(took < TOLD_LIMIT, "{order} took {took:?}: {error}");
        assert!(error.contains(&format!("rank {rank}")), "{order}: {error}");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id().try_into().unwrap()).unwrap(), signal).unwrap();
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Four homes: ranks 0 and 1 on one node, 2 and 3 on another.
struct Cast {
    members: Vec<Member>,
    dirs: HomeDirs,
    // After the members: it is dropped last.
    _hub: Hub,
}

impl Cast {
    fn start() -> Cast {
        let (hub, dirs) = (Hub::start(4).unwrap(), HomeDirs::new(4));
        let member = |rank| Member::start(&hub, rank, if rank < 2 { "left" } else { "right" }, &dirs);
        let members: Vec<Member> = (0..4).map(member).collect();
        for member in &members {
            assert_eq!(member.hear(), "ready");
        }
        Cast { members, dirs, _hub: hub }
    }

    fn nothing_is_left(&self) {
        assert!(until(|| self.dirs.files().is_empty()), "{:?}", self.dirs.files());
    }
}

#[test]
fn processes_of_two_nodes_share_a_file_and_leave_nothing() {
    let mut cast = Cast::start();
    for rank in 0..4u64 {
        for block in 0..4 {
            cast.members[rank as usize].does(&format!("write {} {rank}", rank * 4 + block));
        }
    }
    for rank in 0..4u64 {
        for block in 0..16 {
            assert_eq!(cast.members[rank as usize].does(&format!("read {block} {}", block / 4)), "true");
        }
    }
    assert!(cast.dirs.files().is_empty(), "components have no names");
    cast.members.iter_mut().for_each(|member| member.order("destroy"));
    cast.members.iter().for_each(|member| assert_eq!(member.hear(), "done "));
    cast.members.iter_mut().for_each(|member| member.order("leave"));
    cast.members.iter().for_each(|member| assert_eq!(member.hear(), "done "));
    cast.members.iter_mut().for_each(|member| drop(member.orders.take()));
    for member in &mut cast.members {
        assert!(member.child.wait().unwrap().success());
    }
    cast.nothing_is_left();
}

#[test]
fn a_killed_home_is_named_and_the_others_go_on() {
    let mut cast = Cast::start();
    for block in 0..8 {
        cast.members[0].does(&format!("write {block} 1"));
    }
    // Requests are under way to rank 2 when it is killed.
    cast.members[0].does("start 42 200");
    cast.members[2].kill();
    let waited = cast.members[0].does("wait");
    let (failed, error) = waited.split_once(' ').unwrap();
    assert!(failed == "0" || error.contains("rank 2"), "{waited}");
    // Its neighbour has its descriptor, and so its bytes.
    assert_eq!(cast.members[3].does("read 2 1"), "true");
    for member in [0, 1, 3] {
        if member != 3 {
            cast.members[member].fails("read 2 1", 2);
            cast.members[member].fails("write 6 1", 2);
        }
        for block in [0, 1, 3, 5, 7] {
            assert_eq!(cast.members[member].does(&format!("read {block} 1")), "true");
        }
        cast.members[member].does(&format!("write {} 5", 8 + 4 * member));
    }
    // The end of the file on all members ends, and names the dead one.
    for member in [0, 1, 3] {
        cast.members[member].fails("destroy", 2);
    }
    cast.nothing_is_left();
}

#[test]
fn a_stopped_home_is_reached_from_its_node_and_named_elsewhere() {
    let mut cast = Cast::start();
    for block in 0..8 {
        cast.members[1].does(&format!("write {block} 1"));
    }
    cast.members[3].does("start 400 20");
    cast.members[0].signal(Signal::STOP);
    // Near: its descriptor needs no help.
    assert_eq!(cast.members[1].does("read 4 1"), "true");
    cast.members[1].does("write 0 9");
    assert_eq!(cast.members[1].does("read 0 9"), "true");
    cast.members[2].fails("read 0 9", 0);
    let waited = cast.members[3].does("wait");
    let (failed, error) = waited.split_once(' ').unwrap();
    assert!(failed == "0" || error.contains("rank 0"), "{waited}");
    assert_eq!(cast.members[2].does("read 1 1"), "true");
    // It goes on: so do the calls.
    cast.members[0].signal(Signal::CONT);
    assert!(until(|| cast.members[2].ask("read 0 9") == "done true"));
    assert_eq!(cast.members[0].does("read 1 1"), "true");
}

#[test]
fn a_killed_client_ends_with_its_requests_and_homes_go_on() {
    let mut cast = Cast::start();
    for block in 0..4 {
        cast.members[0].does(&format!("write {block} 1"));
    }
    for home in 0..4 {
        cast.members[3].does(&format!("start {} 100", 400 + home));
    }
    cast.members[3].kill();
    for block in [0, 1, 2] {
        for member in 0..3 {
            assert_eq!(cast.members[member].does(&format!("read {block} 1")), "true");
        }
    }
    cast.members[0].fails("read 3 1", 3);
    cast.nothing_is_left();
}

#[test]
fn nothing_is_left_when_all_are_killed() {
    let mut cast = Cast::start();
    for member in 0..4 {
        cast.members[member].does(&format!("start {} 50", 100 * member));
    }
    cast.members.iter_mut().for_each(Member::kill);
    cast.nothing_is_left();
    for member in &cast.members {
        let pid = member.child.id();
        assert!(until(|| !Path::new(&format!("/proc/{pid}")).exists()), "process {pid}");
    }
}
