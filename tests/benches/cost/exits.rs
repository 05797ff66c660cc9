//! What the exit of a process costs in a container that is observed: a shell that forks all day, and a server whose workers have a hundred
//! sockets. No container stops.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

use anyhow::{Context as _, ensure};
use epitaph::source::kernel::Programs;
use epitaph_core::ids::CgroupId;
use epitaph_ebpf::watch;
use epitaph_tests::cgroup::Scope;

use crate::connections::Inside;
use crate::signals::load;
use crate::stats::{median, median_of_pairs};
use crate::table::Table;

const ROUNDS: usize = 24;
const FORKS: usize = 400;
const SOCKETS: usize = 100;
/// A subshell is a fork and an exit. Prints the microseconds of each.
const SCRIPT: &str = r#"
for ((i = 0; i < $1; i++)); do exec {socket}<>/dev/tcp/127.0.0.1/$2; done
begin=${EPOCHREALTIME/[.,]/}
for ((i = 0; i < $3; i++)); do ( : ); done
end=${EPOCHREALTIME/[.,]/}
echo "$((end - begin))"
"#;

pub fn measure(table: &mut Table) -> anyhow::Result<()> {
    eprintln!("bench: processes that exit in a container, with and without the probes ({ROUNDS} rounds)");
    let scope = Scope::of_new_container()?;
    let inside = Inside::enter(&scope)?;
    let cgroup = CgroupId::v2(scope.id()?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen on the loopback")?;
    let port = listener.local_addr()?.port();
    for (what, sockets) in [("a process that a shell forks", 0), ("a worker with 100 sockets", SOCKETS)] {
        let (mut none, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            none.push(round(&listener, port, sockets)?);
            let mut kernel = load("sched_process_exit", Programs::All)?;
            kernel.watch(cgroup, watch::SELF, Some(cgroup))?;
            ours.push(round(&listener, port, sockets)?);
        }
        let adds = median_of_pairs(&ours, &none, |with, without| with - without);
        let ratio = median_of_pairs(&ours, &none, |with, without| with / without);
        table.fact(
            &format!("{what}, fork and exit; the probes add"),
            format!("{:.0} µs; {adds:.1} µs", median(&none)),
        );
        table.goal(
            &format!("{what}: with / without"),
            "<= 1.05x",
            format!("{ratio:.3}x"),
            ratio <= 1.05,
        );
    }
    drop(inside);
    Ok(scope.remove()?)
}

/// Microseconds per process.
fn round(listener: &TcpListener, port: u16, sockets: usize) -> anyhow::Result<f64> {
    let words = [sockets, usize::from(port), FORKS].map(|number| number.to_string());
    let shell = Command::new("bash").args(["-c", SCRIPT, "bash"]).args(words).output();
    let shell = shell.context("run bash")?;
    ensure!(
        shell.status.success(),
        "bash failed: {}",
        String::from_utf8_lossy(&shell.stderr)
    );
    // The backlog has room for one round.
    for _ in 0..sockets {
        listener.accept().context("accept on the loopback")?;
    }
    let took: f64 = String::from_utf8_lossy(&shell.stdout)
        .trim()
        .parse()
        .context("read bash's time")?;
    Ok(took / FORKS as f64)
}
