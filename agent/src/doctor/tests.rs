use epitaph_core::input::SeenClients;
use expect_test::expect;

use super::*;
use crate::source::kernel::probes::{PROBES, StandIn};

fn tried(states: &[(&str, ProbeState)]) -> Probes {
    Probes::Tried {
        states: states
            .iter()
            .map(|(name, state)| ((*name).to_owned(), state.clone()))
            .collect(),
        shrunk: None,
    }
}

/// A machine without a problem.
fn well() -> Facts {
    Facts {
        kernel: Ok("6.12.1-cloud".to_owned()),
        btf: Ok("/sys/kernel/btf/vmlinux".into()),
        rights: Rights {
            effective: Some(1 << 38 | 1 << 39),
            ..Rights::default()
        },
        probes: tried(&[
            ("signal_generate", ProbeState::Active),
            ("sched_process_exit", ProbeState::Active),
        ]),
        cgroups: Ok(Cgroups {
            mount: "/sys/fs/cgroup".into(),
            mode: CgroupMode::V2,
        }),
        proc: "/proc".into(),
        shows_others: true,
        now: Boot(5_000_000_000),
        wall_offset: WallOffset(1_795_000_000_000_000_000),
        epitaphs: None,
    }
}

#[test]
fn kinds_that_the_api_server_does_not_know_are_a_note_with_the_remedy() {
    let of = |kinds| {
        let facts = Facts {
            epitaphs: Some(kinds),
            ..well()
        };
        let findings = examine(&facts);
        assert_eq!(code(&findings), SysExit::Ok);
        text(&findings, None)
    };
    assert!(of(ServedKinds::All).contains("ok       epitaphs "));
    let without = of(ServedKinds::Without(vec!["Epitaph", "NodeEpitaph"]));
    assert!(
        without.contains("note     epitaphs ") && without.contains("does not know Epitaph and NodeEpitaph"),
        "{without}"
    );
    assert!(without.contains("remedy: install the CustomResourceDefinitions"), "{without}");
    let unknown = of(ServedKinds::Unknown("no answer within 5 s".to_owned()));
    assert!(
        unknown.contains("unknown  epitaphs ") && unknown.contains("no answer within 5 s"),
        "{unknown}"
    );
}

