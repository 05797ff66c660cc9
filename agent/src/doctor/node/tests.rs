use std::time::Duration;

use epitaph_core::ids::Pid;
use epitaph_core::node::{CRITICAL_PRIORITY, InhibitMode, PriorityPeriod};
use epitaph_core::time::{Boot, Wall, WallOffset};
use expect_test::{Expect, expect};

use super::*;
use crate::cli::SysExit;
use crate::doctor::{Status, code, json, text};
use crate::source::kubelet::Origin;
use crate::source::kubelet::config::Shutdown;
use crate::source::kubelet::flags::Flags;
use crate::source::kubelet::places::PLACES;
use crate::source::systemd::conf::{ConfFile, ConfState, Parsed};

const UNATTENDED: &str = "/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf";
const KUBELETS: &str = "/etc/systemd/logind.conf.d/99-kubelet.conf";

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn conf(files: &[(&str, &str)]) -> Result<LogindConf, String> {
    let file = |(path, text): &(&str, &str)| ConfFile {
        path: (*path).into(),
        state: ConfState::Read(Parsed::read(format!("[Login]\n{text}\n").as_bytes())),
    };
    Ok(LogindConf {
        files: files.iter().map(file).collect(),
    })
}

fn lock(who: &str, mode: InhibitMode) -> Inhibitor {
    Inhibitor {
        what: "shutdown".to_owned(),
        who: who.to_owned(),
        why: "has work".to_owned(),
        mode,
        uid: 0,
        pid: Pid(812),
    }
}

fn pod(name: &str, priority: i32, grace: u64) -> PodGrace {
    PodGrace {
        name: name.to_owned(),
        priority,
        grace: secs(grace),
    }
}

/// A node on which everything holds: 60 s, the last 20 s of them for critical pods.
fn well() -> (Node, FoundKubelet) {
    let start = Boot(20_000_000_000);
    let kubelet = FoundKubelet {
        located: Located {
            flags: Flags::default(),
            origin: Origin::Process {
                pid: Pid(700),
                start,
                unit: Some("kubelet.service".to_owned()),
            },
            place: PLACES.iter().find(|place| place.name == "kubeadm"),
        },
        version: Some("1.34.1-1.1".to_owned()),
        configured: Ok(Configured {
            files: vec!["/var/lib/kubelet/config.yaml".into()],
            modified: Some(("/var/lib/kubelet/config.yaml".into(), Wall(1_794_000_000_000_000_000))),
            shutdown: Shutdown {
                total: secs(60),
                critical: secs(20),
                ..Shutdown::default()
            },
        }),
    };
    let node = Node {
        machine: Machine::Live {
            wall_offset: WallOffset(1_795_000_000_000_000_000),
        },
        kubelet: Kubelet::None,
        logind: Logind {
            bus: Ok(()),
            systemd: Some(257),
            limit: Some(secs(60)),
            locks: Ok(vec![lock("kubelet", InhibitMode::Delay)]),
        },
        conf: conf(&[(KUBELETS, "InhibitDelayMaxSec=60")]),
        pods: Ok(vec![pod("shop/cart", 0, 30), pod("kube-system/dns", CRITICAL_PRIORITY, 20)]),
        scheduled: None,
        journal: None,
    };
    (node, kubelet)
}

fn examined((node, kubelet): (Node, FoundKubelet)) -> Vec<Finding> {
    examine(&Node {
        kubelet: Kubelet::Found(Box::new(kubelet)),
        ..node
    })
}

fn change(change: impl FnOnce(&mut Node, &mut FoundKubelet)) -> Vec<Finding> {
    let (mut node, mut kubelet) = well();
    change(&mut node, &mut kubelet);
    examined((node, kubelet))
}

fn shutdown(kubelet: &mut FoundKubelet) -> &mut Shutdown {
    &mut kubelet.configured.as_mut().unwrap().shutdown
}

/// Only the findings that differ from those of a node on which everything holds.
fn check(findings: &[Finding], expect: Expect) {
    let usual = examined(well());
    let changed: Vec<Finding> = findings.iter().filter(|finding| !usual.contains(finding)).cloned().collect();
    let whole = text(findings, None);
    let conclusion = whole.lines().last().unwrap();
    let changed = text(&changed, None);
    let lines = changed.lines().filter(|line| *line != conclusion);
    let shown: String = lines.chain([conclusion]).flat_map(|line| [line, "\n"]).collect();
    expect.assert_eq(&shown);
}

