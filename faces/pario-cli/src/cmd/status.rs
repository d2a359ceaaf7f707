//! `pario status`: partitions, their servers and their load.

use std::io::Write;
use std::time::Duration;

use clap::Args as ClapArgs;
use serde_json::Value;

use crate::clock::{Stopwatch, sleep};
use crate::context::Context;
use crate::error::{CliError, CliResult, EXIT_PARTLY};
use crate::human::{self, count, duration};
use crate::table::Table;
use pario::core::Size;
use pario::health::{Condition, PartitionHealth, ServerHealth};

/// Columns that fit into 80 characters.
const SERVER_COLUMNS: [&str; 8] =
    ["server", "health", "up", "requests", "received", "sent", "staged", "clients"];
const APPLICATION_COLUMNS: [&str; 7] =
    ["application", "weight", "requests", "refused", "taken", "wait p99", "slow-down"];

/// Arguments of `pario status`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario status                  every partition of the registry
  pario status scratch          one; exit code 3 if not all of its servers are there
  pario status --wide           with memory, caches, latency and addresses
  pario status --watch          again every second, with rates
  pario status --locks scratch  locks of files, their holders and waiting requests
  pario status --json           everything that the servers count")]
pub(crate) struct Args {
    /// Partitions; without any, all of the registry
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Repeat with the rates since the last output; every second by default
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = parse_pause)]
    watch: Option<f64>,
    /// All columns, also beyond 80 characters
    #[arg(long)]
    wide: bool,
    /// Also the locks of files, their holders and waiting requests
    #[arg(short, long)]
    locks: bool,
}

fn parse_pause(text: &str) -> Result<f64, String> {
    let pause = text.parse().ok().filter(|pause| (0.1..=86_400.0).contains(pause));
    pause.ok_or_else(|| "must be a number of seconds, 0.1 to 86400".to_owned())
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let Some(pause) = args.watch else {
        let seen = sample(context, args)?;
        print(context, args, &seen, None)?;
        let ill = |health: &&PartitionHealth| matches!(health.condition, Condition::Dead | Condition::Partly);
        return match seen.iter().find(ill) {
            Some(_) if !args.names.is_empty() => Err(CliError::Reported { code: EXIT_PARTLY }),
            Some(_) | None => Ok(()),
        };
    };
    context.stop.catch()?;
    let mut before: Option<(Vec<PartitionHealth>, Stopwatch)> = None;
    while context.stop.signal().is_none() {
        let (seen, now) = (sample(context, args)?, Stopwatch::now());
        if context.is_terminal() && !context.speech.json {
            // Home, and clear what is below.
            context.print(|out| out.write_all(b"\x1b[H\x1b[J"))?;
        }
        print(context, args, &seen, before.as_ref().map(|(seen, then)| (seen.as_slice(), then.elapsed())))?;
        context.flush()?;
        before = Some((seen, now));
        sleep(Duration::from_secs_f64(pause));
    }
    Ok(())
}

fn sample(context: &Context, args: &Args) -> CliResult<Vec<PartitionHealth>> {
    let registry = context.registry()?;
    let entries = match args.names.is_empty() {
        true => registry.list()?,
        false => args
            .names
            .iter()
            .map(|name| Ok(registry.find(&context.partition_name(Some(name))?)?))
            .collect::<CliResult<Vec<_>>>()?,
    };
    Ok(PartitionHealth::of_all(&entries))
}

/// The previous sample, and its age.
type Before<'a> = Option<(&'a [PartitionHealth], Duration)>;

fn print(context: &Context, args: &Args, seen: &[PartitionHealth], before: Before<'_>) -> CliResult {
    if context.speech.json {
        return context.json(&seen.iter().map(PartitionHealth::facts).collect::<Vec<_>>());
    }
    if seen.is_empty() {
        let path = context.registry()?.path().display().to_string();
        return context.line(format!("no partitions in registry {path}; make one with `pario up`"));
    }
    for (at, health) in seen.iter().enumerate() {
        if at != 0 {
            context.line("")?;
        }
        let earlier = before.and_then(|(seen, ago)| {
            let same = |other: &&PartitionHealth| other.name == health.name;
            Some((seen.iter().find(same)?, ago))
        });
        partition(context, args, (health, earlier))?;
        if args.locks {
            locks(context, health)?;
        }
    }
    Ok(())
}

