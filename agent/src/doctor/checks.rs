//! The checks.

use epitaph_core::input::{CgroupMode, ESSENTIAL, ProbeState};
use epitaph_core::time::Wall;

use super::{Facts, Finding, Probes, ServedKinds, Trouble};
use crate::cli::SysExit;

/// 2024-01-01: a clock before this date is not set.
const EARLIEST: Wall = Wall(1_704_067_200_000_000_000);

pub fn kernel(facts: &Facts) -> Vec<Finding> {
    vec![match &facts.kernel {
        Ok(release) => Finding::ok("kernel", release),
        Err(problem) => Finding::problem(
            "kernel",
            &Trouble {
                code: SysExit::Unavailable,
                problem: problem.clone(),
                remedy: Some("name the host's /proc with --proc".into()),
            },
        ),
    }]
}

pub fn btf(facts: &Facts) -> Vec<Finding> {
    vec![match &facts.btf {
        Ok(path) => Finding::ok("btf", path.display().to_string()),
        Err(trouble) => Finding::problem("btf", trouble),
    }]
}

pub fn capabilities(facts: &Facts) -> Vec<Finding> {
    let rights = &facts.rights;
    let check = "capabilities";
    let mut found = vec![match (rights.missing(), &facts.probes) {
        // The same report as the agent's.
        (Some(_), Probes::Refused { trouble, .. }) => Finding::problem(check, trouble),
        (Some(missing), Probes::Tried { .. }) => Finding::note(check, format!("without {missing}"), None),
        (None, _) if rights.effective.is_none() => Finding::note(check, "cannot be read", None),
        (None, _) => Finding::ok(check, "CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN in their place"),
    }];
    if rights.user_namespace {
        found.push(Finding::note(
            "user namespace",
            "this process is in one: its capabilities do not count for bpf(2)",
            Some("run it in the host's user namespace (hostUsers: true)".into()),
        ));
    }
    if let Some(mode) = &rights.lockdown {
        let (message, remedy) = match mode.as_str() {
            "confidentiality" => (
                "the kernel is locked down (confidentiality): probes may not read its memory",
                Some("boot with lockdown=integrity".into()),
            ),
            _ => (
                "the kernel is locked down (integrity), which does not restrict the probes",
                None,
            ),
        };
        found.push(Finding::note("lockdown", message, remedy));
    }
    found
}

pub fn probes(facts: &Facts) -> Vec<Finding> {
    match &facts.probes {
        Probes::Tried { states, shrunk } => {
            let less = shrunk
                .iter()
                .map(|(less, remedy)| Finding::note("memlock", less, Some((*remedy).into())));
            less.chain(states.iter().map(|(name, state)| probe(name, state))).collect()
        }
        Probes::Refused { trouble, fitting } => {
            let mut found = Vec::new();
            // Reported once: missing type information or capabilities have their own finding.
            if facts.btf.is_ok() && facts.rights.missing().is_none() {
                found.push(Finding::problem("bpf", trouble));
            }
            found.extend(fitting.iter().map(|(name, fits)| match fits {
                Ok(()) => Finding::note(
                    format!("probe {name}"),
                    "not loaded; this kernel has everything that the probe reads",
                    None,
                ),
                Err(reason) => unsupported(name, reason),
            }));
            found
        }
    }
}

fn probe(name: &str, state: &ProbeState) -> Finding {
    match state {
        ProbeState::Active => Finding::ok(format!("probe {name}"), "active"),
        ProbeState::Substituted { by, clients } => {
            let (check, message) = (format!("probe {name}"), format!("substituted by {by}"));
            match clients.trouble() {
                None => Finding::ok(check, message),
                Some((problem, remedy)) => Finding::note(check, format!("{message}: {problem}"), Some(remedy.into())),
            }
        }
        ProbeState::Unsupported(reason) => unsupported(name, reason),
        ProbeState::Failed(reason) => Finding::problem(
            format!("probe {name}"),
            &Trouble {
                code: SysExit::Os,
                problem: format!("failed: {reason}"),
                remedy: Some("this kernel should support the probe: please report it, with this output".into()),
            },
        ),
    }
}

fn unsupported(name: &str, reason: &str) -> Finding {
    let check = format!("probe {name}");
    let message = format!("unsupported: {reason}");
    if ESSENTIAL.contains(&name) {
        let trouble = Trouble {
            code: SysExit::Unavailable,
            problem: message,
            remedy: Some("run kernel 5.10 or newer: nothing can be observed without this probe".into()),
        };
        return Finding::problem(check, &trouble);
    }
    let remedy = match ProbeState::Unsupported(reason.to_owned()).trouble(name) {
        Some((_, remedy)) => remedy,
        None if reason == ProbeState::NO_SOCKETS => ProbeState::USE_V2,
        None => "nothing to fix; what this probe observes is reported as unknown (docs/limits.md)",
    };
    Finding::note(check, message, Some(remedy.into()))
}

pub fn proc(facts: &Facts) -> Vec<Finding> {
    let proc = facts.proc.display();
    vec![if facts.shows_others {
        Finding::ok("proc", format!("{proc} shows the machine's processes"))
    } else {
        Finding::note(
            "proc",
            format!("{proc} shows no process but epitaph itself: the processes of containers that run already are not known"),
            Some("name the host's /proc with --proc; where /proc is mounted with hidepid, add this user to the group of gid=, or grant CAP_SYS_PTRACE".into()),
        )
    }]
}

pub fn cgroups(facts: &Facts) -> Vec<Finding> {
    vec![match &facts.cgroups {
        Ok(found) => {
            let at = found.mount.display();
            match found.mode {
                CgroupMode::V2 => Finding::ok("cgroups", format!("v2 at {at}")),
                CgroupMode::Hybrid => Finding::ok(
                    "cgroups",
                    format!("v2 at {at}, and cgroup v1: sockets of containers in v1 only are not observed"),
                ),
                CgroupMode::V1(_) => Finding::note(
                    "cgroups",
                    format!(
                        "v1 only, at {at}: the traffic of every termination is unknown, because the kernel knows the cgroup of a socket in v2 only"
                    ),
                    Some("boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)".into()),
                ),
            }
        }
        Err(trouble) => Finding::problem("cgroups", trouble),
    }]
}

pub fn clock(facts: &Facts) -> Vec<Finding> {
    let wall = facts.wall_offset.wall(facts.now);
    let shown = wall.rfc3339();
    vec![if wall < EARLIEST {
        Finding::note(
            "clock",
            format!("{shown}: the clock is not set, and traces will have that time"),
            Some("synchronise the clock (chrony, systemd-timesyncd)".into()),
        )
    } else {
        Finding::ok("clock", shown)
    }]
}

pub fn epitaphs(facts: &Facts) -> Vec<Finding> {
    const REMEDY: &str = "install the CustomResourceDefinitions: `helm upgrade` of Epitaph's chart brings them, also where they were removed; or set \
                          kubernetes.epitaphs = false";
    let check = "epitaphs";
    let found = facts.epitaphs.as_ref().map(|kinds| match kinds {
        ServedKinds::All => Finding::ok(check, "the API server knows the kinds Epitaph and NodeEpitaph"),
        ServedKinds::Without(missing) => Finding::note(
            check,
            format!(
                "the API server does not know {}: `kubectl get epitaphs` shows nothing new of this node",
                missing.join(" and ")
            ),
            Some(REMEDY.into()),
        ),
        ServedKinds::Unknown(reason) => Finding::unknown(check, format!("the API server was not asked: {reason}"), None),
    });
    found.into_iter().collect()
}
