//! When things go wrong: one line that names cause and cure, and nothing left behind.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use crate::support::CliFixture;

/// Runs a table of mistakes: exit code, words, parts of the line.
#[track_caller]
fn check(world: &CliFixture, cases: &[(i32, &[&str], &[&str])]) {
    for (code, words, parts) in cases {
        let line = world.fails(*code, words);
        for part in *parts {
            assert!(line.contains(part), "{words:?}: '{part}' is not in: {line}");
        }
    }
}

#[test]
fn benchmarks_that_are_not_built() {
    let world = CliFixture::new();
    let alone = world.path("pario");
    std::fs::copy(env!("CARGO_BIN_EXE_pario"), &alone).unwrap();
    let output = std::process::Command::new(alone).args(["bench", "io"]).env("PATH", "").output().unwrap();
    let line = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), line.lines().count()), (Some(1), 1), "{line}");
    assert!(line.contains("`cargo build --release -p pario-bench` makes it"), "{line}");
}

#[test]
fn partition_files_that_are_wrong() {
    let world = CliFixture::new();
    let cases = [
        (
            "name = \"x\"\nservers = [\"/x\"]\nstrpe = \"1MiB\"\n",
            "unknown key 'strpe': did you mean 'stripe'?",
        ),
        ("name = \"x\"\nservers = [\"/x\"]\nstripe = \"1 furlong\"\n", "is not a size"),
        ("name = \"x\"\nservers = [\"/x\"]\nstripe = \"5000\"\n", "multiple of 4KiB"),
        ("name = \"a/b\"\nservers = [\"/x\"]\n", "must not have a slash"),
        ("name = \"x\"\n", "'servers' is missing"),
        ("name = \"x\"\nservers = [\"relative\"]\n", "absolute directory"),
        ("name = ", "not a partition file"),
    ];
    for (text, part) in cases {
        std::fs::write(world.path("p.toml"), text).unwrap();
        let line = world.fails(2, &["up", "p.toml"]);
        assert!(line.contains(part), "{line}");
    }
    assert!(world.fails(2, &["up", "missing.toml"]).contains("cannot read the partition file"));
    world.assert_nothing_left();
}

#[test]
fn command_lines_that_are_wrong() {
    let world = CliFixture::new();
    world.up("s", 1);
    let long_name = format!("pario://s/{}", "n".repeat(256));
    let long_path = format!("pario://s{}", "/name".repeat(1000));
    check(
        &world,
        &[
            (2, &["frobnicate"], &["frobnicate", "--help"]),
            (2, &["up", "--strpe", "4KiB"], &["'--strpe' found; a similar", "(see `pario up --help`)"]),
            (2, &["up", "--name", "x"], &["--servers 4 --dir /data", "partition file"]),
            (2, &["up", "--name", "x", "--servers", "0"], &["1 to 1024 servers"]),
            (2, &["up", "--name", "x", "--dir", "/x"], &["--servers N"]),
            (2, &["up", "--servers", "2"], &["'name' is missing", "--name"]),
            (2, &["up", "--name", "a/b", "--servers", "1"], &["must not have a slash"]),
            (2, &["ls", "/plain"], &["is not in a partition", "pario://NAME/path"]),
            (2, &["ls", "pario:///x"], &["names no partition"]),
            (2, &["ls"], &["PARIO_PARTITION"]),
            (2, &["ls", "pario:/s/x"], &["did you mean pario://s/x?"]),
            (2, &["cp", "f", "s:/x"], &["did you mean pario://s/x?"]),
            (2, &["cp", "f", "pario:/s/x"], &["did you mean pario://s/x?"]),
            (2, &["--registry", "data", "status"], &["data: is a directory"]),
            (2, &["cp", "-", "f", "pario://s/x"], &["alone"]),
            (1, &["cp", "-", "pario://s/"], &["is a directory", "name of a file"]),
            (2, &["ls", &long_name], &["too long", "256", "255"]),
            (2, &["ls", &long_path], &["the path is too long", "4095"]),
            (2, &["ln", "x", "pario://s/y"], &["ln -s"]),
            (2, &["truncate", "-s", "much", "pario://s/y"], &["is not a size"]),
            (1, &["mv", "pario://s/x", "pario://t/x"], &["no partition 't'", "there is: s"]),
        ],
    );
}

