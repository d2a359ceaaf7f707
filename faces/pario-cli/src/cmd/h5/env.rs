//! `pario h5 env`: environment variables with which HDF5 programs write HDF5 trees.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use serde_json::json;

use crate::cmd::env::quoted;
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::mpi::find_library;

/// The connector.
const LIBRARY: &str = "libpario_hdf5.so";
/// Directory beside the library that holds nothing else: HDF5 loads every library of its plugin directory.
const PLUGINS: &str = "hdf5-plugins";

/// Arguments of `pario h5 env`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Example:
  eval \"$(pario h5 env)\"; python simulate.py")]
pub(crate) struct Args {
    /// Where the directory of plugins is made [default: beside the connector]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let library = find_library(LIBRARY)?;
    let library = library.canonicalize().map_err(|error| CliError::local(&library, &error))?;
    let beside = || library.parent().unwrap_or(Path::new("/")).join(PLUGINS);
    let dir = std::path::absolute(args.dir.clone().unwrap_or_else(beside))
        .map_err(|error| CliError::failed(format!("the directory of plugins: {error}")))?;
    std::fs::create_dir_all(&dir).map_err(|error| CliError::local(&dir, &error))?;
    let link = dir.join(LIBRARY);
    let is_there = std::fs::read_link(&link).is_ok_and(|target| target == library);
    if !is_there {
        let new = dir.join(format!(".{LIBRARY}.{}", std::process::id()));
        std::os::unix::fs::symlink(&library, &new)
            .and_then(|()| std::fs::rename(&new, &link))
            .map_err(|error| CliError::local(&link, &error))?;
    }
    let dir = dir.to_string_lossy().into_owned();
    if context.speech.json {
        return context.json(&json!({ "HDF5_PLUGIN_PATH": dir, "HDF5_VOL_CONNECTOR": "pario" }));
    }
    context.line(format!("export HDF5_PLUGIN_PATH={}", quoted(&dir)))?;
    context.line("export HDF5_VOL_CONNECTOR=pario")
}
