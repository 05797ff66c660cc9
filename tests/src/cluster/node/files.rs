//! The files that make a machine a node: its addresses, and the units and configuration of its programs.

use serde_json::{Value, json};

use super::NodeConfig;
use super::channel::Keys;
use crate::cluster::control_plane::SERVICE_CIDRS;
use crate::cluster::images::PAUSE;
use crate::cluster::{HOST_FOR_GUESTS, MOST_NODES};

/// Each node is alone in a network of its own, so all have the same address in it.
pub const OWN_NETWORK: &str = "10.0.2.0";
pub const OWN_ADDRESS: &str = "10.0.2.15";
/// What the console prints once the shell can be reached.
pub const UP: &str = "epitaph: up";
/// The cluster's range of service addresses, and the one of its DNS: there is none, but every pod's resolv.conf names it.
const CLUSTER_DNS: &str = "10.96.0.10";

pub const KUBELET_CONFIG: &str = "/etc/kubernetes/kubelet.json";
const KUBELET_TLS: [&str; 2] = ["/etc/kubernetes/kubelet.crt", "/etc/kubernetes/kubelet.key"];

pub struct File {
    /// Absolute, in the guest.
    pub path: String,
    pub mode: u32,
    pub content: Content,
}

pub enum Content {
    Text(String),
    /// A symbolic link to this.
    Link(String),
}

impl File {
    pub fn text(path: &str, mode: u32, text: impl Into<String>) -> File {
        File {
            path: path.to_owned(),
            mode,
            content: Content::Text(text.into()),
        }
    }

    pub fn link(path: &str, target: &str) -> File {
        File {
            path: path.to_owned(),
            mode: 0o777,
            content: Content::Link(target.to_owned()),
        }
    }
}

/// # Errors
/// Never in practice: only if JSON cannot be written.
pub fn of(config: &NodeConfig, keys: &Keys) -> anyhow::Result<Vec<File>> {
    let mut files = machine(config, keys)?;
    files.extend(containers(config)?);
    files.extend(kubernetes(config)?);
    for unit in ["epitaph-network", "epitaph-up", "containerd", "kubelet", "kube-proxy"] {
        let wants = format!("/etc/systemd/system/multi-user.target.wants/{unit}.service");
        files.push(File::link(&wants, &format!("/etc/systemd/system/{unit}.service")));
    }
    Ok(files)
}

fn machine(config: &NodeConfig, keys: &Keys) -> anyhow::Result<Vec<File>> {
    let name = &config.name;
    let mut files = vec![
        File::text("/etc/hostname", 0o644, format!("{name}\n")),
        File::text(
            "/etc/hosts",
            0o644,
            format!("127.0.0.1 localhost\n::1 localhost\n{} {name}\n", config.addresses()[0]),
        ),
        // Without a machine id, systemd takes every boot for the first.
        File::text("/etc/machine-id", 0o444, format!("{}\n", crate::sys::random_hex(16)?)),
        File::text("/etc/resolv.conf", 0o644, "nameserver 127.0.0.1\n"),
        File::text(
            "/etc/modules-load.d/epitaph.conf",
            0o644,
            "overlay\nbridge\nbr_netfilter\nveth\nnf_conntrack\nnf_tables\n",
        ),
        File::text("/etc/sysctl.d/90-epitaph.conf", 0o644, SYSCTL),
        File::text("/usr/local/sbin/epitaph-network", 0o755, network(config)),
        File::text("/etc/systemd/system/epitaph-network.service", 0o644, NETWORK_UNIT),
        File::text(
            "/etc/systemd/system/epitaph-up.service",
            0o644,
            format!(
                "[Unit]\nAfter=epitaph-network.service ssh.service\n\n[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo {UP} >/dev/ttyS0'\n"
            ),
        ),
        File::text("/etc/ssh/ssh_host_ed25519_key", 0o600, keys.host_private.as_str()),
        File::text("/etc/ssh/ssh_host_ed25519_key.pub", 0o644, keys.host_public.as_str()),
        File::text("/root/.ssh/authorized_keys", 0o600, keys.client_public.as_str()),
        // No session, no user manager: a story's commands do not involve logind, whose inhibitors a story tests.
        File::text(
            "/etc/ssh/sshd_config.d/epitaph.conf",
            0o644,
            "HostKey /etc/ssh/ssh_host_ed25519_key\nUsePAM no\nPasswordAuthentication no\nMaxSessions 100\nMaxStartups 100\n",
        ),
    ];
    // Background jobs of a Debian server, and units that would wait for a terminal.
    for unit in [
        "apt-daily.timer",
        "apt-daily-upgrade.timer",
        "dpkg-db-backup.timer",
        "e2scrub_all.timer",
        "e2scrub_reap.service",
        "fstrim.timer",
        "getty@tty1.service",
        "serial-getty@ttyS0.service",
        "systemd-udev-settle.service",
        "systemd-pstore.service",
        // Profiles of a Debian's own programs. Containers have the one that containerd loads.
        "apparmor.service",
        // Of no use here, and a second each under emulation.
        "modprobe@.service",
        "sys-fs-fuse-connections.mount",
        "sys-kernel-config.mount",
    ] {
        files.push(File::link(&format!("/etc/systemd/system/{unit}"), "/dev/null"));
    }
    Ok(files)
}

