//! Deliberate bugs that prove that the checkers of random histories and of the simulator detect violations.
//!
//! Never: enabled outside tests and the simulator. Always: a bug has a word, its name on the simulator's command line.

/// Defines an enum of deliberate bugs: each variant with its doc comment and its word; `ALL` lists them.
#[macro_export]
macro_rules! bugs {
    ($(#[$what:meta])* $kind:ident: $($(#[$doc:meta])* $name:ident $word:literal)*) => {
        $(#[$what])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $kind {
            $($(#[$doc])* $name,)*
        }

        impl $kind {
            /// All of them.
            pub const ALL: &'static [$kind] = &[$($kind::$name,)*];

            /// Name of the bug on the command line.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $($kind::$name => $word,)* }
            }
        }
    };
}

/// The enabled bug of a state machine; none outside tests and the simulator.
#[derive(Clone, Copy, Debug)]
pub struct Sabotage<Bug>(Option<Bug>);

impl<Bug> Default for Sabotage<Bug> {
    fn default() -> Self {
        Sabotage(None)
    }
}

impl<Bug: Copy + PartialEq> Sabotage<Bug> {
    /// With this bug, or none.
    #[must_use]
    pub fn new(bug: Option<Bug>) -> Sabotage<Bug> {
        Sabotage(bug)
    }

    /// Whether any bug is enabled.
    #[must_use]
    pub fn is_enabled(self) -> bool {
        self.0.is_some()
    }

    /// Whether this bug is enabled.
    #[must_use]
    pub fn has(self, bug: Bug) -> bool {
        self.0 == Some(bug)
    }
}
