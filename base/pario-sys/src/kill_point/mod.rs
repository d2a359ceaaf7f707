//! Kill points: numbered steps at which a process can be made to kill or stop itself, so that crash tests reach states that random kills
//! miss. `docs/kill-points.md` lists them and describes how they are armed.
//!
//! Never: active in a build without debug assertions, except that arming is an error. Always: a process leaves its mark before the signal
//! is raised, so that a test can distinguish a reached point from one not reached.

mod arm;
mod point;

pub use arm::{Action, ArmError, ArmedProcess, DIRECTORY, VARIABLE, arm};
pub use point::{Point, PointRole};

/// The calling thread is at this point. No cost in a release build, and one relaxed load in others while no point is armed.
#[inline(always)]
pub fn reach(point: Point) {
    #[cfg(debug_assertions)]
    arm::reached(point);
    #[cfg(not(debug_assertions))]
    let _ = point;
}
