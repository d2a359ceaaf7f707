//! The tools of libnfs, a client of others.

use std::process::{Command, Output};

use rustix::process::Signal;

use crate::fixture::{ExportProcess, NAME, partition};
use crate::support::noise;

/// Runs a tool; `None` if it is not installed.
fn tool(words: &[&str]) -> Option<Output> {
    match Command::new(words[0]).args(&words[1..]).output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!(
                "SKIPPED: {} is not installed (Debian package libnfs-utils); `./test` installs it",
                words[0]
            );
            None
        }
        Err(error) => panic!("{words:?}: {error}"),
    }
}

#[track_caller]
fn succeeds(words: &[&str]) -> Option<Vec<u8>> {
    let output = tool(words)?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !text.contains("Failed"), "{words:?}: {}: {text}", output.status);
    Some(output.stdout)
}

#[test]
fn the_tools_of_libnfs_list_print_and_copy() {
    let cli = partition();
    let export = ExportProcess::start(&cli, "127.0.0.1:0");
    let port = export.address.port();
    let url = |path: &str| format!("nfs://127.0.0.1/{path}?nfsport={port}&mountport={port}");
    let data = noise(2_500_000);
    std::fs::write(cli.path("plain"), &data).unwrap();
    cli.ok(&["mkdir", &format!("pario://{NAME}/dir")]);
    let there = url(&format!("{NAME}/dir/file"));
    let Some(_) = succeeds(&["nfs-cp", &cli.text("plain"), &there]) else { return };
    let back = cli.command().args(["cat", &format!("pario://{NAME}/dir/file")]).output().unwrap();
    assert!(back.stdout == data, "`pario cat` prints what `nfs-cp` has written");
    assert!(succeeds(&["nfs-cat", &there]).unwrap() == data);
    succeeds(&["nfs-cp", &there, &cli.text("back")]).unwrap();
    assert!(std::fs::read(cli.path("back")).unwrap() == data);
    // A file of the other way round; an empty path is the root.
    cli.ok(&["cp", "-q", &cli.text("plain"), &format!("pario://{NAME}/top")]);
    let root = format!("{}&auto-traverse-mounts=0", url("top"));
    assert!(succeeds(&["nfs-cat", &root]).unwrap() == data);
    let listed = String::from_utf8(succeeds(&["nfs-ls", &url(&format!("{NAME}/"))]).unwrap()).unwrap();
    let mut names: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').next_back()).collect();
    names.sort_unstable();
    assert_eq!(names, ["dir", "top"], "{listed}");
    assert!(listed.contains("2500000"), "{listed}");
    let missing = tool(&["nfs-cat", &url(&format!("{NAME}/none"))]).unwrap();
    assert!(String::from_utf8_lossy(&missing.stderr).contains("NFS3ERR_NOENT"), "{missing:?}");
    assert_eq!(export.end(Signal::TERM), 0);
    cli.ok(&["down", NAME, "--destroy"]);
    std::fs::remove_file(cli.path("plain")).unwrap();
    cli.assert_nothing_left();
}
