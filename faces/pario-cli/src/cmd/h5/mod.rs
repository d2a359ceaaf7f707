//! `pario h5`: HDF5 trees without any HDF5.

mod cat;
mod check;
mod env;
mod ls;
mod object;
mod show;

use clap::{Args as ClapArgs, Subcommand};

use crate::context::Context;
use crate::error::CliResult;

/// Arguments of `pario h5`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario h5 ls out.h5                 the members of the root group
  pario h5 ls -r out.h5/ocean        all objects of a group, and of its groups
  pario h5 show out.h5/ocean/wave    shape, type, filters, attributes
  pario h5 cat out.h5/ocean/wave     the elements
  eval \"$(pario h5 env)\"           HDF5 programs of this shell write trees
  pario h5 check out.h5              verify; --repair finishes and removes what a killed program left
No HDF5 is needed. The connector that writes such trees: docs/guide/hdf5.md.")]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    command: H5Command,
}

#[derive(Subcommand, Debug)]
enum H5Command {
    /// List a group
    Ls(ls::Args),
    /// Describe an object
    Show(show::Args),
    /// Print the elements of a dataset
    Cat(cat::Args),
    /// Verify a tree
    Check(check::Args),
    /// Print the variables with which HDF5 programs write trees
    Env(env::Args),
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    match &args.command {
        H5Command::Ls(args) => ls::run(context, args),
        H5Command::Show(args) => show::run(context, args),
        H5Command::Cat(args) => cat::run(context, args),
        H5Command::Check(args) => check::run(context, args),
        H5Command::Env(args) => env::run(context, args),
    }
}
