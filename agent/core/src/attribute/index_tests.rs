use proptest::prelude::*;

use super::*;
use crate::event::{CgroupMkdir, ExitStatus, OomVictim, ProcessExit};
use crate::ids::Comm;

const A: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9";
const SECOND: u64 = 1_000_000_000;

/// An index and the time, driven by short lines.
struct Machine {
    index: Index,
    now: Boot,
}

impl Machine {
    fn new(cgroups: CgroupMode) -> Machine {
        let mut index = Index::new(100, 10, 1 << 20);
        index.start(cgroups, Nodes::default());
        Machine {
            index,
            now: Boot(1000 * SECOND),
        }
    }
    fn insert(&mut self, id: u64, path: &str) {
        self.index
            .insert(self.now, &CgroupFact::of(CgroupId::v2(id), Ok(path.to_owned())));
    }
    fn unknown(&mut self, id: u64, reason: &str) {
        self.index
            .insert(self.now, &CgroupFact::of(CgroupId::v2(id), Err(reason.to_owned())));
    }
    fn remove(&mut self, id: u64) {
        self.index.remove(self.now, CgroupId::v2(id));
    }
    fn process(&mut self, tgid: u32, start: u64, cgroups: &[(u32, u64, &str)]) {
        let cgroups = cgroups.iter().map(|(hierarchy, id, path)| {
            (
                CgroupId {
                    hierarchy: *hierarchy,
                    id: *id,
                },
                (*path).to_owned(),
            )
        });
        self.index.process(
            self.now,
            &ProcessFact {
                start: Boot(start / TICK * TICK),
                cgroups: cgroups.collect(),
                ..ProcessFact::gone(Pid(tgid))
            },
        );
    }
    fn gone(&mut self, tgid: u32) {
        self.index.process(self.now, &ProcessFact::gone(Pid(tgid)));
    }
    /// `container 9:77`, `unit nginx.service 0:5`, `host`, or why not.
    fn cgroup(&self, id: u64) -> String {
        show(self.index.attribute_cgroup(CgroupId::v2(id)))
    }
    fn of(&self, task: Task) -> String {
        show(self.index.attribute(&task).into_owned())
    }
    /// What an exit of the task asks.
    fn asks(&self, task: Task) -> Vec<Question> {
        self.index.questions(&Event::ProcessExit(ProcessExit {
            task,
            status: ExitStatus::Exited(0),
            armed: None,
            held: None,
            unobserved: false,
            leaves_others: false,
            is_own: false,
        }))
    }
}

const TICK: u64 = crate::time::TICK_NS;

fn task(tgid: u32, start: u64, cgroup: u64) -> Task {
    Task {
        tgid: Pid(tgid),
        tid: Pid(tgid),
        ppid: Pid(1),
        ns_level: 0,
        ns_pid: tgid,
        pidns: 0,
        cgroup: CgroupId::v2(cgroup),
        v1_cgroup: None,
        container: None,
        start: Boot(start),
        comm: Comm::new("web"),
    }
}

fn exec(task: Task, parent_cgroup: u64) -> ProcessExec {
    ProcessExec {
        task,
        parent_cgroup: CgroupId::v2(parent_cgroup),
        parent_v1_cgroup: None,
        parent_container: None,
        parent_comm: Comm::new("runc"),
    }
}

fn show(place: Attribution) -> String {
    match place {
        Attribution::Subject(subject, own) => {
            let subject = match subject {
                Subject::Container { .. } => "container".to_owned(),
                Subject::Unit { name } => format!("unit {name}"),
            };
            format!("{subject} {}:{}", own.hierarchy, own.id)
        }
        Attribution::Host => "host".to_owned(),
        Attribution::Unknown(why) => format!("{why:?}"),
    }
}

fn cgroup(id: u64) -> Question {
    Question::Cgroup(CgroupId::v2(id))
}

#[test]
fn a_cgroup_without_a_look_up_is_asked_for_again() {
    let mut m = Machine::new(CgroupMode::V2);
    m.unknown(5, CgroupFact::BUSY);
    assert_eq!(m.asks(task(42, 1, 5)), [cgroup(5)]);
    m.insert(5, "/system.slice/a.service");
    assert_eq!(m.cgroup(5), "unit a.service 0:5");
}

