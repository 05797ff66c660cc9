//! Servers, what their clients do at the end, and how the server ends.

use std::fmt::{self, Display, Formatter};

use epitaph_tests::programs::Installed;
use epitaph_tests::programs::with_clients::{APACHE_PROXY, GUNICORN_SLOW, HAPROXY_PROXY, NGINX_PROXY, POSTGRESQL, REDIS};
use nix::libc::{SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGWINCH};

/// Clients of each case, each with a connection of its own.
pub const CLIENTS: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// `tests/traffic-go`: net/http, golang.org/x/net/websocket, google.golang.org/grpc.
    Go,
    /// `tests/examples/grpc-server.rs`: tonic.
    Rust,
    /// A proxy of the Go server, or a database.
    Installed(&'static Installed),
}

impl Server {
    /// As the page names it.
    pub fn name(self) -> &'static str {
        match self {
            Server::Go => "Go",
            Server::Rust => "Rust (tonic)",
            Server::Installed(program) => program.name,
        }
    }
}

pub struct Case {
    pub server: Server,
    pub protocol: &'static str,
    /// What each connection is used for at the stop signal.
    pub usage: &'static str,
    /// How the server ends: its own name for it, or the stop signal that its documentation names.
    pub way: &'static str,
    /// Connections that lose something, by the clients' log.
    pub lost: u64,
    /// Most connections that may be undecided.
    pub undecided: u64,
    /// It waits for its clients until SIGKILL.
    pub is_killed: bool,
}

impl Case {
    pub fn signal(&self) -> i32 {
        match self.way {
            "SIGINT" => SIGINT,
            "SIGQUIT" => SIGQUIT,
            "SIGUSR1" => SIGUSR1,
            "SIGWINCH" => SIGWINCH,
            _ => SIGTERM,
        }
    }
}

impl Display for Case {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.server.name(), self.protocol, self.usage, self.way)
    }
}

const fn go(protocol: &'static str, usage: &'static str, way: &'static str, lost: u64, undecided: u64) -> Case {
    Case {
        server: Server::Go,
        protocol,
        usage,
        way,
        lost,
        undecided,
        is_killed: false,
    }
}

const fn debian(
    program: &'static Installed,
    protocol: &'static str,
    usage: &'static str,
    way: &'static str,
    lost: u64,
    undecided: u64,
) -> Case {
    Case {
        server: Server::Installed(program),
        ..go(protocol, usage, way, lost, undecided)
    }
}

const fn rust(usage: &'static str, way: &'static str, lost: u64, undecided: u64) -> Case {
    Case {
        server: Server::Rust,
        ..go("grpc", usage, way, lost, undecided)
    }
}

