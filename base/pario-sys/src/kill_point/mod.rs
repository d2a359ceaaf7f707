//! Kill points: numbered moments at which a process can be made to kill or stop itself, so that crash tests reach the moments
//! that chance does not. `docs/kill-points.md` lists them and says how they are armed.
//!
//! Never: does anything in a build without debug assertions, except refuse to be armed. Always: a process that reaches its point
//! has left its mark before the signal is raised, so that a test can tell a point that was reached from one that was not.

mod arm;
mod point;

pub use arm::{Action, ArmError, DIRECTORY, Process, VARIABLE, arm};
pub use point::{Point, Role};

/// The calling thread is at this point. Costs nothing in a release build, and one relaxed load in others while nothing is armed.
#[inline(always)]
pub fn reach(point: Point) {
    #[cfg(debug_assertions)]
    arm::reached(point);
    #[cfg(not(debug_assertions))]
    let _ = point;
}