#[test]
fn what_is_below_a_subject_is_the_subjects() {
    let mut m = Machine::new(CgroupMode::V2);
    m.insert(5, "/system.slice/nginx.service");
    m.insert(6, "/system.slice/nginx.service/workers");
    m.insert(7, "/system.slice");
    assert_eq!(
        [m.cgroup(5), m.cgroup(6), m.cgroup(7)],
        ["unit nginx.service 0:5", "unit nginx.service 0:5", "host"]
    );
    assert_eq!(m.index.path(CgroupId::v2(6)), Some("/system.slice/nginx.service/workers"));
    assert_eq!(m.of(task(42, 1, 6)), "unit nginx.service 0:5");
}

#[test]
fn the_own_cgroup_may_be_seen_last() {
    let mut m = Machine::new(CgroupMode::V2);
    m.insert(6, "/a.service/x");
    m.insert(7, "/a.service/y");
    // Siblings have one key even before.
    assert_eq!([m.cgroup(6), m.cgroup(7)], ["unit a.service 0:6", "unit a.service 0:6"]);
    m.insert(5, "/a.service");
    m.insert(8, "/a.service/z");
    assert_eq!([6, 7, 8].map(|id| m.cgroup(id)), ["unit a.service 0:5"; 3]);
}

#[test]
fn the_dead_answer_for_a_while_and_a_restart_is_another_life() {
    let mut m = Machine::new(CgroupMode::V2);
    m.insert(5, "/a.service");
    m.insert(6, "/a.service/x");
    m.remove(6);
    m.remove(5);
    m.insert(15, "/a.service");
    m.insert(16, "/a.service/x");
    assert_eq!(
        [5, 6, 15, 16].map(|id| m.cgroup(id)),
        [5, 5, 15, 15].map(|own| format!("unit a.service 0:{own}"))
    );
    assert_eq!(m.asks(task(42, 1, 6)), []);
    m.now.0 += 119 * SECOND;
    m.remove(404);
    assert_eq!(m.cgroup(5), "unit a.service 0:5");
    m.now.0 += SECOND;
    m.remove(404);
    assert_eq!([m.cgroup(5), m.cgroup(15)], ["NeverSeen", "unit a.service 0:15"]);
    // Forgotten as intended: no loss.
    assert_eq!(m.index.drops(), 0);
}

#[test]
fn unknown_ids_are_asked_for_once() {
    let mut m = Machine::new(CgroupMode::V2);
    assert_eq!(m.cgroup(5), "NeverSeen");
    assert_eq!(m.asks(task(42, 1, 5)), [cgroup(5)]);
    m.unknown(5, CgroupFact::GONE);
    m.unknown(6, "permission denied");
    assert_eq!([m.cgroup(5), m.cgroup(6)], ["NeverSeen", "PathUnreadable"]);
    assert_eq!(m.asks(task(42, 1, 5)), []);
    assert_eq!(m.asks(task(42, 1, 6)), []);
    assert_eq!(m.index.path(CgroupId::v2(5)), None);
    // The kernel's own word, late: better than "gone".
    m.insert(5, "/a.service");
    assert_eq!(m.cgroup(5), "unit a.service 0:5");
    m.unknown(5, CgroupFact::GONE);
    assert_eq!(m.cgroup(5), "unit a.service 0:5");
}

#[test]
fn the_root_is_the_host_and_no_id_is_unknown() {
    let mut m = Machine::new(CgroupMode::V2);
    assert_eq!([m.cgroup(1), m.cgroup(0)], ["host", "NoId"]);
    assert_eq!(m.asks(task(42, 1, 1)), []);
    assert_eq!(m.asks(task(42, 1, 0)), [Question::Process(Pid(42))]);
    m.process(42, 1, &[(0, 5, "/a.service")]);
    assert_eq!(m.of(task(42, 1, 0)), "unit a.service 0:5");
    assert_eq!(m.asks(task(42, 1, 0)), []);
    m.insert(3, "/");
    assert_eq!([m.cgroup(3), m.cgroup(1)], ["host", "NeverSeen"]);
}

#[test]
fn live_and_dead_are_bounded_and_counted() {
    let mut m = Machine::new(CgroupMode::V2);
    for id in 10..210 {
        m.insert(id, &format!("/u{id}.service"));
    }
    assert_eq!(m.index.drops(), 100);
    assert_eq!(
        [m.cgroup(109), m.cgroup(110)],
        ["NeverSeen".to_owned(), "unit u110.service 0:110".to_owned()]
    );
    for id in 110..130 {
        m.remove(id);
    }
    assert_eq!(
        [m.cgroup(119), m.cgroup(120)],
        ["NeverSeen".to_owned(), "unit u120.service 0:120".to_owned()]
    );
    assert_eq!((m.index.drops(), m.index.drops()), (10, 0));
}

