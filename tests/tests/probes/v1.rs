//! The probes on a machine whose v1 hierarchy distinguishes tasks: without v2, and alongside it.

use epitaph_core::input::V1;

use super::*;

const NO_V1: &str = "no memory or pids controller on cgroup v1";

/// The probes configured for v1.
fn load(v1: &V1) -> Option<Probes> {
    Probes::with(&Options {
        v1: Some(v1.clone()),
        ..Options::default()
    })
}

/// The first controller that this machine has on v1.
fn v1() -> Option<V1> {
    let own = fs::read_to_string("/proc/self/cgroup").expect("cgroups");
    ["memory", "pids"].iter().find_map(|controller| {
        Path::new("/sys/fs/cgroup")
            .join(controller)
            .join("cgroup.procs")
            .exists()
            .then_some(())?;
        let line = own.lines().find(|line| line.split(':').nth(1) == Some(controller))?;
        Some(V1 {
            is_alone: true,
            hierarchy: line.split(':').next()?.parse().ok()?,
            controller: (*controller).to_owned(),
        })
    })
}

fn id(cgroup: &Cgroup, v1: &V1) -> CgroupId {
    CgroupId {
        hierarchy: v1.hierarchy.into(),
        ..cgroup.id()
    }
}

#[test]
fn a_process_in_a_new_v1_cgroup_is_watched_from_its_start() {
    let v1 = need!(v1(), NO_V1);
    let mut probes = need!(load(&v1), "not root");
    let parent = Cgroup::v1(&v1.controller).expect("it was there");
    let child = parent.child("container");
    let procs = child.0.join("cgroup.procs");
    let script = format!("echo $$ > {} && exec sh -c 'exit 3'", procs.display());
    let mut shell = Command::new("sh").args(["-c", &script]).spawn().expect("sh");
    shell.wait().expect("wait");

    let made = probes.wait("mkdir", |event| match event {
        Event::CgroupMkdir(made) if made.cgroup == id(&child, &v1) => Some(made.clone()),
        _ => None,
    });
    assert_eq!(made.parent, id(&parent, &v1));
    let exit = probes.exit_of(shell.id());
    assert_eq!((exit.status, exit.task.cgroup), (ExitStatus::Exited(3), id(&child, &v1)));
    let exec = probes.wait("exec", |event| match event {
        Event::ProcessExec(exec) if exec.task.tgid == Pid(shell.id()) && exec.task.cgroup == id(&child, &v1) => Some(*exec),
        _ => None,
    });
    assert_ne!(exec.parent_cgroup, id(&child, &v1));
    assert_eq!(exec.parent_cgroup.hierarchy, u32::from(v1.hierarchy));
    let hierarchies = probes.kernel.hierarchies();
    assert!(hierarchies.has(id(&child, &v1)) && !hierarchies.has(CgroupId::v2(1)));
}

/// A container that its runtime puts into v1 only, on a machine that has v2: its end by itself, and a signal's.
#[test]
fn alongside_v2_a_process_in_a_new_v1_cgroup_is_watched_and_reported_with_both_cgroups() {
    let v1 = V1 {
        is_alone: false,
        ..need!(v1(), NO_V1)
    };
    let mut probes = need!(load(&v1), "not root");
    let parent = Cgroup::v1(&v1.controller).expect("it was there");
    let cgroup = parent.child("container");
    let own = Some(id(&cgroup, &v1));
    assert!(probes.kernel.hierarchies().has(id(&cgroup, &v1)) && probes.kernel.hierarchies().has(CgroupId::v2(1)));
    let script = format!("echo $$ > {} && exec sh -c 'exit 3'", cgroup.0.join("cgroup.procs").display());
    let mut shell = Command::new("sh").args(["-c", &script]).spawn().expect("sh");
    shell.wait().expect("wait");
    let exit = probes.exit_of(shell.id());
    assert_eq!((exit.status, exit.task.v1_cgroup), (ExitStatus::Exited(3), own));
    let exec = probes.wait("exec", |event| match event {
        Event::ProcessExec(exec) if exec.task.tgid == Pid(shell.id()) && exec.task.v1_cgroup == own => Some(*exec),
        _ => None,
    });
    assert_eq!((exec.task.cgroup, exec.parent_cgroup.hierarchy), (exit.task.cgroup, 0));
    assert!(exec.parent_v1_cgroup.is_some() && exec.parent_v1_cgroup != own);

    let player = Player::in_cgroup(&cgroup, "handler");
    player.kill(signal::Signal::SIGTERM);
    let seen = probes.signal_to(player.pid(), 15);
    assert_eq!((seen.target.v1_cgroup, seen.target.cgroup.hierarchy), (own, 0));
    assert!(seen.sender.v1_cgroup.is_some() && seen.sender.v1_cgroup != own);
    let entered = probes.wait("handler entered", |event| match event {
        Event::SignalDeliver(deliver) if deliver.task.tgid == Pid(player.pid()) => Some(*deliver),
        _ => None,
    });
    assert_eq!(entered.task.v1_cgroup, own);
    let states = probes.kernel.probes();
    let is_active = |(name, state): &(String, ProbeState)| name == "inet_sock_set_state" && *state == ProbeState::Active;
    assert!(states.iter().any(is_active), "{states:?}");
}

