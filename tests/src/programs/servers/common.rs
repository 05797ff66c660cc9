//! Servers that other tables play, too: under load, and with signals that stop nothing.

use nix::libc::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGWINCH};

use crate::programs::{CLEAN, Installed, Ready, clean, server};
use crate::story::{End, Expected, Story};

pub const NGINX: Installed = Installed {
    name: "nginx",
    packages: &["nginx-light"],
    files: &["/usr/sbin/nginx"],
    configuration: &[(
        "nginx.conf",
        "daemon off;\npid $DIR/nginx.pid;\nerror_log $DIR/error.log;\nworker_processes 2;\nevents {}\n\
         http { access_log off; server { listen 127.0.0.1:$PORT; return 200; } }\n",
    )],
    command: &["/usr/sbin/nginx", "-c", "$DIR/nginx.conf"],
    ready: Ready::Listens,
    documented: "TERM, INT: fast shutdown.",
};

pub const APACHE: Installed = Installed {
    name: "Apache httpd",
    packages: &["apache2-bin"],
    files: &["/usr/sbin/apache2"],
    configuration: &[(
        "httpd.conf",
        "ServerRoot $DIR\nServerName localhost\nListen 127.0.0.1:$PORT\nPidFile $DIR/httpd.pid\nDefaultRuntimeDir $DIR\n\
         ErrorLog $DIR/error.log\nUser www-data\nGroup www-data\n\
         LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n\
         LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n",
    )],
    command: &["/usr/sbin/apache2", "-D", "FOREGROUND", "-f", "$DIR/httpd.conf"],
    ready: Ready::Listens,
    documented: "TERM: the parent attempts to kill off all of its children at once.",
};

pub const REDIS: Installed = Installed {
    name: "Redis",
    packages: &["redis-server"],
    files: &["/usr/bin/redis-server"],
    configuration: &[],
    command: &["/usr/bin/redis-server", "--port", "$PORT", "--dir", "$DIR", "--save", ""],
    ready: Ready::Listens,
    documented: "SIGTERM, SIGINT: shutdown when safe, with a save if one is configured.",
};

pub const POSTGRESQL: Installed = Installed {
    name: "PostgreSQL",
    packages: &["postgresql", "util-linux"],
    files: &["/usr/lib/postgresql", "/usr/bin/setpriv"],
    configuration: &[(
        "run",
        "#!/bin/sh\nset -e\nbin=$(echo /usr/lib/postgresql/*/bin | tr ' ' '\\n' | tail -n 1)\n\
         as='setpriv --reuid=postgres --regid=postgres --clear-groups'\n\
         mkdir $DIR/data\nchown postgres $DIR/data\n\
         $as $bin/initdb --no-sync --auth=trust -D $DIR/data >$DIR/initdb.log\n\
         exec $as $bin/postgres -D $DIR/data -h 127.0.0.1 -p $PORT -k $DIR/data\n",
    )],
    command: &["$DIR/run"],
    ready: Ready::Listens,
    documented: "SIGTERM: smart shutdown, which waits for all sessions.",
};

pub const HAPROXY: Installed = Installed {
    name: "HAProxy",
    packages: &["haproxy"],
    files: &["/usr/sbin/haproxy"],
    configuration: &[(
        "haproxy.cfg",
        "defaults\n mode http\n timeout connect 1s\n timeout client 5s\n timeout server 5s\n\
         frontend f\n bind 127.0.0.1:$PORT\n http-request return status 200\n",
    )],
    command: &["/usr/sbin/haproxy", "-W", "-db", "-f", "$DIR/haproxy.cfg"],
    ready: Ready::Listens,
    documented: "TERM, INT: immediate stop of all processes.",
};

/// HAProxy, ready once it says so: the sockets listen before there is a worker, and before the master handles a signal.
/// The reader of its log has to exit: the master exits only once it has no child at all.
pub const HAPROXY_LOADED: Installed = Installed {
    files: &["/usr/sbin/haproxy", "/bin/bash"],
    command: &[
        "/bin/bash",
        "-c",
        "exec /usr/sbin/haproxy -W -db -f $DIR/haproxy.cfg 2> >(exec sed -n -u '/Loading success/{s/.*/ready/p;q}')",
    ],
    ready: Ready::Prints,
    ..HAPROXY
};

