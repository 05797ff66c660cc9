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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::script;
    use crate::report::Report;

    #[test]
    fn units_of_logins_are_left_out_by_default_and_no_others() {
        let units = ReportedUnits::default();
        let out = [
            "user@1000.service",
            "getty@tty1.service",
            "serial-getty@ttyS0.service",
            "ssh@3-10.0.0.1:22.service",
        ];
        assert!(!out.iter().any(|name| units.has(name)));
        let reported = [
            "nginx.service",
            "ssh.service",
            "systemd-resolved.service",
            "containerd.service",
            "run-1.scope",
        ];
        assert!(reported.iter().all(|name| units.has(name)));
    }

    #[test]
    fn exclude_goes_before_include() {
        let units = ReportedUnits {
            include: vec!["web-*".to_owned(), "nginx".to_owned()],
            exclude: vec!["web-test".to_owned()],
        };
        let names = ["web-1.service", "nginx.service", "web-test.service", "cron.service"];
        assert_eq!(names.map(|name| units.has(name)), [true, true, false, false]);
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let exits = |unit: &str| {
            let script = format!(
                "
                +0 mkdir {unit}
                proc main in={unit} pid=200 start=+0 parent=systemd comm=main
                +0.001 exec main
                +1 exit main 255
                +9 tick
                +10 tick
                "
            );
            let reports = script::run(&script);
            let of = |wanted: fn(&Report) -> bool| reports.iter().filter(|report| wanted(report)).count();
            (
                of(|report| matches!(report, Report::Terminated(_))),
                of(|report| *report == Report::OptedOut { count: 1 }),
            )
        };
        assert_eq!((exits("ssh@3.service"), exits("sshd.service")), ((0, 1), (1, 0)));
    }
}
