//! For a process that somebody or something killed.

use super::asked::{Asked, Remedy};
use crate::attribute::{Attribution, Subject};
use crate::event::ExitStatus;
use crate::verdict::judge::Why;
use crate::verdict::own_time;
use crate::verdict::sentence::inside;
use crate::verdict::words::{actor, manager, target};

pub const REMEDIES: &[Remedy] = &[
    Remedy {
        name: "raise-the-memory-limit",
        helps_if: "The kernel killed the main process because memory ran out.",
        holds: |of| *of.why() == Why::Oom,
        words: |of| Some(of.row()),
    },
    Remedy {
        name: "raise-the-memory-limit-and-exit-with-an-error",
        helps_if: "The kernel killed another process because memory ran out, and the main process exited with 0 nevertheless.",
        holds: |of| {
            let is_hidden = of.case.exit.is_some_and(|exit| exit.status == ExitStatus::Exited(0));
            *of.why() == Why::OomChild && is_hidden
        },
        words: |of| {
            Some(format!(
                "raise the memory limit, or reduce the memory that is needed; let {} exit with an error if such a process fails",
                target(of.case.main())
            ))
        },
    },
    Remedy {
        name: "raise-the-memory-limit-or-run-fewer-workers",
        helps_if: "The kernel killed another process because memory ran out, and the main process exited with an error.",
        holds: |of| *of.why() == Why::OomChild,
        words: |of| Some(of.row()),
    },
    Remedy {
        name: "raise-the-memory-limit-by-the-daemons-log",
        helps_if: "A daemon that kills before memory has run out (such as systemd-oomd) ended the main process.",
        holds: |of| *of.why() == Why::OomByDaemon,
        words: by_oom_daemon,
    },
    Remedy {
        name: "use-the-stop-command",
        helps_if: "Another process, which is neither the container runtime nor the main process itself, sent the signal that ended the main process.",
        holds: |of| *of.why() == Why::KilledByOther,
        words: |of| {
            let fatal = of.case.fatal()?;
            Some(format!(
                "find out why {} sent {}, and use the stop command of the {} instead",
                actor(&fatal.sender),
                fatal.signal,
                manager(of.case)
            ))
        },
    },
    Remedy {
        name: "delete-with-the-pods-own-grace-period",
        helps_if: "The main process was killed at once, and the deletion or eviction had asked for less than the pod's own grace period.",
        holds: |of| is_forced(of) && own_time::ask_for_more(of.case).is_some(),
        words: |of| own_time::ask_for_more(of.case),
    },
    Remedy {
        name: "stop-with-a-grace-period",
        helps_if: "The runtime killed the main process without a stop signal first, or the pod was deleted with a grace period of 0.",
        holds: is_forced,
        words: |of| Some(of.row()),
    },
    Remedy {
        name: "find-why-the-namespace-ended",
        helps_if: "The first process of the pid namespace exited, and the kernel then killed all processes of the namespace, among them the main process.",
        holds: |of| *of.why() == Why::NamespaceEnded,
        words: |_| Some("find out why PID 1 of the pid namespace exited".to_owned()),
    },
];

fn is_forced(of: &Asked<'_>) -> bool {
    matches!(of.why(), Why::Forced | Why::ForceDeleted)
}

fn by_oom_daemon(of: &Asked<'_>) -> Option<String> {
    let kill = of.case.kill().map(|kill| &kill.sender);
    let sender = kill.or_else(|| of.case.stop().map(|stop| &stop.sender))?;
    let unit = match &sender.place {
        Attribution::Subject(Subject::Unit { name }, _) => name.to_string(),
        _ => sender.comm.to_string(),
    };
    Some(format!("{} (`journalctl -u {unit}`)", inside::spare_of(sender.comm)))
}
