//! Remedies that were followed on a whole node or a cluster.

/// What a remedy for a node leads to, by the rows of docs/shutdowns.md: the command before, its verdict, the part of the remedy, and the
/// command that the remedy names, with its verdict.
pub const MEASURED: &[[&str; 5]] = &[
    [
        "shutdown -h now",
        "bypassed",
        "Use `systemctl poweroff`",
        "systemctl poweroff",
        "graceful",
    ],
    [
        "reboot -f",
        "unannounced",
        "reboot with `systemctl reboot`",
        "systemctl reboot",
        "graceful",
    ],
];

/// Played on a real cluster, by hand: the verdict before, the remedy, the verdict after, and the story with its file below tests/src/cluster.
pub const ON_THE_CLUSTER: &[[&str; 5]] = &[
    [
        "refused-connections",
        "the preStop sleep that the advice names was set: 25 s with kube-proxy in iptables mode, 19 s in nftables mode. Clients lost 781 and 643 connections before, and none after",
        "clean",
        "placed",
        "rollouts.rs",
    ],
    [
        "unprotected",
        "the drop-in file of logind.conf that `epitaph doctor` names was changed, and systemd-logind and the kubelet were restarted",
        "graceful",
        "drop-in",
        "node_shutdown/mod.rs",
    ],
    [
        "spoofed",
        "the kubelet was restarted after the spoofed signal: the next shutdown then waited for the pods",
        "graceful",
        "spoofed",
        "node_shutdown/mod.rs",
    ],
];
