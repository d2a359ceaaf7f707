//! What `pario status`, `df` and `config show` tell, and that it fits a terminal of 80 columns.

use std::fs;

use crate::support::{CliFixture, noise, until};

#[track_caller]
fn assert_narrow(text: &str) {
    let wide: Vec<&str> = text.lines().filter(|line| 80 < line.chars().count()).collect();
    assert!(wide.is_empty(), "wider than 80 columns: {wide:#?}");
}

#[test]
fn direct_accesses_are_counted() {
    let world = CliFixture::new();
    world.up("s", 3);
    fs::write(world.path("f"), noise(48 << 20)).unwrap();
    world.ok(&["cp", "f", "pario://s/f"]);
    world.ok(&["cp", "pario://s/f", "back"]);
    let counted = |name: &str| {
        let status = world.json(&["status", "s"]);
        let servers = status[0]["servers"].as_array().expect("servers").clone();
        let sum: u64 = servers.iter().filter_map(|server| server["status"]["counters"][name].as_u64()).sum();
        (sum, status)
    };
    for name in ["direct_written_bytes", "direct_read_bytes"] {
        assert!(until(|| 40 << 20 <= counted(name).0), "{name}: {}", counted(name).1);
        assert!(counted(name).0 <= 48 << 20, "{name} counts each byte once: {}", counted(name).0);
    }
    let text = world.ok(&["status", "s"]);
    assert!(text.contains("\n  direct: 48") && text.contains(" read by clients\n"), "{text}");
    assert_narrow(&text);
    let wide = world.ok(&["status", "--wide", "s"]);
    for column in ["memory", "cache", "p99", "where"] {
        assert!(wide.contains(column) && !text.contains(column), "{column}: {wide}");
    }
}

#[test]
fn df_tells_what_the_partition_itself_takes() {
    let world = CliFixture::new();
    world.up("s", 2);
    let stored = || world.json(&["df", "s"])[0]["stored_bytes"].as_u64().unwrap();
    assert_eq!(stored(), 0);
    fs::write(world.path("f"), noise(10 << 20)).unwrap();
    world.ok(&["cp", "f", "pario://s/f"]);
    // A hole allocates nothing.
    world.ok(&["truncate", "-s", "1TiB", "pario://s/f"]);
    let near = |bytes: u64| (10 << 20..11 << 20).contains(&bytes);
    assert!(until(|| near(stored())), "{}", stored());
    let facts = world.json(&["df", "s"]);
    let each: u64 = facts[0]["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|server| server["stored_bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(each, facts[0]["stored_bytes"].as_u64().unwrap());
    let text = world.ok(&["df", "-v", "s"]);
    assert!(text.starts_with("partition ") && text.contains(" data "), "{text}");
    assert_narrow(&text);
    world.ok(&["rm", "pario://s/f"]);
    assert!(until(|| stored() == 0), "{}", stored());
}

#[test]
fn settings_fit_a_terminal() {
    let world = CliFixture::new();
    let words =
        ["config", "show", "--name", "s", "--servers", "8", "--dir", "/a/rather/long/directory/for/data"];
    let narrow = world.ok(&words);
    assert_narrow(&narrow);
    let joined: String = narrow.split_whitespace().collect();
    assert!(joined.contains("server-7"), "nothing is left out: {narrow}");
    let wide = world.ok(&[&words[..], &["--wide"]].concat());
    assert!(wide.lines().any(|line| line.starts_with("servers") && line.contains("server-7")), "{wide}");
}
