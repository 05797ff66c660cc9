//! Ends of processes, and the cgroups that they happen in.

use super::*;

#[test]
fn a_process_exit_is_reported_once_with_its_wait_status_in_any_order_of_threads() {
    ends_are_told_once(need!(Probes::load(), "not root"));
}

#[test]
fn the_programs_for_old_kernels_report_exits_once_too() {
    ends_are_told_once(need!(Probes::oldest(), "not root"));
}

fn ends_are_told_once(mut probes: Probes) {
    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    let dir = cgroup.0.to_str().expect("utf-8");
    let mut ended = Vec::new();
    for role in ["leader-first", "leader-last", "exit-group", "abort"]
        .into_iter()
        .cycle()
        .take(24)
    {
        let mut player = Player::start(&["--cgroup", dir, role]);
        let status = as_event(player.wait());
        ended.push((role, player.pid(), status));
    }
    for (role, pid, status) in &ended {
        let exit = probes.exit_of(*pid);
        assert_eq!(exit.status, *status, "{role}");
        assert_eq!(exit.task.cgroup, cgroup.id(), "{role}");
        assert_eq!(exit.task.comm.to_string(), "probe-player", "{role}");
    }
    probes.settle();
    for (role, pid, _) in ended {
        assert_eq!(probes.count(|event| exit_of(event, pid).is_some()), 1, "{role}");
    }
}

/// The launcher of a daemon is told from a program that ends.
#[test]
fn an_exit_shows_whether_it_leaves_other_processes_in_its_cgroup() {
    leaves_others(need!(Probes::load(), "not root"));
}

#[test]
fn the_programs_for_old_kernels_show_whether_an_exit_leaves_other_processes() {
    leaves_others(need!(Probes::oldest(), "not root"));
}

fn leaves_others(mut probes: Probes) {
    let cgroup = need!(Cgroup::v2(), "no cgroup v2");
    // The daemon lives until this test closes its input.
    let script = format!(
        "echo 0 >{}; exec 3<&0; cat <&3 >/dev/null & echo $!",
        cgroup.0.join("cgroup.procs").display()
    );
    let mut launcher = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh");
    let input = launcher.stdin.take();
    let mut daemon = String::new();
    let mut out = BufReader::new(launcher.stdout.take().expect("piped"));
    out.read_line(&mut daemon).expect("read the launcher");
    launcher.wait().expect("wait");
    assert!(probes.exit_of(launcher.id()).leaves_others);
    drop(input);
    let daemon = probes.exit_of(daemon.trim().parse().expect("a process id"));
    assert!(!daemon.leaves_others);
}

#[test]
fn the_exit_of_an_unwatched_unsignalled_process_is_not_reported() {
    let mut probes = need!(Probes::load(), "not root");
    if !own_cgroup_is_root() {
        skip(&test_name(), "the tests run in a cgroup of their own, which may be watched");
        return;
    }
    let mut child = Command::new("true").spawn().expect("true(1)");
    child.wait().expect("wait");
    probes.settle();
    assert_eq!(probes.count(|event| exit_of(event, child.id()).is_some()), 0);
}

#[test]
fn a_process_in_a_new_cgroup_is_watched_from_its_start() {
    let mut probes = need!(Probes::load(), "not root");
    let parent = need!(Cgroup::v2(), "no cgroup v2");
    let child = parent.child("pod");
    let grandchild = child.child("container");
    let procs = grandchild.0.join("cgroup.procs");
    // In one breath after mkdir, before user space has read the first record.
    let script = format!("echo 0 > {} && exec sh -c 'exit 3'", procs.display());
    let mut shell = Command::new("sh").args(["-c", &script]).spawn().expect("sh");
    shell.wait().expect("wait");

    let exit = probes.exit_of(shell.id());
    assert_eq!((exit.status, exit.task.cgroup), (ExitStatus::Exited(3), grandchild.id()));
    let exec = probes.wait("exec", |event| match event {
        Event::ProcessExec(exec) if exec.task.tgid == Pid(shell.id()) && exec.task.cgroup == grandchild.id() => Some(*exec),
        _ => None,
    });
    assert_eq!(exec.task.comm.to_string(), "sh");
    assert_ne!(exec.parent_cgroup, grandchild.id());
    let made = probes.wait("mkdir", |event| match event {
        Event::CgroupMkdir(made) if made.cgroup == grandchild.id() => Some(made.clone()),
        _ => None,
    });
    assert_eq!(made.parent, child.id());
    assert!(
        made.path.as_deref().is_some_and(|path| path.ends_with("/pod/container")),
        "{made:?}"
    );

    let id = grandchild.id();
    drop(grandchild);
    probes.wait("rmdir", |event| {
        matches!(event, Event::CgroupRmdir(gone) if gone.cgroup == id).then_some(())
    });
}

