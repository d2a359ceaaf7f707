//! Teams of threads: the threads of a process read and write one file together.
//!
//! ```
//! use pario::team::{Hint, TeamFile, TeamOptions};
//!
//! let partition = pario::Partition::in_process(2)?;
//! let options = TeamOptions::default().create(true).read(true).write(true);
//! let file = TeamFile::open_in(&partition, "field", &options)?;
//! std::thread::scope(|scope| {
//!     for (number, member) in file.members(4).into_iter().enumerate() {
//!         let part = vec![b'a' + number as u8; 3];
//!         scope.spawn(move || member.write_all(&part, Hint::Contiguous).expect("written"));
//!     }
//! });
//! let mut bytes = [0; 12];
//! file.read_at(0, &mut bytes)?;
//! assert_eq!(&bytes, b"aaabbbcccddd");
//! file.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | entry | for |
//! |---|---|
//! | [`TeamFile::open`], [`TeamFile::open_in`] | one caller opens; any threads use the handle |
//! | [`TeamFile::open_all`] | all threads of a team open together, by [`Position`] and [`HandleVariable`] |
//! | [`TeamFile::members`] | `std::thread`: a value for each thread, missed by name when it is dropped |
//! | [`TeamFile::at`] | OpenMP, `rayon::broadcast`: the calling thread at a [`Position`]; costs nothing, made anew for each call |
//! | [`TeamMember`] | the collective calls |
//! | [`TeamMember::write_list`], [`TeamMember::read_targets`] | all 16 forms: [`TeamPlace`] × [`Arguments`], lists as `iovec`s |
//! | [`TeamMember::refuse`] | a member with wrong arguments takes part, so that all get the error |
//! | [`TeamFile::write_at`], [`TeamFile::read_at`], [`TeamFile::write_part`] | tasks: no meeting |
//! | [`TeamFile::with_threads`] | a lone caller gets threads for [`TeamFile::write_divided_at`] |
//!
//! A collective call takes a [`Position`]: number and size of the caller's team on each level. Its members are all threads without inner teams
//! below the place where the file was opened. The result is the same on all members; [`TeamError::code`] tells the end of the file, a full disk,
//! a quota and the rest apart, and [`TeamError::count`] is this member's count.
//!
//! ```text
//!  call ─► round: arrive ─► small part of a partition: own record                      ─► leave
//!                        ─► not active, part ≤ 1 MiB: copied into the team's buffer   ─► leave
//!                        ─► memory lent ─► plan (by the last one) ─► work items, by active members ─► result ─► leave
//! ```
//! Never: a thread of its own, except those of `with_threads`; returns while another thread uses a caller's memory. Always: one result for all
//! members; what fails after a member has gone on is told by the next call, to all, once.

mod arrival;
mod call;
mod core;
mod counts;
mod crossed;
mod error;
mod file;
mod helpers;
mod meeting;
mod member;
mod membership;
mod opening;
mod options;
mod parts;
mod plan;
mod position;
mod progress;
mod round;
mod settings;
mod target;
mod tune;
mod wait;
mod work;

pub use call::{Arguments, Hint, TeamPlace};
pub use counts::TeamCounts;
pub use error::{TeamCode, TeamError, TeamResult};
pub use file::{CommonTarget, TeamFile};
pub use member::{RefusedCall, TeamMember};
pub use opening::HandleVariable;
pub use options::TeamOptions;
pub use pario_sys::lent::TargetList;
pub use position::{LEVELS_MAX, Position, TeamLevel};
pub use settings::{TargetKind, TeamSettings};
