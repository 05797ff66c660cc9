//! Servers whose clients log what they lose: proxies of another server, and databases.

use super::Installed;
use super::servers::{APACHE, GUNICORN, HAPROXY, NGINX};
pub use super::servers::{POSTGRESQL, REDIS};

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
    ..GUNICORN
};
