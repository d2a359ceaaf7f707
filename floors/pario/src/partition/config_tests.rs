//! Partition files as people write them: what is read, and the one line for what is not.

use super::*;
use pario_core::Size;
use proptest::prelude::*;

const GOOD: &str = "name = \"s\"\nservers = [\"/d/0\", \"n1:/d\"]\n";

fn file(text: &str) -> Result<Settings, ConfigError> {
    Layers::new().text(text, Path::new("p.toml"))?.check()
}

#[track_caller]
fn check_refused(text: &str, expected: &str) {
    let message = file(text).unwrap_err().to_string();
    assert_eq!(message, expected);
    assert!(!message.contains('\n'));
}

/// A good file with one line more.
#[track_caller]
fn check_line_refused(line: &str, expected: &str) {
    check_refused(&format!("{GOOD}{line}\n"), expected);
}

#[test]
fn reads_every_key() {
    let settings = file(
        "name = \"s\"\nservers = [\"/d/0\", \"N1:/d//1/\"]\nmetadata = \"/m\"\nstripe = 65536\nstore = \"direct\"\n\
         checksums = \"on\"\nmemory = \"1GiB\"\nmethod = \"server-directed\"\nscheduler = \"mlf\"\nweights = { climate = 2, \"a b\" = 1 }\ntrace = \"/t\"\ntransport = \"tcp\"\n\
         launch = \"rsh {host} {command}\"\nlog = \"info,pario=debug\"\n\
         [cache]\noutbox = \"16MiB\"\nserver = \"1GiB\"\nhigh = 1\nlow = 0.25\n[network]\nbuffer = \"64KiB\"\nport = 7000\nprotect = \"all\"\n[limits]\nstore = \"125MB\"\noperations = 2000\n",
    )
    .unwrap();
    assert_eq!(settings.servers[1].to_string(), "n1:/d/1");
    assert_eq!(settings.metadata, Path::new("/m"));
    assert_eq!(settings.names_dir(), Path::new("/m/names"));
    assert_eq!((settings.stripe, settings.cache.outbox), (Size(65536), Size(16 << 20)));
    assert_eq!((settings.cache.high, settings.cache.low), (1.0, 0.25));
    assert_eq!((settings.network.buffer, settings.network.port), (Size(65536), 7000));
    assert_eq!(settings.network.protect.word(), "all");
    assert_eq!((settings.limits.store, settings.limits.operations), (Size(125_000_000), 2000));
    assert_eq!((settings.weights["climate"], settings.weights["a b"], settings.weights.len()), (2, 1, 2));
    assert_eq!(settings.trace.as_deref(), Some(Path::new("/t")));
    assert_eq!(settings.scheduler.word(), "mlf");
    assert_eq!(settings.checksums.word(), "on");
    assert!(Key::ALL.iter().all(|key| *settings.origin(*key) == SettingOrigin::File("p.toml".into())));
}

#[test]
fn checksums_need_a_disk() {
    check_line_refused("checksums = \"yes\"", "p.toml:3: checksums = \"yes\": must be one of: on, off");
    check_line_refused(
        "checksums = \"on\"\nstore = \"memory\"",
        "p.toml:3: checksums = \"on\": must be \"off\" with store = \"memory\": its bytes are not on a disk",
    );
}

#[test]
fn two_lines_are_enough() {
    let settings = file(GOOD).unwrap();
    assert_eq!(settings.metadata, Path::new("/d/0/names"));
    assert_eq!(settings.names_dir(), Path::new("/d/0/names"));
    assert_eq!(settings.names_base(), None);
    assert_eq!(settings.stripe, Size(1 << 20));
    assert_eq!(*settings.origin(Key::Stripe), SettingOrigin::Default);
}

