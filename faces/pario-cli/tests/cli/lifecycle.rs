//! Up, down, status, config: the life of a partition.

use rustix::process::Signal;

use crate::support::{CliFixture, RunningCommand, kill, until};

#[test]
fn up_says_one_line_and_down_keeps_the_data() {
    let world = CliFixture::new();
    let data = world.text("data");
    let line = world.ok(&["up", "--name", "scratch", "--servers", "4", "--dir", &data]);
    assert!(line.starts_with("scratch: 4 servers ready in 0.") && line.ends_with(" free\n"), "{line}");
    assert_eq!(line.lines().count(), 1);
    std::fs::write(world.path("f"), "kept").unwrap();
    world.ok(&["cp", "f", "pario://scratch/f"]);
    assert_eq!(world.ok(&["down", "scratch"]), "scratch: 4 servers stopped, data kept\n");
    assert!(until(|| world.processes().is_empty()));
    assert!(world.ok(&["status"]).starts_with("scratch: down, 4 servers\n"));
    assert!(world.fails(1, &["ls", "pario://scratch/"]).contains("`pario up scratch`"));
    world.ok(&["up", "scratch"]);
    assert_eq!(world.ok(&["cat", "pario://scratch/f"]), "kept");
}

#[test]
fn destroy_leaves_nothing() {
    let world = CliFixture::new();
    world.up("a", 3);
    world.up("b", 1);
    let data = world.text("data");
    world.ok(&["up", "--name", "c", "--servers", "2", "--dir", &data, "--checksums", "on"]);
    std::fs::write(world.path("f"), vec![1; 3 << 20]).unwrap();
    world.ok(&["cp", "f", "pario://a/dir/"]);
    world.ok(&["cp", "f", "pario://c/dir/"]);
    assert!(world.server_dir("c", 1).join("sums").exists());
    assert!(world.server_dir("a", 0).join("socket").exists());
    world.ok(&["down", "a", "--destroy"]);
    world.ok(&["down", "c", "--destroy"]);
    assert!(!world.path("data/c").exists());
    assert_eq!(world.processes().len(), 1);
    world.ok(&["down", "--all", "--destroy"]);
    world.assert_nothing_left();
}

#[test]
fn a_partition_file_is_enough() {
    let world = CliFixture::new();
    let data = world.text("data");
    let file = format!("name = \"filed\"\nstripe = \"64KiB\"\nservers = [\"{data}/x\", \"{data}/y\"]\n");
    std::fs::write(world.path("filed.toml"), file).unwrap();
    world.ok(&["up", "filed.toml"]);
    let stat = world.json(&["status", "filed"]);
    assert_eq!(stat[0]["settings"]["stripe"], "64KiB");
    assert_eq!(stat[0]["servers"].as_array().unwrap().len(), 2);
    world.ok(&["down", "filed"]);
    world.ok(&["up", "filed.toml"]);
}

#[test]
fn servers_that_died_come_back_with_their_data() {
    let world = CliFixture::new();
    world.up("s", 2);
    std::fs::write(world.path("f"), "written before").unwrap();
    world.ok(&["cp", "f", "pario://s/f"]);
    for pid in world.server_pids("s") {
        kill(pid, Signal::KILL);
    }
    assert!(until(|| world.processes().is_empty()));
    let line = world.fails(1, &["ls", "pario://s/"]);
    assert!(line.contains("'s' is dead") && line.contains("`pario up s`"), "{line}");
    let status = world.pario(&["status", "s"]);
    assert_eq!(status.code, 3);
    assert!(status.out.contains("s: dead") && status.out.contains("pario up s"), "{status:?}");
    assert_eq!(world.pario(&["status"]).code, 0);
    world.ok(&["up", "s"]);
    assert_eq!(world.ok(&["cat", "pario://s/f"]), "written before");
}

