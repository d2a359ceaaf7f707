//! Clients in words, for logs, reports and faults.

use pario_core::text::shown;

/// Description of a client.
pub(crate) fn describe(hello: &pario_net::greeting::Hello) -> String {
    format!("{} (process {} on {})", shown(&hello.program), hello.pid, shown(&hello.host))
}

/// Longest kept text of a client's own description: a report lists every client.
const NAME_CHARS_MAX: usize = 256;

/// A client's description of itself, sanitised for logs, reports and faults of others.
pub(crate) fn presentable(hello: &pario_net::greeting::Hello) -> pario_net::greeting::Hello {
    let short = |text: &str| shown(text).chars().take(NAME_CHARS_MAX).collect::<String>();
    pario_net::greeting::Hello {
        host: short(&hello.host),
        program: short(&hello.program),
        application: short(&hello.application),
        ..hello.clone()
    }
}
