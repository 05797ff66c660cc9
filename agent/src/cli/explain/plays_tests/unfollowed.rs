//! What no recording follows, with the reasons.

const OWN_FAULT: &str = "the remedy is in the program, and its log or core dump has the reason";

const AFTER: &str = "it is what a remedy leads to, and its own remedy is followed for another program";

/// Stories whose remedy no story follows, each with the reason.
pub const NOT_PLAYED: &[(&str, &str)] = &[
    ("abort", OWN_FAULT),
    ("abort-as-pid-1", OWN_FAULT),
    ("abort-with-core", OWN_FAULT),
    ("segmentation-fault", OWN_FAULT),
    ("exits-1-by-itself", OWN_FAULT),
    ("exits-1-beside-the-host", OWN_FAULT),
    ("declared-stop-signal-with-clients", AFTER),
    ("parallel-with-time", AFTER),
    ("parallel-gives-time", AFTER),
    (
        "never-acknowledged",
        "the remedy is on the way to the clients, and no story has one that can be mended",
    ),
];

/// Remedies that no recording follows, each with the reason.
pub const UNFOLLOWED: &[(&str, &[&str])] = &[
    (
        OWN_FAULT,
        &[
            "read-the-log-of-what-raised",
            "read-the-core-dump",
            "read-the-core-dump-of-the-program",
        ],
    ),
    (
        "not played in the demo, because the remedy is a setting of a pod, of the program that deletes the pod, or of the kubelet; tests on a real cluster and tests with written timelines have the verdicts before and after",
        &[
            "mend-the-probe",
            "shorten-the-hook-and-ask-for-more",
            "shorten-the-hook",
            "run-the-hook-by-hand",
            "find-why-the-hook-fails",
            "look-for-the-event-of-the-hook",
            "read-the-containers-message",
            "more-time-for-a-sidecar",
            "no-grace-period-at-a-restart-in-place",
            "no-second-delete",
            "leave-the-grace-period-to-the-pod",
            "delete-with-the-pods-own-grace-period",
            "keep-the-kubelet-from-evicting",
            "raise-the-grace-period-of-the-pod",
            "another-replica",
            "pre-stop-sleep",
            "let-the-sleep-end",
            "listen-until-clients-stop",
            "raise-the-shutdown-grace-period",
            "more-time-at-the-shutdown",
        ],
    ),
    (
        "the shutdown of a machine: its stories play what was before, in a virtual machine",
        &[
            "stop-before-the-shutdown",
            "raise-timeout-stop-sec-at-the-shutdown",
            "drain-the-node-first",
        ],
    ),
    (
        "systemd's own wait, of which text timelines have the verdicts before and after: the systemd of the stories is that of the main process alone",
        &["raise-timeout-stop-sec-below"],
    ),
    (
        "the kernel of the recordings does not record the signal of a timer: `handle-the-timer-or-find-the-sender` is followed, which asks for the same",
        &["handle-the-timer"],
    ),
    (
        "the evidence is missing: the program has no fault that is known, and the remedy is for Epitaph, the node or the search",
        &[
            "nothing-to-fix",
            "keep-epitaph-running",
            "keep-epitaph-running-to-the-exit",
            "look-in-systemds-log",
            "look-in-the-runtimes-log",
            "look-in-the-log-of-the-previous-boot",
            "stop-fewer-at-once",
            "raise-limits-memory",
            "find-the-noisy-process",
            "raise-ring-bytes",
            "export-more",
            "export-again",
            "run-the-doctor",
            "run-the-doctor-for-sockets",
            "search-for-the-sender",
            "search-the-kernels-log",
            "raise-memory-or-find-the-exec",
            "use-cgroup-v2",
            "check-the-connection-to-the-api",
        ],
    ),
    (
        "whoever killed it is found by name, and not by a setting: `use-the-stop-command` is followed for all of them",
        &[
            "find-who-killed-the-program",
            "find-who-killed-below",
            "find-why-the-namespace-ended",
        ],
    ),
    (
        "a remedy with the same words is followed for the first process, or for clients whose time was measured",
        &[
            "wait-for-what-served-clients",
            "socket-unit-for-new-peers",
            "accept-until-clients-stop",
            "accept-until-clients-stop-connecting",
            "accept-without-a-deletion",
            "look-at-the-new-peers",
        ],
    ),
    (
        "it names what to look for on the node or on the way to the clients, and no setting",
        &[
            "find-what-holds-the-process",
            "find-what-took-the-way",
            "find-the-rule-that-rejects",
        ],
    ),
    (
        "the daemons run in `cargo xtask test oom` only",
        &[
            "raise-the-memory-limit-by-the-daemons-log",
            "more-memory-for-the-program",
            "more-memory-below",
        ],
    ),
];
