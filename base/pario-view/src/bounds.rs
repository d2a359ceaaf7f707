//! Summary of a typemap for MPI queries, stored without the typemap: size, bounds, markers, alignment, order.
//!
//! Never: grows with counts. Always: every number fits in 63 bits, or the operation returns `None`.

/// Summary of a typemap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    /// Bytes of data.
    pub(crate) size: u64,
    /// Extent of the data; `None` if there is none.
    pub(crate) data: Option<DataBounds>,
    /// Explicit lower and upper bound. As the standard has it, they win over the data wherever the type is used.
    pub(crate) markers: Option<(i64, i64)>,
    /// Largest alignment of an elementary type.
    pub(crate) align: u64,
}

/// Extent and order of a typemap's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DataBounds {
    /// Lowest byte.
    pub(crate) lo: i64,
    /// One past the highest byte.
    pub(crate) hi: i64,
    /// Displacement of the first entry.
    pub(crate) first: i64,
    /// Displacement of the last entry.
    pub(crate) last: i64,
    /// Whether displacements never decrease from entry to entry.
    pub(crate) ascending: bool,
}

impl DataBounds {
    fn shifted(self, by: i64) -> Option<Self> {
        let shift = |value: i64| value.checked_add(by);
        Some(DataBounds {
            lo: shift(self.lo)?,
            hi: shift(self.hi)?,
            first: shift(self.first)?,
            last: shift(self.last)?,
            ascending: self.ascending,
        })
    }

    fn then(self, next: Self) -> Self {
        DataBounds {
            lo: self.lo.min(next.lo),
            hi: self.hi.max(next.hi),
            first: self.first,
            last: next.last,
            ascending: self.ascending && next.ascending && self.last <= next.first,
        }
    }
}

impl Bounds {
    /// An empty typemap.
    pub(crate) const EMPTY: Bounds = Bounds { size: 0, data: None, markers: None, align: 1 };

    /// One elementary type.
    pub(crate) fn elementary(bytes: u64, align: u64) -> Option<Self> {
        let hi = i64::try_from(bytes).ok()?;
        let data = DataBounds { lo: 0, hi, first: 0, last: 0, ascending: true };
        Some(Bounds { size: bytes, data: Some(data), markers: None, align })
    }

    /// All displacements moved.
    pub(crate) fn shifted(self, by: i64) -> Option<Self> {
        let data = match self.data {
            Some(data) => Some(data.shifted(by)?),
            None => None,
        };
        let markers = match self.markers {
            Some((lb, ub)) => Some((lb.checked_add(by)?, ub.checked_add(by)?)),
            None => None,
        };
        Some(Bounds { data, markers, ..self })
    }

    /// The entries of this typemap, then those of `next`.
    pub(crate) fn then(self, next: Self) -> Option<Self> {
        let size = self.size.checked_add(next.size).filter(|size| i64::try_from(*size).is_ok())?;
        let data = match (self.data, next.data) {
            (Some(one), Some(other)) => Some(one.then(other)),
            (one, other) => one.or(other),
        };
        let markers = match (self.markers, next.markers) {
            (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
            (one, other) => one.or(other),
        };
        Some(Bounds { size, data, markers, align: self.align.max(next.align) })
    }

    /// `count` copies, each `stride` bytes after the one before.
    pub(crate) fn repeated(self, count: u64, stride: i64) -> Option<Self> {
        if count == 0 {
            return Some(Bounds::EMPTY);
        }
        if count == 1 || (self.data.is_none() && self.markers.is_none()) {
            return Some(self);
        }
        let size = self.size.checked_mul(count).filter(|size| i64::try_from(*size).is_ok())?;
        let far = i64::try_from(count - 1).ok()?.checked_mul(stride)?;
        let ends = Bounds { size: 0, ..self }.then(Bounds { size: 0, ..self }.shifted(far)?)?;
        let data = match (ends.data, self.data) {
            (Some(data), Some(one)) => {
                let step = one.first.checked_add(stride)?;
                Some(DataBounds { ascending: one.ascending && one.last <= step, ..data })
            }
            (data, _) => data,
        };
        Some(Bounds { size, data, ..ends })
    }

    /// With explicit bounds, which replace all earlier ones.
    pub(crate) fn marked(self, lb: i64, ub: i64) -> Self {
        Bounds { markers: Some((lb, ub)), ..self }
    }

    /// Lower bound as MPI defines it.
    pub(crate) fn lb(&self) -> i64 {
        match (self.markers, self.data) {
            (Some((lb, _)), _) => lb,
            (None, Some(data)) => data.lo,
            (None, None) => 0,
        }
    }

    /// Upper bound as MPI defines it, rounded up so that the next element is aligned; `None` beyond 63 bits.
    pub(crate) fn ub(&self) -> Option<i64> {
        match (self.markers, self.data) {
            (Some((_, ub)), _) => Some(ub),
            (None, Some(data)) => {
                let span = data.hi.checked_sub(data.lo)?.cast_unsigned();
                let padded = span.checked_next_multiple_of(self.align)?;
                data.lo.checked_add(i64::try_from(padded).ok()?)
            }
            (None, None) => Some(0),
        }
    }

    /// Whether all numbers that MPI can query fit in 63 bits.
    pub(crate) fn fits(&self) -> bool {
        self.ub().and_then(|ub| ub.checked_sub(self.lb())).is_some()
            && self.data.is_none_or(|data| data.hi.checked_sub(data.lo).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pads_to_the_strictest_member() {
        let double = Bounds::elementary(8, 8).unwrap();
        let letter = Bounds::elementary(1, 1).unwrap().shifted(8).unwrap();
        let both = double.then(letter).unwrap();
        assert_eq!((both.size, both.lb(), both.ub()), (9, 0, Some(16)));
    }

    #[test]
    fn explicit_bounds_win_over_data() {
        // The standard's own example: an int with bounds -3 and 6, twice.
        let int = Bounds::elementary(4, 4).unwrap().marked(-3, 6);
        let twice = int.repeated(2, 9).unwrap();
        assert_eq!((twice.lb(), twice.ub()), (-3, Some(15)));
        let far = int.then(Bounds::elementary(4, 4).unwrap().shifted(20).unwrap()).unwrap();
        assert_eq!((far.lb(), far.ub()), (-3, Some(6)));
    }

    #[test]
    fn knows_when_displacements_go_back() {
        let ascending = |bounds: Bounds| bounds.data.unwrap().ascending;
        let byte = Bounds::elementary(1, 1).unwrap();
        let column = byte.repeated(3, 4).unwrap();
        assert!(ascending(column));
        assert!(!ascending(byte.repeated(3, -4).unwrap()));
        assert!(!ascending(column.repeated(2, 1).unwrap()));
        assert!(ascending(column.repeated(2, 8).unwrap()));
    }

    #[test]
    fn says_what_does_not_fit() {
        let byte = Bounds::elementary(1, 1).unwrap();
        assert_eq!(byte.repeated(1 << 40, 1 << 40), None);
        assert_eq!(byte.shifted(i64::MAX), None);
        assert!(Bounds::elementary(1 << 63, 1).is_none());
        let wide = byte.shifted(i64::MIN).unwrap().then(byte).unwrap();
        assert!(!wide.fits());
    }
}