#[test]
fn a_signal_record_has_both_v1_cgroups() {
    let v1 = need!(v1(), NO_V1);
    let mut probes = need!(load(&v1), "not root");
    let cgroup = Cgroup::v1(&v1.controller).expect("it was there");
    let player = Player::in_cgroup(&cgroup, "handler");
    player.kill(signal::Signal::SIGTERM);
    let seen = probes.signal_to(player.pid(), 15);
    assert_eq!(seen.target.cgroup, id(&cgroup, &v1));
    assert_ne!(seen.sender.cgroup, id(&cgroup, &v1));
    let entered = probes.wait("handler entered", |event| match event {
        Event::SignalDeliver(deliver) if deliver.task.tgid == Pid(player.pid()) => Some(*deliver),
        _ => None,
    });
    assert_eq!(entered.task.cgroup, id(&cgroup, &v1));
}

#[test]
fn with_v1_alone_no_socket_probe_is_attached_and_each_reports_why() {
    let v1 = need!(v1(), NO_V1);
    let mut probes = need!(load(&v1), "not root");
    let states = probes.kernel.probes();
    let of_sockets = |name: &str| name.starts_with("inet_") || name.starts_with("tcp_");
    for (name, state) in states {
        match (of_sockets(name), state) {
            (true, ProbeState::Unsupported(why)) => assert!(why.contains("cgroup v1"), "{name}: {why}"),
            (false, ProbeState::Active) => {}
            (_, state) => panic!("{name}: {state:?}"),
        }
    }
    let cgroup = Cgroup::v1(&v1.controller).expect("it was there");
    let id = id(&cgroup, &v1);
    probes
        .kernel
        .watch(id, watch::SELF, Some(id))
        .expect("it is of the hierarchy that the probes know");
    assert!(probes.kernel.arm(id).is_err(), "it has no sockets that the kernel could know");
    assert!(probes.kernel.watch(CgroupId::v2(id.id), watch::SELF, None).is_err());
}

/// A container that its runtime puts into v2 only shares its v1 cgroup with the runtime. User space names the container's owner when
/// it has read the record of the cgroup, which is late in a storm: until then the runtime still counts as another.
#[test]
fn alongside_v1_a_container_of_v2_is_armed_from_outside_before_user_space_has_named_it() {
    let v1 = V1 {
        is_alone: false,
        ..need!(v1(), NO_V1)
    };
    let mut probes = need!(load(&v1), "not root");
    let signalled = need!(Cgroup::v2(), "no cgroup v2");
    let player = Player::in_cgroup(&signalled, "handler");
    player.kill(signal::Signal::SIGTERM);
    let seen = probes.signal_to(player.pid(), 15);
    assert_eq!(seen.target.cgroup, signalled.id());
    assert_eq!(seen.target.v1_cgroup, seen.sender.v1_cgroup);
    assert_eq!(seen.armed, Some(Armed::ByThis));

    let exited = need!(Cgroup::v2(), "no cgroup v2");
    let mut player = Player::in_cgroup(&exited, "handler");
    drop(player.child.stdin.take());
    player.wait();
    let exit = probes.exit_of(player.pid());
    assert_eq!((exit.task.cgroup, exit.armed), (exited.id(), Some(Armed::ByThis)));
}

/// On such a machine the runtime's unit has a v2 cgroup, which its containers in v1 share. The container is the owner, not the unit.
#[test]
fn alongside_v2_a_container_of_v1_is_another_owner_than_its_runtime_in_the_same_v2_cgroup() {
    let v1 = V1 {
        is_alone: false,
        ..need!(v1(), NO_V1)
    };
    let mut probes = need!(load(&v1), "not root");
    let unit = need!(Cgroup::v2(), "no cgroup v2");
    let both = watch::SELF | watch::CHILDREN;
    let named = probes.kernel.watch_for(unit.id(), both, None, Some(unit.id()));
    named.expect("name the unit");
    let parent = Cgroup::v1(&v1.controller).expect("it was there");
    let container = parent.child("container");
    let own = id(&container, &v1);
    probes.kernel.watch(own, both, Some(own)).expect("name the container");
    let procs = |cgroup: &Cgroup| cgroup.0.join("cgroup.procs").display().to_string();
    let (of_unit, of_container) = (procs(&unit), procs(&container));
    let script = format!("echo $$ > {of_unit}; sh -c 'echo $$ > {of_container}; exit 3'; true");
    let status = Command::new("sh").args(["-c", &script]).status().expect("sh");
    assert!(status.success());
    let exit = probes.wait("the exit of the container's process", |event| match event {
        Event::ProcessExit(exit) if exit.task.v1_cgroup == Some(own) => Some(*exit),
        _ => None,
    });
    assert_eq!((exit.status, exit.task.cgroup), (ExitStatus::Exited(3), unit.id()));
    assert_eq!((exit.task.container, exit.armed), (Some(own), Some(Armed::ByThis)));
}
