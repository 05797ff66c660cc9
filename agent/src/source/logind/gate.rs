//! Which signals of the bus are looked into: those of logind and systemd all, those of strangers at a bounded rate. Pure.
//!
//! Anybody on the bus can emit `PrepareForShutdown`, to all or to one connection. The daemon writes the sender into each message, and
//! says who owns a name: nothing else is believed.

use std::time::Duration;

use epitaph_core::node::ShutdownKind;
use epitaph_core::time::Boot;

use super::drops::{Drops, LogindDropReason};
use crate::bucket::{Bucket, Rate};

/// The sender of `NameOwnerChanged`.
pub(super) const DAEMON: &str = "org.freedesktop.DBus";

/// A forged signal is worth a question who sent it; more than these are only counted.
const STRANGERS: Rate = Rate {
    burst: 16,
    per_second: 1,
};

/// logind sends both forms of a signal at once.
const BOTH: Duration = Duration::from_secs(2);

/// A service on the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Logind,
    Systemd,
    /// systemd-oomd, which few machines run.
    Oomd,
}

impl Service {
    pub const ALL: [Service; 3] = [Service::Logind, Service::Systemd, Service::Oomd];

    pub const fn name(self) -> &'static str {
        match self {
            Service::Logind => "org.freedesktop.login1",
            Service::Systemd => "org.freedesktop.systemd1",
            Service::Oomd => "org.freedesktop.oom1",
        }
    }
}

/// A signal of the bus, with its sender's unique name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signal {
    pub sender: String,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// `NameOwnerChanged`.
    Owner {
        of: Service,
        now: Option<String>,
    },
    Prepare {
        start: bool,
        /// `PrepareForShutdownWithMetadata`, which logind sends before the other form.
        metadata: bool,
        kind: Option<ShutdownKind>,
    },
    /// `PropertiesChanged` of logind's manager.
    Changed,
    Job {
        unit: String,
        removed: bool,
    },
    /// systemd-oomd's `Killed`.
    OomKilled {
        cgroup: String,
        reason: String,
    },
}

/// What is looked into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    Owner {
        of: Service,
        now: Option<String>,
    },
    Prepare {
        start: bool,
        kind: Option<ShutdownKind>,
        /// None: logind itself.
        stranger: Option<String>,
    },
    Changed,
    Job {
        unit: String,
        removed: bool,
    },
    OomKilled {
        cgroup: String,
        reason: String,
    },
}

#[derive(Debug)]
pub(super) struct Gate {
    owners: [Owner; Service::ALL.len()],
    /// Forms with metadata of which the plain form is still to come: sender, value, time.
    half: Vec<(String, bool, Boot)>,
    strangers: Bucket,
}

#[derive(Clone, Debug, Default)]
struct Owner {
    name: Option<String>,
    /// By a signal: an answer to an earlier question does not replace it.
    is_signalled: bool,
}

impl Gate {
    pub fn new() -> Gate {
        Gate {
            owners: Default::default(),
            half: Vec::new(),
            strangers: Bucket::new(STRANGERS),
        }
    }

    /// The daemon's answer to the question who owns the name, asked after the subscription to changes.
    pub fn answered(&mut self, of: Service, name: Option<String>) {
        let owner = &mut self.owners[of as usize];
        if !owner.is_signalled {
            owner.name = name;
        }
    }

    pub fn owner(&self, of: Service) -> Option<&str> {
        self.owners[of as usize].name.as_deref()
    }

    /// None: counted, or the second form of what was admitted.
    pub fn admit(&mut self, now: Boot, signal: Signal, drops: &Drops) -> Option<Admitted> {
        let Signal { sender, what } = signal;
        let is = |of| self.owner(of) == Some(sender.as_str());
        let garbage = || {
            drops.add(LogindDropReason::Garbage, 1);
            None
        };
        match what {
            What::Owner { of, now } if sender == DAEMON => {
                self.owners[of as usize] = Owner {
                    name: now.clone(),
                    is_signalled: true,
                };
                Some(Admitted::Owner { of, now })
            }
            What::Changed if is(Service::Logind) => Some(Admitted::Changed),
            What::Job { unit, removed } if is(Service::Systemd) => Some(Admitted::Job { unit, removed }),
            What::OomKilled { cgroup, reason } if is(Service::Oomd) => Some(Admitted::OomKilled { cgroup, reason }),
            What::Owner { .. } | What::Changed | What::Job { .. } | What::OomKilled { .. } => garbage(),
            What::Prepare { start, metadata, kind } => {
                let stranger = (!is(Service::Logind)).then(|| sender.clone());
                if self.is_second(now, &sender, start, metadata) {
                    return None;
                }
                if stranger.is_some() && self.strangers.take(now).is_err() {
                    drops.add(LogindDropReason::Strangers, 1);
                    return None;
                }
                if metadata {
                    self.half.push((sender, start, now));
                }
                Some(Admitted::Prepare { start, kind, stranger })
            }
        }
    }