/// A partition with its previous sample.
type HealthSample<'a> = (&'a PartitionHealth, Option<(&'a PartitionHealth, Duration)>);

fn partition(context: &Context, args: &Args, (health, earlier): HealthSample<'_>) -> CliResult {
    let servers = count(health.size(), "server");
    let room = match health.space() {
        Some(space) => {
            let (free, total) = (Size(space.free_bytes).rounded(), Size(space.total_bytes).rounded());
            format!(", {free} free of {total}")
        }
        None => String::new(),
    };
    context.line(format!("{}: {}, {servers}{room}", health.name, health.condition.word()))?;
    if let Some(cure) = health.cure() {
        context.line(format!("  {cure}"))?;
    }
    if health.servers.iter().any(|server| server.report.is_ok()) {
        let mut table = Table::with_head(&[
            "server", "<health", "up", "free", "memory", "cache", "hits", "requests", "received", "sent",
            "staged", "p50", "p99", "clients", "<where",
        ])
        .indented(2);
        for server in &health.servers {
            let old = earlier.and_then(|(old, ago)| {
                let report =
                    old.servers.iter().find(|other| other.index == server.index)?.report.as_ref().ok()?;
                Some((report, ago))
            });
            table.row(row(server, old));
        }
        let table = if args.wide { table } else { table.with_columns(&SERVER_COLUMNS) };
        context.print(|out| table.print(out))?;
        if let Some(line) = direct(health, earlier) {
            context.line(line)?;
        }
    }
    for server in &health.servers {
        if let Err(reason) = &server.report {
            context.line(format!("  server {} ({}): {reason}", server.index, server.location))?;
        }
    }
    let manager = health.servers.first().and_then(|server| server.report.as_ref().ok());
    for mount in manager.map(crate::mount_clients::in_report).unwrap_or_default() {
        context.line(format!("  mounted in {mount}"))?;
    }
    for export in manager.map(crate::export_clients::in_report).unwrap_or_default() {
        context.line(format!("  exported on {export}"))?;
    }
    applications(context, args, health)?;
    waits(context, health)
}

/// Requests and throughput of each application under a scheduler: sums over all servers, and the longest of their waits.
fn applications(context: &Context, args: &Args, health: &PartitionHealth) -> CliResult {
    let reports = health.servers.iter().filter_map(|server| server.report.as_ref().ok());
    let shares = shares(reports.map(|report| &report["scheduler"]));
    if shares.is_empty() {
        return Ok(());
    }
    let mut table = Table::with_head(&[
        "<application",
        "weight",
        "requests",
        "ahead",
        "ordered",
        "calls",
        "refused",
        "records",
        "taken",
        "wait p50",
        "wait p99",
        "slow-down",
    ])
    .indented(2);
    for (name, share) in shares {
        let latency = |us: u64| if us == 0 { "-".to_owned() } else { human::micros(us) };
        table.row(vec![
            crate::error::one_line(&name),
            share.weight.to_string(),
            (share.bypassed + share.served).to_string(),
            share.bypassed.to_string(),
            share.served.to_string(),
            share.calls.to_string(),
            share.refused.to_string(),
            share.taken_records.to_string(),
            Size(share.taken_bytes).rounded(),
            latency(share.wait_us_p50),
            latency(share.wait_us_p99),
            if share.slowdown == 0.0 { "-".to_owned() } else { format!("{:.1}", share.slowdown) },
        ]);
    }
    let table = if args.wide { table } else { table.with_columns(&APPLICATION_COLUMNS) };
    context.print(|out| table.print(out))
}

/// Bytes that clients wrote and read through lent descriptors, as they report to the manager; no server sees them.
fn direct(health: &PartitionHealth, earlier: Option<(&PartitionHealth, Duration)>) -> Option<String> {
    let sums = |health: &PartitionHealth| {
        let reports = health.servers.iter().filter_map(|server| server.report.as_ref().ok());
        let sum =
            |path: &str| reports.clone().filter_map(|report| report.pointer(path)?.as_u64()).sum::<u64>();
        (sum("/counters/direct_written_bytes"), sum("/counters/direct_read_bytes"))
    };
    let now = sums(health);
    if now == (0, 0) {
        return None;
    }
    let shown = |now: u64, old: u64, ago: Option<Duration>| match ago {
        Some(ago) => human::rate(now.saturating_sub(old), ago),
        None => Size(now).rounded(),
    };
    let (old, ago) = earlier.map_or(((0, 0), None), |(old, ago)| (sums(old), Some(ago)));
    let (written, read) = (shown(now.0, old.0, ago), shown(now.1, old.1, ago));
    Some(format!("  direct: {written} written, {read} read by clients"))
}

/// Service of one application.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct ApplicationShare {
    weight: u64,
    bypassed: u64,
    served: u64,
    calls: u64,
    refused: u64,
    taken_records: u64,
    taken_bytes: u64,
    wait_us_p50: u64,
    wait_us_p99: u64,
    slowdown: f64,
}

