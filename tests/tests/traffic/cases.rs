//! Servers, what their clients do at the end, and how the server ends.

use std::fmt::{self, Display, Formatter};

/// Clients of each case, each with a connection of its own.
pub const CLIENTS: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// `tests/traffic-go`: net/http, golang.org/x/net/websocket, google.golang.org/grpc.
    Go,
    /// `tests/examples/grpc-server.rs`: tonic.
    Rust,
}

pub struct Case {
    pub server: Server,
    pub protocol: &'static str,
    /// What each connection is used for at the stop signal.
    pub usage: &'static str,
    /// How the server ends.
    pub way: &'static str,
    /// Connections that lose something, by the clients' log.
    pub lost: u64,
    /// Most connections that may be undecided.
    pub undecided: u64,
}

impl Display for Case {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {} {}", self.server, self.protocol, self.usage, self.way)
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
];