#[test]
fn hybrid_root_asks_the_process() {
    let mut m = Machine::new(CgroupMode::Hybrid);
    let web = task(42, 7 * SECOND + 123, 1);
    assert_eq!(m.of(web), "ProcessGone");
    assert_eq!(m.asks(web), [Question::Process(Pid(42))]);
    let path = format!("/docker/{A}");
    m.process(42, web.start.0, &[(0, 1, "/"), (9, 77, &path), (4, 88, &path)]);
    assert_eq!(m.of(web), "container 9:77");
    assert_eq!(m.asks(web), []);
    // The cgroup alone still shows nothing: for example a socket's.
    assert_eq!(m.cgroup(1), "NoId");
    assert_eq!(m.index.attribute_process(Pid(42)), *m.index.attribute(&web));
}

#[test]
fn a_subject_without_a_found_cgroup_is_unknown() {
    let mut m = Machine::new(CgroupMode::Hybrid);
    m.process(42, SECOND, &[(0, 1, "/"), (9, 0, "/a.service")]);
    // The v2 root shows nothing; v1 names a subject, but not which of its lives.
    assert_eq!(m.of(task(42, SECOND, 1)), "PathUnreadable");
    m.process(43, SECOND, &[(0, 1, "/"), (9, 0, "/a.service"), (4, 88, "/a.service")]);
    assert_eq!(m.of(task(43, SECOND, 1)), "unit a.service 4:88");
}

#[test]
fn hybrid_host_process_is_the_hosts() {
    let mut m = Machine::new(CgroupMode::Hybrid);
    m.process(42, SECOND, &[(0, 1, "/"), (9, 1, "/"), (4, 3, "/process_api/x")]);
    assert_eq!(m.of(task(42, SECOND, 1)), "host");
}

#[test]
fn a_reused_process_id_is_another_process() {
    let mut m = Machine::new(CgroupMode::Hybrid);
    let (old, new) = (task(42, 10 * SECOND, 1), task(42, 20 * SECOND, 1));
    m.process(42, old.start.0, &[(0, 1, "/"), (9, 77, "/old.service")]);
    assert_eq!(
        (m.of(new), m.asks(new)),
        ("ProcessGone".to_owned(), vec![Question::Process(Pid(42))])
    );
    m.process(42, new.start.0, &[(0, 1, "/"), (9, 78, "/new.service")]);
    assert_eq!([m.of(old), m.of(new)], ["unit old.service 9:77", "unit new.service 9:78"]);
    // The one between them is gone for good.
    let between = task(42, 15 * SECOND, 1);
    assert_eq!((m.of(between), m.asks(between)), ("ProcessGone".to_owned(), vec![]));
}

#[test]
fn a_process_that_was_gone_is_not_asked_for_again() {
    let mut m = Machine::new(CgroupMode::Hybrid);
    let gone = task(42, m.now.0 - 1, 1);
    m.gone(42);
    assert_eq!((m.of(gone), m.asks(gone)), ("ProcessGone".to_owned(), vec![]));
    // Its successor is.
    assert_eq!(m.asks(task(42, m.now.0 + 1, 1)), [Question::Process(Pid(42))]);
}

#[test]
fn a_containers_process_is_not_its_runtimes_on_a_hybrid_machine() {
    let mut m = Machine::new(CgroupMode::Hybrid);
    m.insert(5, "/system.slice/containerd.service");
    let (web, shim) = (task(42, SECOND, 5), task(41, SECOND, 5));
    // v2 shows the unit of the runtime that started it; as long as nothing speaks against it, that is it.
    assert_eq!(
        (m.of(shim), m.asks(shim)),
        ("unit containerd.service 0:5".to_owned(), vec![Question::Process(Pid(41))])
    );
    let pod = format!("/kubepods/pod8b7c1f9a-52d1-4a47-9f0e-0c1d2e3f4a5b/{A}");
    m.process(42, SECOND, &[(0, 5, "/system.slice/containerd.service"), (9, 77, &pod)]);
    m.process(
        41,
        SECOND,
        &[
            (0, 5, "/system.slice/containerd.service"),
            (9, 70, "/system.slice/containerd.service"),
        ],
    );
    assert_eq!([m.of(web), m.of(shim)], ["container 9:77", "unit containerd.service 0:5"]);
    // From now on it is proven that v2 alone is not enough here.
    assert_eq!(m.of(task(43, SECOND, 5)), "ProcessGone");
}

