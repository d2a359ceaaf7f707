//! A partition that the first open starts, as its file describes it.

use std::process::Command;

use crate::fixture::MpiFixture;
use crate::installations::{MpiInstallation, target};

#[test]
fn the_first_open_starts_the_partition() {
    let installation = MpiInstallation::Mpich;
    let world = MpiFixture::new(installation);
    let program = world.compile(&installation.compiler(), "c/posix.c", &["-std=c99", "-Wno-unused-function"]);
    let file = world.path("job.toml");
    let servers = format!("[{:?}, {:?}]", world.path("one"), world.path("two"));
    std::fs::write(&file, format!("name = \"job\"\nservers = {servers}\n")).unwrap();
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120"]).arg(installation.launcher()).args(["-n", "2"]).arg(program);
    command.arg("pario://job/").arg(world.path("")).env("LD_PRELOAD", installation.preload());
    command.env("PARIO_PARTITION", &file).env("PARIO_REGISTRY", world.path("registry"));
    installation.settings(&mut command);
    let ran = command.output().unwrap();
    let out = String::from_utf8_lossy(&ran.stdout).into_owned();
    let down = Command::new(target().join("pario"))
        .args(["down", "job", "--destroy"])
        .env("PARIO_REGISTRY", world.path("registry"))
        .output()
        .unwrap();
    assert!(out.contains(", 0 failures"), "{out}\n{}", String::from_utf8_lossy(&ran.stderr));
    assert!(down.status.success(), "it was up: {}", String::from_utf8_lossy(&down.stderr));
}
