//! From measurements to settings.
//!
//! Pure. Never: a container that is not clearly faster, since other programs cannot read it; more threads than are needed.

use pario_core::Size;

use super::{FileLayout, Measurements, SizePoint, ThreadPoint};
use crate::team::settings::{TargetKind, TeamSettings};
use crate::team::tune::{SATURATION_MAX, SATURATION_MIN};

/// Share of the best speed from which on a size saturates the file system, in percent.
const SATURATED_PERCENT: u64 = 90;
/// Share of the best speed from which on more threads are not worth it, in percent.
const ENOUGH_PERCENT: u64 = 95;
/// Speed of a container by that of one file from which on it is chosen, in percent.
const CONTAINER_PERCENT: u64 = 125;

/// The saturation size: the smallest call with nearly the best speed. `None` without measurements.
pub(super) fn saturation(sizes: &[SizePoint]) -> Option<u64> {
    let best = sizes.iter().map(|point| point.bytes_s).max()?;
    let fast = sizes.iter().filter(|point| reaches(point.bytes_s, best, SATURATED_PERCENT));
    let smallest = fast.map(|point| point.call_bytes).min()?;
    Some(smallest.clamp(SATURATION_MIN, SATURATION_MAX))
}

/// The settings for a file system: saturation size, target, and the smallest number of threads with nearly the best speed on that target.
#[must_use]
pub fn choose(measured: &Measurements) -> TeamSettings {
    let best = |layout: FileLayout| {
        let points = measured.threads.iter().filter(move |point| point.layout == layout);
        points.map(|point| point.bytes_s).max()
    };
    let (plain, container) = (best(FileLayout::OneFile), best(FileLayout::Container));
    let is_faster = plain.zip(container).is_some_and(|(plain, log)| reaches(log, plain, CONTAINER_PERCENT));
    let (layout, kind) = match is_faster {
        true => (FileLayout::Container, TargetKind::Log),
        false => (FileLayout::OneFile, TargetKind::Plain),
    };
    TeamSettings {
        saturation: saturation(&measured.sizes).map(Size),
        active: active(&measured.threads, layout),
        target: plain.map(|_| kind),
        ..TeamSettings::default()
    }
}

fn active(points: &[ThreadPoint], layout: FileLayout) -> Option<u32> {
    let points = || points.iter().filter(|point| point.layout == layout);
    let best = points().map(|point| point.bytes_s).max()?;
    let enough = points().filter(|point| reaches(point.bytes_s, best, ENOUGH_PERCENT));
    enough.map(|point| point.threads).min()
}

fn reaches(speed: u64, best: u64, percent: u64) -> bool {
    u128::from(best) * u128::from(percent) <= u128::from(speed) * 100
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn sizes(points: &[(u64, u64)]) -> Vec<SizePoint> {
        points.iter().map(|&(call_bytes, bytes_s)| SizePoint { call_bytes, bytes_s }).collect()
    }

    fn threads(layout: FileLayout, points: &[(u32, u64)]) -> Vec<ThreadPoint> {
        points.iter().map(|&(threads, bytes_s)| ThreadPoint { threads, layout, bytes_s }).collect()
    }

    #[test]
    fn the_saturation_size_is_the_smallest_call_with_nearly_the_best_speed() {
        type Points = &'static [(u64, u64)];
        let table: [(Points, Option<u64>); 8] = [
            (&[], None),
            (&[(8 * KIB, 10)], Some(64 * KIB)),
            // A file system with slow calls.
            (&[(8 * KIB, 20), (MIB, 150), (2 * MIB, 197), (4 * MIB, 210), (1024 * MIB, 212)], Some(2 * MIB)),
            // The best speed is in the middle; larger calls leave the cache.
            (&[(512 * KIB, 89), (MIB, 100), (2 * MIB, 95), (64 * MIB, 40)], Some(MIB)),
            (&[(512 * KIB, 90), (MIB, 100)], Some(512 * KIB)),
            // All sizes alike: the smallest that a team uses.
            (&[(8 * KIB, 100), (16 * KIB, 99), (MIB, 101)], Some(64 * KIB)),
            // Still growing at the end: the largest that a team uses.
            (&[(64 * MIB, 10), (1024 * MIB, 100)], Some(64 * MIB)),
            (&[(8 * KIB, 0), (MIB, 0)], Some(64 * KIB)),
        ];
        for (points, expected) in table {
            assert_eq!(saturation(&sizes(points)), expected, "{points:?}");
        }
    }

    #[test]
    fn target_and_threads_are_the_cheapest_that_are_fast() {
        use FileLayout::{Container, OneFile, SeparateFiles};
        let text = |measured: &Measurements| {
            let chosen = choose(measured);
            (chosen.active, chosen.target)
        };
        type Points = &'static [(u32, u64)];
        let table: [(Points, Points, Option<u32>, Option<TargetKind>); 7] = [
            (&[], &[], None, None),
            (&[(1, 100)], &[], Some(1), Some(TargetKind::Plain)),
            // 8 threads are best, and 4 nearly so.
            (
                &[(1, 214), (2, 360), (4, 501), (8, 520)],
                &[(4, 500), (8, 510)],
                Some(4),
                Some(TargetKind::Plain),
            ),
            (&[(1, 100), (2, 94)], &[(1, 100), (2, 124)], Some(1), Some(TargetKind::Plain)),
            // One file does not grow with threads, a container does.
            (&[(1, 100), (2, 94)], &[(1, 90), (2, 125), (4, 126)], Some(2), Some(TargetKind::Log)),
            (&[(1, 100), (2, 94)], &[(1, 200), (2, 200)], Some(1), Some(TargetKind::Log)),
            // Without a plain file there is nothing to compare with.
            (&[], &[(1, 200)], None, None),
        ];
        for (plain, log, active, target) in table {
            let mut points = threads(OneFile, plain);
            points.extend(threads(Container, log));
            points.extend(threads(SeparateFiles, &[(1, 1), (2, 5000)]));
            let measured = Measurements { threads: points, ..Measurements::default() };
            assert_eq!(text(&measured), (active, target), "{plain:?} {log:?}");
        }
    }
}