#[test]
fn a_container_known_to_v2_needs_no_process() {
    let mut m = Machine::new(CgroupMode::Hybrid);
    m.insert(5, &format!("/docker/{A}"));
    assert_eq!(
        (m.of(task(42, SECOND, 5)), m.asks(task(42, SECOND, 5))),
        ("container 0:5".to_owned(), vec![])
    );
}

#[test]
fn an_exec_is_looked_at_again_on_a_hybrid_machine() {
    let mut m = Machine::new(CgroupMode::Hybrid);
    let web = task(42, SECOND, 1);
    let asked = |m: &Machine| m.index.questions(&Event::ProcessExec(exec(web, 1)));
    m.process(42, SECOND, &[(0, 1, "/"), (9, 70, "/system.slice/containerd.service")]);
    assert_eq!(m.asks(web), []);
    assert_eq!(asked(&m), [Question::Process(Pid(42)), Question::Process(Pid(1))]);
    m.process(42, SECOND, &[(0, 1, "/"), (9, 77, &format!("/docker/{A}"))]);
    m.process(1, 0, &[(0, 1, "/"), (9, 2, "/init.scope")]);
    assert_eq!(m.of(web), "container 9:77");
    let parent = m.index.attribute_process(Pid(1));
    assert_eq!(
        (m.index.attribute_parent(&exec(web, 1)), show(parent)),
        (Attribution::Host, "host".to_owned())
    );
    // Known by its id alone: gone is gone.
    m.gone(1);
    assert_eq!(show(m.index.attribute_parent(&exec(web, 1))), "ProcessGone");
}

/// Its `cgroup_mkdir` was lost, and it is gone from the file system: the kernel has it count for the container that it was made in.
#[test]
fn a_cgroup_that_is_gone_unseen_counts_for_the_container_around_it() {
    let mut m = Machine::new(CgroupMode::V2);
    for (id, path) in [(5, format!("/docker/{A}")), (6, "/system.slice/a.service".to_owned())] {
        let (cgroup, path) = (CgroupId::v2(id), Ok(path));
        m.index.insert(m.now, &CgroupFact::of(cgroup, path));
    }
    let within = |container: u64| Task {
        container: Some(CgroupId::v2(container)),
        ..task(42, SECOND, 9)
    };
    assert_eq!(
        m.asks(within(5)),
        [cgroup(9)],
        "the file system may know of a container in it"
    );
    let path = Err(CgroupFact::GONE.to_owned());
    m.index.insert(m.now, &CgroupFact::of(CgroupId::v2(9), path));
    assert_eq!((m.of(within(5)), m.asks(within(5))), ("container 0:5".to_owned(), vec![]));
    for no_container in [6, 7] {
        assert_eq!(m.of(within(no_container)), "NeverSeen", "{no_container}");
    }
    // A socket, a parent and the sweep know no depth of a pid namespace: a task is needed first.
    let exec = ProcessExec {
        parent_container: Some(CgroupId::v2(5)),
        ..exec(task(43, SECOND, 5), 9)
    };
    let of_cgroup = |m: &Machine| {
        let places = [m.index.attribute_within(CgroupId::v2(9)), m.index.attribute_parent(&exec)];
        places.map(show)
    };
    assert_eq!(of_cgroup(&m), ["NeverSeen"; 2]);
    assert_eq!((m.index.learn(&within(5)), m.index.learn(&within(5))), (true, false));
    assert_eq!(of_cgroup(&m), ["container 0:5"; 2]);
    // The first process of a container inside that container: all of this cgroup is in doubt from now on.
    let deeper = Task {
        ns_level: 2,
        ..within(5)
    };
    assert_eq!(m.of(deeper), "NeverSeen");
    assert!(!m.index.learn(&deeper));
    assert_eq!(
        (of_cgroup(&m), m.of(within(5))),
        (["NeverSeen".to_owned(), "NeverSeen".to_owned()], "NeverSeen".to_owned())
    );
}

/// The file system was not read, so the cgroup's own path may still come.
#[test]
fn a_cgroup_whose_look_up_is_to_be_repeated_does_not_count_for_the_container_around_it() {
    let mut m = Machine::new(CgroupMode::V2);
    m.insert(5, &format!("/docker/{A}"));
    let web = Task {
        container: Some(CgroupId::v2(5)),
        ..task(42, SECOND, 9)
    };
    m.unknown(9, CgroupFact::BUSY);
    assert!(!m.index.learn(&web));
    assert_eq!((m.of(web), m.asks(web)), ("NeverSeen".to_owned(), vec![cgroup(9)]));
    m.insert(9, &format!("/docker/{A}/docker/{}", "b0".repeat(32)));
    assert_eq!(m.of(web), "container 0:9");
}

