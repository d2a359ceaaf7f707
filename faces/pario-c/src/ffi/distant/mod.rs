//! `sf.h`, `dio.h` and `pario_group.h`: shared files, distant files, and the group that they belong to.
//!
//! | file | content |
//! |---|---|
//! | `world` | the members' [`pario_api::Distant`], joined at the first call |
//! | `entries` | what a handle stands for; requests |
//! | `sf`, `dio`, `group` | exported functions of one header each |
//! | `codes` | numbers of `sf.h` and their sentences |
//! | `fortran` | the names of `sf.h` for Fortran, with INTEGERs of 4 or 8 bytes |
//!
//! Never: keeps an address of the program after its request is complete. Always: a forked child has no files of its parent.

pub(crate) mod codes;
pub(crate) mod dio;
pub(crate) mod entries;
pub(crate) mod fortran;
pub(crate) mod group;
pub(crate) mod sf;
pub(crate) mod world;
