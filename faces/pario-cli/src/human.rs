//! Human-readable values: permission bits, times, durations, rates, user names.

use std::collections::HashMap;
use std::time::Duration;

use pario::core::{FileKind, Size};

/// `drwxr-xr-x`.
pub(crate) fn mode(kind: FileKind, bits: u32) -> String {
    let letter = match kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    };
    let mut text = String::with_capacity(10);
    text.push(letter);
    for (shift, special, set) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let part = bits >> shift;
        text.push(if part & 4 != 0 { 'r' } else { '-' });
        text.push(if part & 2 != 0 { 'w' } else { '-' });
        text.push(match (part & 1 != 0, bits & special != 0) {
            (true, true) => set,
            (false, true) => set.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// One word for a kind.
pub(crate) fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::Fifo => "named pipe",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "character device",
        FileKind::BlockDevice => "block device",
    }
}

/// A time in UTC, to the minute.
pub(crate) fn minute(since_1970_ns: u64) -> String {
    let (date, seconds) = date(since_1970_ns);
    format!("{date} {:02}:{:02}", seconds / 3600, seconds / 60 % 60)
}

/// A time in UTC, to the nanosecond.
pub(crate) fn exact_time(since_1970_ns: u64) -> String {
    let (date, seconds) = date(since_1970_ns);
    let nanos = since_1970_ns % 1_000_000_000;
    format!("{date} {:02}:{:02}:{:02}.{nanos:09} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Date and seconds of the day. The calendar repeats every 400 years of 146,097 days; years start in March here, so that
/// a leap day comes last.
fn date(since_1970_ns: u64) -> (String, u64) {
    let seconds = since_1970_ns / 1_000_000_000;
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (format!("{year:04}-{month:02}-{day:02}"), seconds % 86_400)
}

/// `0.12 s`, `3 min 5 s`, `2 h 10 min`, `5 d 3 h`.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.2} s", time.as_secs_f64()),
        10..60 => format!("{:.1} s", time.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Microseconds with a unit.
pub(crate) fn micros(us: u64) -> String {
    match us {
        0..1000 => format!("{us} µs"),
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        1000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => duration(Duration::from_micros(us)),
    }
}

/// Bytes per second.
pub(crate) fn rate(bytes: u64, time: Duration) -> String {
    let seconds = time.as_secs_f64().max(1e-9);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "three digits are shown, and a float saturates"
    )]
    let per_second = (bytes as f64 / seconds) as u64;
    format!("{}/s", Size(per_second).rounded())
}

/// `1 server`, `4 servers`.
pub(crate) fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Bytes, optionally with a unit.
pub(crate) fn size(bytes: u64, units: Units) -> String {
    match units {
        Units::Bytes => bytes.to_string(),
        Units::Rounded => Size(bytes).rounded(),
    }
}

/// How sizes are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Units {
    /// As a number of bytes.
    Bytes,
    /// With three digits and a unit.
    Rounded,
}

/// Names of users and groups as this machine knows them.
#[derive(Debug)]
pub(crate) struct UserNames {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl UserNames {
    /// Reads them.
    pub(crate) fn of_this_machine() -> UserNames {
        UserNames { users: read_names("/etc/passwd"), groups: read_names("/etc/group") }
    }

    /// A user's name, or the number.
    pub(crate) fn user(&self, id: u32) -> String {
        self.users.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    /// A group's name, or the number.
    pub(crate) fn group(&self, id: u32) -> String {
        self.groups.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }
}

fn read_names(file: &str) -> HashMap<u32, String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut names = HashMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(id)) = (fields.next(), fields.nth(1).and_then(|id| id.parse().ok())) {
            names.entry(id).or_insert_with(|| name.to_owned());
        }
    }
    names
}

/// A name for a terminal, with control characters escaped.
pub(crate) fn shown(name: &[u8]) -> String {
    crate::error::one_line(&String::from_utf8_lossy(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_as_ls_shows_them() {
        assert_eq!(mode(FileKind::File, 0o644), "-rw-r--r--");
        assert_eq!(mode(FileKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode(FileKind::File, 0o4600), "-rwS------");
        assert_eq!(mode(FileKind::Symlink, 0o777), "lrwxrwxrwx");
    }

    #[test]
    fn dates_follow_the_calendar() {
        let check = |seconds: u64, expected: &str| assert_eq!(minute(seconds * 1_000_000_000), expected);
        check(0, "1970-01-01 00:00");
        check(951_782_400, "2000-02-29 00:00");
        check(1_709_251_199, "2024-02-29 23:59");
        check(1_709_251_200, "2024-03-01 00:00");
        check(4_102_444_800, "2100-01-01 00:00");
        assert_eq!(exact_time(1_500_000_001), "1970-01-01 00:00:01.500000001 UTC");
    }

    #[test]
    fn durations_have_two_units_at_most() {
        for (seconds, expected) in [
            (0.123, "0.12 s"),
            (42.0, "42.0 s"),
            (185.0, "3 min 5 s"),
            (7800.0, "2 h 10 min"),
            (442_800.0, "5 d 3 h"),
        ] {
            assert_eq!(duration(Duration::from_secs_f64(seconds)), expected);
        }
        assert_eq!(rate(1 << 20, Duration::from_millis(500)), "2.00 MiB/s");
        assert_eq!(micros(1500), "1.5 ms");
    }
}