pub const GUNICORN: Installed = Installed {
    name: "gunicorn",
    packages: &["gunicorn"],
    files: &["/usr/bin/gunicorn"],
    // A worker that is signalled before it has its own handlers runs on.
    configuration: &[
        (
            "app.py",
            "def app(environ, start_response):\n    start_response('200 OK', [])\n    return [b'']\n",
        ),
        (
            "gunicorn.conf.py",
            "import os\n\
             def post_worker_init(worker):\n    \
             open('$DIR/%d' % worker.age, 'w').close()\n    \
             if os.path.exists('$DIR/1') and os.path.exists('$DIR/2'):\n        os.write(1, b'ready\\n')\n",
        ),
    ],
    command: &[
        "/usr/bin/gunicorn",
        "-c",
        "$DIR/gunicorn.conf.py",
        "--chdir",
        "$DIR",
        "-b",
        "127.0.0.1:$PORT",
        "-w",
        "2",
        "app:app",
    ],
    ready: Ready::Prints,
    documented: "TERM: graceful shutdown, waits for workers up to graceful_timeout.",
};

pub const JAVA: Installed = Installed {
    name: "Java",
    packages: &["default-jre-headless"],
    files: &["/usr/bin/java"],
    configuration: &[],
    command: &["/usr/bin/java", "-m", "java.rmi/sun.rmi.registry.RegistryImpl", "$PORT"],
    ready: Ready::Listens,
    documented: "SIGTERM, SIGINT, SIGHUP: Java runs the shutdown hooks and exits with 128 + the signal number.",
};

