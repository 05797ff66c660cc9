//! Servers whose clients log what they lose: proxies of another server, databases, and servers under load.

use nix::libc::{SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGWINCH};

use super::runtimes::NODE;
use super::servers::common::{APACHE, GUNICORN, HAPROXY, JAVA, NGINX};
use super::{CLEAN, Installed, Ready, ignored, server, stopped};
use crate::runtime::{Kill, Stop};
use crate::story::{Bystander, End, Expected, Story};

pub use super::servers::common::{POSTGRESQL, REDIS};

pub const ALL: [&Installed; 6] = [
    &NGINX_PROXY,
    &APACHE_PROXY,
    &HAPROXY_PROXY,
    &GUNICORN_SLOW,
    &REDIS,
    &POSTGRESQL,
];

pub const NGINX_PROXY: Installed = Installed {
    configuration: &[(
        "nginx.conf",
        "daemon off;\npid $DIR/nginx.pid;\nerror_log $DIR/error.log;\nworker_processes 2;\nevents {}\n\
         http { access_log off; server { listen 127.0.0.1:$PORT;\n\
         location / { proxy_pass http://$UPSTREAM; proxy_http_version 1.1; proxy_buffering off; } } }\n",
    )],
    ..NGINX
};

pub const APACHE_PROXY: Installed = Installed {
    configuration: &[(
        "httpd.conf",
        "ServerRoot $DIR\nServerName localhost\nListen 127.0.0.1:$PORT\nPidFile $DIR/httpd.pid\nDefaultRuntimeDir $DIR\n\
         ErrorLog $DIR/error.log\nUser www-data\nGroup www-data\n\
         LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n\
         LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n\
         LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so\n\
         LoadModule proxy_http_module /usr/lib/apache2/modules/mod_proxy_http.so\n\
         ProxyPass / http://$UPSTREAM/ flushpackets=on\n",
    )],
    ..APACHE
};

pub const HAPROXY_PROXY: Installed = Installed {
    configuration: &[(
        "haproxy.cfg",
        "defaults\n mode http\n timeout connect 1s\n timeout client 30s\n timeout server 30s\n\
         frontend f\n bind 127.0.0.1:$PORT\n default_backend b\n\
         backend b\n server upstream $UPSTREAM\n",
    )],
    ..HAPROXY
};

/// The paths of `tests/traffic-go`'s own server.
pub const GUNICORN_SLOW: Installed = Installed {
    configuration: &[(
        "app.py",
        "import time\n\
         def app(environ, start_response):\n    \
         if environ['PATH_INFO'] == '/slow':\n        time.sleep(3)\n    \
         start_response('200 OK', [('Content-Length', '3')])\n    return [b'ok\\n']\n",
    )],
    command: &[
        "/usr/bin/gunicorn",
        "--chdir",
        "$DIR",
        "-b",
        "127.0.0.1:$PORT",
        "-w",
        "1",
        "--threads",
        "4",
        "app:app",
    ],
    ready: Ready::Listens,
    ..GUNICORN
};

/// Ten clients, until a second after the stop signal.
const fn under_load(
    name: &'static str,
    what: &'static str,
    program: Installed,
    signal: i32,
    keep_alive: bool,
    expected: Expected,
) -> Story {
    Story {
        bystander: Bystander::Load {
            keep_alive,
            goes_on_ms: 1000,
            probed: false,
        },
        ..server(name, what, program, signal, expected)
    }
}

const CUT: Expected = Expected {
    verdict: "cut-connections",
    traffic: "cut",
    sentence: &["dropped at exit", "refused"],
    ..CLEAN
};
const REFUSED: Expected = Expected {
    verdict: "refused-connections",
    traffic: "refused",
    sentence: &["refused"],
    ..CLEAN
};

/// Answers at 50 requests a second: of ten clients most wait, accepted.
const NGINX_LIMITED: Installed = Installed {
    configuration: &[
        (
            "nginx.conf",
            "daemon off;\npid $DIR/nginx.pid;\nerror_log $DIR/error.log crit;\nworker_processes 2;\nevents {}\n\
         http { access_log off; limit_req_zone $server_port zone=all:64k rate=50r/s;\n\
         server { listen 127.0.0.1:$PORT; root $DIR; limit_req zone=all burst=100; } }\n",
        ),
        ("index.html", "ok\n"),
    ],
    ..NGINX
};

const NGINX_BELOW_TINI: Installed = Installed {
    packages: &["nginx-light", "tini"],
    files: &["/usr/sbin/nginx", "/usr/bin/tini"],
    command: &["/usr/bin/tini", "--", "/usr/sbin/nginx", "-c", "$DIR/nginx.conf"],
    ..NGINX_LIMITED
};

