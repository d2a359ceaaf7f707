//! Errors of datatypes and views, and their MPI error classes.
//!
//! Always: an error names the argument, its index and its value; its class comes from one function.

/// The MPI error class (`MPI_ERR_…`) that a face reports for an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorClass {
    /// `MPI_ERR_ARG`
    Arg,
    /// `MPI_ERR_COUNT`
    Count,
    /// `MPI_ERR_DIMS`
    Dims,
    /// `MPI_ERR_RANK`
    Rank,
    /// `MPI_ERR_TYPE`
    Type,
    /// `MPI_ERR_VALUE_TOO_LARGE`
    ValueTooLarge,
}

/// Arguments from which no datatype can be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TypeError {
    /// A count below zero.
    #[error("negative count {value}")]
    NegativeCount {
        /// The value given.
        value: i64,
    },
    /// An entry of a list that may not be below zero.
    #[error("{what} {index} is negative: {value}")]
    Negative {
        /// Which list.
        what: &'static str,
        /// Which entry.
        index: usize,
        /// The value given.
        value: i64,
    },
    /// Lists that belong together and have different lengths.
    #[error("{lengths} block lengths but {displacements} displacements")]
    Lists {
        /// Length of the one.
        lengths: usize,
        /// Length of the displacements.
        displacements: usize,
    },
    /// An elementary type of no bytes, or with an alignment that does not divide its size.
    #[error("elementary type of {bytes} bytes aligned to {align}")]
    Elementary {
        /// Its size.
        bytes: u64,
        /// Its alignment.
        align: u64,
    },
    /// An array without dimensions.
    #[error("an array needs at least one dimension")]
    NoDimensions,
    /// A part that does not lie in its array.
    #[error("dimension {dimension}: {subsize} elements from {start} on are not in an array of {size}")]
    Subarray {
        /// Which dimension.
        dimension: usize,
        /// Elements of the array.
        size: i64,
        /// Elements of the part.
        subsize: i64,
        /// First element of the part.
        start: i64,
    },
    /// A distribution that cannot be.
    #[error("dimension {dimension}: {size} elements on {processes} processes: {why}")]
    Distribution {
        /// Which dimension.
        dimension: usize,
        /// Elements of the array.
        size: i64,
        /// Processes along it.
        processes: i64,
        /// The violated rule.
        why: &'static str,
    },
    /// A process grid of another size than the group.
    #[error("a grid of {grid} processes for a group of {group}")]
    Grid {
        /// Product of the grid's dimensions.
        grid: i64,
        /// Processes in the group.
        group: i64,
    },
    /// A rank outside its group.
    #[error("rank {rank} in a group of {group}")]
    Rank {
        /// The rank.
        rank: i64,
        /// Processes in the group.
        group: i64,
    },
    /// A size, bound or displacement beyond 2^63 - 1.
    #[error("{what} does not fit in 63 bits")]
    TooLarge {
        /// What grew too large.
        what: &'static str,
    },
    /// Types inside types, too many.
    #[error("nested more than {limit} deep")]
    TooDeep {
        /// The limit.
        limit: u32,
    },
}

impl TypeError {
    /// The MPI error class that fits.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            TypeError::NegativeCount { .. } => ErrorClass::Count,
            TypeError::NoDimensions | TypeError::Grid { .. } => ErrorClass::Dims,
            TypeError::Rank { .. } => ErrorClass::Rank,
            TypeError::TooLarge { .. } => ErrorClass::ValueTooLarge,
            TypeError::TooDeep { .. } => ErrorClass::Type,
            TypeError::Negative { .. }
            | TypeError::Lists { .. }
            | TypeError::Elementary { .. }
            | TypeError::Subarray { .. }
            | TypeError::Distribution { .. } => ErrorClass::Arg,
        }
    }
}

/// A view that is illegal for its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ViewError {
    /// The view starts before the file.
    #[error("negative displacement {0}")]
    Displacement(i64),
    /// An elementary type without data.
    #[error("the elementary type has no bytes")]
    EmptyElementary,
    /// The file type is not made of whole elementary types.
    #[error("a file type of {filetype_bytes} bytes is not a multiple of an elementary type of {etype_bytes}")]
    NotMultiple {
        /// Size of the file type.
        filetype_bytes: u64,
        /// Size of the elementary type.
        etype_bytes: u64,
    },
    /// Data before the start of the type.
    #[error("{which} has data at displacement {displacement}, before its start")]
    NegativeOffset {
        /// Elementary type or file type.
        which: &'static str,
        /// Its true lower bound.
        displacement: i64,
    },
    /// Displacements that go back.
    #[error("displacements of the {which} decrease")]
    Decreasing {
        /// Elementary type or file type.
        which: &'static str,
    },
    /// Bytes that occur twice, in a file opened for writing.
    #[error("the {which} overlaps itself and the file is open for writing")]
    Overlap {
        /// Elementary type or file type.
        which: &'static str,
    },
    /// A file type with decreasing displacements.
    #[error("file type of extent {extent}: its repetitions never move on")]
    Extent {
        /// The extent.
        extent: i64,
    },
    /// The first repetition does not end below 2^63.
    #[error("displacement {displacement} and a file type that ends at {end} exceed the largest file")]
    TooFar {
        /// Displacement of the view.
        displacement: u64,
        /// True upper bound of the file type.
        end: i64,
    },
    /// More than may travel.
    #[error("the view has {bytes} bytes in {nodes} nodes: at most {bytes_max} in {nodes_max}")]
    TooBig {
        /// Its serialised size.
        bytes: usize,
        /// Its nodes.
        nodes: usize,
        /// Limit of bytes.
        bytes_max: usize,
        /// Limit of nodes.
        nodes_max: usize,
    },
    /// The type itself.
    #[error(transparent)]
    Type(#[from] TypeError),
}

impl ViewError {
    /// The MPI error class that fits.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            ViewError::Displacement(_) => ErrorClass::Arg,
            ViewError::EmptyElementary
            | ViewError::NotMultiple { .. }
            | ViewError::NegativeOffset { .. }
            | ViewError::Decreasing { .. }
            | ViewError::Overlap { .. }
            | ViewError::Extent { .. } => ErrorClass::Type,
            ViewError::TooFar { .. } | ViewError::TooBig { .. } => ErrorClass::ValueTooLarge,
            ViewError::Type(error) => error.class(),
        }
    }
}
