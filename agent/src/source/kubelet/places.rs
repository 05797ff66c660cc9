//! Where distributions keep the kubelet's configuration, for a machine on which no kubelet runs (an image) or whose kubelet has no
//! command line of its own (k3s).

use super::flags::Flags;

/// One distribution's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub name: &'static str,
    pub config: Option<&'static str>,
    pub config_directory: Option<&'static str>,
    /// How its users change the configuration.
    pub advice: &'static str,
}

/// The first whose file or directory exists counts: those with a path of their own come before kubeadm's.
pub const PLACES: [Place; 11] = [
    Place {
        name: "EKS (nodeadm)",
        config: Some("/etc/kubernetes/kubelet/config.json"),
        config_directory: Some("/etc/kubernetes/kubelet/config.json.d"),
        advice: "set spec.kubelet.config in the NodeConfig of the node's user data",
    },
    Place {
        name: "EKS (Amazon Linux 2)",
        config: Some("/etc/kubernetes/kubelet/kubelet-config.json"),
        config_directory: None,
        advice: "change /etc/kubernetes/kubelet/kubelet-config.json in the node's user data before bootstrap.sh runs",
    },
    Place {
        name: "Bottlerocket",
        config: Some("/etc/kubernetes/kubelet/config"),
        config_directory: None,
        advice: "set settings.kubernetes.shutdown-grace-period and shutdown-grace-period-for-critical-pods",
    },
    Place {
        name: "GKE",
        config: Some("/home/kubernetes/kubelet-config.yaml"),
        config_directory: None,
        advice: "use the node pool's kubelet configuration: GKE writes this file",
    },
    Place {
        name: "AKS",
        config: Some("/etc/default/kubeletconfig.json"),
        config_directory: None,
        advice: "use the node pool's kubelet configuration: AKS writes this file",
    },
    Place {
        name: "RKE2",
        config: None,
        config_directory: Some("/var/lib/rancher/rke2/agent/etc/kubelet.conf.d"),
        advice: "write a drop-in into /var/lib/rancher/rke2/agent/etc/kubelet.conf.d",
    },
    Place {
        name: "k3s",
        config: None,
        config_directory: Some("/var/lib/rancher/k3s/agent/etc/kubelet.conf.d"),
        advice: "write a drop-in into /var/lib/rancher/k3s/agent/etc/kubelet.conf.d",
    },
    Place {
        name: "k0s",
        config: Some("/var/lib/k0s/kubelet-config.yaml"),
        config_directory: None,
        advice: "set the periods in a worker profile (spec.workerProfiles of the k0s configuration)",
    },
    Place {
        name: "OpenShift",
        config: Some("/etc/kubernetes/kubelet.conf"),
        config_directory: None,
        advice: "use a KubeletConfig object: the Machine Config Operator writes this file",
    },
    Place {
        name: "Talos",
        config: Some("/etc/kubernetes/kubelet.yaml"),
        config_directory: None,
        advice: "set machine.kubelet.extraConfig; the bus of Talos has room for its kubelet alone, so that nobody else sees the lock",
    },
    Place {
        name: "kubeadm",
        config: Some("/var/lib/kubelet/config.yaml"),
        config_directory: None,
        advice: "change the file and restart the kubelet; for every node, the ConfigMap kubelet-config in kube-system",
    },
];

impl Place {
    /// The flags that the distribution starts its kubelet with.
    pub fn flags(&self) -> Flags {
        Flags {
            config: self.config.map(Into::into),
            config_directory: self.config_directory.map(Into::into),
            ..Flags::default()
        }
    }
}
