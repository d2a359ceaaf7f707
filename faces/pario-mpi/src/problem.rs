//! Errors as MPI knows them: a class and a sentence.

use pario::core::{Code, Fault};
use pario::view::{ErrorClass, TypeError};

macro_rules! classes {
    ($($name:ident $word:literal,)*) => {
        /// An error class of MPI; which number it has is the ABI's affair.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Class {
            $(#[doc = $word] $name,)*
        }

        impl Class {
            /// Every class that Pario returns.
            pub const ALL: &'static [Class] = &[$(Class::$name,)*];

            /// As the standard calls it.
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

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// For programs.
    pub class: Class,
    /// For people: names the cause.
    pub text: String,
}

/// What every call returns.
pub type Result<T> = std::result::Result<T, Problem>;

impl Problem {
    /// A problem with its sentence.
    pub fn new(class: Class, text: impl Into<String>) -> Problem {
        Problem { class, text: text.into() }
    }

    /// The same as a fault, so that a group can agree on it; [`Problem::from`] leads back to the class.
    #[must_use]
    pub fn to_error(&self) -> pario::Error {
        let exact = Code::ALL.iter().copied().find(|code| code.mpi_class() == self.class.word());
        match exact {
            Some(code) => Fault::new(code, self.text.clone()).into(),
            None => Fault::new(Code::Invalid, format!("{}: {}", self.class.word(), self.text)).into(),
        }
    }
}

impl From<pario::Error> for Problem {
    fn from(error: pario::Error) -> Problem {
        let text = error.to_string();
        let word = error.code().mpi_class();
        // What has no code of its own says its class in words.
        let said = Class::ALL.iter().copied().find(|class| text.contains(&format!("{}: ", class.word())));
        let class = Class::ALL.iter().copied().find(|class| class.word() == word).unwrap_or(Class::Other);
        let class = if error.code() == Code::Invalid { said.unwrap_or(class) } else { class };
        Problem::new(class, text.replacen(&format!("{}: ", class.word()), "", 1))
    }
}

impl From<TypeError> for Problem {
    fn from(error: TypeError) -> Problem {
        let class = match error.class() {
            ErrorClass::Type => Class::Type,
            ErrorClass::ValueTooLarge => Class::ValueTooLarge,
            ErrorClass::Arg => Class::Arg,
            ErrorClass::Count => Class::Count,
            ErrorClass::Dims => Class::Dims,
            ErrorClass::Rank => Class::Rank,
        };
        Problem::new(class, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_class_that_is_known() {
        for code in Code::ALL {
            let problem = Problem::from(pario::Error::from(Fault::new(*code, "it")));
            assert_eq!(problem.class.word(), code.mpi_class());
        }
    }

    #[test]
    fn problems_survive_a_group() {
        for class in Class::ALL.iter().copied() {
            let problem = Problem::new(class, "a thing that cannot be");
            let back = Problem::from(problem.to_error());
            assert_eq!(back.text, problem.text);
            assert_eq!(back.class, class);
        }
    }
}
