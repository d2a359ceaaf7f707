//! Exports of a partition, as its manager knows them: clients with the application name `export ADDRESS`.

use std::collections::BTreeSet;

use serde_json::Value;

/// The exports among the clients of a manager's report, each with its process.
pub(crate) fn in_report(report: &Value) -> BTreeSet<String> {
    let clients = report["clients"].as_array().into_iter().flatten();
    clients
        .filter_map(|client| {
            let address = client["application"].as_str()?.strip_prefix("export ")?;
            let (pid, host) = (client["pid"].as_u64()?, client["host"].as_str()?);
            Some(format!("{address} (process {pid} on {host})"))
        })
        .collect()
}
