//! Ways to shut a machine down, and what logind does and Epitaph reports at each, on two generations of systemd. `tests/tests/systemd`
//! plays them on emulated machines and holds each to its row; `docs/shutdowns.md` is the table.

mod cuts;
mod page;

use std::fmt;

pub use cuts::{CUTS, Cut, LOCKS, Lock, Moment};
pub use page::page;

/// A machine on which the cases are played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debian {
    Eleven,
    Thirteen,
}

impl Debian {
    pub const ALL: [Debian; 2] = [Debian::Eleven, Debian::Thirteen];

    /// By the number that `cargo xtask test systemd --debian` takes.
    #[must_use]
    pub fn numbered(number: &str) -> Option<Debian> {
        Debian::ALL.into_iter().find(|debian| debian.number() == number)
    }

    #[must_use]
    pub fn number(self) -> &'static str {
        match self {
            Debian::Eleven => "11",
            Debian::Thirteen => "13",
        }
    }

    #[must_use]
    pub fn systemd(self) -> u32 {
        match self {
            Debian::Eleven => 247,
            Debian::Thirteen => 257,
        }
    }
}

/// What a person does to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Root's shell runs it.
    Shell(&'static str),
    PowerButton,
    ResetButton,
    PowerPlug,
}

impl fmt::Display for Does {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Does::Shell(command) => write!(f, "`{command}`"),
            Does::PowerButton => f.write_str("the power button (ACPI)"),
            Does::ResetButton => f.write_str("the reset button"),
            Does::PowerPlug => f.write_str("the power plug"),
        }
    }
}

/// What happens to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It runs on.
    Stays,
    /// It boots again by itself.
    Boots,
    /// Its services begin again, on the same kernel.
    SoftBoots,
    /// It is off, and is switched on again.
    Off,
}

/// When the shutdown is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// While the machine runs on.
    AtOnce,
    /// As the agent ends.
    Ending,
    NextBoot,
}

impl When {
    /// By the field `ending` of the report.
    #[must_use]
    pub fn of(ending: &str) -> Option<When> {
        match ending {
            "continued" => Some(When::AtOnce),
            "agent-ended" => Some(When::Ending),
            "down" => Some(When::NextBoot),
            _ => None,
        }
    }
}

/// What is seen on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub then: Then,
    /// The signals on the system bus in their order, by a witness that is not Epitaph; repeated ones once.
    pub bus: &'static str,
    /// Epitaph's report: verdict, what announced the shutdown, when; None: there is none.
    pub report: Option<(&'static str, &'static str, When)>,
}

/// One way.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    pub does: Does,
    /// In the order of [`Debian::ALL`]; None: there is no such command.
    pub seen: [Option<Seen>; 2],
}

impl Case {
    #[must_use]
    pub fn on(&self, debian: Debian) -> Option<Seen> {
        self.seen[debian as usize]
    }
}

const PREPARE: &str = "PrepareForShutdown";
const PREPARE_AND_JOB: &str = "PrepareForShutdown, JobNew";
const JOB: &str = "JobNew";
const NOTHING: &str = "";

const fn seen(then: Then, bus: &'static str, verdict: &'static str, announcement: &'static str, when: When) -> Option<Seen> {
    Some(Seen {
        then,
        bus,
        report: Some((verdict, announcement, when)),
    })
}

/// logind announces it, and all goes well.
const fn announced(then: Then) -> Option<Seen> {
    seen(then, PREPARE_AND_JOB, "graceful", PREPARE, When::Ending)
}

/// The services are stopped without an announcement.
const fn around_logind(then: Then) -> Option<Seen> {
    seen(then, JOB, "bypassed", JOB, When::Ending)
}

/// No process is told.
const fn unannounced(then: Then) -> Option<Seen> {
    seen(then, NOTHING, "unannounced", "none", When::NextBoot)
}

const fn both(seen: Option<Seen>) -> [Option<Seen>; 2] {
    [seen, seen]
}

