//! A network namespace of a story's own, with a pair of veth between it and ours. Made by iproute2's `ip`; gone with its value.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Output};

use anyhow::{Context, ensure};

use crate::sys::random_hex;

/// See the module.
#[derive(Debug)]
pub struct Network {
    name: String,
    inside: Ipv4Addr,
}

impl Network {
    /// Err with the reason where none can be made here.
    pub fn available() -> Result<(), String> {
        match ip(&["netns", "list"]) {
            Ok(_) => Ok(()),
            Err(e) => Err(format!("no network namespaces: {e:#}")),
        }
    }

    /// # Errors
    /// `ip` is missing or refuses.
    pub fn create() -> anyhow::Result<Network> {
        let hex = random_hex(3)?;
        let number = u32::from_str_radix(&hex, 16).unwrap_or(0);
        // 198.18.0.0/15 is for tests of networks (RFC 2544): a /30 of it, by chance.
        let first = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + (number % (1 << 15)) * 4;
        let [outside, inside] = [1, 2].map(|n| Ipv4Addr::from(first + n));
        let (name, ours, theirs) = (format!("epitaph-{hex}"), format!("ep{hex}"), format!("eq{hex}"));
        ip(&["netns", "add", &name])?;
        let network = Network { name, inside };
        let name = &network.name;
        ip(&["link", "add", &ours, "type", "veth", "peer", "name", &theirs, "netns", name])?;
        ip(&["address", "add", &format!("{outside}/30"), "dev", &ours])?;
        ip(&["link", "set", &ours, "up"])?;
        ip(&["-netns", name, "address", "add", &format!("{inside}/30"), "dev", &theirs])?;
        ip(&["-netns", name, "link", "set", &theirs, "up"])?;
        ip(&["-netns", name, "link", "set", "lo", "up"])?;
        Ok(network)
    }

    /// The command, to be run in the namespace: the same process executes it.
    pub fn command(&self, command: Vec<String>) -> Vec<String> {
        let inside = ["ip", "netns", "exec", &self.name].map(str::to_owned);
        inside.into_iter().chain(command).collect()
    }

    /// Any port of its own address.
    pub fn address(&self) -> SocketAddr {
        (self.inside, 0).into()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The pair goes with it.
        if let Err(error) = ip(&["netns", "delete", &self.name]) {
            eprintln!("left behind: {error:#}");
        }
    }
}

fn ip(args: &[&str]) -> anyhow::Result<Output> {
    let line = || format!("ip {}", args.join(" "));
    let done = Command::new("ip").args(args).output().with_context(line)?;
    ensure!(
        done.status.success(),
        "{}: {}",
        line(),
        String::from_utf8_lossy(&done.stderr).trim()
    );
    Ok(done)
}
