//! Where a program runs: its directory and port, in its command and its configuration.

use std::io::{Error, Result};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::Installed;
use crate::http::free_port;
use crate::privileges::executable;

/// A directory and a port of its own.
#[derive(Debug)]
pub struct Place<'a> {
    directory: &'a Path,
    victim: &'a str,
    port: u16,
    /// The server behind a proxy.
    upstream: Option<SocketAddr>,
}

impl Place<'_> {
    /// # Errors
    /// No free port.
    pub fn new<'a>(directory: &'a Path, victim: &'a str) -> Result<Place<'a>> {
        let port = free_port()?;
        Ok(Place {
            directory,
            victim,
            port,
            upstream: None,
        })
    }

    /// For a proxy of this server.
    #[must_use]
    pub fn before(mut self, upstream: SocketAddr) -> Self {
        self.upstream = Some(upstream);
        self
    }

    /// What it serves.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    fn fill(&self, text: &str) -> String {
        text.replace("$DIR", &self.directory.to_string_lossy())
            .replace("$PORT", &self.port.to_string())
            .replace("$VICTIM", self.victim)
            .replace(
                "$UPSTREAM",
                &self.upstream.map(|address| address.to_string()).unwrap_or_default(),
            )
    }

    /// Writes the program's configuration, in which a script is executable: the command that starts the program here.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn prepare(&self, program: &Installed) -> Result<Vec<String>> {
        for (name, text) in program.configuration {
            let path = self.directory.join(name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            let text = self.fill(text);
            if text.starts_with("#!") {
                executable(&path, &text).map_err(Error::other)?;
            } else {
                std::fs::write(&path, text)?;
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644))?;
            }
        }
        Ok(program.command.iter().map(|word| self.fill(word)).collect())
    }
}