/// New network namespaces take these over from the host's, so that a pod's IPv6 address need not wait to be found unique.
const SYSCTL: &str = "\
net.core.devconf_inherit_init_net=1
net.ipv6.conf.all.accept_dad=0
net.ipv6.conf.default.accept_dad=0
net.ipv4.ip_forward=1
net.ipv6.conf.all.forwarding=1
net.bridge.bridge-nf-call-iptables=1
net.bridge.bridge-nf-call-ip6tables=1
fs.inotify.max_user_instances=8192
fs.inotify.max_user_watches=524288
vm.overcommit_memory=1
kernel.panic=0
kernel.panic_on_oops=1
";

const NETWORK_UNIT: &str = "\
[Unit]
DefaultDependencies=no
After=local-fs.target systemd-sysctl.service systemd-modules-load.service
Before=network.target
Wants=network.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/epitaph-network
";

fn network(config: &NodeConfig) -> String {
    let [v4, v6] = config.addresses();
    let mut batch = format!(
        "link set lo up
address replace {OWN_ADDRESS}/24 dev eth0
link set eth0 up
route replace default via {HOST_FOR_GUESTS}
address replace {v4}/24 dev eth1
address replace {v6}/64 dev eth1 nodad
link set eth1 up
route replace ::/0 dev eth1
"
    );
    // Every node has a route to every possible other node.
    for other in (1..=MOST_NODES).filter(|other| *other != config.index) {
        let host = 10 + other;
        batch.push_str(&format!(
            "route replace 10.244.{other}.0/24 via 10.77.0.{host}\n\
             route replace fd00:10:244:{other}::/64 via fd00:10:77::{host}\n"
        ));
    }
    let [services, _] = SERVICE_CIDRS;
    // One process each, because thirty take seconds. Only eth0 leads out of the cluster, where the pods' addresses are unknown, and
    // an address of a Service for which kube-proxy has no rule is somebody else's.
    format!(
        "#!/bin/sh -e
ip -batch - <<'END'
{batch}END
nft -f - <<'END'
table ip epitaph
delete table ip epitaph
table ip epitaph {{
  chain out {{
    type nat hook postrouting priority srcnat;
    oifname eth0 ip saddr 10.244.0.0/16 masquerade
  }}
  chain services {{
    type filter hook postrouting priority filter;
    oifname eth0 ip daddr {services} drop
  }}
}}
END
"
    )
}

fn containers(config: &NodeConfig) -> anyhow::Result<Vec<File>> {
    let [v4, v6] = config.pod_cidrs();
    let network = json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": true,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "ranges": [[{ "subnet": v4 }], [{ "subnet": v6 }]],
                "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }],
            },
        }],
    });
    Ok(vec![
        File::text(
            "/etc/cni/net.d/10-pods.conflist",
            0o644,
            serde_json::to_string_pretty(&network)?,
        ),
        File::text(
            "/etc/containerd/config.toml",
            0o644,
            format!(
                "version = 3
disabled_plugins = [
  'io.containerd.snapshotter.v1.blockfile',
  'io.containerd.snapshotter.v1.btrfs',
  'io.containerd.snapshotter.v1.devmapper',
  'io.containerd.snapshotter.v1.erofs',
  'io.containerd.snapshotter.v1.zfs',
]
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{PAUSE}'
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['/usr/lib/cni']
conf_dir = '/etc/cni/net.d'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = true
"
            ),
        ),
        File::text("/etc/systemd/system/containerd.service", 0o644, CONTAINERD_UNIT),
    ])
}