#[test]
fn a_machine_without_a_problem() {
    let findings = examine(&well());
    assert_eq!(code(&findings), SysExit::Ok);
    expect![[r#"
        ok       kernel                    6.12.1-cloud
        ok       btf                       /sys/kernel/btf/vmlinux
        ok       capabilities              CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN in their place
        ok       probe signal_generate     active
        ok       probe sched_process_exit  active
        ok       proc                      /proc shows the machine's processes
        ok       cgroups                   v2 at /sys/fs/cgroup
        ok       clock                     2026-11-18T11:06:45.000000000Z
        this machine can be observed
    "#]]
    .assert_eq(&text(&findings, None));
}

/// Whoever runs the doctor on such a kernel compares: `substituted` is no fault there.
#[test]
fn the_page_has_what_a_good_node_of_linux_6_1_shows() {
    let states = PROBES.iter().map(|probe| {
        let state = match probe.tracepoint {
            ProbeState::REFUSALS => StandIn::by_functions(None).state(),
            _ => ProbeState::Active,
        };
        (probe.tracepoint, state)
    });
    let facts = Facts {
        kernel: Ok("6.1.0-41-amd64".to_owned()),
        probes: tried(&states.collect::<Vec<_>>()),
        ..well()
    };
    let findings = examine(&facts);
    assert_eq!(code(&findings), SysExit::Ok);
    let page = include_str!("../../../docs/doctor.md");
    let shown = text(&findings, None);
    assert!(page.contains(&shown), "docs/doctor.md does not have:\n{shown}");
}

#[test]
fn a_probe_that_shows_a_part_of_the_clients_is_a_note_with_the_remedy() {
    let of = |clients| {
        let by = "another".to_owned();
        let mut facts = well();
        facts.probes = Probes::Tried {
            states: vec![("tcp_send_reset".to_owned(), ProbeState::Substituted { by, clients })],
            shrunk: None,
        };
        text(&examine(&facts), None)
    };
    let part = of(SeenClients::OfThisMachine);
    assert!(
        part.contains("note     probe tcp_send_reset")
            && part.contains("refused clients of other machines and of Services are not seen"),
        "{part}"
    );
    assert!(part.contains("remedy: run kernel 6.10 or newer"), "{part}");
    let all = of(SeenClients::All);
    assert!(
        all.contains("ok       probe tcp_send_reset") && !all.contains("remedy"),
        "{all}"
    );
}

#[test]
fn where_no_refused_client_is_seen_the_remedy_is_not_nothing() {
    let of = |name: &str, reason: &str| {
        let mut facts = well();
        facts.probes = Probes::Tried {
            states: vec![(name.to_owned(), ProbeState::Unsupported(reason.to_owned()))],
            shrunk: None,
        };
        text(&examine(&facts), None)
    };
    let v1 = "remedy: boot with cgroup v2";
    assert!(of("tcp_send_reset", ProbeState::NO_SOCKETS).contains(v1));
    assert!(of("inet_sock_set_state", ProbeState::NO_SOCKETS).contains(v1));
    let other = of("tcp_send_reset", "this kernel has no sock.sk_cgrp_data.cgroup");
    assert!(other.contains("remedy: run kernel 6.10 or newer"), "{other}");
}

#[test]
fn an_old_kernel_is_observed_with_less_evidence() {
    let mut facts = well();
    facts.probes = Probes::Tried {
        states: vec![(
            "inet_sk_error_report".to_owned(),
            ProbeState::Unsupported("this kernel has no tracepoint inet_sk_error_report".to_owned()),
        )],
        shrunk: Some(("the tables are smaller".to_owned(), "allow more")),
    };
    facts.shows_others = false;
    facts.wall_offset = WallOffset(0);
    facts.rights.lockdown = Some("integrity".to_owned());
    let findings = examine(&facts);
    assert_eq!(code(&findings), SysExit::Ok);
    expect![[r#"
        ok       kernel                      6.12.1-cloud
        ok       btf                         /sys/kernel/btf/vmlinux
        ok       capabilities                CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN in their place
        note     lockdown                    the kernel is locked down (integrity), which does not restrict the probes
        note     memlock                     the tables are smaller
                                             remedy: allow more
        note     probe inet_sk_error_report  unsupported: this kernel has no tracepoint inet_sk_error_report
                                             remedy: nothing to fix; what this probe observes is reported as unknown (docs/limits.md)
        note     proc                        /proc shows no process but epitaph itself: the processes of containers that run already are not known
                                             remedy: name the host's /proc with --proc; where /proc is mounted with hidepid, add this user to the group of gid=, or grant CAP_SYS_PTRACE
        ok       cgroups                     v2 at /sys/fs/cgroup
        note     clock                       1970-01-01T00:00:05.000000000Z: the clock is not set, and traces will have that time
                                             remedy: synchronise the clock (chrony, systemd-timesyncd)
        this machine can be observed
    "#]]
    .assert_eq(&text(&findings, None));
}

fn refused(trouble: &Trouble) -> Probes {
    Probes::Refused {
        trouble: trouble.clone(),
        fitting: vec![
            ("signal_generate".to_owned(), Ok(())),
            ("inet_sk_error_report".to_owned(), Err("no such tracepoint".to_owned())),
        ],
    }
}

#[test]
fn a_missing_capability_is_one_finding_and_each_probe_has_its_line() {
    let trouble = Trouble {
        code: SysExit::NoPerm,
        problem: "loading the probes needs CAP_PERFMON".to_owned(),
        remedy: Some("grant it".into()),
    };
    let mut facts = well();
    facts.rights.effective = Some(1 << 39);
    facts.probes = refused(&trouble);
    let findings = examine(&facts);
    assert_eq!(code(&findings), SysExit::NoPerm);
    let shown: Vec<String> = findings
        .iter()
        .map(|f| format!("{} {}: {}", f.status.word(), f.check, f.message))
        .collect();
    expect![[r#"
        ok kernel: 6.12.1-cloud
        ok btf: /sys/kernel/btf/vmlinux
        problem capabilities: loading the probes needs CAP_PERFMON
        note probe signal_generate: not loaded; this kernel has everything that the probe reads
        note probe inet_sk_error_report: unsupported: no such tracepoint
        ok proc: /proc shows the machine's processes
        ok cgroups: v2 at /sys/fs/cgroup
        ok clock: 2026-11-18T11:06:45.000000000Z"#]]
    .assert_eq(&shown.join("\n"));
}

#[test]
fn a_refused_bpf_with_capabilities_is_its_own_finding() {
    let trouble = Trouble {
        code: SysExit::NoPerm,
        problem: "the kernel refused bpf(2) \u{1b}[31m".to_owned(),
        remedy: Some("allow bpf(2) for this process".into()),
    };
    let mut facts = well();
    facts.probes = refused(&trouble);
    facts.rights.user_namespace = true;
    let findings = examine(&facts);
    let bpf = findings.iter().find(|f| f.check == "bpf").unwrap();
    assert_eq!((bpf.status, &bpf.remedy), (Status::Problem(SysExit::NoPerm), &trouble.remedy));
    assert!(findings.iter().any(|f| f.check == "user namespace" && f.remedy.is_some()));
    let shown = json(&findings);
    assert!(shown.contains(r"bpf(2) \\u{1b}[31m") && !shown.contains('\u{1b}'), "{shown}");
    let object: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(object["type"], "doctor");
    assert_eq!(object["exit_code"], 77);
    assert_eq!(object["findings"].as_array().unwrap().len(), findings.len());
}

#[test]
fn a_missing_requirement_is_a_problem() {
    let trouble = |code| Trouble {
        code,
        problem: "not there".to_owned(),
        remedy: None,
    };
    let mut facts = well();
    facts.btf = Err(trouble(SysExit::Unavailable));
    facts.probes = refused(&trouble(SysExit::Unavailable));
    let findings = examine(&facts);
    assert_eq!(code(&findings), SysExit::Unavailable);
    // The problem of the type information, and no other.
    assert_eq!(findings.iter().filter(|f| matches!(f.status, Status::Problem(_))).count(), 1);

    let mut facts = well();
    facts.probes = tried(&[
        ("signal_generate", ProbeState::Unsupported("none".to_owned())),
        ("tcp_send_reset", ProbeState::Failed("bad".to_owned())),
    ]);
    facts.cgroups = Err(trouble(SysExit::Unavailable));
    facts.kernel = Err("cannot read it".to_owned());
    let findings = examine(&facts);
    let problems = findings.iter().filter(|f| matches!(f.status, Status::Problem(_)));
    let checks: Vec<&str> = problems.map(|f| f.check.as_str()).collect();
    assert_eq!(checks, ["kernel", "probe signal_generate", "probe tcp_send_reset", "cgroups"]);
    assert!(text(&findings, None).ends_with("4 problems: this machine cannot be observed as it is\n"));
}

/// At 80 columns the longest messages would run into the next line, under the status of the next finding.
#[test]
fn in_a_terminal_messages_and_remedies_stay_beside_their_checks() {
    let findings = [Finding {
        topic: Topic::Observation,
        check: "cgroups".into(),
        status: Status::Unknown,
        message: "v2 at /sys/fs/cgroup, and cgroup v1: sockets of containers in v1 only are not observed".into(),
        remedy: Some("boot with systemd.unified_cgroup_hierarchy=1, or accept that traffic is unknown".into()),
    }];
    expect![[r"
        unknown  cgroups  v2 at /sys/fs/cgroup, and cgroup v1:
                          sockets of containers in v1 only are not
                          observed
                          remedy: boot with
                          systemd.unified_cgroup_hierarchy=1, or
                          accept that traffic is unknown
        this machine can be observed
    "]]
    .assert_eq(&text(&findings, Some(60)));
}
