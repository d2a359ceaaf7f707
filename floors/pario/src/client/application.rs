//! On whose behalf a process mounts: servers share the service of their stores between applications, by weight.
//!
//! Always: processes that mount under one name are one application to the servers; without a name of its own an application has that
//! of its program.

use pario_server::desk::WEIGHT_MAX;

/// Variable with the application's name.
const APPLICATION_VARIABLE: &str = "PARIO_APPLICATION";
/// Variable with the weight that it asks for.
const WEIGHT_VARIABLE: &str = "PARIO_WEIGHT";
/// Longest name; what is beyond is cut.
const NAME_CHARS_MAX: usize = 64;

/// An application as its servers know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Application {
    /// Its name.
    pub name: String,
    /// The weight that it asks for; what the partition says of its name wins.
    pub weight: u32,
}

impl Application {
    /// With a name and a weight, 1 to 1000; others count as the nearest.
    #[must_use]
    pub fn new(name: &str, weight: u32) -> Application {
        let name = name.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect();
        Application { name, weight: weight.clamp(1, WEIGHT_MAX) }
    }

    /// What this process says of itself: `PARIO_APPLICATION` and `PARIO_WEIGHT`, else the name of the program and 1.
    #[must_use]
    pub fn own() -> Application {
        Application::from(|variable| std::env::var(variable).ok())
    }

    fn from(look_up: impl Fn(&str) -> Option<String>) -> Application {
        let name = look_up(APPLICATION_VARIABLE).filter(|name| !name.is_empty());
        let weight = look_up(WEIGHT_VARIABLE).filter(|weight| !weight.is_empty());
        let number = weight.as_ref().map_or(Some(1), |weight| weight.parse().ok());
        if number.is_none() {
            tracing::warn!(
                "{WEIGHT_VARIABLE}={} is not a whole number; 1 is used",
                weight.unwrap_or_default()
            );
        }
        Application::new(&name.unwrap_or_else(super::mount::program), number.unwrap_or(1))
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
        assert_eq!(with("climate", "2"), Application { name: "climate".into(), weight: 2 });
        assert_eq!(with("", ""), Application { name: super::super::mount::program(), weight: 1 });
        assert_eq!((with("a", "0").weight, with("a", "9999").weight, with("a", "much").weight), (1, 1000, 1));
        assert_eq!(with(&"x".repeat(99), "1").name.len(), 64);
        assert_eq!(with("a\nb", "1").name, "ab");
    }
}
