//! Caches, proxies, brokers, name servers and MariaDB.

use nix::libc::{SIGINT, SIGKILL, SIGTERM};

use crate::programs::{Installed, Ready, clean, server, stopped_by, unclean};
use crate::story::{End, Expected, Story};

const MEMCACHED: Installed = Installed {
    name: "memcached",
    packages: &["memcached"],
    files: &["/usr/bin/memcached"],
    configuration: &[],
    command: &[
        "/usr/bin/memcached",
        "-u",
        "nobody",
        "-l",
        "127.0.0.1",
        "-p",
        "$PORT",
        "-U",
        "0",
    ],
    ready: Ready::Listens,
    documented: "SIGTERM, SIGINT: stop; the cache is lost. The manual page names no signal.",
};

/// Without workers: with them the first process exits before its workers have.
const LIGHTTPD: Installed = Installed {
    name: "lighttpd",
    packages: &["lighttpd"],
    files: &["/usr/sbin/lighttpd"],
    configuration: &[(
        "lighttpd.conf",
        "server.document-root = \"$DIR\"\nserver.bind = \"127.0.0.1\"\nserver.port = $PORT\nserver.errorlog = \"$DIR/error.log\"\n",
    )],
    command: &["/usr/sbin/lighttpd", "-D", "-f", "$DIR/lighttpd.conf"],
    ready: Ready::Listens,
    documented: "SIGTERM: shuts down immediately, terminates existing connections.",
};

const SQUID: Installed = Installed {
    name: "Squid",
    packages: &["squid"],
    files: &["/usr/sbin/squid"],
    configuration: &[(
        "squid.conf",
        "http_port 127.0.0.1:$PORT\npid_filename none\naccess_log none\ncache_log $DIR/cache.log\ncoredump_dir $DIR\n\
         netdb_filename none\npinger_enable off\nshutdown_lifetime 1 second\ncache_effective_user proxy\nhttp_access deny all\n",
    )],
    command: &[
        "/bin/sh",
        "-c",
        "chown proxy $DIR; exec /usr/sbin/squid --foreground -YC -f $DIR/squid.conf",
    ],
    ready: Ready::Listens,
    documented: "SIGTERM: shuts down when all active sockets are closed, or after shutdown_lifetime at the latest.",
};

const VARNISH: Installed = Installed {
    name: "Varnish",
    packages: &["varnish"],
    files: &["/usr/sbin/varnishd"],
    configuration: &[("default.vcl", "vcl 4.1;\nbackend default none;\n")],
    command: &[
        "/usr/sbin/varnishd",
        "-F",
        "-a",
        "127.0.0.1:$PORT",
        "-f",
        "$DIR/default.vcl",
        "-n",
        "$DIR/work",
        "-j",
        "none",
        "-s",
        "malloc,16m",
    ],
    ready: Ready::Listens,
    documented: "SIGTERM, SIGINT: the manager stops its child, then exits. The manual page names no signal.",
};

const MARIADB: Installed = Installed {
    name: "MariaDB",
    packages: &["mariadb-server-core"],
    files: &["/usr/sbin/mariadbd"],
    configuration: &[(
        "run",
        "#!/bin/sh\nset -e\nmkdir $DIR/data\nchown nobody $DIR/data\n\
         exec /usr/sbin/mariadbd --no-defaults --user=nobody --datadir=$DIR/data --skip-grant-tables --skip-networking=0 \
         --bind-address=127.0.0.1 --port=$PORT --socket=$DIR/data/socket --pid-file=$DIR/data/pid \
         --innodb-log-file-size=4M --innodb-buffer-pool-size=16M\n",
    )],
    command: &["$DIR/run"],
    ready: Ready::Listens,
    documented: "SIGTERM: normal shutdown.",
};

const MOSQUITTO: Installed = Installed {
    name: "Mosquitto",
    packages: &["mosquitto"],
    files: &["/usr/sbin/mosquitto"],
    configuration: &[(
        "mosquitto.conf",
        "listener $PORT 127.0.0.1\nallow_anonymous true\nuser root\n",
    )],
    command: &["/usr/sbin/mosquitto", "-c", "$DIR/mosquitto.conf"],
    ready: Ready::Listens,
    documented: "SIGTERM, SIGINT: stop. The manual page names SIGHUP, SIGUSR1 and SIGUSR2 only.",
};