#[test]
fn unknown_keys_get_the_nearest_known_one() {
    check_line_refused("strpe = 1", "p.toml:3: unknown key 'strpe': did you mean 'stripe'?");
    check_line_refused("outbox = 1", "p.toml:3: unknown key 'outbox': did you mean 'cache.outbox'?");
    check_line_refused("[cache]\nhihg = 1", "p.toml:4: unknown key 'cache.hihg': did you mean 'cache.high'?");
    check_line_refused("[cahce]\nhigh = 1", "p.toml:4: unknown key 'cahce.high': did you mean 'cache.high'?");
    check_line_refused("[cache.high]\nx = 1", "p.toml:3: cache.high = {…}: must be a number from 0 to 1");
    let message = file(&format!("{GOOD}colour-of-the-sky = 1")).unwrap_err().to_string();
    assert!(
        message.starts_with("p.toml:3: unknown key 'colour-of-the-sky'; known are: name, servers,"),
        "{message}"
    );
}

#[test]
fn values_of_the_wrong_type_are_named() {
    check_refused("name = 5", "p.toml:1: name = 5: must be a text in quotes");
    check_line_refused(
        "stripe = true",
        "p.toml:3: stripe = true: must be a size such as \"64KiB\", or a number of bytes",
    );
    check_line_refused(
        "cache = 5",
        "p.toml:3: cache = 5: is a section: write [cache] on a line of its own, and its keys below",
    );
    check_line_refused(
        "[cache]\nhigh = \"0.5\"",
        "p.toml:4: cache.high = \"0.5\": must be a number from 0 to 1",
    );
    check_line_refused("[network]\nport = 1.5", "p.toml:4: network.port = 1.5: must be a whole number");
    check_refused(
        "name = \"s\"\nservers = \"/d\"",
        "p.toml:2: servers = \"/d\": must be a list of texts, as in [\"/data/0\", \"node1:/data\"]",
    );
}

#[test]
fn values_that_break_a_rule_are_named() {
    check_line_refused(
        "stripe = \"64 Kibble\"",
        "p.toml:3: stripe = \"64 Kibble\": '64 Kibble' is not a size: write a number with an optional unit, such as 4096, 64KiB, 8MiB, 1.5GiB or 10MB",
    );
    check_line_refused("stripe = 5000", "p.toml:3: stripe = \"5000\": must be a multiple of 4KiB");
    check_line_refused("stripe = 0", "p.toml:3: stripe = \"0\": must be from 4KiB to 1GiB");
    check_line_refused(
        "store = \"tape\"",
        "p.toml:3: store = \"tape\": must be one of: files, direct, log, memory",
    );
    check_line_refused(
        "method = \"three-phase\"",
        "p.toml:3: method = \"three-phase\": must be one of: auto, server-directed, client-directed, two-phase",
    );
    check_line_refused(
        "scheduler = \"cfq\"",
        "p.toml:3: scheduler = \"cfq\": must be one of: fifo, mlf, wsjf, sjf, deadline, tbf, wfq",
    );
    let weights = "must be names of 1 to 64 characters without ',' and '=', with weights from 1 to 1000, as in climate = 2";
    check_line_refused("[weights]\nclimate = 0", &format!("p.toml:3: weights = [\"climate=0\"]: {weights}"));
    check_line_refused(
        "[weights]\nclimate = \"2\"",
        "p.toml:3: weights = {…}: must be names with whole numbers, as in climate = 2",
    );
    check_line_refused(
        "trace = \"t\"",
        "p.toml:3: trace = \"t\": must be an absolute directory, as in \"/tmp/traces\"",
    );
    check_line_refused(
        "[limits]\noperations = -1",
        "p.toml:4: limits.operations = \"-1\": must be 0 for no limit, or from 1 to 1000000 a second",
    );
    check_line_refused("transport = \"ip\"", "p.toml:3: transport = \"ip\": must be one of: auto, unix, tcp");
    check_line_refused(
        "[cache]\nlow = 0.9",
        "p.toml:4: cache.low = \"0.9\": cache.low (0.9) must be below cache.high (0.75)",
    );
    check_line_refused(
        "[cache]\nhigh = 0.1",
        "p.toml:4: cache.high = \"0.1\": cache.low (0.5) must be below cache.high (0.1)",
    );
    check_line_refused("[cache]\nhigh = nan", "p.toml:4: cache.high = \"nan\": must be a number from 0 to 1");
    check_line_refused("[cache]\noutbox = 1", "p.toml:4: cache.outbox = \"1\": must be from 256KiB to 1GiB");
    check_line_refused(
        "[network]\nport = 65536",
        "p.toml:4: network.port = \"65536\": must be a whole number from 0 to 65535",
    );
    check_line_refused(
        "[limits]\nstore = 1000",
        "p.toml:4: limits.store = \"1000\": must be 0 for no limit, or at least 1MiB a second",
    );
    check_line_refused(
        "[network]\nport = 65535",
        "p.toml:4: network.port = \"65535\": 2 servers need ports up to 65536, the last is 65535",
    );
    check_line_refused(
        "store = \"direct\"\nstripe = \"1GiB\"",
        "default: cache.server = \"256MiB\": with store = \"direct\" it must hold two blocks of the stripe, 2GiB",
    );
    check_line_refused(
        "metadata = \"names\"",
        "p.toml:3: metadata = \"names\": is a directory on the first server's machine: needs an absolute directory: write \"/dir\" or \"host:/dir\"",
    );
    check_line_refused(
        "metadata = \"/d/0/objects\"",
        "p.toml:3: metadata = \"/d/0/objects\": must not overlap with a server's directory, \"/d/0\"; leave it out to use that",
    );
}

