//! What no recording follows, with the reasons.

const OWN_FAULT: &str =
    "no recording, because the fault is in the program itself: the log or the core dump of the program shows what to change";

const AFTER: &str = "recorded after a remedy had been followed; the remedy that it gets itself is tested with another program";

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
        "no recording, because the fault is in the network to the clients, and no test repairs a network",
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
        "no recording, because the remedy is about a pod, the kubelet, or the program that deletes the pod. Tests on a real cluster and tests with events written by hand check the verdicts before and after",
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
        "no recording after the remedy, because it is about the shutdown of a whole machine. Tests in a virtual machine check the verdict before the remedy",
        &[
            "stop-before-the-shutdown",
            "raise-timeout-stop-sec-at-the-shutdown",
            "drain-the-node-first",
        ],
    ),
    (
        "no recording, because in all recordings with systemd the time that systemd waits ends for the main process only. Tests with events written by hand check the verdicts before and after",
        &["raise-timeout-stop-sec-below"],
    ),
    (
        "no recording, because the kernel on which the recordings were made does not report the signal of a timer. The remedy `handle-the-timer-or-find-the-sender` asks for the same change and has a recording",
        &["handle-the-timer"],
    ),
    (
        "no recording, because evidence is missing and no fault of the program is known: the remedy changes Epitaph or the node, or names where to search",
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
        "no recording, because the remedy is to find out what caused the kill, and changes no setting. The similar remedy `use-the-stop-command` has recordings",
        &[
            "find-who-killed-the-program",
            "find-who-killed-below",
            "find-why-the-namespace-ended",
        ],
    ),
    (
        "no recording, because another remedy asks for the same change and has recordings: for the first process, or for clients whose time was measured",
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
        "no recording, because the remedy names what to search for on the node or in the network to the clients, and changes no setting",
        &[
            "find-what-holds-the-process",
            "find-what-took-the-way",
            "find-the-rule-that-rejects",
        ],
    ),
    (
        "no recording, because the daemons that kill before memory has run out (systemd-oomd, earlyoom, nohang) run only in the test `cargo xtask test oom`",
        &[
            "raise-the-memory-limit-by-the-daemons-log",
            "more-memory-for-the-program",
            "more-memory-below",
        ],
    ),
];