#[test]
fn names_that_are_unknown_or_taken() {
    let world = CliFixture::new();
    let data = world.text("data");
    assert!(world.fails(1, &["ls", "pario://nowhere/"]).contains("it has none; make one with `pario up`"));
    world.up("alpha", 1);
    world.up("beta", 1);
    let line = world.fails(1, &["ls", "pario://gamma/"]);
    assert!(line.contains("no partition 'gamma'") && line.contains("there is: alpha, beta"), "{line}");
    assert!(world.fails(1, &["down", "gamma"]).contains("there is: alpha, beta"));
    assert!(world.fails(1, &["down", "alpha", "gamma"]).contains("there is: alpha, beta"));
    world.ok(&["ls", "pario://alpha/"]);
    assert!(world.fails(1, &["up", "gamma"]).contains("there is: alpha, beta"));
    let line = world.fails(1, &["up", "--name", "alpha", "--servers", "1", "--dir", &data]);
    assert!(line.contains("'alpha' is already running") && line.contains("pario down alpha"), "{line}");
    world.ok(&["down", "alpha"]);
    let line = world.fails(2, &["up", "--name", "alpha", "--servers", "2", "--dir", &data]);
    assert!(line.contains("fixed at creation"), "{line}");
}

#[test]
fn directories_that_cannot_be_used() {
    let world = CliFixture::new();
    std::fs::write(world.path("file"), "").unwrap();
    let under_file = world.text("file");
    let line = world.fails(1, &["up", "--name", "x", "--servers", "2", "--dir", &under_file]);
    assert!(line.contains("file/x/server-0 is not a directory"), "{line}");
    // Not even root can make directories there.
    let line = world.fails(1, &["up", "--name", "x", "--servers", "1", "--dir", "/proc/1"]);
    assert!(line.contains("1 of 1 servers did not start") && line.contains("/proc/1/x/server-0"), "{line}");
    // One bad directory of three: the start of the others is undone.
    let data = world.text("data");
    let list = format!("{data}/one,{under_file}/two,{data}/three");
    let line = world.fails(1, &["up", "--name", "x", "--servers", &list]);
    assert!(line.contains("file/two is not a directory"), "{line}");
    let list = format!("{data}/one,/proc/1/two,{data}/three");
    let line = world.fails(1, &["up", "--name", "x", "--servers", &list]);
    assert!(
        line.contains("1 of 3 servers did not start") && line.contains("server 1 (/proc/1/two)"),
        "{line}"
    );
    world.assert_nothing_left();
}

#[test]
fn a_directory_that_is_gone_or_foreign_is_refused() {
    let world = CliFixture::new();
    world.up("s", 2);
    world.up("other", 1);
    world.ok(&["down", "--all"]);
    std::fs::rename(world.server_dir("s", 1), world.path("data/away")).unwrap();
    let line = world.fails(1, &["up", "s"]);
    assert!(line.contains("server 1") && line.contains("server-1"), "{line}");
    std::fs::rename(world.server_dir("other", 0), world.server_dir("s", 1)).unwrap();
    let line = world.fails(1, &["up", "s"]);
    assert!(line.contains("server 1") && line.contains("other"), "{line}");
    std::fs::rename(world.server_dir("s", 1), world.server_dir("other", 0)).unwrap();
    std::fs::rename(world.path("data/away"), world.server_dir("s", 1)).unwrap();
    world.ok(&["up", "s"]);
}