/// By application, from the schedulers' reports; without idle ones.
fn shares<'a>(
    schedulers: impl Iterator<Item = &'a Value>,
) -> std::collections::BTreeMap<String, ApplicationShare> {
    let mut shares = std::collections::BTreeMap::<String, ApplicationShare>::new();
    for application in
        schedulers.flat_map(|scheduler| scheduler["applications"].as_array().into_iter().flatten())
    {
        let number = |path: &str| application.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        if number("/bypassed") + number("/requests") + number("/taken_records") == 0 {
            continue;
        }
        let share = shares.entry(application["name"].as_str().unwrap_or("?").to_owned()).or_default();
        share.weight = number("/weight");
        share.bypassed += number("/bypassed");
        share.served += number("/served");
        share.calls += number("/operations");
        share.refused += number("/refused");
        share.taken_records += number("/taken_records");
        share.taken_bytes += number("/taken_bytes");
        share.wait_us_p50 = share.wait_us_p50.max(number("/wait_us/p50"));
        share.wait_us_p99 = share.wait_us_p99.max(number("/wait_us/p99"));
        share.slowdown = share.slowdown.max(application["slowdown"].as_f64().unwrap_or(0.0));
    }
    shares
}

fn row(server: &ServerHealth, old: Option<(&Value, Duration)>) -> Vec<String> {
    let number = |path: &str| server.report.as_ref().ok().and_then(|report| report.pointer(path)?.as_u64());
    let cell = |path: &str, show: &dyn Fn(u64) -> String| number(path).map_or("-".to_owned(), show);
    let size = |bytes: u64| Size(bytes).rounded();
    // With `--watch`: the difference to the previous sample.
    let flow = |path: &str, bytes: bool| {
        let Some(now) = number(path) else { return "-".to_owned() };
        match old.and_then(|(old, ago)| Some((now.saturating_sub(old.pointer(path)?.as_u64()?), ago))) {
            Some((more, ago)) if bytes => human::rate(more, ago),
            #[expect(clippy::cast_precision_loss, reason = "a rounded rate is shown")]
            Some((more, ago)) => format!("{:.0}/s", more as f64 / ago.as_secs_f64().max(1e-9)),
            None if bytes => size(now),
            None => now.to_string(),
        }
    };
    let up = server.report.as_ref().ok().and_then(|report| report["up_s"].as_f64());
    let (hits, misses) = (number("/store/hits").unwrap_or(0), number("/store/misses").unwrap_or(0));
    let clients = server.report.as_ref().ok().and_then(clients);
    let latency = |us: u64| if us == 0 { "-".to_owned() } else { human::micros(us) };
    vec![
        server.index.to_string(),
        server.word().to_owned(),
        up.map_or("-".to_owned(), |seconds| duration(Duration::from_secs_f64(seconds.max(0.0)))),
        cell("/space/free_bytes", &size),
        cell("/memory_private_bytes", &size),
        cell("/store/cached_bytes", &size),
        (hits * 100).checked_div(hits + misses).map_or("-".to_owned(), |share| format!("{share}%")),
        flow("/counters/requests", false),
        flow("/counters/received_bytes", true),
        flow("/counters/sent_bytes", true),
        flow("/counters/staged_bytes", true),
        cell("/counters/latency_us_p50", &latency),
        cell("/counters/latency_us_p99", &latency),
        clients.map_or("-".to_owned(), |clients| clients.to_string()),
        server.location.clone(),
    ]
}

/// Number of client programs of a server: sessions, without those of its peers and of this command.
fn clients(report: &Value) -> Option<usize> {
    let own = |client: &Value| {
        let host = pario::host_name();
        client["pid"] == std::process::id() && client["host"] == host.as_str()
    };
    let counts = |client: &&Value| client["purpose"] != "peer" && !own(client);
    let sessions: std::collections::HashSet<Option<&str>> = report["clients"]
        .as_array()?
        .iter()
        .filter(counts)
        .map(|client| client["session"].as_str())
        .collect();
    Some(sessions.len())
}

