//! Runs the measurements of a plan.

use pario_core::Size;

use super::choose::saturation;
use super::point::MeasuredPoint;
use super::room::{MeasureRoom, memory_bytes};
use super::{
    CALL_BYTES_MIN, FileLayout, MeasureError, MeasureObserver, MeasurePlan, Measurements, POINT_BYTES,
    SizePoint, ThreadPoint,
};

/// Measures; files lie in a directory of its own below that of the plan, and are removed.
///
/// # Errors
/// The directory is missing or not writable, has no room for the smallest measurement, or the observer ended it.
pub fn run(plan: &MeasurePlan, observer: &dyn MeasureObserver) -> Result<Measurements, MeasureError> {
    let room = MeasureRoom::new(&plan.directory)?;
    let mut sweep =
        MeasureSweep { plan, observer, room: &room, buffer: Vec::new(), measured: Measurements::default() };
    sweep.run()?;
    Ok(sweep.measured)
}

/// Measurements in progress.
struct MeasureSweep<'a> {
    plan: &'a MeasurePlan,
    observer: &'a dyn MeasureObserver,
    room: &'a MeasureRoom,
    /// Bytes that are written.
    buffer: Vec<u8>,
    measured: Measurements,
}

impl MeasureSweep<'_> {
    fn run(&mut self) -> Result<(), MeasureError> {
        let largest = self.largest()?;
        let calls = size_points(largest);
        let planned: u64 = calls.iter().map(MeasuredPoint::bytes).sum();
        self.observer.planned(planned * u64::from(self.plan.passes));
        for point in calls {
            self.fill(point.call_bytes);
            match self.best(&point) {
                Ok(bytes_s) => {
                    self.measured.sizes.push(SizePoint { call_bytes: point.call_bytes, bytes_s });
                }
                Err(error) if error.is_full() && !self.measured.sizes.is_empty() => {
                    let call = Size(point.call_bytes);
                    self.measured.notes.push(format!("no room for calls of {call} and more"));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let found = saturation(&self.measured.sizes).unwrap_or(CALL_BYTES_MIN);
        let measured = self.measured.sizes.last().map_or(CALL_BYTES_MIN, |point| point.call_bytes);
        self.threads(found.min(measured))
    }

    /// The largest call: a doubling of the smallest one.
    fn largest(&mut self) -> Result<u64, MeasureError> {
        let (wanted, free, memory) = (self.plan.bytes_max, self.room.bytes()?, memory_bytes());
        let fitting = wanted.min(free).min(memory);
        if fitting < CALL_BYTES_MIN {
            let text =
                format!("less than {} free: no room for the smallest measurement", Size(2 * CALL_BYTES_MIN));
            let error = std::io::Error::new(std::io::ErrorKind::StorageFull, text);
            return Err(MeasureError::at(&self.plan.directory)(error));
        }
        let largest = CALL_BYTES_MIN << (fitting / CALL_BYTES_MIN).ilog2();
        if fitting < wanted {
            let what = if free < memory { "free space" } else { "free memory" };
            let text =
                format!("sizes end at {}: half of the {what} is {}", Size(largest), Size(fitting).rounded());
            self.measured.notes.push(text);
        }
        Ok(largest)
    }

    fn threads(&mut self, call_bytes: u64) -> Result<(), MeasureError> {
        let usual = POINT_BYTES.min(self.plan.bytes_max);
        let points = thread_points(call_bytes, usual, self.room.bytes()?);
        let points: Vec<_> =
            points.into_iter().filter(|point| point.threads <= self.plan.threads_max).collect();
        let planned: u64 = points.iter().map(MeasuredPoint::bytes).sum();
        self.observer.planned(planned * u64::from(self.plan.passes));
        self.fill(call_bytes);
        for point in points {
            let MeasuredPoint { layout, threads, .. } = point;
            match self.best(&point) {
                Ok(bytes_s) => self.measured.threads.push(ThreadPoint { threads, layout, bytes_s }),
                // A container takes some blocks more than its bytes, files of threads some more inodes.
                Err(error) if error.is_full() => {
                    let text = format!("no room for {threads} threads on {}", layout.word());
                    self.measured.notes.push(text);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn best(&self, point: &MeasuredPoint) -> Result<u64, MeasureError> {
        let mut best = 0;
        for _ in 0..self.plan.passes.max(1) {
            best = best.max(point.measure(self.room, &self.buffer, self.observer)?);
        }
        Ok(best)
    }

    /// A buffer of bytes that no file system compresses away.
    fn fill(&mut self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ self.buffer.len() as u64;
        self.buffer.reserve_exact(bytes.saturating_sub(self.buffer.len()));
        while self.buffer.len() < bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            self.buffer.extend_from_slice(&state.to_le_bytes());
        }
    }
}

/// One thread, sizes doubled.
fn size_points(largest: u64) -> Vec<MeasuredPoint> {
    let doublings = (largest / CALL_BYTES_MIN).ilog2();
    let point = |doubling: u32| {
        let call_bytes = CALL_BYTES_MIN << doubling;
        let calls = POINT_BYTES.min(largest).max(call_bytes) / call_bytes;
        MeasuredPoint { layout: FileLayout::OneFile, threads: 1, call_bytes, calls }
    };
    (0..=doublings).map(point).collect()
}

/// 1, 2, 4 … threads on every layout: about `usual` bytes, at least a call of each thread, and no more than `room`.
fn thread_points(call_bytes: u64, usual: u64, room: u64) -> Vec<MeasuredPoint> {
    let counts = std::iter::successors(Some(1_u32), |count| count.checked_mul(2));
    let fitting = counts.take_while(|count| call_bytes.saturating_mul(u64::from(*count)) <= room);
    let point = |threads: u32, layout: FileLayout| {
        let calls = (usual.min(room) / call_bytes / u64::from(threads)).max(1);
        MeasuredPoint { layout, threads, call_bytes, calls }
    };
    fitting.flat_map(|threads| FileLayout::ALL.map(|layout| point(threads, layout))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_double_and_small_calls_write_as_much_as_large_ones() {
        let points = size_points(256 << 20);
        let sizes: Vec<u64> = points.iter().map(|point| point.call_bytes).collect();
        assert_eq!(sizes.len(), 16);
        assert!(sizes.windows(2).all(|pair| pair[1] == 2 * pair[0]) && sizes[0] == 8 << 10);
        assert!(points[..14].iter().all(|point| point.bytes() == 64 << 20), "{points:?}");
        assert_eq!(points[15].bytes(), 256 << 20);
        assert_eq!(size_points(8 << 10).len(), 1);
        assert!(size_points(1 << 20).iter().all(|point| point.bytes() == 1 << 20));
    }

    #[test]
    fn threads_double_on_every_layout_within_the_bytes() {
        let points = thread_points(1 << 20, 64 << 20, 4 << 20);
        let counts: Vec<u32> = points.iter().map(|point| point.threads).collect();
        assert_eq!(counts, [1, 1, 1, 2, 2, 2, 4, 4, 4]);
        assert!(points.iter().all(|point| point.bytes() == 4 << 20), "{points:?}");
        let roomy = thread_points(1 << 20, 64 << 20, 100 << 20);
        assert!(roomy[..21].iter().all(|point| point.bytes() == 64 << 20), "{roomy:?}");
        let small = thread_points(1 << 20, 1 << 20, 2 << 20);
        assert_eq!(small.last().map(|point| (point.threads, point.calls)), Some((2, 1)), "a call for each");
    }
}
