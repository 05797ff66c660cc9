//! Servers whose clients log what they lose: proxies of another server, databases, and servers under load.

use nix::libc::{SIGQUIT, SIGTERM, SIGUSR1};

use super::servers::common::{APACHE, GUNICORN, HAPROXY, NGINX};
use super::{CLEAN, Installed, Ready, server};
use crate::story::{Bystander, Expected, Story};

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

/// Answers at 200 requests a second: of ten clients always some wait.
const NGINX_LIMITED: Installed = Installed {
    configuration: &[
        (
            "nginx.conf",
            "daemon off;\npid $DIR/nginx.pid;\nerror_log $DIR/error.log crit;\nworker_processes 2;\nevents {}\n\
         http { access_log off; limit_req_zone $server_port zone=all:64k rate=200r/s;\n\
         server { listen 127.0.0.1:$PORT; root $DIR; limit_req zone=all burst=100; } }\n",
        ),
        ("index.html", "ok\n"),
    ],
    ..NGINX
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
];