    /// Whether this is the plain form of an admitted signal with metadata.
    fn is_second(&mut self, now: Boot, sender: &str, start: bool, metadata: bool) -> bool {
        // Bounded by the rate of strangers, within the time.
        self.half.retain(|(.., at)| now.since(*at) <= BOTH);
        let found = self.half.iter().position(|(of, value, _)| of == sender && *value == start);
        match found {
            Some(at) if !metadata => {
                self.half.remove(at);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use expect_test::{Expect, expect};

    use super::*;

    /// A line per signal: milliseconds, sender, what.
    fn check(script: &str, expect: Expect) {
        let (mut gate, drops, mut out) = (Gate::new(), Drops::default(), String::new());
        gate.answered(Service::Logind, Some(":1.4".to_owned()));
        gate.answered(Service::Systemd, Some(":1.1".to_owned()));
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let now = Boot(words[0].parse::<u64>().unwrap() * 1_000_000);
            let prepare = |metadata| What::Prepare {
                start: words[3] == "true",
                metadata,
                kind: words.get(4).and_then(|kind| ShutdownKind::parse(kind)),
            };
            let what = match words[2] {
                "prepare" => prepare(false),
                "metadata" => prepare(true),
                "changed" => What::Changed,
                "job" => What::Job {
                    unit: words[3].to_owned(),
                    removed: false,
                },
                "owner" => What::Owner {
                    of: Service::Logind,
                    now: words.get(3).map(|name| (*name).to_owned()),
                },
                other => panic!("{other}"),
            };
            let sender = words[1].to_owned();
            let admitted = gate.admit(now, Signal { sender, what }, &drops);
            let said = admitted.map_or("-".to_owned(), |admitted| format!("{admitted:?}"));
            let _ = writeln!(out, "{}: {said}", words[0]);
        }
        for (reason, count) in drops.take() {
            let _ = writeln!(out, "{} {count}", reason.name());
        }
        expect.assert_eq(&out);
    }

    #[test]
    fn both_forms_are_one_event() {
        check(
            "
            0 :1.4 metadata true power-off
            1 :1.4 prepare true
            2 :1.4 prepare true
            3 :1.4 metadata false power-off
            9000 :1.4 prepare false
            ",
            expect![[r#"
                0: Prepare { start: true, kind: Some(PowerOff), stranger: None }
                1: -
                2: Prepare { start: true, kind: None, stranger: None }
                3: Prepare { start: false, kind: Some(PowerOff), stranger: None }
                9000: Prepare { start: false, kind: None, stranger: None }
            "#]],
        );
    }

    #[test]
    fn a_sender_is_logind_while_it_owns_the_name() {
        check(
            "
            0 :1.9 prepare true
            1 :1.9 metadata true reboot
            2 :1.4 prepare true
            3 :1.9 prepare true
            10 :1.9 owner :1.9
            11 :1.9 prepare true
            20 org.freedesktop.DBus owner
            21 :1.4 prepare false
            30 org.freedesktop.DBus owner :1.12
            31 :1.12 prepare false
            ",
            expect![[r#"
                0: Prepare { start: true, kind: None, stranger: Some(":1.9") }
                1: Prepare { start: true, kind: Some(Reboot), stranger: Some(":1.9") }
                2: Prepare { start: true, kind: None, stranger: None }
                3: -
                10: -
                11: Prepare { start: true, kind: None, stranger: Some(":1.9") }
                20: Owner { of: Logind, now: None }
                21: Prepare { start: false, kind: None, stranger: Some(":1.4") }
                30: Owner { of: Logind, now: Some(":1.12") }
                31: Prepare { start: false, kind: None, stranger: None }
                logind_garbage 1
            "#]],
        );
    }

    #[test]
    fn only_the_owners_change_properties_and_queue_jobs() {
        check(
            "
            0 :1.4 changed
            1 :1.9 changed
            2 :1.1 job reboot.target
            3 :1.4 job reboot.target
            ",
            expect![[r#"
                0: Changed
                1: -
                2: Job { unit: "reboot.target", removed: false }
                3: -
                logind_garbage 2
            "#]],
        );
    }

    #[test]
    fn a_flood_of_strangers_hides_nothing_of_logind() {
        let (mut gate, drops) = (Gate::new(), Drops::default());
        gate.answered(Service::Logind, Some(":1.4".to_owned()));
        let prepare = |sender: &str| Signal {
            sender: sender.to_owned(),
            what: What::Prepare {
                start: true,
                metadata: true,
                kind: None,
            },
        };
        let now = Boot(1_000_000_000_000);
        let strangers = (0..10_000)
            .filter(|_| gate.admit(now, prepare(":1.9"), &drops).is_some())
            .count();
        assert_eq!((strangers, drops.get(LogindDropReason::Strangers)), (16, 9_984));
        assert!(gate.admit(now, prepare(":1.4"), &drops).is_some());
        assert!(gate.half.len() <= 17);
    }

    #[test]
    fn an_answer_does_not_replace_a_later_signal() {
        let mut gate = Gate::new();
        let owner = What::Owner {
            of: Service::Logind,
            now: Some(":1.7".to_owned()),
        };
        let sender = DAEMON.to_owned();
        gate.admit(Boot(0), Signal { sender, what: owner }, &Drops::default());
        gate.answered(Service::Logind, Some(":1.4".to_owned()));
        assert_eq!(gate.owner(Service::Logind), Some(":1.7"));
    }
}