#[test]
fn names_and_servers_have_rules() {
    let name = |name: &str| format!("name = \"{name}\"\nservers = [\"/d\"]");
    check_refused(
        &name("a/b"),
        "p.toml:1: name = \"a/b\": a partition's name must not have a slash; a file in it is written pario://NAME/path",
    );
    check_refused(&name(".a"), "p.toml:1: name = \".a\": a partition's name must not start with '.'");
    let servers = |list: &str| format!("name = \"s\"\nservers = [{list}]");
    check_refused(&servers(""), "p.toml:2: servers = 0 servers: a partition has 1 to 1024 servers");
    let many: Vec<String> = (0..1025).map(|at| format!("\"/d/{at}\"")).collect();
    check_refused(
        &servers(&many.join(",")),
        "p.toml:2: servers = 1025 servers: a partition has 1 to 1024 servers",
    );
    assert_eq!(file(&servers(&many[..1024].join(","))).unwrap().servers.len(), 1024);
    check_refused(
        &servers("\"/a\", \"data\""),
        "p.toml:2: servers = \"data\": needs an absolute directory: write \"/dir\" or \"host:/dir\"",
    );
    check_refused(
        &servers("\"/a\", \"/b\", \"/a/\""),
        "p.toml:2: servers = \"/a/\": servers 0 and 2 would share a directory; give each its own: \"/a\"",
    );
    check_refused(
        &servers("\"-x:/a\""),
        "p.toml:2: servers = \"-x:/a\": '-x' is not a host: write a name, an IPv4 address, or an IPv6 address in brackets",
    );
}

#[test]
fn what_is_missing_is_named_with_its_cures() {
    check_refused(
        "servers = [\"/d\"]",
        "'name' is missing: set it in the partition file, by PARIO_NAME or by --name",
    );
    check_refused(
        "name = \"s\"",
        "'servers' is missing: give them by `--servers 4 --dir /data`, by PARIO_SERVERS or in a partition file",
    );
}

