//! systemd's results of a unit.

use super::Word;

pub(super) const UNITS: &[Word] = &[
    Word {
        names: &["core-dump", "dumped"],
        meaning: "systemd's result of a unit: a signal that dumps core ended the main process. The signal came from a fault or an abort of \
                  the process itself, or it was SIGQUIT or SIGABRT from outside. `coredumpctl` shows the dump.",
        verdicts: &["crashed", "default-action", "killed-by-other"],
    },
    Word {
        names: &["watchdog"],
        meaning: "systemd's result of a unit: the service did not report in time (WatchdogSec=), and systemd sent SIGABRT, which is then the stop \
                  signal. The program hung, or does not call sd_notify(3).",
        verdicts: &["default-action", "killed-after-grace", "blocked-stop-signal"],
    },
    Word {
        names: &["timeout"],
        meaning: "systemd's result of a unit: the start took longer than TimeoutStartSec=, or the stop longer than TimeoutStopSec=, after which systemd \
                  sends SIGKILL.",
        verdicts: &[
            "killed-after-grace",
            "ignored-stop-signal",
            "blocked-stop-signal",
            "default-action",
        ],
    },
    Word {
        names: &["start-limit-hit"],
        meaning: "systemd's result of a unit, not a termination: the unit was started too often (StartLimitBurst=), and is not started again. \
                  `epitaph list` shows the terminations before that; `systemctl reset-failed UNIT` allows a start.",
        verdicts: &[
            "nonzero-exit",
            "crashed",
            "oom-killed",
            "oom-child",
            "killed-by-other",
            "clean",
        ],
    },
    Word {
        names: &["exit-code"],
        meaning: "systemd's result of a unit: the main process exited with a code other than 0. `systemctl status` shows the code (such as \
                  `status=203/EXEC`), and `epitaph explain 203` explains it.",
        verdicts: &["nonzero-exit", "oom-child"],
    },
    Word {
        names: &["signal"],
        meaning: "systemd's result of a unit: a signal ended the main process without a core dump. `systemctl status` shows the signal \
                  (such as `status=9/KILL`), and `epitaph explain KILL` explains it.",
        verdicts: &[
            "oom-killed",
            "default-action",
            "ignored-stop-signal",
            "killed-after-grace",
            "killed-by-other",
            "crashed",
        ],
    },
];