/// crun's `container`, a systemd's or a Docker's in the container.
#[test]
fn a_cgroup_made_in_a_container_counts_for_the_container() {
    let mut probes = need!(Probes::load(), "not root");
    let before = need!(Cgroup::v2(), "no cgroup v2");
    let both = watch::SELF | watch::CHILDREN;
    let container_of_made = |probes: &mut Probes, cgroup: &Cgroup| {
        probes.wait("mkdir", |event| match event {
            Event::CgroupMkdir(made) if made.cgroup == cgroup.id() => Some(made.container),
            _ => None,
        })
    };
    let container = before.child("container");
    let early = container.child("early");
    assert_eq!(
        container_of_made(&mut probes, &early),
        None,
        "user space has not named it yet"
    );
    let id = container.id();
    for cgroup in [&container, &early] {
        probes.kernel.watch(cgroup.id(), both, Some(id)).expect("watch");
    }
    let inner = early.child("inner");
    assert_eq!(container_of_made(&mut probes, &inner), Some(id));
    // What is known stays, where user space knows no better.
    probes.kernel.watch(inner.id(), both, None).expect("watch");
    let innermost = inner.child("innermost");
    assert_eq!(container_of_made(&mut probes, &innermost), Some(id));

    let (mut player, _) = Player::ready(&["--cgroup", innermost.0.to_str().expect("utf-8"), "handler"]);
    let sender = Player::in_cgroup(&before, "default");
    player.kill(signal::Signal::SIGTERM);
    let seen = probes.signal_to(player.pid(), 15);
    assert_eq!((seen.target.cgroup, seen.target.container), (innermost.id(), Some(id)));
    assert_eq!(seen.sender.container, None, "the tests' own");
    let entered = probes.wait("handler entered", |event| match event {
        Event::SignalDeliver(deliver) if deliver.task.tgid == Pid(player.pid()) => Some(*deliver),
        _ => None,
    });
    assert_eq!(entered.task.container, Some(id));
    player.kill(signal::Signal::SIGKILL);
    player.wait();
    assert_eq!(probes.exit_of(player.pid()).task.container, Some(id));
    sender.kill(signal::Signal::SIGTERM);
    assert_eq!(probes.signal_to(sender.pid(), 15).target.container, None, "outside of it");

    let procs = innermost.0.join("cgroup.procs");
    let script = format!("echo 0 > {} && sh -c 'kill -USR1 $$'; true", procs.display());
    let mut shell = Command::new("sh").args(["-c", &script]).spawn().expect("sh");
    shell.wait().expect("wait");
    let (sender, target) = probes.wait("a signal inside", |event| match event {
        Event::SignalGenerate(s) if s.signal.number() == 10 && s.target.ppid == Pid(shell.id()) => Some((s.sender, s.target)),
        _ => None,
    });
    assert_eq!((sender.container, target.container), (Some(id), Some(id)));
    let exec = probes.wait("exec", |event| match event {
        Event::ProcessExec(exec) if exec.task.tgid == target.tgid => Some(*exec),
        _ => None,
    });
    assert_eq!((exec.task.container, exec.parent_container), (Some(id), Some(id)));
}

#[test]
fn a_cgroup_of_another_hierarchy_is_recognized_by_its_number() {
    let mut probes = need!(Probes::load(), "not root");
    let Some(cgroup) = Cgroup::v1("memory") else {
        println!("no v1 hierarchy on this machine, so no cgroup of v1 to report");
        return;
    };
    let id = cgroup.id().id;
    let made = probes.wait("mkdir", |event| match event {
        Event::CgroupMkdir(made) if made.cgroup.id == id && made.cgroup.hierarchy != 0 => Some(made.clone()),
        _ => None,
    });
    let listed = fs::read_to_string("/proc/self/cgroup").expect("cgroups");
    assert!(
        listed
            .lines()
            .any(|line| line.starts_with(&format!("{}:memory:", made.cgroup.hierarchy))),
        "{made:?}\n{listed}"
    );
}

#[test]
fn an_oom_kill_names_its_victim() {
    let mut probes = need!(Probes::load(), "not root");
    let (cgroup, limit) = need!(
        Cgroup::v1("memory")
            .map(|c| (c, "memory.limit_in_bytes"))
            .or_else(|| Some((Cgroup::v2()?, "memory.max"))),
        "no memory controller"
    );
    need!(
        cgroup.0.join(limit).exists().then_some(()),
        "the memory controller is not enabled here"
    );
    cgroup.write(limit, "16777216");
    let mut player = Player::start(&["--cgroup", cgroup.0.to_str().expect("utf-8"), "hog"]);
    let status = as_event(player.wait());
    assert_eq!(
        status,
        ExitStatus::Signaled {
            signal: Signal::KILL,
            core_dumped: false
        }
    );
    let oom = probes.wait("oom", |event| match event {
        Event::OomVictim(oom) if oom.victim == Pid(player.pid()) => Some(*oom),
        _ => None,
    });
    assert_eq!(oom.trigger, Pid(player.pid()));
    assert!(oom.task.is_none_or(|task| task.comm.to_string() == "probe-player"));
    let seen = probes.signal_to(player.pid(), 9);
    assert_eq!((seen.code, seen.from_kernel), (si_code::KERNEL, true));
    assert_eq!(probes.exit_of(player.pid()).status, status);
}
