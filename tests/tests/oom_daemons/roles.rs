//! What the victim of the kernel's OOM killer was for its container: containerd's shim with runc, and with crun.

use anyhow::{Context as _, ensure};
use epitaph_tests::timeout::until_within;
use serde_json::Value;

use super::machine::{LIMIT, Machine};

/// The node's own containerd, which the machine of the package keeps off. The containers' root is the machine's own, with its programs.
const PREPARE: &str = "rm -f /etc/systemd/system/containerd.service.d/off.conf; systemctl daemon-reload; systemctl start containerd && \
    mkdir -p /root/rootfs && mount --bind / /root/rootfs";
/// `run BYTES PROGRAM…` in a cgroup as Docker names it. `$flags` are of ctr. `kills` are the victims' names in the kernel's log.
const FUNCTIONS: &str = "flags=
run() { bytes=$1; shift; ctr run --detach --rootfs --net-host --env PATH=/usr/sbin:/usr/bin:/sbin:/bin --memory-limit $bytes $flags --cgroup /docker/$id /root/rootfs $id \"$@\"; }
stop() { ctr task kill --signal SIGTERM $id; }
remove() { ctr task kill --signal SIGKILL $id; ctr task rm --force $id; ctr container rm $id; } >/dev/null 2>&1
kills() { journalctl --no-pager --boot --dmesg --output cat | grep -o 'Killed process [0-9]* ([^)]*)' | sed 's/.*(//; s/)$//'; }
until_killed() { for i in $(seq 240); do [ $(kills | wc -l) -gt $known ] && return; sleep 0.5; done; return 1; }
known=$(kills | wc -l)
";
/// Handles its stop signal, and needs little memory.
const SERVER: &str = "sh -c 'trap \"exit 0\" TERM; while :; do sleep 1 & wait $!; done'";
/// The child takes a client's connection, and then more memory than there is.
const PREFORK: &str = "perl -e 'use IO::Socket::INET; \
    $listener = IO::Socket::INET->new(Listen => 5, LocalAddr => \"127.0.0.1:8099\", ReuseAddr => 1) or die; $SIG{TERM} = sub { exit 0 }; \
    if (fork() == 0) { $client = $listener->accept; <$client>; $memory = \"x\" x (256 << 20); sleep 60 } close $listener; sleep 1 while 1'";
const CLIENT: &str = "perl -e 'use IO::Socket::INET; for (1 .. 600) { \
    last if $server = IO::Socket::INET->new(\"127.0.0.1:8099\"); select undef, undef, undef, 0.1 } print $server \"request\\n\"; <$server>'";

struct Role {
    name: &'static str,
    /// With [`FUNCTIONS`], until the OOM killer has killed.
    begin: String,
    /// The victim's name in the kernel's log; empty: any.
    victim: &'static str,
    /// Whether the container is stopped then.
    stops: bool,
    verdict: &'static str,
    role: &'static str,
    says: &'static str,
}

fn all() -> Vec<Role> {
    vec![
        Role {
            name: "first-process",
            begin: "run 33554432 tail /dev/zero".to_owned(),
            victim: "tail",
            stops: false,
            verdict: "oom-killed",
            role: "main",
            says: "The OOM killer killed PID 1 `tail`",
        },
        Role {
            name: "worker",
            begin: format!("run 33554432 {PREFORK} && {CLIENT}"),
            victim: "perl",
            stops: true,
            verdict: "oom-child",
            role: "worker",
            says: "`perl`",
        },
        Role {
            name: "helper",
            begin: "run 33554432 sh -c 'trap \"exit 0\" TERM; tail /dev/zero; while :; do sleep 1 & wait $!; done'".to_owned(),
            victim: "tail",
            stops: true,
            verdict: "oom-child",
            role: "helper",
            says: "`tail`",
        },
        Role {
            name: "runtimes-own-process",
            // Less than runc needs to come in.
            begin: format!(
                "run 33554432 {SERVER} && sleep 1 && echo 3145728 >/sys/fs/cgroup/docker/$id/memory.max && \
                 ! ctr task exec --exec-id more $id true"
            ),
            victim: "runc:[2:INIT]",
            stops: true,
            verdict: "clean",
            role: "runtime",
            says: "the container runtime's own process",
        },
        Role {
            name: "init-of-runc",
            begin: format!("! run 2097152 {SERVER}"),
            victim: "runc:[2:INIT]",
            stops: false,
            verdict: "oom-killed",
            role: "main",
            says: "which had not yet started the program",
        },
        Role {
            name: "init-of-crun",
            begin: format!("flags='--runc-binary /usr/bin/crun'; ! run 131072 {SERVER}"),
            victim: "",
            stops: false,
            verdict: "oom-killed",
            role: "main",
            says: "which had not yet started the program",
        },
    ]
}

pub fn names() -> Vec<&'static str> {
    all().into_iter().map(|role| role.name).collect()
}

/// What is wrong.
pub fn play(machine: &Machine, is_asked_for: impl Fn(&str) -> bool) -> anyhow::Result<Vec<String>> {
    let asked: Vec<(usize, Role)> = all()
        .into_iter()
        .enumerate()
        .filter(|(_, role)| is_asked_for(role.name))
        .collect();
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    machine.run(PREPARE)?;
    let mut wrong = Vec::new();
    for (number, role) in asked {
        // As long as an id of Docker's.
        let id = format!("{:064x}", 0xace0 + number);
        let run = |script: &str| machine.run(&format!("id={id}\n{FUNCTIONS}{script}"));
        if let Err(error) = play_one(machine, &role, &id, &run) {
            println!("{}: {error:#}; {}", role.name, machine.log());
            wrong.push(format!("{}: {error:#}", role.name));
        }
        run("remove; true")?;
    }
    Ok(wrong)
}

fn play_one(machine: &Machine, role: &Role, id: &str, run: &dyn Fn(&str) -> anyhow::Result<String>) -> anyhow::Result<()> {
    let end = if role.stops { "stop" } else { "true" };
    let said = run(&format!(
        "{{ {}; }} >&2 && until_killed && sleep 1 && {end} >&2 && kills | tail -n +$((known + 1))",
        role.begin
    ))?;
    let victims: Vec<&str> = said.lines().collect();
    println!("{}: the kernel killed {victims:?}", role.name);
    let is_it = victims.iter().any(|victim| role.victim.is_empty() || *victim == role.victim);
    ensure!(is_it, "the kernel's log has {victims:?}, and not {}", role.victim);
    let report = until_within(LIMIT, "the container's report", || {
        let all = machine.all_reports()?;
        let its = all
            .into_iter()
            .find(|report| report.pointer("/subject/id").and_then(Value::as_str) == Some(id));
        Ok(its.ok_or_else(|| "none".to_owned()))
    })?;
    let sentence = report["sentence"].as_str().context("a sentence")?;
    println!("{}: {} {sentence}", role.name, report["verdict"]);
    ensure!(report["verdict"] == role.verdict, "verdict {}: {sentence}", report["verdict"]);
    ensure!(sentence.contains(role.says), "no `{}` in: {sentence}", role.says);
    let roles: Vec<&str> = report["oom"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|oom| oom["role"].as_str())
        .collect();
    ensure!(roles.contains(&role.role), "the roles are {roles:?}: {report}");
    Ok(())
}
