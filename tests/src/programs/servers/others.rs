//! Servers in Go, and those of logins, jobs and connection pools.

use nix::libc::{SIGINT, SIGQUIT, SIGTERM, SIGUSR2};

use crate::programs::{Installed, Ready, clean, ignored, server, stopped, unclean};
use crate::story::{End, Story};

const CADDY: Installed = Installed {
    name: "Caddy",
    packages: &["caddy"],
    files: &["/usr/bin/caddy"],
    configuration: &[(
        "Caddyfile",
        "{\n admin off\n auto_https off\n}\nhttp://127.0.0.1:$PORT {\n respond 200\n}\n",
    )],
    command: &[
        "/usr/bin/env",
        "HOME=$DIR",
        "/usr/bin/caddy",
        "run",
        "--adapter",
        "caddyfile",
        "--config",
        "$DIR/Caddyfile",
    ],
    ready: Ready::Listens,
    documented: "SIGTERM, SIGINT: graceful exit.",
};

const NATS: Installed = Installed {
    name: "NATS",
    packages: &["nats-server"],
    files: &["/usr/sbin/nats-server"],
    configuration: &[],
    command: &["/usr/sbin/nats-server", "-a", "127.0.0.1", "-p", "$PORT"],
    ready: Ready::Listens,
    documented: "SIGTERM, SIGINT: stops the server gracefully.",
};

/// Ready once it has joined its cluster of one: only then it handles signals.
const ETCD: Installed = Installed {
    name: "etcd",
    packages: &["etcd-server"],
    files: &["/usr/bin/etcd", "/bin/bash"],
    configuration: &[],
    command: &[
        "/bin/bash",
        "-c",
        "exec /usr/bin/etcd --data-dir $DIR/data --listen-client-urls http://127.0.0.1:$PORT \
         --advertise-client-urls http://127.0.0.1:$PORT --listen-peer-urls http://127.0.0.1:0 \
         2> >(exec sed -n -u 's/.*ready to serve client requests.*/ready/p')",
    ],
    ready: Ready::Prints,
    documented: "SIGTERM, SIGINT: shuts down. The manual page names no signal.",
};

const SSHD: Installed = Installed {
    name: "OpenSSH sshd",
    packages: &["openssh-server", "openssh-client"],
    files: &["/usr/sbin/sshd", "/usr/bin/ssh-keygen"],
    configuration: &[(
        "run",
        "#!/bin/sh\nset -e\nmkdir -p /run/sshd\nssh-keygen -q -t ed25519 -N '' -f $DIR/key\n\
         exec /usr/sbin/sshd -D -e -f /dev/null -h $DIR/key -o ListenAddress=127.0.0.1:$PORT -o PidFile=none -o UsePAM=no\n",
    )],
    command: &["$DIR/run"],
    ready: Ready::Listens,
    documented: "SIGTERM: stops listening and exits. The manual page names SIGHUP only.",
};

const CRON: Installed = Installed {
    name: "cron",
    packages: &["cron"],
    files: &["/usr/sbin/cron"],
    configuration: &[],
    command: &["/bin/sh", "-c", "echo ready; exec /usr/sbin/cron -f"],
    ready: Ready::Prints,
    documented: "The manual page names SIGHUP only; SIGTERM has no handler.",
};

const PGBOUNCER: Installed = Installed {
    name: "PgBouncer",
    packages: &["pgbouncer"],
    files: &["/usr/sbin/pgbouncer"],
    configuration: &[
        (
            "pgbouncer.ini",
            "[databases]\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = $PORT\nunix_socket_dir =\nauth_type = trust\n\
             auth_file = $DIR/users\n",
        ),
        ("users", "\"u\" \"p\"\n"),
    ],
    command: &["/usr/sbin/pgbouncer", "-q", "-u", "nobody", "$DIR/pgbouncer.ini"],
    ready: Ready::Listens,
    documented: "SIGTERM: immediate shutdown.",
};

pub static STORIES: &[Story] = &[
    server(
        "caddy-term",
        "graceful exit",
        CADDY,
        SIGTERM,
        clean(&["The container runtime sent SIGTERM to PID 1 `caddy`, the handler ran, and the process exited with code 0"]),
    ),
    server(
        "caddy-quit",
        "immediate exit",
        CADDY.documented("SIGQUIT: quits immediately, with code 2."),
        SIGQUIT,
        unclean(End::Code(2), "nonzero-exit", &["SIGQUIT", "exited with code 2"], &["log"]),
    ),
    server(
        "nats-term",
        "graceful stop; the exit code is 1",
        NATS,
        SIGTERM,
        unclean(End::Code(1), "nonzero-exit", &["SIGTERM", "exited with code 1"], &["log"]),
    ),
    server(
        "nats-int",
        "graceful stop",
        NATS,
        SIGINT,
        clean(&[
            "The container runtime sent SIGINT to PID 1 `nats-server`, the handler ran, and the process exited with code 0",
        ]),
    ),
    server(
        "nats-usr2",
        "lame duck mode",
        NATS.documented("SIGUSR2: stops the server after evicting all clients (lame duck mode)."),
        SIGUSR2,
        clean(&[
            "The container runtime sent SIGUSR2 to PID 1 `nats-server`, the handler ran, and the process exited with code 0",
        ]),
    ),
    server(
        "etcd-term",
        "shutdown",
        ETCD,
        SIGTERM,
        clean(&["The container runtime sent SIGTERM to PID 1 `etcd`, the handler ran, and the process exited with code 0"]),
    ),
    server(
        "etcd-early",
        "SIGTERM before etcd has joined its cluster; etcd has no handler yet",
        Installed {
            command: &[
                "/usr/bin/etcd",
                "--data-dir",
                "$DIR/data",
                "--listen-client-urls",
                "http://127.0.0.1:$PORT",
                "--advertise-client-urls",
                "http://127.0.0.1:$PORT",
                "--listen-peer-urls",
                "http://127.0.0.1:0",
                "--initial-election-tick-advance=false",
                "--election-timeout=40000",
                "--heartbeat-interval=4000",
            ],
            ready: Ready::Listens,
            ..ETCD
        },
        SIGTERM,
        unclean(End::Code(2), "default-action", &["SIGTERM"], &["handle SIGTERM"]),
    ),
    server(
        "sshd-term",
        "stop",
        SSHD,
        SIGTERM,
        clean(&["The container runtime sent SIGTERM to PID 1 `sshd`, the handler ran, and the process exited with code 0"]),
    ),
    stopped(
        "cron-term",
        "cron as PID 1 has no handler",
        CRON,
        ignored(
            &["`cron` is PID 1 and has no SIGTERM handler"],
            &["handle SIGTERM in PID 1 `cron`"],
        ),
    ),
    server(
        "pgbouncer-term",
        "immediate shutdown; the exit code is 1",
        PGBOUNCER,
        SIGTERM,
        unclean(End::Code(1), "nonzero-exit", &["SIGTERM", "exited with code 1"], &["log"]),
    ),
    server(
        "pgbouncer-int",
        "safe shutdown",
        PGBOUNCER
            .documented("SIGINT: safe shutdown, like the commands PAUSE and SHUTDOWN; waits for queries that are under way."),
        SIGINT,
        clean(&["The container runtime sent SIGINT to PID 1 `pgbouncer`, the handler ran, and the process exited with code 0"]),
    ),
];
