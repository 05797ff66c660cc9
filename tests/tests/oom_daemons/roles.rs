//! What the victim of the kernel's OOM killer was for its container: containerd's shim with runc, and with crun.

use anyhow::{Context as _, ensure};
use epitaph_tests::timeout::until_within;
use serde_json::Value;

use super::machine::{LIMIT, Machine};

/// The node's own containerd, which the machine of the package keeps off. The containers' root is the machine's own, with its programs.
const PREPARE: &str = "rm -f /etc/systemd/system/containerd.service.d/off.conf; systemctl daemon-reload; systemctl start containerd && \
    mkdir -p /root/rootfs && mount --bind / /root/rootfs";
/// `run BYTES PROGRAM…` in a cgroup as Docker names it; `crun_run` by crun alone, as containerd 2 writes a version of the specification that
/// Debian 12's crun refuses. `kills` are the victims' names in the kernel's log. `saw` is for a failure. `exec_without_memory` executes a
/// program in the container with ever less memory to spare: how much of what it takes is charged to the container, the runtime's version and
/// the machine's pace decide.
const FUNCTIONS: &str = "cgroup=/sys/fs/cgroup/docker/$id
run() { bytes=$1; shift; ctr run --detach --rootfs --net-host --env PATH=/usr/sbin:/usr/bin:/sbin:/bin --memory-limit $bytes --cgroup /docker/$id /root/rootfs $id \"$@\"; }
crun_run() {
    mkdir -p /root/bundle && cat >/root/bundle/config.json <<END
{\"ociVersion\": \"1.0.2\", \"root\": {\"path\": \"/root/rootfs\"},
 \"process\": {\"user\": {\"uid\": 0, \"gid\": 0}, \"cwd\": \"/\", \"args\": [\"sleep\", \"1000\"], \"env\": [\"PATH=/usr/bin:/bin\"]},
 \"mounts\": [{\"destination\": \"/proc\", \"type\": \"proc\", \"source\": \"proc\"}],
 \"linux\": {\"cgroupsPath\": \"/docker/$id\", \"namespaces\": [{\"type\": \"pid\"}, {\"type\": \"mount\"}, {\"type\": \"ipc\"}],
  \"resources\": {\"memory\": {\"limit\": $1}}}}
END
    crun --cgroup-manager=cgroupfs run --detach --bundle /root/bundle $id
}
stop() { ctr task kill --signal SIGTERM $id; }
remove() { ctr task kill --signal SIGKILL $id; ctr task rm --force $id; ctr container rm $id; crun delete --force $id; } >/dev/null 2>&1
kills() { journalctl --no-pager --boot --dmesg --output cat | grep -o 'Killed process [0-9]* ([^)]*)' | sed 's/.*(//; s/)$//'; }
until_killed() { for i in $(seq 240); do [ $(kills | wc -l) -gt $known ] && return; sleep 0.5; done; echo 'no OOM kill in two minutes' >&2; return 1; }
memory() { for file in current max events; do echo memory.$file: $(cat $cgroup/memory.$file); done; }
saw() { ctr task ls; memory; cat $cgroup/cgroup.procs | while read pid; do ps -o pid,stat,rss,comm -p $pid; done; \
    journalctl --no-pager --boot --dmesg --output cat | grep -i -A 2 'out of memory' | tail -n 12; true; } 2>&1
exec_without_memory() {
    echo 64M >$cgroup/memory.reclaim || true
    for spare in 1048576 524288 262144 131072 65536 0; do
        echo $(($(cat $cgroup/memory.current) + spare)) >$cgroup/memory.max
        timeout 60 ctr task exec --exec-id spare-$spare $id true; echo \"true with $spare bytes to spare: status $?\"; memory
        if grep -q '^oom_kill [1-9]' $cgroup/memory.events; then echo max >$cgroup/memory.max; return; fi
    done
    return 1
}
known=$(kills | wc -l)
";
/// Handles its stop signal, and has no child and needs no memory while it waits.
const SERVER: &str = "sh -c 'trap \"exit 0\" TERM; [ -p /tmp/never ] || mkfifo /tmp/never; read line <>/tmp/never'";
/// The child takes a client's connection, and then more memory than there is. The size is a variable: perl repeats by a constant while it
/// compiles.
const PREFORK: &str = "perl -e 'use IO::Socket::INET; \
    $listener = IO::Socket::INET->new(Listen => 5, LocalAddr => \"127.0.0.1:8099\", ReuseAddr => 1) or die \"listen: $@\"; \
    $SIG{TERM} = sub { exit 0 }; $size = 256 << 20; \
    if (fork() == 0) { $client = $listener->accept; <$client>; $memory = \"x\" x $size; sleep 60 } close $listener; sleep 1 while 1'";
const CLIENT: &str = "perl -e 'use IO::Socket::INET; for (1 .. 600) { \
    last if $server = IO::Socket::INET->new(\"127.0.0.1:8099\"); select undef, undef, undef, 0.1 } \
    $server or die \"no listener in a minute: $@\"; print $server \"request\\n\"; <$server>; exit 0'";

struct Role {
    name: &'static str,
    /// With [`FUNCTIONS`], until the OOM killer has killed.
    begin: String,
    /// The victim's name in the kernel's log.
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
            begin: format!("run 33554432 {SERVER} && sleep 1 && exec_without_memory"),
            victim: "runc:[2:INIT]",
            stops: true,
            // ctr leaves the cgroup until the container is removed, which is after the report.
            verdict: "clean-exit",
            role: "runtime",
            says: "the container runtime's own process",
        },
        Role {
            name: "init-of-runc",
            // With 2 MiB the shell runs: runc is in its cgroup before it has a limit, and needs little of its own by then.
            begin: format!("! run 131072 {SERVER}"),
            victim: "runc:[2:INIT]",
            stops: false,
            verdict: "oom-killed",
            role: "main",
            says: "which had not yet started the program",
        },
        Role {
            name: "init-of-crun",
            // With 128 KiB it is the program that is killed.
            begin: "! crun_run 16384".to_owned(),
            victim: "crun",
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
            let saw = run("saw").unwrap_or_else(|error| format!("{error:#}"));
            println!("{}: {error:#}\n{saw}\n{}", role.name, machine.log());
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
    ensure!(
        victims.contains(&role.victim),
        "the kernel's log has {victims:?}, and not {}",
        role.victim
    );
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
