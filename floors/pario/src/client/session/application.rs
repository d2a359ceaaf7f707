//! The application that a process belongs to: servers share the service of their stores between applications, by weight.
//!
//! Always: processes that mount under one name are one application to the servers; the default name is that of the program.

use pario_server::io_queue::WEIGHT_MAX;

use crate::error::{Error, Result};

/// Variable with the application's name.
const APPLICATION_VARIABLE: &str = "PARIO_APPLICATION";
/// Variable with the requested weight.
const WEIGHT_VARIABLE: &str = "PARIO_WEIGHT";
/// Longest name; longer names are truncated.
const NAME_CHARS_MAX: usize = 64;

/// An application as its servers know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Application {
    /// Its name.
    pub name: String,
    /// The requested weight; a weight set by the partition for this name takes precedence.
    pub weight: u32,
}

impl Application {
    /// With a name and a weight from 1 to 1000; other weights are clamped.
    #[must_use]
    pub fn new(name: &str, weight: u32) -> Application {
        let name = name.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect();
        Application { name, weight: weight.clamp(1, WEIGHT_MAX) }
    }

    /// The application of this process: `PARIO_APPLICATION` and `PARIO_WEIGHT`, else the name of the program and 1.
    ///
    /// # Errors
    /// A weight that is not a whole number from 1 to 1000.
    pub fn own() -> Result<Application> {
        Application::from(|variable| {
            std::env::var_os(variable).map(|value| value.to_string_lossy().into_owned())
        })
    }

    /// The program itself, with weight 1.
    pub(crate) fn of_program() -> Application {
        Application::new(&crate::client::session::state::program(), 1)
    }

    fn from(look_up: impl Fn(&str) -> Option<String>) -> Result<Application> {
        let name = look_up(APPLICATION_VARIABLE).filter(|name| !name.is_empty());
        let weight = look_up(WEIGHT_VARIABLE).filter(|weight| !weight.is_empty());
        let weight = weight.map_or(Ok(1), |weight| {
            let number = weight.trim().parse().ok().filter(|number| (1..=WEIGHT_MAX).contains(number));
            number.ok_or_else(|| {
                let shown: String = weight.chars().take(NAME_CHARS_MAX).collect();
                Error::setup(format!(
                    "environment {WEIGHT_VARIABLE} = {shown:?}: must be a whole number from 1 to {WEIGHT_MAX}"
                ))
            })
        });
        Ok(Application::new(&name.unwrap_or_else(crate::client::session::state::program), weight?))
    }
}

impl crate::client::session::state::Session {
    /// The application as a number, for locks held by the application.
    pub(in crate::client) fn application_number(&self) -> u64 {
        let name = self.spec.application.name.as_bytes();
        let hash = name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        hash | 1 << 63
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_who_it_is() {
        let with = |name: &str, weight: &str| {
            Application::from(|variable| {
                Some(if variable == APPLICATION_VARIABLE { name } else { weight }.to_owned())
            })
        };
        let (name, weight) = ("climate".to_owned(), 2);
        assert_eq!(with("climate", "2").unwrap(), Application { name, weight });
        assert_eq!(with("", "").unwrap(), Application::of_program());
        assert_eq!(with("a", "1000").unwrap().weight, 1000);
        assert_eq!(with(&"x".repeat(99), "1").unwrap().name.len(), 64);
        assert_eq!(with("a\nb", "1").unwrap().name, "ab");
        for wrong in ["abc", "0", "1001", "-1", "1.5", "2x"] {
            let expected =
                format!("environment PARIO_WEIGHT = {wrong:?}: must be a whole number from 1 to 1000");
            assert_eq!(with("a", wrong).unwrap_err().to_string(), expected);
        }
    }
}
