//! The rights of this thread, and what can deny bpf(2) to it.

use std::fs;

use caps::{CapSet, Capability};

/// What the kernel checks when a probe is loaded. Nothing here is an error: a value that cannot be read is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Effective capabilities, by their number's bit.
    pub effective: Option<u64>,
    pub seccomp: bool,
    /// Capabilities of a user namespace do not count for bpf(2).
    pub user_namespace: bool,
    /// `integrity` or `confidentiality` if the kernel is locked down.
    pub lockdown: Option<String>,
    /// Security modules that can refuse bpf(2): `selinux`, `apparmor` and the like.
    pub modules: Vec<String>,
    /// `kernel.unprivileged_bpf_disabled`.
    pub unprivileged_bpf_disabled: Option<u8>,
}

/// These judge bpf(2); the others in `/sys/kernel/security/lsm` do not.
const JUDGES_BPF: [&str; 5] = ["selinux", "apparmor", "smack", "tomoyo", "bpf"];

impl Rights {
    pub fn read() -> Rights {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let status = text("/proc/thread-self/status");
        Rights {
            effective: Rights::effective(),
            seccomp: field(&status, "Seccomp:").is_some_and(|mode| mode != "0"),
            user_namespace: is_user_namespace(&text("/proc/self/uid_map")),
            lockdown: lockdown(&text("/sys/kernel/security/lockdown")),
            modules: text("/sys/kernel/security/lsm")
                .trim()
                .split(',')
                .filter(|module| JUDGES_BPF.contains(module))
                .map(str::to_owned)
                .collect(),
            unprivileged_bpf_disabled: text("/proc/sys/kernel/unprivileged_bpf_disabled").trim().parse().ok(),
        }
    }

    /// Effective capabilities of the calling thread.
    pub fn effective() -> Option<u64> {
        let held = caps::read(None, CapSet::Effective).ok()?;
        Some(held.iter().fold(0, |bits, capability| bits | capability.bitmask()))
    }

    /// The missing capabilities that loading needs, as text.
    pub fn missing(&self) -> Option<&'static str> {
        self.effective.and_then(missing_capability)
    }

    /// What can refuse bpf(2) although the capabilities are granted, as far as this process can see.
    pub fn between(&self) -> String {
        let mut suspects = Vec::new();
        if self.user_namespace {
            suspects.push("a user namespace (its capabilities do not count for bpf(2))".to_owned());
        }
        if self.seccomp {
            suspects.push("a seccomp profile".to_owned());
        }
        if let Some(mode) = &self.lockdown {
            suspects.push(format!("kernel lockdown ({mode})"));
        }
        if !self.modules.is_empty() {
            suspects.push(self.security_module());
        }
        if suspects.is_empty() {
            return "nothing that can be seen from here: a security module or kernel lockdown".to_owned();
        }
        suspects.join(" or ")
    }

    /// Without a name where the list of the modules cannot be read, as in most containers.
    pub fn security_module(&self) -> String {
        let names = match self.modules.is_empty() {
            true => "such as SELinux".to_owned(),
            false => self.modules.join(", "),
        };
        format!("a security module ({names})")
    }
}

/// CAP_SYS_ADMIN includes both capabilities.
pub(super) fn missing_capability(effective: u64) -> Option<&'static str> {
    let has = |capability: Capability| effective & (capability.bitmask() | Capability::CAP_SYS_ADMIN.bitmask()) != 0;
    match (has(Capability::CAP_BPF), has(Capability::CAP_PERFMON)) {
        (true, true) => None,
        (false, true) => Some("CAP_BPF"),
        (true, false) => Some("CAP_PERFMON"),
        (false, false) => Some("CAP_BPF and CAP_PERFMON"),
    }
}

fn field<'t>(status: &'t str, name: &str) -> Option<&'t str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// The first user namespace maps every id to itself.
fn is_user_namespace(uid_map: &str) -> bool {
    let fields: Vec<&str> = uid_map.split_ascii_whitespace().collect();
    !fields.is_empty() && fields != ["0", "0", "4294967295"]
}

/// `none [integrity] confidentiality`.
fn lockdown(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (mode, _) = rest.split_once(']')?;
    (mode != "none").then(|| mode.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_capability_is_named() {
        let (bpf, perfmon) = (Capability::CAP_BPF.bitmask(), Capability::CAP_PERFMON.bitmask());
        assert_eq!(missing_capability(bpf), Some("CAP_PERFMON"));
        assert_eq!(missing_capability(perfmon), Some("CAP_BPF"));
        assert_eq!(missing_capability(0), Some("CAP_BPF and CAP_PERFMON"));
        assert_eq!(missing_capability(bpf | perfmon), None);
        assert_eq!(missing_capability(Capability::CAP_SYS_ADMIN.bitmask()), None);
    }

    #[test]
    fn suspects_of_a_refused_bpf_are_named() {
        assert!(is_user_namespace("         0       1000          1\n"));
        assert!(!is_user_namespace("         0          0 4294967295\n") && !is_user_namespace(""));
        assert_eq!(
            lockdown("none integrity [confidentiality]\n").as_deref(),
            Some("confidentiality")
        );
        assert_eq!(lockdown("[none] integrity confidentiality\n"), None);
        let rights = Rights {
            seccomp: true,
            modules: vec!["selinux".to_owned()],
            ..Rights::default()
        };
        assert_eq!(rights.between(), "a seccomp profile or a security module (selinux)");
        assert!(Rights::default().between().contains("nothing that can be seen"));
    }
}
