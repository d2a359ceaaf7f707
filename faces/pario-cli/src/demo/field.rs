//! The demonstration's field: a box of doubles, x fastest; each value is a function of its coordinates.

/// Cells along x, y and z.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Field {
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) z: u64,
}

/// Bytes of a value.
pub(crate) const VALUE_BYTES: u64 = 8;

/// A part of the field: cells from the first corner up to the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FieldPart {
    pub(crate) from: [u64; 3],
    pub(crate) to: [u64; 3],
}

impl Field {
    /// Bytes of the whole.
    pub(crate) fn bytes(&self) -> u64 {
        self.x * self.y * self.z * VALUE_BYTES
    }

    /// File offset of a cell.
    pub(crate) fn offset(&self, [x, y, z]: [u64; 3]) -> u64 {
        ((z * self.y + y) * self.x + x) * VALUE_BYTES
    }

    /// The pencils along z that ranks write: the x-y plane cut into columns and rows of ranks.
    pub(crate) fn pencil(&self, rank: u64, ranks: u64) -> FieldPart {
        let across = if ranks.is_multiple_of(2) { 2 } else { 1 };
        let down = ranks / across;
        let (column, row) = (rank % across, rank / across);
        FieldPart {
            from: [share(self.x, column, across), share(self.y, row, down), 0],
            to: [share(self.x, column + 1, across), share(self.y, row + 1, down), self.z],
        }
    }

    /// The slabs across z that ranks read.
    pub(crate) fn slab(&self, rank: u64, ranks: u64) -> FieldPart {
        FieldPart {
            from: [0, 0, share(self.z, rank, ranks)],
            to: [self.x, self.y, share(self.z, rank + 1, ranks)],
        }
    }
}

/// First cell of share `index` of `shares`.
fn share(cells: u64, index: u64, shares: u64) -> u64 {
    cells * index / shares
}

impl FieldPart {
    /// Cells of the part.
    pub(crate) fn cells(&self) -> u64 {
        (0..3).map(|axis| self.to[axis] - self.from[axis]).product()
    }
}

/// The value of a cell: smooth, and different in every cell.
#[expect(clippy::cast_precision_loss, reason = "cells are far fewer than 2^52")]
pub(crate) fn value(field: &Field, [x, y, z]: [u64; 3]) -> f64 {
    let wave = (x as f64 / field.x as f64 - 0.5) * (y as f64 / field.y as f64 - 0.5);
    (field.offset([x, y, z]) / VALUE_BYTES) as f64 + 0.25 * wave
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELD: Field = Field { x: 10, y: 7, z: 5 };

    #[track_caller]
    fn check_tiles(parts: &[FieldPart]) {
        let mut seen = vec![0; usize::try_from(FIELD.bytes() / VALUE_BYTES).unwrap()];
        for part in parts {
            for z in part.from[2]..part.to[2] {
                for y in part.from[1]..part.to[1] {
                    for x in part.from[0]..part.to[0] {
                        seen[usize::try_from(FIELD.offset([x, y, z]) / VALUE_BYTES).unwrap()] += 1;
                    }
                }
            }
        }
        assert!(seen.iter().all(|count| *count == 1), "{parts:?} cover cells twice or not at all");
        assert_eq!(parts.iter().map(FieldPart::cells).sum::<u64>(), seen.len() as u64);
    }

    #[test]
    fn both_decompositions_cover_every_cell_once() {
        for ranks in 1..=5 {
            check_tiles(&(0..ranks).map(|rank| FIELD.pencil(rank, ranks)).collect::<Vec<_>>());
            check_tiles(&(0..ranks).map(|rank| FIELD.slab(rank, ranks)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn no_two_cells_have_one_value() {
        let mut values = Vec::new();
        for z in 0..FIELD.z {
            for y in 0..FIELD.y {
                values.extend((0..FIELD.x).map(|x| value(&FIELD, [x, y, z])));
            }
        }
        assert!(values.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