#[test]
fn one_server_that_died_is_named_and_started_again() {
    let world = CliFixture::new();
    world.up("s", 3);
    std::fs::write(world.path("f"), vec![7; 5 << 20]).unwrap();
    world.ok(&["cp", "f", "pario://s/f"]);
    let pids = world.server_pids("s");
    kill(pids[1], Signal::KILL);
    assert!(until(|| world.processes().len() == 2));
    let status = world.pario(&["status", "s"]);
    assert_eq!(status.code, 3);
    assert!(status.out.contains("partly running"), "{status:?}");
    assert!(status.out.contains("`pario up s` restarts server 1; the others go on"), "{status:?}");
    assert!(status.out.contains("server 1 (") && status.out.contains("is gone"), "{status:?}");
    for words in [&["cat", "pario://s/f"][..], &["cp", "f", "pario://s/g"]] {
        let line = world.fails(1, words);
        assert!(line.contains("server 1") && line.contains("`pario up s`"), "{line}");
        assert_eq!(line.matches("pario://s/").count(), 1, "{line}");
        assert!(!line.contains(".pario-"), "{line}");
    }
    // Of a tree, only the first failing file is reported.
    std::fs::create_dir(world.path("tree")).unwrap();
    for number in 0..20 {
        std::fs::write(world.path(format!("tree/{number}")), vec![7; 3 << 20]).unwrap();
    }
    let line = world.fails(1, &["cp", "-r", "tree", "pario://s/"]);
    assert!(line.contains("server 1") && !line.contains(".pario-"), "{line}");
    assert!(world.fails(1, &["df", "s"]).contains("`pario up s`"));
    assert!(world.ok(&["up", "s"]).starts_with("s: 1 of 3 servers restarted in "));
    let now = world.server_pids("s");
    assert_eq!([now[0], now[2]], [pids[0], pids[2]], "the others go on");
    assert_ne!(now[1], pids[1]);
    assert_eq!(world.pario(&["cat", "pario://s/f"]).out.len(), 5 << 20);
}

#[test]
fn a_server_that_stands_still_is_named_in_time() {
    let world = CliFixture::new();
    world.up("s", 2);
    let pids = world.server_pids("s");
    kill(pids[1], Signal::STOP);
    let status = world.pario(&["status", "s"]);
    kill(pids[1], Signal::CONT);
    assert_eq!(status.code, 3, "{status:?}");
    assert!(status.out.contains("partly running") && status.out.contains("unreachable"), "{status:?}");
    assert!(until(|| world.pario(&["status", "s"]).code == 0));
}

#[test]
fn watching_repeats_until_interrupted() {
    let world = CliFixture::new();
    world.up("s", 1);
    let said = RunningCommand::start(
        std::process::Command::new("sh")
            .args(["-c", "exec \"$@\" > \"$0\""])
            .args([
                world.path("watched").as_os_str(),
                env!("CARGO_BIN_EXE_pario").as_ref(),
                "status".as_ref(),
                "--watch".as_ref(),
                "0.1".as_ref(),
            ])
            .env("PARIO_REGISTRY", world.registry()),
    );
    let seen = || std::fs::read_to_string(world.path("watched")).unwrap_or_default();
    assert!(until(|| 2 < seen().matches("s: running, 1 server").count()), "{}", seen());
    assert!(seen().contains("B/s"), "rates are shown from the second time on: {}", seen());
    kill(said.pid(), Signal::INT);
    let said = said.said();
    assert_eq!((said.code, said.err.as_str()), (0, ""));
}

#[test]
fn of_two_ups_at_once_one_wins() {
    let world = CliFixture::new();
    let data = world.text("data");
    let up = || {
        RunningCommand::start(world.command().args(["up", "--name", "one", "--servers", "2", "--dir", &data]))
    };
    let said: Vec<_> = [up(), up(), up()].into_iter().map(RunningCommand::said).collect();
    let winners = said.iter().filter(|said| said.code == 0).count();
    assert_eq!(winners, 1, "{said:?}");
    for loser in said.iter().filter(|said| said.code != 0) {
        assert_eq!((loser.code, loser.err.lines().count()), (1, 1), "{loser:?}");
        assert!(loser.err.contains("is already running") || loser.err.contains("being started"), "{loser:?}");
    }
    world.ok(&["ls", "pario://one/"]);
    assert_eq!(world.processes().len(), 2);
}

