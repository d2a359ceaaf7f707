//! Errors in MPI's terms: a class and a text.

use pario::core::{Code, Fault};
use pario::view::{ErrorClass, TypeError};

macro_rules! classes {
    ($($name:ident $word:literal,)*) => {
        /// An error class of MPI; its number depends on the ABI.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Class {
            $(#[doc = $word] $name,)*
        }

        impl Class {
            /// Every class that Pario returns.
            pub const ALL: &'static [Class] = &[$(Class::$name,)*];

            /// Name in the standard.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $(Class::$name => $word,)*
                }
            }
        }
    };
}

classes! {
    Access "MPI_ERR_ACCESS",
    Amode "MPI_ERR_AMODE",
    Arg "MPI_ERR_ARG",
    BadFile "MPI_ERR_BAD_FILE",
    Buffer "MPI_ERR_BUFFER",
    Comm "MPI_ERR_COMM",
    Conversion "MPI_ERR_CONVERSION",
    Count "MPI_ERR_COUNT",
    Dims "MPI_ERR_DIMS",
    DupDatarep "MPI_ERR_DUP_DATAREP",
    File "MPI_ERR_FILE",
    FileExists "MPI_ERR_FILE_EXISTS",
    FileInUse "MPI_ERR_FILE_IN_USE",
    Info "MPI_ERR_INFO",
    Intern "MPI_ERR_INTERN",
    Io "MPI_ERR_IO",
    NoMem "MPI_ERR_NO_MEM",
    NoSpace "MPI_ERR_NO_SPACE",
    NoSuchFile "MPI_ERR_NO_SUCH_FILE",
    NotSame "MPI_ERR_NOT_SAME",
    Other "MPI_ERR_OTHER",
    Rank "MPI_ERR_RANK",
    ReadOnly "MPI_ERR_READ_ONLY",
    Request "MPI_ERR_REQUEST",
    Type "MPI_ERR_TYPE",
    UnsupportedDatarep "MPI_ERR_UNSUPPORTED_DATAREP",
    UnsupportedOperation "MPI_ERR_UNSUPPORTED_OPERATION",
    ValueTooLarge "MPI_ERR_VALUE_TOO_LARGE",
}

/// An error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MpiError {
    /// For programs.
    pub class: Class,
    /// For users: names the cause.
    pub text: String,
}

/// Result of every call.
pub type Result<T> = std::result::Result<T, MpiError>;

impl MpiError {
    /// An error with its text.
    pub fn new(class: Class, text: impl Into<String>) -> MpiError {
        MpiError { class, text: text.into() }
    }

    /// The same as a fault, so that a group can agree on it; [`MpiError::from`] restores the class.
    #[must_use]
    pub fn to_error(&self) -> pario::Error {
        let exact = Code::ALL.iter().copied().find(|code| code.mpi_class() == self.class.word());
        match exact {
            Some(code) => Fault::new(code, self.text.clone()).into(),
            None => Fault::new(Code::Invalid, format!("{}: {}", self.class.word(), self.text)).into(),
        }
    }
}

impl From<pario::Error> for MpiError {
    fn from(error: pario::Error) -> MpiError {
        let text = error.to_string();
        let word = error.code().mpi_class();
        // A class without a fault code is encoded in the text.
        let said = Class::ALL.iter().copied().find(|class| text.contains(&format!("{}: ", class.word())));
        let class = Class::ALL.iter().copied().find(|class| class.word() == word).unwrap_or(Class::Other);
        let class = if error.code() == Code::Invalid { said.unwrap_or(class) } else { class };
        MpiError::new(class, text.replacen(&format!("{}: ", class.word()), "", 1))
    }
}

impl From<TypeError> for MpiError {
    fn from(error: TypeError) -> MpiError {
        let class = match error.class() {
            ErrorClass::Type => Class::Type,
            ErrorClass::ValueTooLarge => Class::ValueTooLarge,
            ErrorClass::Arg => Class::Arg,
            ErrorClass::Count => Class::Count,
            ErrorClass::Dims => Class::Dims,
            ErrorClass::Rank => Class::Rank,
        };
        MpiError::new(class, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_class_that_is_known() {
        for code in Code::ALL {
            let problem = MpiError::from(pario::Error::from(Fault::new(*code, "it")));
            assert_eq!(problem.class.word(), code.mpi_class());
        }
    }

    #[test]
    fn problems_survive_a_group() {
        for class in Class::ALL.iter().copied() {
            let problem = MpiError::new(class, "a thing that cannot be");
            let back = MpiError::from(problem.to_error());
            assert_eq!(back.text, problem.text);
            assert_eq!(back.class, class);
        }
    }
}