#[test]
fn a_node_on_which_everything_holds() {
    let findings = examined(well());
    assert_eq!(code(&findings), SysExit::Ok);
    expect![[r#"
        ok       kubelet                pid 700, started 2026-11-18T11:07:00.000Z, distribution kubeadm, package 1.34.1-1.1
        ok       kubelet configuration  /var/lib/kubelet/config.yaml
        ok       in force               the kubelet started after the last change
        ok       grace periods          60 s in all, the last 20 s for critical pods (priority 2000000000 and above)
        ok       logind                 systemd 257
        ok       inhibitor delay        60 s in force, 60 s needed by /etc/systemd/logind.conf.d/99-kubelet.conf:2
        ok       kubelet's lock         held by pid 812
        ok       commands               on systemd 257, systemctl poweroff and reboot, shutdown +MINUTES, systemctl halt, systemctl kexec, shutdown now, poweroff, reboot and halt, systemctl soft-reboot go through logind; --force, reboot -f, halt -p -f, systemctl start poweroff.target, Ctrl-Alt-Del and sysrq bypass it
        ok       pods                   the grace periods of all 2 pods fit into their phases
        this node would shut its pods down gracefully
    "#]]
    .assert_eq(&text(&findings, None));
    let object: serde_json::Value = serde_json::from_str(&json(&findings)).unwrap();
    assert_eq!(
        (&object["exit_code"], &object["findings"][0]["topic"]),
        (&0.into(), &"shutdown".into())
    );
}

#[test]
fn the_default_protects_nothing() {
    let findings = change(|node, kubelet| {
        *shutdown(kubelet) = Shutdown::default();
        node.logind.limit = Some(secs(5));
        node.logind.locks = Ok(Vec::new());
        node.conf = conf(&[]);
    });
    assert_eq!(code(&findings), SysExit::Config);
    check(
        &findings,
        expect![[r#"
            problem  grace periods  both periods are zero, the default: no pod is protected; a shutdown kills all of them at once
                                    remedy: set shutdownGracePeriod, such as 60s, and shutdownGracePeriodCriticalPods, such as 20s (change the file and restart the kubelet; for every node, the ConfigMap kubelet-config in kube-system)
            1 problem: this node would not shut its pods down gracefully
        "#]],
    );
}

#[test]
fn a_drop_in_of_a_package_wins_over_the_kubelets() {
    let files = [(KUBELETS, "InhibitDelayMaxSec=60"), (UNATTENDED, "InhibitDelayMaxSec=30")];
    let findings = change(|node, _| {
        node.logind.limit = Some(secs(30));
        node.logind.locks = Ok(Vec::new());
        node.conf = conf(&files);
    });
    check(
        &findings,
        expect![[r#"
            problem  inhibitor delay  30 s in force by /usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf:2, 60 s needed: the kubelet takes no lock, and a shutdown does not wait for pods
                                      remedy: mkdir -p /etc/systemd/logind.conf.d && ln -s /dev/null /etc/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf && systemctl kill -s HUP systemd-logind && systemctl restart kubelet
            problem  kubelet's lock   not held: a shutdown now would not wait for pods
                                      remedy: look for `Failed to start node shutdown manager` in the kubelet's log; the kubelet does not try again: correct the inhibitor delay, then restart it
            2 problems: this node would not shut its pods down gracefully
        "#]],
    );
    // Without the bus the files say the same.
    let findings = change(|node, _| {
        node.logind.limit = None;
        node.conf = conf(&files);
    });
    let delay = findings.iter().find(|finding| finding.check == "inhibitor delay").unwrap();
    assert_eq!(delay.status, Status::Problem(SysExit::Config));
    assert!(delay.message.starts_with("30 s configured by /usr/lib"), "{}", delay.message);
}

/// k3s, RKE2, MicroK8s and k0s have no unit of that name.
#[test]
fn the_kubelet_is_restarted_by_the_unit_that_has_it() {
    let remedies = |of_process: Option<&str>, mine: fn(&mut Node)| {
        let findings = change(|node, kubelet| {
            mine(node);
            node.logind.limit = Some(secs(30));
            let modified = Wall(1_795_000_000_000_000_000 + 30_000_000_000);
            kubelet.configured.as_mut().unwrap().modified = Some(("/etc/a.conf".into(), modified));
            if let Origin::Process { unit, .. } = &mut kubelet.located.origin {
                *unit = of_process.map(str::to_owned);
            }
        });
        ["in force", "inhibitor delay"].map(|check| {
            let finding = findings.iter().find(|finding| finding.check == check).unwrap();
            finding.remedy.as_deref().unwrap().to_owned()
        })
    };
    let hup = "systemctl kill -s HUP systemd-logind";
    assert_eq!(
        remedies(Some("k3s.service"), |_| {}),
        [
            "systemctl restart k3s (running containers are not affected)".to_owned(),
            format!("{hup} && systemctl restart k3s"),
        ]
    );
    let over: fn(&mut Node) = |node| node.conf = conf(&[("/etc/systemd/logind.conf.d/zz.conf", "InhibitDelayMaxSec=30")]);
    assert_eq!(
        remedies(None, over),
        [
            "restart the kubelet's service (running containers are not affected)".to_owned(),
            format!("rm /etc/systemd/logind.conf.d/zz.conf && {hup}, then restart the kubelet's service"),
        ]
    );
}

#[test]
fn a_delay_that_the_kubelet_can_raise_is_not_a_problem() {
    let findings = change(|node, _| {
        node.logind.limit = None;
        node.conf = conf(&[("/etc/systemd/logind.conf", "InhibitDelayMaxSec=7")]);
    });
    check(
        &findings,
        expect![[r#"
            ok       inhibitor delay  7 s configured by /etc/systemd/logind.conf:2, 60 s needed: the kubelet raises it at its start (/etc/systemd/logind.conf.d/99-kubelet.conf), and no other file overrides it
            this node would shut its pods down gracefully
        "#]],
    );
    // In force, it is: the kubelet did not raise it.
    let findings = change(|node, _| {
        node.logind.limit = Some(secs(7));
        node.conf = conf(&[("/etc/systemd/logind.conf", "InhibitDelayMaxSec=7")]);
    });
    assert_eq!(code(&findings), SysExit::Config);
}

#[test]
fn the_remedy_of_an_image_is_in_its_files() {
    let findings = change(|node, _| {
        node.machine = Machine::Image("/mnt".into());
        node.logind.limit = None;
        node.conf = conf(&[(UNATTENDED, "InhibitDelayMaxSec=30")]);
    });
    let delay = findings.iter().find(|finding| finding.check == "inhibitor delay").unwrap();
    let remedy = delay.remedy.as_deref().unwrap();
    assert!(
        remedy.starts_with("in the image: mkdir") && !remedy.contains("systemctl"),
        "{remedy}"
    );
}

#[test]
fn infinity_is_in_the_kubelets_way() {
    let findings = change(|node, _| {
        node.logind.limit = None;
        node.conf = conf(&[("/etc/systemd/logind.conf.d/zz.conf", "InhibitDelayMaxSec=infinity")]);
    });
    check(
        &findings,
        expect![[r#"
            problem  inhibitor delay  infinity (which the kubelet reads as a negative number) configured by /etc/systemd/logind.conf.d/zz.conf:2, 60 s needed: the kubelet takes no lock, and a shutdown does not wait for pods
                                      remedy: rm /etc/systemd/logind.conf.d/zz.conf && systemctl kill -s HUP systemd-logind && systemctl restart kubelet
            1 problem: this node would not shut its pods down gracefully
        "#]],
    );
}

#[test]
fn mistakes_in_logind_conf_are_named() {
    let findings = change(|node, _| {
        node.conf = conf(&[
            ("/etc/systemd/logind.conf.d/a.conf", "InhibitDelayMaxSec=\n[Login"),
            (KUBELETS, "InhibitDelayMaxSec=60"),
        ]);
    });
    check(
        &findings,
        expect![[r#"
            note     logind.conf      systemd stops reading at /etc/systemd/logind.conf.d/a.conf:3: a section's name has no `]`; later files do not count (1)
                                      remedy: correct the file
            note     logind.conf      /etc/systemd/logind.conf.d/a.conf:2: not a time span: systemd ignores this line
                                      remedy: write InhibitDelayMaxSec= with a number of seconds below [Login], or remove the line
            ok       inhibitor delay  60 s in force, 60 s needed
            this node would shut its pods down gracefully
        "#]],
    );
}

/// Without the bus, as in an image: the finding about the delay.
fn delay_of(files: &[(&str, &str)]) -> Finding {
    let findings = change(|node, _| {
        node.machine = Machine::Image("/mnt".into());
        node.logind.limit = None;
        node.conf = conf(files);
    });
    findings
        .into_iter()
        .find(|finding| finding.check == "inhibitor delay")
        .unwrap()
}

#[test]
fn a_kubelet_that_is_not_read_raises_nothing() {
    let broken = ("/etc/systemd/logind.conf.d/00.conf", "[Login");
    let zz = ("/etc/systemd/logind.conf.d/zz my 'x;$(id).conf", "InhibitDelayMaxSec=3");
    let found = delay_of(&[broken, (KUBELETS, "InhibitDelayMaxSec=60"), zz]);
    assert_eq!(found.status, Status::Problem(SysExit::Config));
    assert_eq!(
        found.remedy.as_deref().unwrap(),
        r"in the image: correct /etc/systemd/logind.conf.d/00.conf:2, then rm '/etc/systemd/logind.conf.d/zz my '\''x;$(id).conf'"
    );
    // A directory is at its place.
    let findings = change(|node, _| {
        node.logind.limit = None;
        node.conf = conf(&[]);
        let state = ConfState::Read(Parsed::broken("not an ordinary file"));
        let path = KUBELETS.into();
        node.conf.as_mut().unwrap().files.push(ConfFile { path, state });
    });
    let found = findings.iter().find(|finding| finding.check == "inhibitor delay").unwrap();
    assert_eq!(found.status, Status::Problem(SysExit::Config));
    assert!(found.message.contains("99-kubelet.conf is lost"), "{}", found.message);
    assert!(found.remedy.as_deref().unwrap().starts_with(&format!("rm -r {KUBELETS} && ")));
    // What is read before it is enough.
    let enough = ("/etc/systemd/logind.conf.d/00.conf", "InhibitDelayMaxSec=60\n[Login");
    assert_eq!(delay_of(&[enough]).status, Status::Ok);

    let findings = change(|node, _| {
        node.logind.limit = None;
        node.logind.systemd = Some(229);
        node.conf = conf(&[]);
    });
    let found = findings.iter().find(|finding| finding.check == "inhibitor delay").unwrap();
    assert_eq!(found.status, Status::Unknown, "{}", found.message);
}

#[test]
fn the_remedy_does_not_uncover_another_file() {
    let remedy = |state: ConfState, path: &str| {
        let findings = change(|node, _| {
            node.machine = Machine::Image("/mnt".into());
            node.logind.limit = None;
            node.conf = conf(&[(path, "InhibitDelayMaxSec=3")]);
            let path = UNATTENDED.into();
            node.conf.as_mut().unwrap().files.push(ConfFile { path, state });
        });
        let found = findings
            .into_iter()
            .find(|finding| finding.check == "inhibitor delay")
            .unwrap();
        found.remedy.unwrap()
    };
    let name = "systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf";
    for (directory, hidden, expected) in [
        ("/etc", true, format!("ln -sf /dev/null /etc/{name}")),
        ("/etc", false, format!("rm /etc/{name}")),
        (
            "/run",
            true,
            format!("mkdir -p /etc/systemd/logind.conf.d && ln -s /dev/null /etc/{name}"),
        ),
        ("/run", false, format!("rm /run/{name}")),
    ] {
        let path = format!("{directory}/{name}");
        let state = match hidden {
            true => ConfState::Hidden { by: path.clone().into() },
            false => ConfState::Masked,
        };
        assert_eq!(remedy(state, &path), format!("in the image: {expected}"));
    }
}

#[test]
fn of_many_ignored_lines_the_rest_is_counted() {
    let findings = change(|node, _| node.conf = conf(&[(KUBELETS, &"InhibitDelayMaxSec=\n".repeat(9))]));
    let notes: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.check == "logind.conf")
        .map(|finding| finding.message.as_str())
        .collect();
    assert_eq!((notes.len(), notes[5]), (6, "4 more lines that systemd ignores"));
}

#[test]
fn periods_by_priority_that_leave_nothing_for_others_are_a_problem() {
    let periods = |periods: &[(i32, u64)]| {
        let periods = periods.iter().map(|(priority, period)| PriorityPeriod {
            priority: *priority,
            period: secs(*period),
        });
        let periods = periods.collect();
        let findings = change(|_, kubelet| {
            *shutdown(kubelet) = Shutdown {
                by_priority: periods,
                ..Shutdown::default()
            };
        });
        findings.into_iter().find(|finding| finding.check == "grace periods").unwrap()
    };
    let problem = Status::Problem(SysExit::Config);
    let found = periods(&[(0, 0), (CRITICAL_PRIORITY, 10)]);
    assert_eq!(found.status, problem);
    assert!(found.message.contains("nothing is left for other pods"), "{}", found.message);
    assert_eq!(periods(&[(0, 0), (5, 1), (CRITICAL_PRIORITY, 10)]).status, Status::Note);
    // All pods are in this phase.
    assert_eq!(periods(&[(CRITICAL_PRIORITY, 10)]).status, Status::Ok);
    let found = periods(&[(0, 0), (CRITICAL_PRIORITY, 0)]);
    assert_eq!(found.status, problem);
    assert!(
        found.message.starts_with("the periods of all priorities are zero"),
        "{}",
        found.message
    );
    assert!(found.remedy.unwrap().starts_with("give each priority a period"));
}

#[test]
fn a_gate_that_is_off_is_switched_on() {
    let findings = change(|_, kubelet| {
        shutdown(kubelet).refused = Some("the periods need the feature gate GracefulNodeShutdown");
    });
    let found = findings
        .iter()
        .find(|finding| finding.check == "kubelet configuration")
        .unwrap();
    assert_eq!(
        found.remedy.as_deref(),
        Some("set the feature gate GracefulNodeShutdown to true")
    );
    let findings = change(|_, kubelet| {
        *shutdown(kubelet) = Shutdown {
            is_off: true,
            ..Shutdown::default()
        };
    });
    let found = findings.iter().find(|finding| finding.check == "grace periods").unwrap();
    assert!(
        found
            .remedy
            .as_deref()
            .unwrap()
            .starts_with("set the feature gate GracefulNodeShutdown to true; set shutdownGracePeriod")
    );
}

#[test]
fn a_configuration_that_is_not_in_force_or_not_valid() {
    let findings = change(|_, kubelet| {
        let modified = Wall(1_795_000_000_000_000_000 + 30_000_000_000);
        kubelet.configured.as_mut().unwrap().modified = Some(("/etc/kubelet.d/a.conf".into(), modified));
    });
    check(
        &findings,
        expect![[r#"
            problem  in force  /etc/kubelet.d/a.conf was changed at 2026-11-18T11:07:10.000Z, after the kubelet started: which configuration is in force is not known
                               remedy: systemctl restart kubelet (running containers are not affected)
            1 problem: this node would not shut its pods down gracefully
        "#]],
    );
    let findings = change(|_, kubelet| shutdown(kubelet).refused = Some("a reason"));
    check(
        &findings,
        expect![[r#"
            problem  kubelet configuration  the kubelet does not start with it: a reason
                                            remedy: correct the periods
            unknown  grace periods          the kubelet does not start with its configuration
            unknown  inhibitor delay        60 s in force; how long the kubelet needs is not known
            1 problem: this node would not shut its pods down gracefully
        "#]],
    );
}

#[test]
fn a_configuration_that_may_not_be_read_is_unknown() {
    let unreadable = |code| {
        change(|_, kubelet| {
            kubelet.configured = Err(Trouble {
                code,
                problem: "cannot read /var/lib/kubelet/config.yaml: Permission denied".to_owned(),
                remedy: Some("run as root".into()),
            });
        })
    };
    let findings = unreadable(SysExit::NoPerm);
    assert_eq!(code(&findings), SysExit::Ok);
    check(
        &findings,
        expect![[r#"
            unknown  kubelet configuration  cannot read /var/lib/kubelet/config.yaml: Permission denied
                                            remedy: run as root
            unknown  grace periods          the configuration is not known
            unknown  inhibitor delay        60 s in force; how long the kubelet needs is not known
            nothing wrong was found, and 3 checks were not possible: whether this node would shut its pods down gracefully is not known
        "#]],
    );
    assert_eq!(code(&unreadable(SysExit::Config)), SysExit::Config);
}

#[test]
fn periods_that_leave_pods_without_time() {
    let findings = change(|node, kubelet| {
        shutdown(kubelet).critical = secs(60);
        node.pods = Ok(Vec::new());
    });
    assert_eq!(code(&findings), SysExit::Config);
    let findings = change(|_, kubelet| shutdown(kubelet).critical = secs(0));
    let periods = findings.iter().find(|finding| finding.check == "grace periods").unwrap();
    assert_eq!(periods.status, Status::Note);
    assert!(
        periods.message.contains("nothing of it for critical pods"),
        "{}",
        periods.message
    );
    let findings = change(|node, kubelet| {
        let periods = [(0, 0), (1_000, 50), (CRITICAL_PRIORITY, 10)];
        shutdown(kubelet).by_priority = periods
            .map(|(priority, period)| PriorityPeriod {
                priority,
                period: secs(period),
            })
            .into();
        node.pods = Ok(vec![pod("a/low", -5, 30), pod("a/mid", 5_000, 50)]);
    });
    check(
        &findings,
        expect![[r#"
            note     grace periods  60 s in all: 0 s from priority 0, 50 s from priority 1000, 10 s from priority 2000000000; pods from priority 0 have no time at all
                                    remedy: give each priority a period
            note     pods           1 of 2 pods have a longer grace period than their phase: a/low has 30 s in a phase of 0 s: up to 30 s are cut
                                    remedy: periods for all: 30 s from priority 0, 50 s from priority 1000, 10 s from priority 2000000000 (90 s in all, which logind must allow); or shorter terminationGracePeriodSeconds
            this node would shut its pods down gracefully
        "#]],
    );
}

#[test]
fn pods_that_would_be_cut_are_named_the_worst_first() {
    let findings = change(|node, _| {
        let many = (0..6).map(|at| pod(&format!("shop/web-{at}"), 0, 45));
        let mut pods: Vec<PodGrace> = many.collect();
        pods.extend([
            pod("db/main", 100, 300),
            pod("a/fits", 0, 40),
            pod("kube-system/dns", CRITICAL_PRIORITY + 1_000, 30),
        ]);
        node.pods = Ok(pods);
    });
    check(
        &findings,
        expect![[r#"
            note     pods  8 of 9 pods have a longer grace period than their phase: db/main has 300 s in a phase of 40 s: up to 260 s are cut; kube-system/dns has 30 s in a phase of 20 s: up to 10 s are cut; shop/web-0 has 45 s in a phase of 40 s: up to 5 s are cut; shop/web-1 has 45 s in a phase of 40 s: up to 5 s are cut; shop/web-2 has 45 s in a phase of 40 s: up to 5 s are cut; 3 more
                           remedy: periods for all: 300 s from priority 0, 30 s from priority 2000000000 (330 s in all, which logind must allow); or shorter terminationGracePeriodSeconds
            this node would shut its pods down gracefully
        "#]],
    );
}

#[test]
fn locks_of_others_are_listed() {
    let findings = change(|node, _| {
        let fake = Inhibitor {
            uid: 1000,
            ..lock("kubelet", InhibitMode::Delay)
        };
        let sleep = Inhibitor {
            what: "sleep".to_owned(),
            ..lock("NetworkManager", InhibitMode::Delay)
        };
        node.logind.locks = Ok(vec![
            lock("kubelet", InhibitMode::Delay),
            lock("backup", InhibitMode::Block),
            lock("unattended-upgrades", InhibitMode::Delay),
            fake,
            sleep,
        ]);
        node.scheduled = Some("reboot at 2026-11-18T11:06:40.000Z".to_owned());
    });
    check(
        &findings,
        expect![[r#"
            note     block locks         held by `backup` (pid 812, uid 0: has work): a shutdown is refused meanwhile, or must be forced, which can bypass logind
                                         remedy: end what holds the lock; `systemctl poweroff -i` ignores it and still goes through logind
            ok       other delay locks   held by `unattended-upgrades` (pid 812, uid 0: has work), `kubelet` (pid 812, uid 1000: has work)
            note     scheduled shutdown  reboot at 2026-11-18T11:06:40.000Z
                                         remedy: cancel it with shutdown -c
            this node would shut its pods down gracefully
        "#]],
    );
}

#[test]
fn old_versions_have_their_faults() {
    let findings = change(|node, kubelet| {
        node.logind.systemd = Some(247);
        kubelet.version = Some("1.27.3-00".to_owned());
    });
    check(
        &findings,
        expect![[r#"
            ok       kubelet          pid 700, started 2026-11-18T11:07:00.000Z, distribution kubeadm, package 1.27.3-00
            note     kubelet version  this kubelet gives a container its whole grace period again after preStop: pods with a preStop hook can outlast their phase (kubernetes/kubernetes#115817)
                                      remedy: upgrade to 1.28.3 or later, or make the periods longer by the time of the hooks
            ok       logind           systemd 247
            note     commands         on systemd 247, systemctl poweroff and reboot, shutdown +MINUTES, systemctl halt go through logind; systemctl kexec: not known; shutdown now, poweroff, reboot and halt bypass it, and kill the pods at once; --force, reboot -f, halt -p -f, systemctl start poweroff.target, Ctrl-Alt-Del and sysrq bypass it
                                      remedy: use systemctl poweroff or systemctl reboot
            this node would shut its pods down gracefully
        "#]],
    );
    let findings = change(|node, _| node.logind.systemd = Some(219));
    assert_eq!(code(&findings), SysExit::Unavailable);
    let named: Vec<&str> = findings
        .iter()
        .filter(|f| f.status != Status::Ok)
        .map(|f| f.check.as_str())
        .collect();
    assert_eq!(named, ["systemd version", "commands"]);
}

#[test]
fn an_image_has_no_process_no_bus_and_no_pods() {
    let findings = change(|node, kubelet| {
        let none = || Err("no process runs in an image".to_owned());
        node.machine = Machine::Image("/mnt/image".into());
        node.logind = Logind {
            bus: none(),
            systemd: Some(257),
            limit: None,
            locks: Err("no process runs in an image".to_owned()),
        };
        node.conf = conf(&[]);
        node.pods = Err(Unknown::new("an image has no pods", None));
        kubelet.located.origin = Origin::Defaults;
        kubelet.version = None;
    });
    assert_eq!(code(&findings), SysExit::Ok);
    check(
        &findings,
        expect![[r#"
            ok       kubelet          files in /mnt/image, distribution kubeadm
            unknown  in force         no kubelet runs in an image
            ok       logind           systemd 257, by its files
            ok       inhibitor delay  5 s configured, by default, 60 s needed: the kubelet raises it at its start (/etc/systemd/logind.conf.d/99-kubelet.conf), and no other file overrides it
            unknown  kubelet's lock   no logind runs in an image
            unknown  pods             an image has no pods
            nothing wrong was found, and 3 checks were not possible: whether this node would shut its pods down gracefully is not known
        "#]],
    );
}

#[test]
fn what_is_not_visible_is_unknown_and_a_machine_without_a_kubelet_is_not_a_node() {
    let (node, _) = well();
    let hidden = examine(&Node {
        kubelet: Kubelet::Unknown(Unknown::new("its files are not visible here", Some("mount them".into()))),
        logind: Logind::of_events([]),
        ..node.clone()
    });
    expect![[r#"
        unknown  kubelet          its files are not visible here
                                  remedy: mount them
        unknown  logind           logind was not asked
        unknown  inhibitor delay  60 s configured by /etc/systemd/logind.conf.d/99-kubelet.conf:2; how long the kubelet needs is not known
        unknown  commands         the version of systemd is not known
        nothing wrong was found, and 4 checks were not possible: whether this node would shut its pods down gracefully is not known
    "#]]
    .assert_eq(&text(&hidden, None));
    let none = examine(&Node {
        kubelet: Kubelet::None,
        ..node
    });
    expect![[r#"
        note     kubelet  no kubelet runs: no program, unit or known configuration of a kubelet was found, and nothing is to be checked of a node's shutdown
    "#]]
    .assert_eq(&text(&none, None));
}

#[test]
fn logind_is_what_the_latest_events_say() {
    let connected = NodeEvent::Bus {
        state: BusState::Connected {
            systemd: Some(257),
            preparing: false,
        },
    };
    let limit = NodeEvent::DelayLimit { limit: secs(60) };
    let locks = NodeEvent::Inhibitors { locks: Vec::new() };
    let all = [connected, limit, locks];
    let logind = Logind::of_events(&all);
    assert_eq!(
        (logind.bus, logind.systemd, logind.limit, logind.locks),
        (Ok(()), Some(257), Some(secs(60)), Ok(Vec::new()))
    );
    let away = NodeEvent::Bus {
        state: BusState::Unavailable {
            reason: "no bus".to_owned(),
        },
    };
    let logind = Logind::of_events(all.iter().chain([&away]));
    assert_eq!((logind.limit, logind.locks), (None, Err("no bus".to_owned())));
}