/// Where the bound is 0, the kernel's counts decide.
pub const CASES: &[Case] = &[
    go("http", "idle", "exit", 0, 3),
    go("http", "first", "exit", 3, 0),
    go("http", "next", "exit", 3, 0),
    go("http", "stream", "exit", 3, 3),
    go("http", "download", "exit", 3, 3),
    go("http", "websocket", "exit", 3, 3),
    go("http", "websocket-slow", "exit", 3, 0),
    go("http", "idle", "close", 0, 3),
    go("http", "next", "close", 3, 0),
    go("http", "stream", "close", 3, 3),
    go("http", "download", "close", 3, 3),
    go("http", "idle", "graceful", 0, 3),
    go("http", "next", "graceful", 0, 0),
    go("http", "stream", "graceful", 0, 0),
    go("http", "download", "graceful", 0, 3),
    go("https12", "idle", "exit", 0, 3),
    go("https12", "first", "exit", 3, 3),
    go("https12", "next", "exit", 3, 0),
    go("https12", "idle", "graceful", 0, 3),
    go("https13", "idle", "exit", 0, 3),
    go("https13", "first", "exit", 3, 3),
    go("https13", "next", "exit", 3, 0),
    go("https13", "idle", "graceful", 0, 3),
    go("h2c", "idle", "exit", 0, 3),
    go("h2c", "idle-large", "exit", 0, 3),
    go("h2c", "first", "exit", 3, 3),
    go("h2c", "next", "exit", 3, 3),
    go("h2c", "stream", "exit", 3, 3),
    go("h2c", "next", "close", 3, 3),
    go("h2c", "next", "graceful", 0, 3),
    go("h2", "idle", "exit", 0, 3),
    go("h2", "idle-large", "exit", 0, 3),
    go("h2", "first", "exit", 3, 3),
    go("h2", "next", "exit", 3, 3),
    go("h2", "stream", "exit", 3, 3),
    go("h2", "next", "graceful", 0, 3),
    go("grpc", "idle", "exit", 0, 3),
    go("grpc", "first", "exit", 3, 3),
    go("grpc", "next", "exit", 3, 3),
    go("grpc", "stream", "exit", 3, 3),
    go("grpc", "next", "close", 3, 3),
    go("grpc", "next", "graceful", 0, 3),
    go("grpc", "stream", "graceful", 0, 3),
    rust("idle", "exit", 0, 3),
    rust("first", "exit", 3, 3),
    rust("next", "exit", 3, 3),
    rust("stream", "exit", 3, 3),
    // Returns from main: the runtime closes what is open.
    rust("next", "close", 3, 3),
    rust("stream", "close", 3, 3),
    rust("next", "graceful", 0, 3),
    rust("stream", "graceful", 0, 3),
    debian(&NGINX_PROXY, "http", "idle", "SIGTERM", 0, 3),
    debian(&NGINX_PROXY, "http", "next", "SIGTERM", 3, 0),
    debian(&NGINX_PROXY, "http", "download", "SIGTERM", 3, 3),
    debian(&NGINX_PROXY, "http", "idle", "SIGQUIT", 0, 3),
    debian(&NGINX_PROXY, "http", "next", "SIGQUIT", 0, 3),
    debian(&APACHE_PROXY, "http", "idle", "SIGTERM", 0, 3),
    debian(&APACHE_PROXY, "http", "next", "SIGTERM", 3, 0),
    debian(&APACHE_PROXY, "http", "idle", "SIGWINCH", 0, 3),
    debian(&APACHE_PROXY, "http", "next", "SIGWINCH", 0, 3),
    debian(&HAPROXY_PROXY, "http", "idle", "SIGTERM", 0, 3),
    debian(&HAPROXY_PROXY, "http", "next", "SIGTERM", 3, 0),
    debian(&HAPROXY_PROXY, "http", "idle", "SIGUSR1", 0, 3),
    debian(&HAPROXY_PROXY, "http", "next", "SIGUSR1", 0, 3),
    debian(&GUNICORN_SLOW, "http", "idle", "SIGTERM", 0, 3),
    debian(&GUNICORN_SLOW, "http", "next", "SIGTERM", 0, 3),
    debian(&GUNICORN_SLOW, "http", "next", "SIGQUIT", 0, 3),
    debian(&REDIS, "redis", "idle", "SIGTERM", 0, 3),
    debian(&REDIS, "redis", "next", "SIGTERM", 3, 0),
    debian(&REDIS, "redis", "stream", "SIGTERM", 3, 3),
    debian(&POSTGRESQL, "postgres", "idle", "SIGINT", 0, 3),
    debian(&POSTGRESQL, "postgres", "next", "SIGINT", 0, 3),
    debian(&POSTGRESQL, "postgres", "idle", "SIGQUIT", 0, 3),
    debian(&POSTGRESQL, "postgres", "next", "SIGQUIT", 3, 3),
    // A smart shutdown waits for its sessions.
    Case {
        is_killed: true,
        ..debian(&POSTGRESQL, "postgres", "next", "SIGTERM", 3, 0)
    },
];