/// Locks: ranges, holders, waiting requests.
fn locks(context: &Context, health: &PartitionHealth) -> CliResult {
    let manager = health.servers.iter().find_map(|server| server.report.as_ref().ok()?.get("manager"));
    let Some(locks) = manager.and_then(|manager| manager.get("locks")) else { return Ok(()) };
    let rows = |name: &str| locks[name].as_array().cloned().unwrap_or_default();
    let (held, waiting) = (rows("held"), rows("waiting"));
    if held.is_empty() && waiting.is_empty() {
        return context.line("  no locks");
    }
    let word = |row: &Value, name: &str| row[name].as_str().unwrap_or("?").to_owned();
    let bytes = |row: &Value| {
        let end = row["end"].as_u64().map_or("the end".to_owned(), |end| end.to_string());
        format!("{} to {end}", row["start"])
    };
    let mut table = Table::with_head(&["inode", "<lock", "<mode", "<bytes", "<state", "<client"]).indented(2);
    for row in &held {
        let who = crate::error::one_line(&word(row, "holder"));
        let state = word(row, "state");
        table.row(vec![
            row["inode"].to_string(),
            word(row, "space"),
            word(row, "mode"),
            bytes(row),
            state,
            who,
        ]);
    }
    for row in &waiting {
        let holders: Vec<&str> =
            row["for"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let waited = duration(Duration::from_secs_f64(row["waited_s"].as_f64().unwrap_or(0.0).max(0.0)));
        let who = crate::error::one_line(&format!("{}, for {}", word(row, "waiter"), holders.join(", ")));
        let state = format!("waits {waited}");
        table.row(vec![row["inode"].to_string(), String::new(), word(row, "mode"), bytes(row), state, who]);
    }
    context.print(|out| table.print(out))?;
    let (count, shown) = (locks["count"].as_u64().unwrap_or(0), held.len() as u64);
    if shown < count {
        context.line(format!("  and {} more", count - shown))?;
    }
    Ok(())
}

/// Lock waits: waiting client, and holder.
fn waits(context: &Context, health: &PartitionHealth) -> CliResult {
    for wait in health.waiting() {
        let holders: Vec<&str> =
            wait["for"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let line = format!(
            "  {} waits {} for {} (inode {})",
            wait["waiter"].as_str().unwrap_or("a client"),
            duration(Duration::from_secs_f64(wait["waited_s"].as_f64().unwrap_or(0.0).max(0.0))),
            if holders.is_empty() { "its turn".to_owned() } else { holders.join(", ") },
            wait["inode"],
        );
        context.line(crate::error::one_line(&line))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn shares_of_applications_are_summed_over_servers() {
        let on_one = json!({ "applications": [
            { "name": "a", "weight": 2, "bypassed": 1, "requests": 9, "served": 8, "operations": 2, "refused": 0,
              "taken_records": 5, "taken_bytes": 500,
              "wait_us": { "p50": 10, "p99": 40 }, "slowdown": 1.5 },
            { "name": "idle", "weight": 1, "bypassed": 0, "requests": 0 },
        ]});
        let on_other = json!({ "applications": [
            { "name": "a", "weight": 2, "bypassed": 0, "requests": 4, "served": 4, "operations": 4, "refused": 3,
              "taken_records": 1, "taken_bytes": 20,
              "wait_us": { "p50": 20, "p99": 30 }, "slowdown": null },
        ]});
        let shares = shares([&on_one, &json!({ "policy": "fifo" }), &on_other].into_iter());
        let expected = ApplicationShare {
            weight: 2,
            bypassed: 1,
            served: 12,
            calls: 6,
            refused: 3,
            taken_records: 6,
            taken_bytes: 520,
            wait_us_p50: 20,
            wait_us_p99: 40,
            slowdown: 1.5,
        };
        assert_eq!(shares.into_iter().collect::<Vec<_>>(), [("a".to_owned(), expected)]);
    }

    #[test]
    fn clients_are_sessions_of_others() {
        let host = pario::host_name();
        let client = |session: &str, pid: u32, purpose: &str| json!({ "session": session, "pid": pid, "host": host, "purpose": purpose });
        let report = json!({ "clients": [
            client("a", 1, "requests"),
            client("a", 1, "notices"),
            client("b", 2, "requests"),
            client("c", 3, "peer"),
            client("d", std::process::id(), "requests"),
        ]});
        assert_eq!(clients(&report), Some(2));
        assert_eq!(clients(&json!({})), None);
    }
}