pub const CASES: &[Case] = &[
    Case {
        name: "systemctl-poweroff",
        does: Does::Shell("systemctl poweroff"),
        seen: both(announced(Then::Off)),
    },
    Case {
        name: "systemctl-reboot",
        does: Does::Shell("systemctl reboot"),
        seen: both(announced(Then::Boots)),
    },
    Case {
        name: "shutdown-poweroff-now",
        does: Does::Shell("shutdown -h now"),
        seen: [around_logind(Then::Off), announced(Then::Off)],
    },
    Case {
        name: "shutdown-reboot-now",
        does: Does::Shell("shutdown -r now"),
        seen: [around_logind(Then::Boots), announced(Then::Boots)],
    },
    Case {
        name: "shutdown-reboot-later",
        does: Does::Shell("shutdown -r +1"),
        seen: both(announced(Then::Boots)),
    },
    Case {
        name: "cancelled",
        does: Does::Shell("shutdown -r +1; sleep 20; shutdown -c"),
        seen: both(seen(Then::Stays, NOTHING, "cancelled", "none", When::AtOnce)),
    },
    Case {
        name: "power-button",
        does: Does::PowerButton,
        seen: both(announced(Then::Off)),
    },
    Case {
        name: "soft-reboot",
        does: Does::Shell("systemctl soft-reboot"),
        seen: [None, announced(Then::SoftBoots)],
    },
    Case {
        name: "force-reboot",
        does: Does::Shell("systemctl --force reboot"),
        seen: both(seen(Then::Boots, NOTHING, "bypassed", "systemd-shutdown", When::Ending)),
    },
    Case {
        name: "halt-p-f",
        does: Does::Shell("halt -p -f"),
        seen: both(unannounced(Then::Off)),
    },
    Case {
        name: "reboot-f",
        does: Does::Shell("reboot -f"),
        seen: both(unannounced(Then::Boots)),
    },
    Case {
        name: "sysrq-b",
        does: Does::Shell("echo b >/proc/sysrq-trigger"),
        seen: both(unannounced(Then::Boots)),
    },
    Case {
        name: "reset-button",
        does: Does::ResetButton,
        seen: both(unannounced(Then::Boots)),
    },
    Case {
        name: "power-plug",
        does: Does::PowerPlug,
        seen: both(unannounced(Then::Off)),
    },
    Case {
        name: "spoofed",
        does: Does::Shell(
            "busctl emit /org/freedesktop/login1 org.freedesktop.login1.Manager PrepareForShutdown b true; sleep 2; \
             busctl emit /org/freedesktop/login1 org.freedesktop.login1.Manager PrepareForShutdown b false",
        ),
        seen: both(seen(
            Then::Stays,
            "PrepareForShutdown (forged), PrepareForShutdown false (forged)",
            "spoofed",
            "spoofed PrepareForShutdown",
            When::AtOnce,
        )),
    },
    Case {
        name: "block-lock",
        does: Does::Shell("systemd-inhibit --what=shutdown --mode=block --who=backup sleep 30 & sleep 5; systemctl poweroff"),
        seen: [
            announced(Then::Off),
            Some(Seen {
                then: Then::Stays,
                bus: NOTHING,
                report: None,
            }),
        ],
    },
    Case {
        name: "block-lock-later",
        does: Does::Shell("systemd-inhibit --what=shutdown --mode=block --who=backup sleep 110 & sleep 5; shutdown -r +1"),
        seen: [
            announced(Then::Boots),
            // logind refuses the plan.
            Some(Seen {
                then: Then::Stays,
                bus: NOTHING,
                report: None,
            }),
        ],
    },
    Case {
        name: "block-lock-after-plan",
        does: Does::Shell("shutdown -r +1; sleep 5; systemd-inhibit --what=shutdown --mode=block --who=backup sleep 110"),
        // logind looks at block locks when it is asked, not when the time has come.
        seen: both(announced(Then::Boots)),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own_and_is_played_somewhere() {
        let names = CASES.iter().map(|case| case.name);
        let names: Vec<&str> = names
            .chain(CUTS.iter().map(|cut| cut.name))
            .chain(LOCKS.iter().map(|lock| lock.name))
            .collect();
        for (n, name) in names.iter().enumerate() {
            assert!(!names[..n].contains(name), "{name}");
        }
        for case in CASES {
            assert!(case.seen.iter().any(Option::is_some), "{}", case.name);
        }
    }
}
