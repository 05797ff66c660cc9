//! Which systemd units are reported (`units.*` in docs/config.md).

use serde::{Deserialize, Serialize};

use crate::text::unit_matches;

/// The units of logins: one for each session or connection, terminated by each logout, often with an error or by a signal. Nothing
/// else is left out: of any other unit a kill or a crash can matter.
pub const LOGIN_UNITS: &[&str] = &[
    "user@*.service",
    "user-runtime-dir@*.service",
    "*getty@*.service",
    "ssh@*.service",
    "sshd@*.service",
];

/// Patterns of names; `*` and `?` match, and `.service` is added where a pattern has no suffix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReportedUnits {
    pub include: Vec<String>,
    /// Goes before `include`.
    pub exclude: Vec<String>,
}

impl Default for ReportedUnits {
    fn default() -> ReportedUnits {
        ReportedUnits {
            include: vec!["*".to_owned()],
            exclude: LOGIN_UNITS.iter().map(|&pattern| pattern.to_owned()).collect(),
        }
    }
}

impl ReportedUnits {
    pub(super) fn has(&self, name: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| unit_matches(pattern, name));
        any(&self.include) && !any(&self.exclude)
    }
}