/// kind, minikube, Docker in Docker: the lost cgroup may be a pod's or an inner container's. crun's nested cgroup is not another's.
#[test]
fn a_container_that_encloses_others_does_not_count_for_lost_cgroups() {
    let pod = format!(
        "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod8b7c1f9a_52d1_4a47_9f0e_0c1d2e3f4a5b.slice/cri-containerd-{A}.scope"
    );
    for (nodes, below, place) in [
        (Nodes::Machine, "/container".to_owned(), "container 0:5"),
        (Nodes::Machine, "/system.slice/a.service".to_owned(), "container 0:5"),
        (Nodes::Machine, format!("/docker/{}", "b0".repeat(32)), "NeverSeen"),
        // Names that a container can give are not pods.
        (Nodes::Machine, "/kubepods/besteffort".to_owned(), "container 0:5"),
        (Nodes::Machine, pod.clone(), "container 0:5"),
        (
            Nodes::Containers,
            "/kubelet.slice/kubelet-kubepods.slice".to_owned(),
            "NeverSeen",
        ),
        (Nodes::Containers, "/kubepods/besteffort".to_owned(), "NeverSeen"),
        (Nodes::Containers, pod, "NeverSeen"),
    ] {
        let mut m = Machine::new(CgroupMode::V2);
        m.index.start(CgroupMode::V2, nodes);
        m.insert(5, &format!("/docker/{A}"));
        m.insert(6, &format!("/docker/{A}{below}"));
        m.unknown(9, CgroupFact::GONE);
        let web = Task {
            container: Some(CgroupId::v2(5)),
            ns_level: 1,
            ..task(42, SECOND, 9)
        };
        m.index.learn(&web);
        assert_eq!([m.of(web), show(m.index.attribute_within(web.cgroup))], [place; 2], "{below}");
        // An enclosed cgroup that was removed still answers, for a while.
        m.remove(6);
        assert_eq!(m.of(web), place, "{below}");
    }
}

/// v1 alongside v2: the process and its cgroup of v1 are both gone.
#[test]
fn a_lost_cgroup_of_v1_counts_for_its_container_once_the_process_is_gone() {
    let mut m = Machine::new(CgroupMode::Hybrid);
    let v1 = |id: u64| CgroupId { hierarchy: 9, id };
    let fact = |cgroup: CgroupId, path: Result<String, String>| CgroupFact::of(cgroup, path);
    m.index.insert(m.now, &fact(v1(77), Ok(format!("/docker/{A}"))));
    m.index.insert(m.now, &fact(v1(78), Err(CgroupFact::GONE.to_owned())));
    let web = Task {
        v1_cgroup: Some(v1(78)),
        container: Some(v1(77)),
        ns_level: 1,
        ..task(42, SECOND, 1)
    };
    assert_eq!(
        (m.of(web), m.asks(web)),
        ("ProcessGone".to_owned(), vec![Question::Process(Pid(42))])
    );
    m.gone(42);
    assert_eq!(m.of(web), "container 9:77");
}

/// The value for the kernel side: of nested containers the outer one, because its termination ends the inner ones.
#[test]
fn the_outermost_container_around_a_cgroup_is_known_by_paths() {
    const B: &str = "b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0";
    let mut m = Machine::new(CgroupMode::V2);
    let outer = format!("/docker/{A}");
    let inner = format!("{outer}/docker/{B}");
    let paths = [
        (5, outer.clone()),
        (6, format!("{outer}/init")),
        (7, inner.clone()),
        (8, format!("{inner}/container")),
        (9, "/system.slice/a.service".to_owned()),
        (10, format!("/docker/{B}/init")),
    ];
    for (id, path) in paths {
        let (cgroup, path) = (CgroupId::v2(id), Ok(path));
        m.index.insert(m.now, &CgroupFact::of(cgroup, path));
    }
    let outermost = |id: u64| m.index.outermost_container(CgroupId::v2(id)).map(|cgroup| cgroup.id);
    assert_eq!([5, 6, 7, 8].map(outermost), [Some(5); 4]);
    // Not a container; a container without its own cgroup yet; never seen.
    assert_eq!([9, 10, 11].map(outermost), [None; 3]);
}