/// As [`GUNICORN_SLOW`].
const GUNICORN_BELOW_DUMB_INIT: Installed = Installed {
    packages: &["dumb-init", "gunicorn"],
    files: &["/usr/bin/dumb-init", "/usr/bin/gunicorn"],
    command: &[
        "/usr/bin/dumb-init",
        "/usr/bin/gunicorn",
        "--chdir",
        "$DIR",
        "-b",
        "127.0.0.1:$PORT",
        "-w",
        "1",
        "--threads",
        "4",
        "app:app",
    ],
    ..GUNICORN_SLOW
};

/// Answers after 50 ms: of ten clients always some wait.
const NODE_SERVER: Installed = Installed {
    configuration: &[(
        "server.js",
        "const answer = (_, response) => setTimeout(() => response.end('ok'), 500);\n\
         require('http').createServer(answer).listen($PORT, '127.0.0.1');\n",
    )],
    command: &["/usr/bin/node", "$DIR/server.js"],
    ready: Ready::Listens,
    ..NODE
};

const NODE_CLOSES: Installed = Installed {
    configuration: &[(
        "server.js",
        "const answer = (_, response) => setTimeout(() => response.end('ok'), 50);\n\
         const server = require('http').createServer(answer).listen($PORT, '127.0.0.1');\n\
         process.on('SIGTERM', () => server.close());\n",
    )],
    ..NODE_SERVER
};

/// As [`NODE_SERVER`]; ready once it has answered a request, the first of which takes long.
const JAVA_SERVER: Installed = Installed {
    packages: &["default-jdk-headless"],
    files: &["/usr/bin/java", "/usr/bin/javac"],
    configuration: &[(
        "Server.java",
        "class Server {\n\
             public static void main(String[] args) throws Exception {\n\
                 var address = new java.net.InetSocketAddress(\"127.0.0.1\", $PORT);\n\
                 var server = com.sun.net.httpserver.HttpServer.create(address, 0);\n\
                 server.setExecutor(java.util.concurrent.Executors.newCachedThreadPool());\n\
                 server.createContext(\"/\", exchange -> {\n\
                     java.util.concurrent.locks.LockSupport.parkNanos(500_000_000);\n\
                     exchange.sendResponseHeaders(200, 3);\n\
                     exchange.getResponseBody().write(\"ok\\n\".getBytes());\n\
                     exchange.close();\n\
                 });\n\
                 server.start();\n\
                 if (args.length > 0) Runtime.getRuntime().addShutdownHook(new Thread(() -> server.stop(2)));\n\
                 System.setProperty(\"http.keepAlive\", \"false\");\n\
                 new java.net.URL(\"http://127.0.0.1:$PORT/\").openStream().readAllBytes();\n\
                 System.out.println(\"ready 127.0.0.1:$PORT\");\n\
             }\n\
         }\n",
    )],
    command: &["/usr/bin/java", "$DIR/Server.java"],
    ready: Ready::Prints,
    ..JAVA
};

pub(super) static STORIES: &[Story] = &[
    under_load(
        "nginx-term-under-load",
        "fast shutdown under load",
        NGINX_LIMITED,
        SIGTERM,
        false,
        CUT,
    ),
    under_load(
        "nginx-term-under-load-kept",
        "fast shutdown under load with keep-alive connections",
        NGINX_LIMITED,
        SIGTERM,
        true,
        CUT,
    ),
    under_load(
        "nginx-quit-under-load",
        "graceful shutdown under load",
        NGINX_LIMITED.documented("QUIT: graceful shutdown."),
        SIGQUIT,
        false,
        REFUSED,
    ),
    under_load(
        "haproxy-usr1-under-load",
        "soft stop under load",
        HAPROXY.documented("USR1: soft stop; listeners are closed, and the processes exit when the last connection is closed."),
        SIGUSR1,
        false,
        REFUSED,
    ),
    under_load(
        "gunicorn-term-under-load",
        "graceful shutdown under load",
        GUNICORN_SLOW,
        SIGTERM,
        false,
        REFUSED,
    ),
    under_load(
        "tini-nginx-under-load",
        "fast shutdown under load, below tini",
        NGINX_BELOW_TINI,
        SIGTERM,
        false,
        Expected {
            sentence: &["PID 1 `tini`", "sent the signal on to `nginx`", "dropped at exit", "refused"],
            ..CUT
        },
    ),
    under_load(
        "dumb-init-gunicorn-under-load",
        "graceful shutdown under load, below dumb-init",
        GUNICORN_BELOW_DUMB_INIT,
        SIGTERM,
        false,
        Expected {
            sentence: &[
                "PID 1 `dumb-init`",
                "sent the signal on to 2 processes",
                "exited with code 0",
                "refused",
            ],
            ..REFUSED
        },
    ),
    under_load(
        "node-closes-under-load",
        "Node.js under load, the application closes its server at SIGTERM",
        NODE_CLOSES,
        SIGTERM,
        false,
        Expected {
            sentence: &[
                "SIGTERM to PID 1 `node`, the handler ran, and the process exited with code 0",
                "refused",
            ],
            ..REFUSED
        },
    ),
    Story {
        bystander: Bystander::Load {
            keep_alive: false,
            goes_on_ms: 2500,
            probed: false,
        },
        ..stopped(
            "node-killed-under-load",
            "Node.js under load as PID 1 without a handler of the application",
            NODE_SERVER,
            Expected {
                traffic: "cut",
                ..ignored(
                    &[
                        "entered its SIGTERM handler, which raised SIGTERM again",
                        "SIGKILL",
                        "dropped at exit",
                    ],
                    &["handle SIGTERM in the application"],
                )
            },
        )
    },
];

