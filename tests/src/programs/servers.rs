//! Servers, without clients: what each signal does to their processes.

use std::time::Duration;

use nix::libc::{SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGWINCH};

use super::{CLEAN, Installed, Ready, by, stopped};
use crate::story::{End, Expected, Story};

const NGINX: Installed = Installed {
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

const APACHE: Installed = Installed {
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

const REDIS: Installed = Installed {
    name: "Redis",
    packages: &["redis-server"],
    files: &["/usr/bin/redis-server"],
    configuration: &[],
    command: &["/usr/bin/redis-server", "--port", "$PORT", "--dir", "$DIR", "--save", ""],
    ready: Ready::Listens,
    documented: "SIGTERM, SIGINT: shutdown when safe, with a save if one is configured.",
};

const POSTGRESQL: Installed = Installed {
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

const HAPROXY: Installed = Installed {
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

const GUNICORN: Installed = Installed {
    name: "gunicorn",
    packages: &["gunicorn"],
    files: &["/usr/bin/gunicorn"],
    configuration: &[(
        "app.py",
        "def app(environ, start_response):\n    start_response('200 OK', [])\n    return [b'']\n",
    )],
    command: &[
        "/usr/bin/gunicorn",
        "--chdir",
        "$DIR",
        "-b",
        "127.0.0.1:$PORT",
        "-w",
        "2",
        "app:app",
    ],
    ready: Ready::Listens,
    documented: "TERM: graceful shutdown, waits for workers up to graceful_timeout.",
};

const JAVA: Installed = Installed {
    name: "Java",
    packages: &["default-jre-headless"],
    files: &["/usr/bin/java"],
    configuration: &[],
    command: &["/usr/bin/java", "-m", "java.rmi/sun.rmi.registry.RegistryImpl", "$PORT"],
    ready: Ready::Listens,
    documented: "SIGTERM, SIGINT, SIGHUP: shutdown hooks run, exit code 128 + signal number.",
};

/// A server and a signal. The grace is far longer than a server without clients needs.
const fn server(name: &'static str, what: &'static str, program: Installed, signal: i32, expected: Expected) -> Story {
    Story {
        stop: by(signal, Duration::from_secs(8)),
        ..stopped(name, what, program, expected)
    }
}

pub(super) static STORIES: &[Story] = &[
    server("nginx-term", "fast shutdown", NGINX, SIGTERM, CLEAN),
    server(
        "nginx-quit",
        "graceful shutdown",
        Installed {
            documented: "QUIT: graceful shutdown.",
            ..NGINX
        },
        SIGQUIT,
        CLEAN,
    ),
    server("apache-term", "stop now", APACHE, SIGTERM, CLEAN),
    server(
        "apache-winch",
        "graceful stop",
        Installed {
            documented: "WINCH: the children are advised to exit after their current request.",
            ..APACHE
        },
        SIGWINCH,
        CLEAN,
    ),
    server("redis-term", "shutdown", REDIS, SIGTERM, CLEAN),
    server("postgresql-term", "smart shutdown", POSTGRESQL, SIGTERM, CLEAN),
    server(
        "postgresql-int",
        "fast shutdown",
        Installed {
            documented: "SIGINT: fast shutdown, which ends all sessions.",
            ..POSTGRESQL
        },
        SIGINT,
        CLEAN,
    ),
    server(
        "postgresql-quit",
        "immediate shutdown",
        Installed {
            documented: "SIGQUIT: immediate shutdown without a shutdown checkpoint; recovery follows at the next start.",
            ..POSTGRESQL
        },
        SIGQUIT,
        CLEAN,
    ),
    server("haproxy-term", "hard stop", HAPROXY, SIGTERM, CLEAN),
    server(
        "haproxy-usr1",
        "soft stop",
        Installed {
            documented: "USR1: soft stop; listeners are closed, and the processes exit when the last connection is closed.",
            ..HAPROXY
        },
        SIGUSR1,
        CLEAN,
    ),
    server("gunicorn-term", "graceful shutdown", GUNICORN, SIGTERM, CLEAN),
    server(
        "gunicorn-quit",
        "quick shutdown",
        Installed {
            documented: "QUIT, INT: quick shutdown.",
            ..GUNICORN
        },
        SIGQUIT,
        CLEAN,
    ),
    server(
        "java-term",
        "shutdown hooks",
        JAVA,
        SIGTERM,
        Expected {
            end: End::Code(143),
            ..CLEAN
        },
    ),
];