/// v1 alongside v2: the records' ids are enough for a container, even if the process has moved.
#[test]
fn a_container_that_only_v1_knows_is_known_by_its_record() {
    let mut m = Machine::new(CgroupMode::Hybrid);
    let of = |pid: u32, v2: u64, v1: u64| Task {
        v1_cgroup: Some(CgroupId { hierarchy: 4, id: v1 }),
        ..task(pid, SECOND, v2)
    };
    let container = format!("/docker/{A}");
    let v1 = |id: u64| CgroupId { hierarchy: 4, id };
    let known = [
        (CgroupId::v2(1), "/"),
        (CgroupId::v2(5), "/system.slice/containerd.service"),
        (CgroupId::v2(6), &container),
        (v1(1), "/"),
        (v1(7), &container),
        (v1(8), "/system.slice/a.service"),
    ];
    for (cgroup, path) in known {
        let path = Ok(path.to_owned());
        m.index.insert(m.now, &CgroupFact::of(cgroup, path));
    }
    for v2 in [1, 5] {
        assert_eq!(
            (m.of(of(42, v2, 7)), m.asks(of(42, v2, 7))),
            ("container 4:7".to_owned(), vec![])
        );
    }
    // A cgroup of v1 that was never seen may be any container's.
    assert_eq!(m.of(of(49, 5, 99)), "ProcessGone");
    // The same key from `/proc`, for any names in other hierarchies.
    m.process(
        42,
        SECOND,
        &[
            (0, 5, "/system.slice/containerd.service"),
            (4, 7, &container),
            (9, 77, &container),
        ],
    );
    assert_eq!(show(m.index.attribute_process(Pid(42))), "container 4:7");
    // What v2 knows has v2's, for that is its sockets'.
    assert_eq!(
        (m.of(of(43, 6, 7)), m.asks(of(43, 6, 7))),
        ("container 0:6".to_owned(), vec![])
    );
    // It has been seen that a unit of v2 may be a runtime's for its containers: this one is not, for v1 would know.
    assert_eq!(m.of(of(44, 5, 1)), "unit containerd.service 0:5");
    assert_eq!(m.of(task(45, SECOND, 5)), "ProcessGone");
    // The root in both is not an answer; a unit in one of them is.
    assert_eq!(
        (m.of(of(46, 1, 1)), m.of(of(47, 1, 8))),
        ("ProcessGone".to_owned(), "unit a.service 4:8".to_owned())
    );
    assert_eq!(m.asks(of(47, 1, 8)), [Question::Process(Pid(47))]);
    // Both are asked for.
    let both = [
        Question::Cgroup(CgroupId::v2(60)),
        Question::Cgroup(v1(70)),
        Question::Process(Pid(48)),
    ];
    assert_eq!(m.asks(of(48, 60, 70)), both);
}

/// v1 alone: the records have one hierarchy, 4 here, and another hierarchy may separate what this one does not.
#[test]
fn a_machine_with_v1_alone_is_read_by_the_hierarchy_of_its_records() {
    let mut m = Machine::new(CgroupMode::V1(4));
    let of_memory = |pid: u32, id: u64| Task {
        cgroup: CgroupId { hierarchy: 4, id },
        ..task(pid, SECOND, 0)
    };
    let memory = |id: u64| CgroupId { hierarchy: 4, id };
    let container = format!("/docker/{A}");
    for (cgroup, path) in [(memory(1), "/"), (memory(7), &container), (memory(8), "/system.slice")] {
        let path = Ok(path.to_owned());
        m.index.insert(m.now, &CgroupFact::of(cgroup, path));
    }
    // A container is known by the record alone.
    assert_eq!(
        (m.of(of_memory(42, 7)), m.asks(of_memory(42, 7))),
        ("container 4:7".to_owned(), vec![])
    );
    // A unit without a memory cgroup of its own, and what the root holds.
    for (pid, id) in [(43, 8), (44, 1)] {
        assert_eq!(m.asks(of_memory(pid, id)), [Question::Process(Pid(pid))]);
        m.process(pid, SECOND, &[(4, id, "/"), (9, 70, "/system.slice/a.service")]);
        assert_eq!(m.of(of_memory(pid, id)), "unit a.service 9:70");
    }
    // A subject in both hierarchies has one key.
    m.process(42, SECOND, &[(4, 7, &container), (9, 77, &container)]);
    assert_eq!(show(m.index.attribute_process(Pid(42))), "container 4:7");
    // A v2 id means nothing here.
    assert_eq!(m.cgroup(1), "NeverSeen");
    assert_eq!(m.of(of_memory(45, 1)), "ProcessGone");
}