const BIND: Installed = Installed {
    name: "BIND",
    packages: &["bind9"],
    files: &["/usr/sbin/named", "/bin/bash"],
    configuration: &[(
        "named.conf",
        "options { directory \"$DIR\"; pid-file none; listen-on port $PORT { 127.0.0.1; }; listen-on-v6 { none; }; recursion no;\n\
         session-keyfile none; managed-keys-directory \"$DIR\"; dnssec-validation no; };\ncontrols { };\n",
    )],
    // It listens before its start is complete; after SIGTERM before that it exits with code 1.
    command: &[
        "/bin/bash",
        "-c",
        "exec /usr/sbin/named -g -n 2 -c $DIR/named.conf 2> >(exec sed -n -u 's/.* running$/ready/p')",
    ],
    ready: Ready::Prints,
    documented: "SIGINT, SIGTERM: shut down the server.",
};

const DNSMASQ: Installed = Installed {
    name: "dnsmasq",
    packages: &["dnsmasq-base"],
    files: &["/usr/sbin/dnsmasq"],
    configuration: &[],
    command: &[
        "/usr/sbin/dnsmasq",
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--no-resolv",
        "--no-hosts",
        "--user=root",
        "--pid-file",
        "--listen-address=127.0.0.1",
        "--bind-interfaces",
        "--port=$PORT",
    ],
    ready: Ready::Listens,
    documented: "SIGTERM: stop. The manual page names the other signals.",
};

/// With a UDP socket at the exit, whose clients no probe observes.
const fn by_udp(sentence: &'static [&'static str]) -> Expected {
    Expected {
        verdict: "clean-exit",
        traffic: "unknown",
        ..clean(sentence)
    }
}

pub static STORIES: &[Story] = &[
    server(
        "memcached-term",
        "stop",
        MEMCACHED,
        SIGTERM,
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `memcached`, the handler ran, and the process exited with code 0",
        ]),
    ),
    server(
        "lighttpd-term",
        "immediate shutdown",
        LIGHTTPD,
        SIGTERM,
        clean(&["The container runtime sent SIGTERM to PID 1 `lighttpd`, the handler ran, and the process exited with code 0"]),
    ),
    server(
        "lighttpd-int",
        "graceful shutdown",
        LIGHTTPD.documented("SIGINT: shuts down gracefully, serves existing connections."),
        SIGINT,
        clean(&["The container runtime sent SIGINT to PID 1 `lighttpd`, the handler ran, and the process exited with code 0"]),
    ),
    server(
        "squid-term",
        "shutdown",
        SQUID,
        SIGTERM,
        // It resolves names by a socket of its own.
        by_udp(&[
            "The container runtime sent SIGTERM to PID 1 `squid`, the handler ran and sent the signal on to `squid` (pid ",
            "the process exited with code 0",
        ]),
    ),
    server(
        "varnish-term",
        "stop of the child",
        VARNISH,
        SIGTERM,
        clean(&["The container runtime sent SIGTERM to PID 1 `varnishd`, the handler ran, and the process exited with code 0"]),
    ),
    server(
        "mariadb-term",
        "shutdown",
        MARIADB,
        SIGTERM,
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `mariadbd`, which reads the signal without a handler (signalfd or sigwait), and the process exited with code 0",
        ]),
    ),
    stopped_by(
        "mariadb-int",
        "SIGINT is blocked",
        MARIADB.documented("SIGINT: for a debugger, with --debug-gdb only."),
        SIGINT,
        unclean(
            End::Signal(SIGKILL),
            "blocked-stop-signal",
            &["`mariadbd`", "blocks SIGINT"],
            &["unblock"],
        ),
    ),
    server(
        "mosquitto-term",
        "stop",
        MOSQUITTO,
        SIGTERM,
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `mosquitto`, the handler ran, and the process exited with code 0",
        ]),
    ),
    server(
        "bind-term",
        "shutdown",
        BIND,
        SIGTERM,
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `named`, which reads the signal without a handler (signalfd or sigwait), and the process exited with code 0",
        ]),
    ),
    server(
        "dnsmasq-term",
        "stop",
        DNSMASQ,
        SIGTERM,
        by_udp(&["The container runtime sent SIGTERM to PID 1 `dnsmasq`, the handler ran, and the process exited with code 0"]),
    ),
];
