//! A process is killed and stopped at every kill point (`docs/kill-points.md`): survivors finish or get an error that names it, in time;
//! acknowledged data is present, and no other data is harmed.
//!
//! Always: a case that does not reach its point fails.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a case that does not reach its point fails")]
#![expect(unreachable_pub, reason = "modules of one test")]

#[path = "../common/mod.rs"]
mod common;

mod clients;
mod fixture;
mod late;
mod locks;
mod servers;
mod workers;

use pario_sys::kill_point::{Point, PointRole};

use self::common::stage::{Program, Stage};
use self::fixture::each_of;

fn points_of(role: PointRole) -> Vec<Point> {
    let mine = |point: &Point| point.role() == role && !locks::POINTS.contains(point);
    Point::ALL.iter().copied().filter(mine).collect()
}

#[test]
fn clients_at_their_points() {
    each_of(&points_of(PointRole::Client), clients::case);
}

#[test]
fn data_servers_at_their_points() {
    each_of(&points_of(PointRole::Server), servers::case);
}

#[test]
fn the_manager_at_its_points() {
    each_of(&points_of(PointRole::Manager), servers::case);
}

/// The outbox memory that a stopped server continues to read may have been reused.
#[test]
fn a_server_that_goes_on_writes_nothing_that_is_no_longer_there() {
    each_of(&[Point::DrainHeads, Point::DrainUnwritten, Point::DrainChecked], late::case);
}

#[test]
fn holders_of_locks_at_their_points() {
    each_of(&locks::POINTS, locks::case);
}

/// Not a test of its own: the holder of locks that is killed or stopped.
#[test]
fn locker() {
    locks::victim();
}

/// Not a test of its own: the client that is killed or stopped.
#[test]
fn victim() {
    clients::victim();
}

/// A wrong name is refused by servers and clients alike, with the list.
#[test]
fn an_unknown_point_is_refused_with_the_list() {
    let Some(stage) = Stage::prepare(1, "") else { return };
    let output = stage.up_command().env("PARIO_KILL_POINT", "drain-everything=kill").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("no point 'drain-everything', but commit-begun, "), "{said}");
    stage.up();
    // A client that was not refused would write, close, and print that.
    stage.mount().create("shared").unwrap().close().unwrap();
    std::fs::write(stage.dir().join("finish"), "").unwrap();
    let point = ("PARIO_KILL_POINT", std::ffi::OsStr::new("drain-everything=kill"));
    let dir = ("PARIO_KILL_POINT_DIR", stage.dir().as_os_str());
    let (said, status) = Program::start_with(&stage, "victim", "shared 1 records", &[point, dir]).end(0);
    assert!(!status.success() && said == 0, "{status:?}");
    let (said, status) = Program::start_with(&stage, "victim", "shared 1 records", &[dir]).end(0);
    assert!(status.success() && 0 < said, "{status:?}");
}
