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
    /// Most connections that may be undecided: one of the bounds below.
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

    /// Connections that may count as reset although nothing is lost. The client's closing message (close_notify, GOAWAY, Terminate) comes
    /// between the server's own and the server's close: nothing in the kernel distinguishes it from a request. Not where the protocol has no
    /// such message, nor where the server exits without one. Seen in one of a dozen runs of all cases, of one connection.
    pub fn early_goodbyes(&self) -> u64 {
        let has_goodbye = !["http", "redis"].contains(&self.protocol) && self.way != "exit";
        u64::from(has_goodbye && self.lost == 0)
    }

    /// Whether the clients' reaction must not wait for CPU time: three ticks later it counts as a request.
    pub fn needs_prompt_clients(&self) -> bool {
        self.usage == "idle-large"
    }

    /// Whether the server's close(2) must not wait for CPU time: a tick after the last answer it counts as that of an idle connection, and the
    /// client's goodbye comes before it. A busy machine takes the processor from a server between the two in more than one of three connections.
    pub fn needs_prompt_server(&self) -> bool {
        self.undecided == RARELY || self.early_goodbyes() > 0
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

/// The kernel's counts or the program's own call decide: the client's last bytes are the last by far more than three ticks (clients pause
/// before their next request, and the server sends nothing until the answer), or the server closes with shutdown(2) (nginx, Apache httpd,
/// HAProxy at a graceful stop).
const DECIDED: u64 = 0;

/// A race that was lost in none of the measured runs (six of our servers, three of Debian's): between the client's close and the server's (HTTP/2: the client closes at the GOAWAY once it
/// has its answer), or within the tick between the last answer and close(2) (gunicorn, Go's net/http: one connection in some thousand, on a
/// machine with other work). The server runs as soon as it can: see [`Case::needs_prompt_server`].
const RARELY: u64 = 1;

/// A race that had any result up to two or three in the same runs, for each connection anew: whether the close follows the last bytes
/// within a tick (Go's `Shutdown` polls; tonic), whether the client's goodbye comes after the close (TLS), whether the client closes at the
/// error before the server exits (PostgreSQL), whether the first request comes within three ticks of the handshake (TLS 1.2).
const RACE: u64 = CLIENTS;

/// The kernel's counts are those of a loss where there is none, and the reverse: each connection is undecided. Without a loss: an idle
/// connection after an answer, closed by the exit or by close(2) before it. With a loss: the server's last bytes are a part of the answer (a
/// stream, a download, a subscription, an open websocket), of the protocol (TLS's handshake and tickets, HTTP/2's settings, the pings of
/// Go's gRPC server at each request) or a warning (PostgreSQL), or the client acknowledges an answer of HTTP/2 (`idle-large`), or its next
/// request comes within three ticks of the answer (`at-once`).
const ALIKE: u64 = CLIENTS;

pub const CASES: &[Case] = &[
    go("http", "idle", "exit", 0, ALIKE),
    go("http", "first", "exit", 3, DECIDED),
    go("http", "next", "exit", 3, DECIDED),
    go("http", "at-once", "exit", 3, ALIKE),
    go("http", "stream", "exit", 3, ALIKE),
    go("http", "download", "exit", 3, ALIKE),
    go("http", "websocket", "exit", 3, ALIKE),
    go("http", "websocket-slow", "exit", 3, DECIDED),
    go("http", "idle", "close", 0, ALIKE),
    go("http", "next", "close", 3, DECIDED),
    go("http", "stream", "close", 3, ALIKE),
    go("http", "download", "close", 3, ALIKE),
    go("http", "idle", "graceful", 0, ALIKE),
    go("http", "next", "graceful", 0, RARELY),
    go("http", "stream", "graceful", 0, RARELY),
    go("http", "download", "graceful", 0, RACE),
    go("https12", "idle", "exit", 0, ALIKE),
    go("https12", "first", "exit", 3, RACE),
    go("https12", "next", "exit", 3, DECIDED),
    go("https12", "idle", "graceful", 0, RACE),
    go("https13", "idle", "exit", 0, ALIKE),
    go("https13", "first", "exit", 3, ALIKE),
    go("https13", "next", "exit", 3, DECIDED),
    go("https13", "idle", "graceful", 0, RACE),
    go("h2c", "idle", "exit", 0, ALIKE),
    go("h2c", "idle-large", "exit", 0, ALIKE),
    go("h2c", "first", "exit", 3, ALIKE),
    go("h2c", "next", "exit", 3, DECIDED),
    go("h2c", "stream", "exit", 3, ALIKE),
    go("h2c", "next", "close", 3, DECIDED),
    go("h2c", "next", "graceful", 0, RARELY),
    go("h2", "idle", "exit", 0, ALIKE),
    go("h2", "idle-large", "exit", 0, ALIKE),
    go("h2", "first", "exit", 3, ALIKE),
    go("h2", "next", "exit", 3, DECIDED),
    go("h2", "stream", "exit", 3, ALIKE),
    go("h2", "next", "graceful", 0, RARELY),
    go("grpc", "idle", "exit", 0, ALIKE),
    go("grpc", "first", "exit", 3, ALIKE),
    go("grpc", "next", "exit", 3, ALIKE),
    go("grpc", "stream", "exit", 3, ALIKE),
    go("grpc", "next", "close", 3, ALIKE),
    go("grpc", "next", "graceful", 0, RARELY),
    go("grpc", "stream", "graceful", 0, RARELY),
    rust("idle", "exit", 0, ALIKE),
    rust("first", "exit", 3, ALIKE),
    rust("next", "exit", 3, DECIDED),
    rust("stream", "exit", 3, ALIKE),
    // Returns from main: the runtime closes what is open.
    rust("next", "close", 3, DECIDED),
    rust("stream", "close", 3, ALIKE),
    rust("next", "graceful", 0, RACE),
    rust("stream", "graceful", 0, RACE),
    debian(&NGINX_PROXY, "http", "idle", "SIGTERM", 0, ALIKE),
    debian(&NGINX_PROXY, "http", "next", "SIGTERM", 3, DECIDED),
    debian(&NGINX_PROXY, "http", "download", "SIGTERM", 3, ALIKE),
    debian(&NGINX_PROXY, "http", "idle", "SIGQUIT", 0, ALIKE),
    debian(&NGINX_PROXY, "http", "next", "SIGQUIT", 0, DECIDED),
    debian(&APACHE_PROXY, "http", "idle", "SIGTERM", 0, ALIKE),
    debian(&APACHE_PROXY, "http", "next", "SIGTERM", 3, DECIDED),
    debian(&APACHE_PROXY, "http", "idle", "SIGWINCH", 0, DECIDED),
    debian(&APACHE_PROXY, "http", "next", "SIGWINCH", 0, DECIDED),
    debian(&HAPROXY_PROXY, "http", "idle", "SIGTERM", 0, ALIKE),
    debian(&HAPROXY_PROXY, "http", "next", "SIGTERM", 3, DECIDED),
    debian(&HAPROXY_PROXY, "http", "idle", "SIGUSR1", 0, DECIDED),
    debian(&HAPROXY_PROXY, "http", "next", "SIGUSR1", 0, DECIDED),
    debian(&GUNICORN_SLOW, "http", "idle", "SIGTERM", 0, ALIKE),
    debian(&GUNICORN_SLOW, "http", "next", "SIGTERM", 0, RARELY),
    debian(&GUNICORN_SLOW, "http", "next", "SIGQUIT", 0, RARELY),
    debian(&REDIS, "redis", "idle", "SIGTERM", 0, ALIKE),
    debian(&REDIS, "redis", "next", "SIGTERM", 3, DECIDED),
    debian(&REDIS, "redis", "at-once", "SIGTERM", 3, ALIKE),
    debian(&REDIS, "redis", "stream", "SIGTERM", 3, ALIKE),
    debian(&POSTGRESQL, "postgres", "idle", "SIGINT", 0, ALIKE),
    debian(&POSTGRESQL, "postgres", "next", "SIGINT", 0, RACE),
    debian(&POSTGRESQL, "postgres", "idle", "SIGQUIT", 0, ALIKE),
    debian(&POSTGRESQL, "postgres", "next", "SIGQUIT", 3, ALIKE),
    // A smart shutdown waits for its sessions.
    Case {
        is_killed: true,
        ..debian(&POSTGRESQL, "postgres", "next", "SIGTERM", 3, DECIDED)
    },
    Case {
        is_killed: true,
        ..debian(&POSTGRESQL, "postgres", "at-once", "SIGTERM", 3, ALIKE)
    },
];