#[test]
fn status_names_what_is_there() {
    let world = CliFixture::new();
    assert!(world.ok(&["status"]).contains("no partitions in registry"));
    world.up("a", 2);
    world.up("b", 1);
    let status = world.ok(&["status"]);
    assert!(status.contains("a: running, 2 servers") && status.contains("b: running, 1 server,"), "{status}");
    let facts = world.json(&["status", "a"]);
    assert_eq!(facts[0]["servers"][1]["health"], "ok");
    assert!(facts[0]["servers"][0]["status"]["counters"]["requests"].is_u64(), "{facts}");
    assert!(facts[0]["space"]["free_bytes"].as_u64().unwrap() > 0);
    let registry = std::fs::read_to_string(world.registry()).unwrap();
    let secret = registry.lines().find_map(|line| line.strip_prefix("secret = \"")).unwrap();
    assert!(!facts.to_string().contains(secret.trim_end_matches('"')), "a secret is not shown");
}

#[test]
fn config_tells_where_each_setting_came_from() {
    let world = CliFixture::new();
    std::fs::write(world.path("p.toml"), "name = \"p\"\nservers = [\"/x/0\"]\nstripe = \"64KiB\"\n").unwrap();
    let mut command = world.command();
    command
        .env("PARIO_CACHE_OUTBOX", "16MiB")
        .args(["config", "show", "--wide", "p.toml", "--memory", "1GiB"]);
    let said = crate::support::said(&command.output().unwrap());
    let row = |key: &str| said.out.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
    assert!(row("stripe ").contains("\"64KiB\"") && row("stripe ").contains("p.toml"), "{said:?}");
    assert!(row("cache.outbox").contains("environment PARIO_CACHE_OUTBOX"), "{said:?}");
    assert!(row("memory").contains("option --memory"), "{said:?}");
    assert!(row("store").contains("default"), "{said:?}");
    std::fs::write(world.path("d.toml"), world.ok(&["config", "default"])).unwrap();
    assert!(world.json(&["config", "show", "d.toml"]).as_array().unwrap().len() > 10);
    world.up("known", 1);
    let rows = world.json(&["config", "show", "known"]);
    let row = |key: &str| rows.as_array().unwrap().iter().find(|row| row["key"] == key).unwrap().clone();
    assert_eq!((&row("name")["origin"], &row("name")["value"]), (&"stored".into(), &"known".into()));
    assert!(row("servers")["value"].is_array() && row("network.port")["value"].is_u64(), "{rows}");
    let toml = world.ok(&["config", "show", "p.toml", "--toml"]);
    assert!(toml.contains("stripe = \"64KiB\""), "{toml}");
}

#[test]
fn a_memory_partition_holds_files_until_it_goes() {
    let world = CliFixture::new();
    let data = world.text("data");
    world.ok(&[
        "up",
        "--name",
        "m",
        "--servers",
        "2",
        "--dir",
        &data,
        "--store",
        "memory",
        "--memory",
        "64MiB",
    ]);
    std::fs::write(world.path("f"), vec![9; 3 << 20]).unwrap();
    world.ok(&["cp", "f", "pario://m/f"]);
    assert_eq!(world.pario(&["cat", "pario://m/f"]).out.len(), 3 << 20);
    assert!(world.ok(&["df", "m"]).contains("128 MiB"));
    assert!(world.ok(&["down", "m"]).contains("data removed"));
    world.assert_nothing_left();
}

#[test]
fn a_registry_can_be_named() {
    let world = CliFixture::new();
    let (data, other) = (world.text("data"), world.text("other"));
    world.ok(&["up", "--name", "o", "--servers", "1", "--dir", &data, "--registry", &other]);
    assert!(world.fails(1, &["ls", "pario://o/"]).contains("no partition 'o'"));
    world.ok(&["--registry", &other, "ls", "pario://o/"]);
    world.ok(&["--registry", &other, "down", "o", "--destroy"]);
}
