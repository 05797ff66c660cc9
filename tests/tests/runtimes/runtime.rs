//! The runtimes, their commands, and what their `inspect` shows of a container.

use anyhow::Context as _;
use nix::sys::signal::Signal;
use serde_json::Value;

/// Until the container's program is ready, or has exited.
pub const UNTIL_READY: &str = "for i in $(seq 100); do logs 2>&1 | grep -q ready && break; runs || break; sleep 0.1; done";

const OF_DOCKER: &str = r#"logs() { r logs $c; }
inspect() { r inspect --type container $c; }
runs() { [ "$(r inspect --format '{{.State.Running}}' $c)" = true ]; }"#;
/// A pod is what the kubelet asks for: in the kubelet's cgroups, with the kubelet's label.
const OF_CRI: &str = r#"r() { crictl --runtime-endpoint unix:///run/crio/crio.sock --timeout 60s "$@"; }
id() { r ps --all --quiet --name "^$c\$"; }
logs() { r logs $(id); }
inspect() { i=$(id); [ -z "$i" ] || r inspect $i; }
runs() { [ -n "$(r ps --quiet --name "^$c\$")" ]; }
start() {
    uid=$(cat /proc/sys/kernel/random/uuid); d=/root/cri/$c; mkdir -p $d
    slice=kubepods-besteffort-pod$(echo $uid | tr - _).slice
    namespaces="\"security_context\": {\"namespace_options\": {\"network\": 2, \"pid\": ${pid:-1}}}"
    cat >$d/pod <<END
{"metadata": {"name": "of-$c", "namespace": "default", "uid": "$uid"}, "log_directory": "$d", "linux": {"cgroup_parent": "$slice", $namespaces}}
END
    cat >$d/container <<END
{"metadata": {"name": "$c"}, "labels": {"io.kubernetes.container.name": "$c"}, "image": {"image": "localhost/${image:-shop:1.4}"},
 "command": [$1], "log_path": "0.log", "linux": {"resources": {"memory_limit_in_bytes": ${memory:-0}}, $namespaces}}
END
    r runp $d/pod >$d/id && i=$(r create $(cat $d/id) $d/container $d/pod) && r start $i
}
remove() { r stopp $(cat /root/cri/$c/id) && r rmp $(cat /root/cri/$c/id); }"#;

/// The image, without a registry.
const IMPORT: &str = "r import --change 'CMD [\"handles\"]' --change 'ENV PATH=/bin' /tmp/image.tar shop:1.4";
/// CRI-O has the images of root's Podman.
const CRIO: &str = r#"podman import --change 'CMD ["handles"]' --change 'ENV PATH=/bin' --change 'STOPSIGNAL SIGQUIT' /tmp/image.tar shop:quit
mkdir -p /etc/crio && cat >/etc/crio/crio.conf <<'END'
[crio.runtime]
cgroup_manager = "systemd"
default_runtime = "crun"
pinns_path = "/usr/local/bin/pinns"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/bin/crun"
runtime_root = "/run/crun"
monitor_path = "/usr/bin/conmon"
[crio.image]
pause_image = "localhost/shop:1.4"
pause_command = "/bin/handles"
[crio.network]
plugin_dirs = ["/usr/lib/cni"]
END
systemd-run --quiet --unit=crio crio
for i in $(seq 120); do r version >/dev/null 2>&1 && exit; sleep 0.5; done
journalctl --no-pager --unit crio --output cat | tail -n 20 >&2; exit 1"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    Docker,
    Podman,
    /// Podman of a user, whose files the agent does not read.
    Rootless,
    CriO,
}

/// A container as its runtime has it.
pub struct Known {
    pub id: String,
    pub name: String,
    pub image: String,
    pub stop_signal: String,
    /// 0 while it runs.
    pub code: i64,
    pub oom: bool,
}

impl Runtime {
    pub const ALL: [Runtime; 4] = [Runtime::Docker, Runtime::Podman, Runtime::Rootless, Runtime::CriO];

    /// Functions of the shell: `r` is the runtime's command; `logs`, `runs` and `inspect` are about the container `$c`.
    pub fn functions(self) -> String {
        let command = match self {
            Runtime::Docker => "r() { docker \"$@\"; }",
            Runtime::Podman => "r() { podman \"$@\"; }",
            Runtime::Rootless => {
                "r() { d=/run/user/$(id -u dev); runuser -u dev -- env --chdir=/home/dev HOME=/home/dev XDG_RUNTIME_DIR=$d \
                 DBUS_SESSION_BUS_ADDRESS=unix:path=$d/bus podman \"$@\"; }"
            }
            Runtime::CriO => return OF_CRI.to_owned(),
        };
        format!("{command}\n{OF_DOCKER}")
    }

    pub fn prepare(self) -> &'static str {
        match self {
            Runtime::Docker | Runtime::Podman | Runtime::Rootless => IMPORT,
            Runtime::CriO => CRIO,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Runtime::Docker => "docker",
            Runtime::Podman | Runtime::Rootless => "podman",
            Runtime::CriO => "cri-o",
        }
    }

    /// What `inspect` printed; None if the runtime has no such container.
    pub fn known(self, printed: &str) -> anyhow::Result<Option<Known>> {
        if printed.trim().is_empty() {
            return Ok(None);
        }
        let all: Value = serde_json::from_str(printed).with_context(|| format!("{} inspect: {printed}", self.name()))?;
        let (container, names) = match self {
            Runtime::Docker | Runtime::Podman | Runtime::Rootless => {
                let Some(first) = all.get(0) else { return Ok(None) };
                (first, ["/Id", "/Name", "/Config/Image", "/State/ExitCode"])
            }
            Runtime::CriO => (
                &all,
                [
                    "/status/id",
                    "/status/metadata/name",
                    "/status/image/image",
                    "/status/exitCode",
                ],
            ),
        };
        let text = |pointer: &str| container.pointer(pointer).and_then(Value::as_str);
        let [id, name, image, code] = names;
        let stop_signal = match self {
            Runtime::CriO => text("/info/runtimeSpec/annotations/org.opencontainers.image.stopSignal"),
            _ => text("/Config/StopSignal"),
        };
        Ok(Some(Known {
            id: text(id).context("a container without id")?.to_owned(),
            name: text(name).context("no name")?.trim_start_matches('/').to_owned(),
            image: text(image).context("no image")?.to_owned(),
            stop_signal: signal(stop_signal),
            code: container.pointer(code).and_then(Value::as_i64).unwrap_or(0),
            oom: container["State"]["OOMKilled"] == true || container["status"]["reason"] == "OOMKilled",
        }))
    }
}

/// Docker and CRI-O do not store the default. Podman, which made the image, stores a number in it.
fn signal(declared: Option<&str>) -> String {
    let declared = declared.unwrap_or("SIGTERM");
    let number = declared.parse::<i32>().ok().and_then(|number| Signal::try_from(number).ok());
    number.map_or_else(|| declared.to_owned(), |signal| signal.to_string())
}
