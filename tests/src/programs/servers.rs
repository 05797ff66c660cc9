//! Servers, without clients: what each signal does to their processes.

use std::time::Duration;

use nix::libc::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};

use super::{CLEAN, Installed, Ready, by, clean, ignored, stopped, unclean};
use crate::story::{End, Expected, Story};

pub(super) const NGINX: Installed = Installed {
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

pub(super) const APACHE: Installed = Installed {
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

pub(super) const HAPROXY: Installed = Installed {
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
pub(super) const HAPROXY_LOADED: Installed = Installed {
    files: &["/usr/sbin/haproxy", "/bin/bash"],
    command: &[
        "/bin/bash",
        "-c",
        "exec /usr/sbin/haproxy -W -db -f $DIR/haproxy.cfg 2> >(exec sed -n -u '/Loading success/{s/.*/ready/p;q}')",
    ],
    ready: Ready::Prints,
    ..HAPROXY
};

pub(super) const GUNICORN: Installed = Installed {
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

pub(super) const JAVA: Installed = Installed {
    name: "Java",
    packages: &["default-jre-headless"],
    files: &["/usr/bin/java"],
    configuration: &[],
    command: &["/usr/bin/java", "-m", "java.rmi/sun.rmi.registry.RegistryImpl", "$PORT"],
    ready: Ready::Listens,
    documented: "SIGTERM, SIGINT, SIGHUP: shutdown hooks run, exit code 128 + signal number.",
};

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
    documented: "SIGTERM: shutdown pending until all active sockets are closed, at most shutdown_lifetime.",
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

const PHP_FPM: Installed = Installed {
    name: "PHP-FPM",
    packages: &["php-fpm"],
    files: &["/usr/lib/php"],
    configuration: &[
        // The program's name has PHP's version.
        ("run", "#!/bin/sh\nexec /usr/sbin/php-fpm[0-9]* -F -n -y $DIR/php-fpm.conf\n"),
        (
            "php-fpm.conf",
            "[global]\npid = $DIR/fpm.pid\nerror_log = $DIR/error.log\ndaemonize = no\nprocess_control_timeout = 5\n\
         [www]\nuser = www-data\ngroup = www-data\nlisten = 127.0.0.1:$PORT\npm = static\npm.max_children = 2\n",
        ),
    ],
    command: &["$DIR/run"],
    ready: Ready::Listens,
    documented: "SIGINT, SIGTERM: immediate termination.",
};

const UWSGI: Installed = Installed {
    name: "uWSGI",
    packages: &["uwsgi-core", "uwsgi-plugin-python3"],
    files: &["/usr/bin/uwsgi-core", "/usr/lib/uwsgi/plugins/python3_plugin.so"],
    configuration: &[(
        "app.py",
        // The socket listens before there are workers.
        "import os, uwsgi\n\
         def application(environ, start_response):\n    start_response('200 OK', [])\n    return [b'']\n\
         def forked():\n    \
         open('$DIR/%d' % uwsgi.worker_id(), 'w').close()\n    \
         if os.path.exists('$DIR/1') and os.path.exists('$DIR/2'):\n        os.write(1, b'ready\\n')\n\
         uwsgi.post_fork_hook = forked\n",
    )],
    command: &[
        "/usr/bin/uwsgi-core",
        "--plugin",
        "python3",
        "--http-socket",
        "127.0.0.1:$PORT",
        "--master",
        "--die-on-term",
        "--processes",
        "2",
        "--chdir",
        "$DIR",
        "--module",
        "app",
    ],
    ready: Ready::Prints,
    documented: "SIGTERM: exits instead of a brutal reload, with --die-on-term.",
};

const PUMA: Installed = Installed {
    name: "Puma",
    packages: &["puma"],
    files: &["/usr/bin/puma"],
    configuration: &[("config.ru", "run ->(env) { [200, {}, ['']] }\n")],
    command: &[
        "/usr/bin/puma",
        "-b",
        "tcp://127.0.0.1:$PORT",
        "-e",
        "production",
        "$DIR/config.ru",
    ],
    ready: Ready::Listens,
    documented: "TERM: graceful stop, then a SignalException, unless raise_exception_on_sigterm is false.",
};

const UNICORN: Installed = Installed {
    name: "unicorn",
    packages: &["unicorn"],
    files: &["/usr/bin/unicorn"],
    command: &["/usr/bin/unicorn", "-l", "127.0.0.1:$PORT", "-E", "none", "$DIR/config.ru"],
    documented: "INT, TERM: quick shutdown, kills all workers immediately.",
    ..PUMA
};

const STARMAN: Installed = Installed {
    name: "Starman",
    packages: &["starman"],
    files: &["/usr/bin/starman"],
    configuration: &[("app.psgi", "sub { [200, [], ['']] };\n")],
    command: &[
        "/usr/bin/starman",
        "--listen",
        "127.0.0.1:$PORT",
        "--workers",
        "2",
        "$DIR/app.psgi",
    ],
    ready: Ready::Listens,
    documented: "QUIT: gracefully shuts down the workers.",
};

const HYPNOTOAD: Installed = Installed {
    name: "Hypnotoad",
    packages: &["libmojolicious-perl"],
    files: &["/usr/bin/hypnotoad"],
    configuration: &[(
        "app.pl",
        "use Mojolicious::Lite;\n\
         app->config(hypnotoad => {listen => ['http://127.0.0.1:$PORT'], workers => 2, pid_file => '$DIR/pid'});\n\
         get '/' => {text => ''};\napp->start;\n",
    )],
    command: &["/usr/bin/hypnotoad", "-f", "$DIR/app.pl"],
    ready: Ready::Listens,
    documented: "INT, TERM: shuts down the server immediately.",
};

const TWISTED: Installed = Installed {
    name: "Twisted",
    packages: &["python3-twisted"],
    files: &["/usr/bin/twistd3"],
    configuration: &[],
    command: &[
        "/usr/bin/twistd3",
        "-n",
        "--pidfile=",
        "web",
        "--listen",
        "tcp:$PORT:interface=127.0.0.1",
        "--path",
        "$DIR",
    ],
    ready: Ready::Listens,
    documented: "SIGINT: clean shutdown; so is SIGTERM, which the manual page does not name.",
};

const CELERY: Installed = Installed {
    name: "Celery",
    packages: &["python3-celery"],
    files: &["/usr/lib/python3/dist-packages/celery/__main__.py"],
    configuration: &[(
        "tasks.py",
        "import os\nfrom celery import Celery\nfrom celery.signals import worker_ready\n\
         app = Celery('tasks', broker='memory://')\n\
         worker_ready.connect(lambda **_: os.write(1, b'ready\\n'), weak=False)\n",
    )],
    command: &[
        "/usr/bin/python3",
        "-m",
        "celery",
        "--workdir",
        "$DIR",
        "-A",
        "tasks",
        "worker",
        "--concurrency",
        "2",
    ],
    ready: Ready::Prints,
    documented: "TERM: warm shutdown, which finishes the tasks under way.",
};

const ERLANG: Installed = Installed {
    name: "Erlang",
    packages: &["erlang-base"],
    files: &["/usr/bin/erl"],
    configuration: &[],
    command: &[
        "/usr/bin/erl",
        "-noinput",
        "-eval",
        "spawn(fun() -> {ok, _} = gen_tcp:listen($PORT, [{ip, {127,0,0,1}}]), receive after infinity -> ok end end).",
    ],
    ready: Ready::Listens,
    documented: "SIGTERM: as init:stop/0, which takes down all applications.",
};

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

/// Far longer than a server without clients needs.
pub(super) const GRACE: Duration = Duration::from_secs(8);

/// A server and a signal.
const fn server(name: &'static str, what: &'static str, program: Installed, signal: i32, expected: Expected) -> Story {
    Story {
        stop: by(signal, GRACE),
        ..stopped(name, what, program, expected)
    }
}

/// Stopped with a signal that does not end it.
const fn not_ended(name: &'static str, what: &'static str, program: Installed, signal: i32, expected: Expected) -> Story {
    Story {
        stop: by(signal, Duration::from_secs(2)),
        ..stopped(name, what, program, expected)
    }
}

/// PID 1 raises the signal again after its shutdown, and exits with an error because that did not end it.
const RAISED_IN_VAIN: Expected = Expected {
    end: End::Code(1),
    sentence: &["raised SIGTERM again", "exited with code 1"],
    remedy: &["exit with 0", "small init"],
    ..CLEAN
};

pub(super) static STORIES: &[Story] = &[
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
            "The container runtime sent SIGTERM to PID 1 `apache2`, the handler ran and sent the signal on to 3 processes",
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
        "hard stop, and the worker's code",
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
        clean(&[
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
    not_ended(
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
        clean(&["The container runtime sent SIGTERM to PID 1 `dnsmasq`, the handler ran, and the process exited with code 0"]),
    ),
    server(
        "php-fpm-term",
        "immediate termination",
        PHP_FPM,
        SIGTERM,
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `php-fpm",
            "the handler ran and sent the signal on to 2 processes, and the process exited with code 0",
        ]),
    ),
    server(
        "php-fpm-quit",
        "graceful stop",
        PHP_FPM.documented("SIGQUIT: graceful stop."),
        SIGQUIT,
        clean(&[
            "The container runtime sent SIGQUIT to PID 1 `php-fpm",
            "the handler ran and sent the signal on to 2 processes, and the process exited with code 0",
        ]),
    ),
    server(
        "uwsgi-term",
        "stop, with --die-on-term",
        UWSGI,
        SIGTERM,
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `uwsgi-core`, the handler ran and sent SIGINT to 2 processes",
            "the process exited with code 0",
        ]),
    ),
    server(
        "uwsgi-int",
        "stop",
        UWSGI.documented("SIGINT, SIGQUIT: immediately kills the entire uWSGI stack."),
        SIGINT,
        clean(&[
            "The container runtime sent SIGINT to PID 1 `uwsgi-core`, the handler ran and sent",
            "the process exited with code 0",
        ]),
    ),
    server(
        "puma-term",
        "graceful stop as PID 1: the exception, which cannot end PID 1 by SIGTERM, makes it exit with 1",
        PUMA,
        SIGTERM,
        RAISED_IN_VAIN,
    ),
    server(
        "puma-cluster",
        "graceful stop of a master with workers as PID 1",
        Installed {
            command: &[
                "/usr/bin/puma",
                "-w",
                "2",
                "-b",
                "tcp://127.0.0.1:$PORT",
                "-e",
                "production",
                "$DIR/config.ru",
            ],
            ..PUMA
        },
        SIGTERM,
        RAISED_IN_VAIN,
    ),
    server(
        "puma-int",
        "graceful stop",
        PUMA.documented("INT: graceful stop, as Ctrl-C."),
        SIGINT,
        clean(&["The container runtime sent SIGINT to PID 1 `puma`, the handler ran, and the process exited with code 0"]),
    ),
    Story {
        pid_namespace: false,
        ..server(
            "puma-not-pid-1",
            "graceful stop, in the host's pid namespace: the exception ends it by SIGTERM",
            PUMA,
            SIGTERM,
            Expected {
                end: End::Signal(SIGTERM),
                sentence: &[
                    "The container runtime sent SIGTERM to `puma` (pid ",
                    "the handler ran, and the process then terminated itself with the same signal",
                ],
                ..CLEAN
            },
        )
    },
    server(
        "unicorn-term",
        "quick shutdown",
        UNICORN,
        SIGTERM,
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `unicorn`, the handler ran and sent the signal on to `unicorn` (pid ",
            "the process exited with code 0",
        ]),
    ),
    server(
        "unicorn-quit",
        "graceful shutdown",
        UNICORN.documented("QUIT: graceful shutdown, waits for workers to finish their current request."),
        SIGQUIT,
        clean(&["The container runtime sent SIGQUIT to PID 1 `unicorn`, the handler ran, and the process exited with code 0"]),
    ),
    server(
        "starman-quit",
        "graceful shutdown",
        STARMAN,
        SIGQUIT,
        clean(&[
            "The container runtime sent SIGQUIT to PID 1 `starman master`, the handler ran, and the process exited with code 0",
        ]),
    ),
    server(
        "hypnotoad-term",
        "immediate shutdown",
        HYPNOTOAD,
        SIGTERM,
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `",
            "the handler ran, and the process exited with code 0",
        ]),
    ),
    server(
        "hypnotoad-quit",
        "graceful shutdown",
        HYPNOTOAD.documented("QUIT: shuts down the server gracefully."),
        SIGQUIT,
        clean(&[
            "The container runtime sent SIGQUIT to PID 1 `",
            "the handler ran and sent the signal on to 2 processes, and the process exited with code 0",
        ]),
    ),
    Story {
        pid_namespace: false,
        ..server(
            "twisted-not-pid-1",
            "clean shutdown in the host's pid namespace, which then raises the signal again",
            TWISTED,
            SIGTERM,
            Expected {
                end: End::Signal(SIGTERM),
                sentence: &[
                    "The container runtime sent SIGTERM to `twistd3` (pid ",
                    "the handler ran, and the process then terminated itself with the same signal",
                ],
                ..CLEAN
            },
        )
    },
    Story {
        stop: by(SIGTERM, Duration::from_secs(30)),
        ..stopped(
            "celery-term",
            "warm shutdown",
            CELERY,
            clean(&[
                "The container runtime sent SIGTERM to PID 1 `python3`, the handler ran, and the process exited with code 0",
            ]),
        )
    },
    Story {
        stop: by(SIGQUIT, Duration::from_secs(30)),
        ..stopped(
            "celery-quit",
            "cold shutdown",
            CELERY.documented("QUIT: cold shutdown, which terminates as soon as possible."),
            clean(&[
                "The container runtime sent SIGQUIT to PID 1 `python3`, the handler ran and sent SIGTERM to 2 processes",
                "the process exited with code 0",
            ]),
        )
    },
    server(
        "erlang-term",
        "init:stop/0",
        ERLANG,
        SIGTERM,
        clean(&["The container runtime sent SIGTERM to PID 1 `beam.smp`, the handler ran, and the process exited with code 0"]),
    ),
    server(
        "erlang-usr1",
        "crash dump",
        ERLANG.documented("SIGUSR1: forces a crash dump."),
        SIGUSR1,
        unclean(End::Code(1), "nonzero-exit", &["SIGUSR1", "exited with code 1"], &["log"]),
    ),
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
        "graceful stop, and code 1",
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
        "SIGTERM before it has joined its cluster, when it has no handler yet",
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
    not_ended(
        "cron-term",
        "cron as PID 1 has no handler",
        CRON,
        SIGTERM,
        ignored(
            &["`cron` is PID 1 and has no SIGTERM handler"],
            &["handle SIGTERM in PID 1 `cron`"],
        ),
    ),
    server(
        "pgbouncer-term",
        "immediate shutdown, and code 1",
        PGBOUNCER,
        SIGTERM,
        unclean(End::Code(1), "nonzero-exit", &["SIGTERM", "exited with code 1"], &["log"]),
    ),
    server(
        "pgbouncer-int",
        "safe shutdown",
        PGBOUNCER.documented("SIGINT: safe shutdown, as PAUSE and SHUTDOWN: waits for the queries under way."),
        SIGINT,
        clean(&["The container runtime sent SIGINT to PID 1 `pgbouncer`, the handler ran, and the process exited with code 0"]),
    ),
];