/// As containerd's own unit.
const CONTAINERD_UNIT: &str = "\
[Unit]
After=network.target dbus.service

[Service]
ExecStart=/usr/local/bin/containerd
Environment=PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=1
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
OOMScoreAdjust=-999
";

fn kubernetes(config: &NodeConfig) -> anyhow::Result<Vec<File>> {
    let mut kubelet = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": "/etc/kubernetes/ca.pem" },
        },
        "authorization": { "mode": "Webhook" },
        "cgroupDriver": "systemd",
        "clusterDNS": [CLUSTER_DNS],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "failSwapOn": false,
        "featureGates": config.feature_gates,
        // Images are never pulled again: none may be collected.
        "imageGCHighThresholdPercent": 100,
        "maxPods": 120,
        "nodeStatusUpdateFrequency": "4s",
        "resolvConf": "/etc/resolv.conf",
        "rotateCertificates": false,
        "serializeImagePulls": false,
    });
    let mut files = Vec::new();
    if let Some(pair) = &config.kubelet_certificate {
        let tls = json!({"tlsCertFile": KUBELET_TLS[0], "tlsPrivateKeyFile": KUBELET_TLS[1]});
        merge(&mut kubelet, &tls);
        files.push(File::text(KUBELET_TLS[0], 0o644, pair.certificate.as_str()));
        files.push(File::text(KUBELET_TLS[1], 0o600, pair.key.as_str()));
    }
    merge(&mut kubelet, &config.kubelet);
    let proxy = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": { "kubeconfig": "/etc/kubernetes/kube-proxy.kubeconfig" },
        "detectLocal": { "bridgeInterface": "cni0" },
        "detectLocalMode": "BridgeInterface",
        "healthzBindAddress": "127.0.0.1:10256",
        "hostnameOverride": config.name,
        "metricsBindAddress": "127.0.0.1:10249",
        "mode": "nftables",
    });
    let kubelet_unit = format!(
        "[Unit]
After=containerd.service epitaph-network.service
Wants=containerd.service

[Service]
ExecStart=/usr/local/bin/kubelet --config={KUBELET_CONFIG} --kubeconfig=/etc/kubernetes/kubelet.kubeconfig \
--hostname-override={} --node-ip={}
Environment=PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
Restart=always
RestartSec=1
KillMode=process
OOMScoreAdjust=-999
",
        config.name,
        config.addresses().join(",")
    );
    files.extend([
        File::text("/etc/kubernetes/ca.pem", 0o644, config.ca_pem.as_str()),
        File::text(
            "/etc/kubernetes/kubelet.kubeconfig",
            0o600,
            config.kubelet_kubeconfig.as_str(),
        ),
        File::text(
            "/etc/kubernetes/kube-proxy.kubeconfig",
            0o600,
            config.kube_proxy_kubeconfig.as_str(),
        ),
        File::text(KUBELET_CONFIG, 0o644, serde_json::to_string_pretty(&kubelet)?),
        File::text(
            "/etc/kubernetes/kube-proxy.json",
            0o644,
            serde_json::to_string_pretty(&proxy)?,
        ),
        File::text("/etc/systemd/system/kubelet.service", 0o644, kubelet_unit),
        File::text("/etc/systemd/system/kube-proxy.service", 0o644, PROXY_UNIT),
    ]);
    Ok(files)
}

const PROXY_UNIT: &str = "\
[Unit]
After=epitaph-network.service

[Service]
ExecStart=/usr/local/bin/kube-proxy --config=/etc/kubernetes/kube-proxy.json
Environment=PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
Restart=always
RestartSec=1
OOMScoreAdjust=-999
";

/// Objects are merged, all else replaced, and null takes away.
pub fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.remove(key);
                } else {
                    merge(into.entry(key.as_str()).or_insert(Value::Null), value);
                }
            }
        }
        (_, Value::Null) => {}
        (into, from) => *into = from.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_merged_over_the_kubelets() {
        let mut base = json!({ "a": { "b": 1, "c": 2 }, "d": 3, "e": [1] });
        merge(&mut base, &json!({ "a": { "c": 4 }, "d": null, "e": [2], "f": { "g": 5 } }));
        assert_eq!(base, json!({ "a": { "b": 1, "c": 4 }, "e": [2], "f": { "g": 5 } }));
        let kept = base.clone();
        merge(&mut base, &Value::Null);
        assert_eq!(base, kept);
    }
}