#[test]
fn a_registry_that_is_damaged_exposed_or_of_another_format() {
    let world = CliFixture::new();
    world.up("s", 1);
    let good = std::fs::read_to_string(world.registry()).unwrap();
    let write = |text: &str, mode: u32| {
        std::fs::write(world.registry(), text).unwrap();
        std::fs::set_permissions(world.registry(), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    write("nonsense [", 0o600);
    let line = world.fails(1, &["status"]);
    assert!(line.contains("is damaged") && line.contains("move it away"), "{line}");
    assert!(world.fails(1, &["ls", "pario://s/"]).contains("is damaged"));
    write(&good, 0o644);
    assert!(world.fails(1, &["status"]).contains("chmod 600"));
    write("format = 999\n", 0o600);
    assert!(world.fails(1, &["status"]).contains("format 999"));
    write(&good, 0o600);
    world.ok(&["ls", "pario://s/"]);
}

#[test]
fn a_wrong_secret_is_refused_by_name() {
    let world = CliFixture::new();
    world.up("s", 1);
    let good = std::fs::read_to_string(world.registry()).unwrap();
    let secret = good.lines().find(|line| line.starts_with("secret = ")).unwrap();
    let wrong = good.replace(secret, &format!("secret = \"{}\"", "ab".repeat(32)));
    std::fs::write(world.registry(), wrong).unwrap();
    let line = world.fails(1, &["ls", "pario://s/"]);
    assert!(line.contains("secret") && line.contains("PARIO_REGISTRY"), "{line}");
    std::fs::write(world.registry(), good).unwrap();
    world.ok(&["ls", "pario://s/"]);
}

#[test]
fn a_port_in_use_is_named() {
    let world = CliFixture::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, data) = (taken.local_addr().unwrap().port().to_string(), world.text("data"));
    let words = ["up", "--name", "p", "--servers", "1", "--dir", &data, "--port", &port];
    let line = world.fails(1, &words);
    assert!(line.contains("did not start") && line.contains(&port), "{line}");
    world.assert_nothing_left();
    drop(taken);
    world.ok(&words);
}

#[test]
fn files_for_directories_and_the_reverse() {
    let world = CliFixture::new();
    world.up("s", 2);
    std::fs::write(world.path("f"), "x").unwrap();
    std::fs::create_dir(world.path("dir")).unwrap();
    world.ok(&["cp", "f", "pario://s/d/"]);
    check(
        &world,
        &[
            (1, &["cat", "pario://s/d"], &["pario://s/d: is a directory"]),
            (1, &["rm", "pario://s/d"], &["is a directory", "-r"]),
            (1, &["cp", "pario://s/d", "out"], &["is a directory", "-r"]),
            (1, &["ls", "pario://s/d/f/x"], &["not a directory"]),
            (1, &["mkdir", "pario://s/d/f"], &["already exists"]),
            (1, &["mkdir", "pario://s/d/f/y"], &["not a directory"]),
            (1, &["mkdir", "pario://s/no/y"], &["no such file or directory"]),
            (1, &["mv", "pario://s/d", "pario://s/d/f"], &["pario://s/d/f"]),
            (1, &["rm", "pario://s/none"], &["pario://s/none: no such file or directory"]),
            (1, &["rm", "-r", "pario://s/"], &["root of a partition", "--destroy"]),
            (1, &["stat", "pario://s/none"], &["no such file or directory"]),
            (1, &["tree", "pario://s/d/f"], &["not a directory"]),
            (1, &["truncate", "-s", "1", "pario://s/d"], &["is a directory"]),
            (1, &["cp", "none", "pario://s/x"], &["none: no such file or directory"]),
            (
                1,
                &["cp", "f", "pario://s/no/way/x"],
                &["pario://s/no/way/x: no such file or directory", "there is no directory pario://s/no:"],
            ),
            (
                1,
                &["cp", "pario://s/d/f", "no/x"],
                &["no/x: no such file or directory", "there is no directory no:"],
            ),
            (1, &["cp", "-r", "dir", "pario://s/no/x"], &["there is no directory pario://s/no:"]),
            (1, &["cp", "f", "f", "pario://s/x"], &["not a directory", "slash"]),
            (1, &["cp", "-r", "dir", "pario://s/d/f"], &["pario://s/d/f: not a directory"]),
            (1, &["cp", "pario://s/d/f", "pario://s/d/f"], &["are the same file"]),
            (1, &["cp", "-r", "pario://s/d", "pario://s/d/e"], &["into itself"]),
        ],
    );
    // A directory replaces an empty one only.
    world.ok(&["mkdir", "-p", "pario://s/from/same", "pario://s/to/same/inner"]);
    let line = world.fails(1, &["mv", "pario://s/from/same", "pario://s/to"]);
    assert_eq!(line, "pario://s/to/same: directory not empty (empty it first, or use `pario rm -r`)");
    world.ok(&["rm", "-r", "pario://s/to/same/inner"]);
    world.ok(&["mv", "pario://s/from/same", "pario://s/to"]);
}

#[test]
fn some_done_and_some_not_is_said_by_the_code() {
    let world = CliFixture::new();
    world.up("s", 1);
    std::fs::write(world.path("f"), "x").unwrap();
    world.ok(&["cp", "f", "pario://s/a"]);
    let said = world.pario(&["rm", "pario://s/a", "pario://s/b", "pario://s/c"]);
    assert_eq!(said.code, 3, "{said:?}");
    assert_eq!(said.err.lines().count(), 2, "{said:?}");
    let said = world.pario(&["cp", "f", "missing", "pario://s/dir/"]);
    assert_eq!(said.code, 3, "{said:?}");
    assert_eq!(world.ok(&["ls", "pario://s/dir"]), "f\n");
}

#[test]
fn a_log_filter_that_is_none_is_refused() {
    let world = CliFixture::new();
    let said =
        crate::support::said(&world.command().env("PARIO_LOG", "loud").arg("status").output().unwrap());
    assert_eq!(said.code, 2);
    assert!(said.err.contains("PARIO_LOG") && said.err.contains("must be one of"), "{said:?}");
}