/// Whom memory's end took on a machine with v1, and who was gone before it was read.
#[test]
fn a_gone_process_is_in_its_parents_container_only_at_its_parents_depth() {
    let mut m = Machine::new(CgroupMode::Hybrid);
    let parent = |cgroup: u64, path: &str| ProcessFact {
        start: Boot(10 * SECOND),
        ns_level: 1,
        cgroups: vec![(
            CgroupId {
                hierarchy: 9,
                id: cgroup,
            },
            path.to_owned(),
        )],
        ..ProcessFact::gone(Pid(41))
    };
    let gone = |m: &Machine, ns_level: u32, start: u64| {
        let task = task(42, start, 1);
        show(m.index.attribute_descendant(&Task {
            ppid: Pid(41),
            ns_level,
            ..task
        }))
    };
    assert_eq!(gone(&m, 1, 11 * SECOND), "ProcessGone");
    m.index.process(m.now, &parent(77, &format!("/docker/{A}")));
    assert_eq!(gone(&m, 1, 11 * SECOND), "container 9:77");
    // The first of a container in that container: its runtime's child.
    assert_eq!(gone(&m, 2, 11 * SECOND), "ProcessGone");
    // The id was another's when it was forked.
    assert_eq!(gone(&m, 1, 9 * SECOND), "ProcessGone");
    // Of a unit's processes any may be a runtime.
    m.index.process(m.now, &parent(78, "/system.slice/a.service"));
    assert_eq!(gone(&m, 1, 11 * SECOND), "ProcessGone");
}

#[test]
fn every_cgroup_of_an_event_is_asked_for_once() {
    let m = Machine::new(CgroupMode::V2);
    assert_eq!(
        m.index.questions(&Event::ProcessExec(exec(task(42, 1, 5), 6))),
        [cgroup(5), cgroup(6)]
    );
    assert_eq!(m.index.questions(&Event::ProcessExec(exec(task(42, 1, 5), 5))), [cgroup(5)]);
    let mkdir = |path: Option<&str>| {
        let (cgroup, parent) = (CgroupId::v2(9), CgroupId::v2(1));
        m.index.questions(&Event::CgroupMkdir(CgroupMkdir {
            cgroup,
            parent,
            container: None,
            path: path.map(str::to_owned),
        }))
    };
    assert_eq!((mkdir(Some("/a")), mkdir(None)), (vec![], vec![cgroup(9)]));
    let oom = |task| {
        m.index.questions(&Event::OomVictim(OomVictim {
            victim: Pid(42),
            task,
            trigger: Pid(3),
            armed: None,
        }))
    };
    assert_eq!(
        (oom(Some(task(42, 1, 5))), oom(None)),
        (vec![cgroup(5)], vec![Question::Process(Pid(42))])
    );
}