#[test]
fn files_that_are_no_files_are_named() {
    let message = Layers::new().file(Path::new("/no/such/file.toml")).unwrap_err().to_string();
    assert_eq!(
        message,
        "/no/such/file.toml: cannot read the partition file: No such file or directory (os error 2)"
    );
    let dir = tempfile::tempdir().unwrap();
    assert!(Layers::new().file(dir.path()).unwrap_err().to_string().contains("cannot read"));
    for text in ["name = ", "= 1", "name", "name = \"a\"\nname = \"b\"", "[cache\n"] {
        let message = file(text).unwrap_err().to_string();
        assert!(message.starts_with("p.toml:") && message.contains("not a partition file"), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
}

fn environment(layers: Layers, pairs: &[(&str, &str)]) -> Result<Layers, ConfigError> {
    layers.environment_from(|variable| {
        pairs.iter().find(|(name, _)| *name == variable).map(|(_, value)| value.into())
    })
}

#[test]
fn later_layers_win_whatever_the_order_of_calls() {
    let layers = Layers::new().option(Key::Log, "trace", "--verbose");
    let layers =
        environment(layers, &[("PARIO_LOG", "error"), ("PARIO_STRIPE", "64KiB"), ("PARIO_METHOD", "")])
            .unwrap();
    let text = format!("{GOOD}log = \"info\"\nstripe = \"8KiB\"\nmethod = \"auto\"\n[cache]\nlow = 0.1\n");
    let settings = layers.text(&text, Path::new("p.toml")).unwrap().check().unwrap();
    let shown = |key: Key| (settings.value(key).to_string(), settings.origin(key).to_string());
    assert_eq!(shown(Key::Log), ("\"trace\"".into(), "option --verbose".into()));
    assert_eq!(shown(Key::Stripe), ("\"64KiB\"".into(), "environment PARIO_STRIPE".into()));
    assert_eq!(shown(Key::Method), ("\"auto\"".into(), "file p.toml".into()));
    assert_eq!(shown(Key::CacheLow), ("0.1".into(), "file p.toml".into()));
    assert_eq!(shown(Key::CacheHigh), ("0.75".into(), "default".into()));
}

#[test]
fn environment_and_options_alone_make_a_partition() {
    let layers = Layers::new().option_list(Key::Servers, vec!["/d/0".into(), "/d/1".into()], "--servers");
    let settings = environment(layers, &[("PARIO_NAME", "e")]).unwrap().check().unwrap();
    assert_eq!((settings.name.as_str(), settings.servers.len()), ("e", 2));
    let settings =
        environment(Layers::new(), &[("PARIO_NAME", "e"), ("PARIO_SERVERS", "/a, n1:/b")]).unwrap();
    assert_eq!(settings.name(), Some("e"));
    assert_eq!(settings.check().unwrap().servers[1].to_string(), "n1:/b");
}

#[test]
fn errors_of_environment_and_options_say_so() {
    let message = |layers: Layers| layers.check().unwrap_err().to_string();
    let good = || Layers::new().text(GOOD, Path::new("p.toml")).unwrap();
    assert_eq!(
        message(environment(good(), &[("PARIO_STRIPE", "1")]).unwrap()),
        "environment PARIO_STRIPE: stripe = \"1\": must be from 4KiB to 1GiB"
    );
    assert_eq!(
        message(good().option(Key::NetworkPort, "-1", "--port")),
        "option --port: network.port = \"-1\": must be a whole number from 0 to 65535"
    );
}

#[test]
fn structural_settings_cannot_change_and_dynamic_ones_can() {
    let stored = file(&format!("{GOOD}log = \"info\"\n[cache]\nlow = 0.1")).unwrap();
    let again =
        Layers::new().stored(&stored).text("log = \"debug\"", Path::new("q.toml")).unwrap().check().unwrap();
    assert_eq!(again.servers, stored.servers);
    assert_eq!((again.log.as_str(), again.cache.low), ("debug", 0.1));
    assert_eq!(again.origin(Key::CacheLow), &SettingOrigin::Stored);
    for (line, key, old, new) in [
        ("stripe = \"64KiB\"", "stripe", "\"1MiB\"", "\"64KiB\""),
        ("store = \"memory\"", "store", "\"files\"", "\"memory\""),
        ("servers = [\"/d/0\"]", "servers", "[\"/d/0\", \"n1:/d\"]", "[\"/d/0\"]"),
        ("metadata = \"/m\"", "metadata", "\"/d/0/names\"", "\"/m\""),
        ("name = \"t\"", "name", "\"s\"", "\"t\""),
    ] {
        let message = Layers::new()
            .stored(&stored)
            .text(line, Path::new("q.toml"))
            .unwrap()
            .check()
            .unwrap_err()
            .to_string();
        let expected = format!(
            "q.toml:1: {key} = {new}: partition 's' was created with {old}, and {key} is fixed at creation; take it out, \
             or use another name, or remove the partition first with `pario down --destroy s`"
        );
        assert_eq!(message, expected);
    }
}

#[test]
fn what_the_environment_said_holds_for_one_up() {
    let layers =
        Layers::new().text(GOOD, Path::new("p.toml")).unwrap().option(Key::CacheHigh, "0.9", "--high");
    let first = environment(layers, &[("PARIO_LOG", "trace")]).unwrap().check().unwrap();
    assert_eq!(first.log.as_str(), "trace");
    let second = Layers::new().stored(&first).check().unwrap();
    assert_eq!(second.log.as_str(), "warn");
    assert_eq!(*second.origin(Key::Log), SettingOrigin::Default);
    assert_eq!(second.cache.high, 0.9);
}

#[test]
fn show_lists_every_key_once() {
    let rows = file(GOOD).unwrap().explain();
    assert_eq!(rows.len(), Key::ALL.len());
    let stripe = rows.iter().find(|row| row.key == "stripe").unwrap();
    assert_eq!(
        (stripe.value.as_str(), stripe.origin.as_str(), stripe.kind.as_str()),
        ("\"1MiB\"", "default", "structural")
    );
    assert_eq!(rows.iter().filter(|row| row.kind == "structural").count(), 6);
}

fn check_survives(settings: &Settings) {
    let again = Layers::new().text(&settings.to_toml(), Path::new("x")).unwrap().check().unwrap();
    for &key in Key::ALL {
        assert_eq!(again.value(key), settings.value(key));
    }
    let json = serde_json::to_string(settings).unwrap();
    assert_eq!(&serde_json::from_str::<Settings>(&json).unwrap(), settings);
    let toml = toml::to_string(settings).unwrap();
    assert_eq!(&toml::from_str::<Settings>(&toml).unwrap(), settings);
}

#[test]
fn settings_survive_toml_and_json() {
    check_survives(&file(GOOD).unwrap());
    let odd = format!(
        "{GOOD}launch = 'ssh -o \"A B\" {{host}} \"exec {{command}}\"'\n[cache]\nhigh = 1.0\nlow = 1e-3\n"
    );
    check_survives(&file(&odd).unwrap());
}

#[test]
fn settings_without_a_part_are_refused() {
    let json = serde_json::to_value(file(GOOD).unwrap()).unwrap();
    for gone in ["name", "origins", "stripe"] {
        let mut part = json.clone();
        part.as_object_mut().unwrap().remove(gone);
        assert!(serde_json::from_value::<Settings>(part).unwrap_err().to_string().contains(gone));
    }
    // A dynamic one that an older release did not know has its default.
    let mut older = json;
    older["network"].as_object_mut().unwrap().remove("protect");
    assert_eq!(serde_json::from_value::<Settings>(older).unwrap().network.protect.word(), "full");
}

proptest! {
    #[test]
    fn any_good_settings_survive(
        stripe in 1u64..=1 << 18, outbox in (256u64 << 10)..=1 << 30, low in 0.0f64..0.74, port in 0u16..60000,
        dirs in prop::collection::hash_set("[a-z]{1,6}", 1..6),
    ) {
        let servers: Vec<String> = dirs.iter().map(|dir| format!("\"h{}:/{dir}\"", dir.len())).collect();
        let text = format!(
            "name = \"s\"\nservers = [{}]\nstripe = {}\n[cache]\noutbox = {outbox}\nlow = {low:?}\n[network]\nport = {port}\n",
            servers.join(", "), stripe * 4096,
        );
        check_survives(&file(&text).unwrap());
    }

    #[test]
    fn no_text_breaks_the_reader(text in "[a-z\"=\\[\\]\\. \n0-9{}#']{0,200}") {
        if let Err(error) = file(&text) {
            prop_assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