pub static STORIES: &[Story] = &[
    server(
        "nginx-term",
        "fast shutdown",
        NGINX,
        SIGTERM,
        clean(&["The container runtime sent SIGTERM to PID 1 `nginx`, the handler ran, and the process exited with code 0"]),
    ),
    server(
        "nginx-quit",
        "graceful shutdown",
        NGINX.documented("QUIT: graceful shutdown."),
        SIGQUIT,
        clean(&["The container runtime sent SIGQUIT to PID 1 `nginx`, the handler ran, and the process exited with code 0"]),
    ),
    server(
        "nginx-int",
        "fast shutdown",
        NGINX,
        SIGINT,
        clean(&["The container runtime sent SIGINT to PID 1 `nginx`, the handler ran, and the process exited with code 0"]),
    ),
    server(
        "nginx-below-dumb-init",
        "graceful shutdown, with `dumb-init --rewrite 15:3`",
        Installed {
            packages: &["dumb-init", "nginx-light"],
            files: &["/usr/bin/dumb-init", "/usr/sbin/nginx"],
            command: &[
                "/usr/bin/dumb-init",
                "--rewrite",
                "15:3",
                "/usr/sbin/nginx",
                "-c",
                "$DIR/nginx.conf",
            ],
            ..NGINX.documented("QUIT: graceful shutdown; `--rewrite 15:3` of dumb-init forwards TERM as QUIT.")
        },
        SIGTERM,
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `dumb-init`, which reads the signal without a handler (signalfd or sigwait) and sent SIGQUIT to",
            "the process exited with code 0",
        ]),
    ),
    server(
        "apache-term",
        "stop now",
        APACHE,
        SIGTERM,
        clean(&[
            // To one, two or three: it listens before it has started all.
            "The container runtime sent SIGTERM to PID 1 `apache2`, the handler ran and sent the signal on to ",
            "the process exited with code 0",
        ]),
    ),
    server(
        "apache-winch",
        "graceful stop",
        APACHE.documented("WINCH: the children are advised to exit after their current request."),
        SIGWINCH,
        clean(&[
            "The container runtime sent SIGWINCH to PID 1 `apache2`, the handler ran",
            "the process exited with code 0",
        ]),
    ),
    server(
        "redis-term",
        "shutdown",
        REDIS,
        SIGTERM,
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `redis-server`, the handler ran, and the process exited with code 0",
        ]),
    ),
    server(
        "redis-int",
        "shutdown",
        REDIS,
        SIGINT,
        clean(&[
            "The container runtime sent SIGINT to PID 1 `redis-server`, the handler ran, and the process exited with code 0",
        ]),
    ),
    server(
        "postgresql-term",
        "smart shutdown",
        POSTGRESQL,
        SIGTERM,
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `postgres`, the handler ran and sent",
            "the process exited with code 0",
        ]),
    ),
    server(
        "postgresql-int",
        "fast shutdown",
        POSTGRESQL.documented("SIGINT: fast shutdown, which ends all sessions."),
        SIGINT,
        clean(&[
            "The container runtime sent SIGINT to PID 1 `postgres`, the handler ran and sent",
            "the process exited with code 0",
        ]),
    ),
    server(
        "postgresql-quit",
        "immediate shutdown",
        POSTGRESQL.documented("SIGQUIT: immediate shutdown without a shutdown checkpoint; recovery follows at the next start."),
        SIGQUIT,
        clean(&[
            "The container runtime sent SIGQUIT to PID 1 `postgres`, the handler ran and sent",
            "the process exited with code 0",
        ]),
    ),
    server(
        "haproxy-term",
        "hard stop",
        HAPROXY_LOADED,
        SIGTERM,
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `haproxy`, the handler ran and sent",
            "the process exited with code 0",
        ]),
    ),
    server(
        "haproxy-int",
        "hard stop; the exit code is the worker's",
        HAPROXY_LOADED,
        SIGINT,
        Expected {
            end: End::Code(130),
            sentence: &[
                "The container runtime sent SIGINT to PID 1 `haproxy`, the handler ran and sent the signal on to `haproxy` (pid ",
                "the process exited with code 130",
            ],
            ..CLEAN
        },
    ),
    server(
        "haproxy-usr1",
        "soft stop",
        HAPROXY_LOADED
            .documented("USR1: soft stop; listeners are closed, and the processes exit when the last connection is closed."),
        SIGUSR1,
        clean(&[
            "The container runtime sent SIGUSR1 to PID 1 `haproxy`, the handler ran and sent",
            "the process exited with code 0",
        ]),
    ),
    server(
        "gunicorn-term",
        "graceful shutdown",
        GUNICORN,
        SIGTERM,
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `gunicorn`, the handler ran and sent the signal on to 2 processes",
            "the process exited with code 0",
        ]),
    ),
    server(
        "gunicorn-quit",
        "quick shutdown",
        GUNICORN.documented("QUIT, INT: quick shutdown."),
        SIGQUIT,
        clean(&[
            "The container runtime sent SIGQUIT to PID 1 `gunicorn`, the handler ran and sent the signal on to 2 processes",
            "the process exited with code 0",
        ]),
    ),
    server(
        "gunicorn-int",
        "quick shutdown",
        GUNICORN.documented("QUIT, INT: quick shutdown."),
        SIGINT,
        clean(&[
            "The container runtime sent SIGINT to PID 1 `gunicorn`, the handler ran and sent",
            "the process exited with code 0",
        ]),
    ),
    server(
        "java-term",
        "shutdown hooks",
        JAVA,
        SIGTERM,
        Expected {
            end: End::Code(143),
            sentence: &[
                "The container runtime sent SIGTERM to PID 1 `java`, the handler ran, and the process exited with code 143",
            ],
            ..CLEAN
        },
    ),
    server(
        "java-int",
        "shutdown hooks",
        JAVA,
        SIGINT,
        Expected {
            end: End::Code(130),
            sentence: &[
                "The container runtime sent SIGINT to PID 1 `java`, the handler ran, and the process exited with code 130",
            ],
            ..CLEAN
        },
    ),
    server(
        "java-hup",
        "shutdown hooks",
        JAVA,
        SIGHUP,
        Expected {
            end: End::Code(129),
            sentence: &[
                "The container runtime sent SIGHUP to PID 1 `java`, the handler ran, and the process exited with code 129",
            ],
            ..CLEAN
        },
    ),
    server(
        "java-below-tini",
        "shutdown hooks, below tini",
        Installed {
            packages: &["default-jre-headless", "tini"],
            files: &["/usr/bin/java", "/usr/bin/tini"],
            command: &[
                "/usr/bin/tini",
                "--",
                "/usr/bin/java",
                "-m",
                "java.rmi/sun.rmi.registry.RegistryImpl",
                "$PORT",
            ],
            ..JAVA
        },
        SIGTERM,
        Expected {
            end: End::Code(143),
            sentence: &[
                "The container runtime sent SIGTERM to PID 1 `tini`, which reads the signal without a handler (signalfd or sigwait) and sent the signal on to `java`, and the process exited with code 143",
            ],
            ..CLEAN
        },
    ),
];