#[test]
fn process_facts_are_bounded_and_only_fresh_ones_are_missed() {
    let mut m = Machine::new(CgroupMode::Hybrid);
    for pid in 1..=100 {
        m.process(pid, SECOND, &[(0, 1, "/")]);
    }
    m.now.0 += 130 * SECOND;
    for pid in 101..=250 {
        m.process(pid, SECOND, &[(0, 1, "/")]);
    }
    // 100 old ones left without a word, 50 fresh ones with.
    assert_eq!(m.index.drops(), 50);
    assert_eq!(
        [m.of(task(150, SECOND, 1)), m.of(task(151, SECOND, 1))],
        ["ProcessGone", "host"]
    );
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, &'static str),
    Unknown(u64),
    Remove(u64),
    Process(u32, u64, &'static str),
    Gone(u32),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let path = prop::sample::select(vec![
        "/",
        "/a.service",
        "/a.service/x",
        "/a.service/x/y",
        "/b.scope",
        "/s.slice",
        "/..",
    ]);
    prop_oneof![
        4 => (0..40u64, path.clone()).prop_map(|(id, path)| Step::Insert(id, path)),
        1 => (0..40u64).prop_map(Step::Unknown),
        3 => (0..40u64).prop_map(Step::Remove),
        3 => (0..30u32, 0..5u64, path).prop_map(|(pid, tick, path)| Step::Process(pid, tick * TICK, path)),
        1 => (0..30u32).prop_map(Step::Gone),
        1 => (0..200u64).prop_map(|seconds| Step::Wait(seconds * SECOND)),
    ]
}

proptest! {
    // Each history checks everything after every step.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any input, the stores keep their bounds, and a cgroup's attribution matches its path.
    #[test]
    fn any_history_is_bounded_and_true(steps in prop::collection::vec(step(), 0..400), hybrid in any::<bool>()) {
        let cgroups = if hybrid { CgroupMode::Hybrid } else { CgroupMode::V2 };
        let mut m = Machine::new(cgroups);
        m.index = Index::new(12, 6, 1 << 20);
        m.index.start(cgroups, Nodes::default());
        let mut paths = std::collections::HashMap::new();
        for step in steps {
            match step {
                Step::Insert(id, path) => {
                    m.insert(id, path);
                    paths.insert(id, path);
                }
                Step::Unknown(id) => m.unknown(id, CgroupFact::GONE),
                Step::Remove(id) => m.remove(id),
                Step::Process(pid, start, path) => m.process(pid, start, &[(0, 1, "/"), (4, 1000 + u64::from(pid), path)]),
                Step::Gone(pid) => m.gone(pid),
                Step::Wait(ns) => m.now.0 += ns,
            }
            m.index.cgroups.assert_bounded();
            m.index.processes.assert_bounded();
            for id in 2..40 {
                if let Attribution::Subject(Subject::Unit { name }, _) = m.index.attribute_cgroup(CgroupId::v2(id)) {
                    prop_assert!(paths[&id].contains(&*name), "{id} is {} and not {name}", paths[&id]);
                }
            }
        }
    }
}

/// Whose budget a cgroup has whose path is not kept: its container's.
#[test]
fn the_party_of_one_of_too_many_nested_cgroups_is_known() {
    let mut index = Index::new(10_000, 1_000, 64 << 20);
    let mut insert = |id: u64, path: &str| {
        let (cgroup, path) = (CgroupId::v2(id), Ok(path.to_owned()));
        index.insert(Boot(1), &CgroupFact::of(cgroup, path));
    };
    let own = format!("/system.slice/docker-{:064x}.scope", 7);
    insert(2, &own);
    for nested in 0..1_200_u64 {
        insert(100 + nested, &format!("{own}/n{nested}"));
    }
    let last = CgroupId::v2(1_299);
    assert_eq!(index.attribute_cgroup(last), Attribution::Unknown(UnknownCgroup::TooMany));
    assert_eq!(index.party(last), Some(CgroupId::v2(2)));
    assert_eq!(index.party(CgroupId::v2(2)), None);
}

/// A container that makes more cgroups than its budget has records leaves thousands of them without a path and without a party.
#[test]
fn cgroups_of_which_nothing_is_known_push_no_container_out() {
    let mut index = Index::new(10_000, 1_000, 64 << 20);
    let own = CgroupId::v2(2);
    let path = format!("/system.slice/docker-{:064x}.scope", 7);
    index.insert(Boot(1), &CgroupFact::of(own, Ok(path)));
    index.remove(Boot(2), own);
    for id in 100..3_000 {
        index.insert(Boot(3), &CgroupFact::of(CgroupId::v2(id), Err(CgroupFact::GONE.to_owned())));
    }
    assert!(matches!(index.attribute_cgroup(own), Attribution::Subject(..)));
    assert_eq!(
        index.attribute_cgroup(CgroupId::v2(100)),
        Attribution::Unknown(UnknownCgroup::NeverSeen)
    );
    assert_eq!(index.drops(), 1_901);
}

/// A container can give its nested cgroups any name: also the names of another pod's containers, and names that are too long for a path
/// once their bytes are escaped.
#[test]
fn cgroups_of_any_name_push_no_other_container_out() {
    let forged = |id: u64| format!("kubepods-pod3fa85f64_5717_4562_b3fc_2c963f66afa6.slice/cri-containerd-{id:064x}");
    let odd = |id: u64| format!("{}{id}", "\\xff".repeat(100));
    let deep = |id: u64| format!("{}{id}", "a/".repeat(2_500));
    let names: [&dyn Fn(u64) -> String; 3] = [&forged, &odd, &deep];
    for name in names {
        let mut index = Index::new(10_000, 1_000, 64 << 20);
        let mut insert = |id: u64, path: String| index.insert(Boot(1), &CgroupFact::of(CgroupId::v2(id), Ok(path)));
        let victim = CgroupId::v2(2);
        insert(2, format!("/system.slice/docker-{:064x}.scope", 7));
        let neighbour = format!("/system.slice/docker-{:064x}.scope", 8);
        insert(3, neighbour.clone());
        for id in 100..3_000 {
            insert(id, format!("{neighbour}/{}", name(id)));
        }
        index.remove(Boot(2), victim);
        (100..3_000).for_each(|id| index.remove(Boot(2), CgroupId::v2(id)));
        assert!(index.exact_path(victim).is_some(), "pushed out by {}", name(100));
    }
}