/// Each worker finishes what it has; the listener is closed once the last of them has closed its own.
const APACHE_SERVES: Installed = Installed {
    configuration: &[
        (
            "httpd.conf",
            "ServerRoot $DIR\nServerName localhost\nListen 127.0.0.1:$PORT\nPidFile $DIR/httpd.pid\nDefaultRuntimeDir $DIR\n\
             ErrorLog $DIR/error.log\nUser www-data\nGroup www-data\n\
             LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n\
             LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n\
             LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so\n\
             DocumentRoot $DIR\n<Directory $DIR>\nRequire all granted\nDirectoryIndex index.html\n</Directory>\n",
        ),
        ("index.html", "ok\n"),
    ],
    ..APACHE
};

/// Answers after half a second: of ten clients always some wait.
const DAPHNE: Installed = Installed {
    name: "Daphne",
    packages: &["daphne"],
    files: &["/usr/bin/daphne"],
    configuration: &[(
        "app.py",
        "import asyncio\n\
         async def app(scope, receive, send):\n    \
         await asyncio.sleep(0.5)\n    \
         await send({'type': 'http.response.start', 'status': 200, 'headers': [(b'content-length', b'3')]})\n    \
         await send({'type': 'http.response.body', 'body': b'ok\\n'})\n",
    )],
    command: &[
        "/usr/bin/env",
        "PYTHONPATH=$DIR",
        "/usr/bin/daphne",
        "-b",
        "127.0.0.1",
        "-p",
        "$PORT",
        "app:app",
    ],
    ready: Ready::Listens,
    documented: "By Twisted's documentation, SIGTERM and SIGINT stop the reactor. Daphne's own pages name no signal.",
};

const H2O: Installed = Installed {
    name: "H2O",
    packages: &["h2o"],
    files: &["/usr/bin/h2o"],
    configuration: &[
        (
            "h2o.conf",
            "listen:\n  host: 127.0.0.1\n  port: $PORT\nnum-threads: 2\nerror-log: $DIR/error.log\nuser: root\n\
             hosts:\n  default:\n    paths:\n      /:\n        file.dir: $DIR\n",
        ),
        ("index.html", "ok\n"),
    ],
    command: &["/usr/bin/h2o", "-c", "$DIR/h2o.conf"],
    ready: Ready::Listens,
    documented: "SIGTERM: graceful shutdown.",
};

/// Not played every day: a JDK is large, and the others take no path that those above do not take.
pub(super) static MORE: &[Story] = &[
    under_load(
        "apache-winch-under-load",
        "graceful stop under load",
        APACHE_SERVES.documented("WINCH: the parent advises its children to exit after their current request."),
        SIGWINCH,
        false,
        REFUSED,
    ),
    under_load(
        "h2o-term-under-load",
        "graceful shutdown under load",
        H2O,
        SIGTERM,
        false,
        REFUSED,
    ),
    under_load("daphne-term-under-load", "stop under load", DAPHNE, SIGTERM, false, CUT),
    under_load("daphne-int-under-load", "stop under load", DAPHNE, SIGINT, false, CUT),
    Story {
        stop: Stop::Force(Kill::Main),
        ..under_load(
            "daphne-killed-under-load",
            "SIGKILL under load",
            DAPHNE.documented("SIGKILL cannot be handled."),
            SIGTERM,
            false,
            Expected {
                end: End::Signal(SIGKILL),
                verdict: "force-killed",
                exit: "force-killed",
                sentence: &["SIGKILL", "dropped at exit", "refused"],
                ..CUT
            },
        )
    },
    under_load(
        "java-term-under-load",
        "shutdown under load without a hook of the application",
        JAVA_SERVER,
        SIGTERM,
        false,
        Expected {
            end: End::Code(143),
            sentence: &["PID 1 `java`, the handler ran", "exited with code 143", "dropped at exit"],
            ..CUT
        },
    ),
    under_load(
        "java-hook-under-load",
        "shutdown under load with a hook that stops the server",
        Installed {
            command: &["/usr/bin/java", "$DIR/Server.java", "hook"],
            ..JAVA_SERVER
        },
        SIGTERM,
        false,
        Expected {
            end: End::Code(143),
            sentence: &["PID 1 `java`, the handler ran", "exited with code 143", "refused"],
            ..REFUSED
        },
    ),
];
