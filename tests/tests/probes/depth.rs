//! Pid namespaces within pid namespaces, down to the deepest that the kernel makes.

use super::*;

/// `MAX_PID_NS_LEVEL`.
const DEEPEST: u32 = 32;

#[test]
fn five_namespaces_deep_a_process_has_the_pid_and_namespace_of_its_own() {
    let probes = need!(Probes::load(), "not root");
    at_depth(probes, |_| 5);
}

#[test]
fn in_the_deepest_namespace_there_is_a_process_has_the_pid_and_namespace_of_its_own() {
    let probes = need!(Probes::load(), "not root");
    at_depth(probes, |own| DEEPEST - own);
}

/// `more` namespaces below our own level: the process killed there, and the exit of the outermost, which kills the others.
fn at_depth(mut probes: Probes, more: impl Fn(u32) -> u32) {
    let own = own_level(&mut probes);
    let more = more(own);
    // Ends with its input, which the test holds, however that ends.
    let script = "exec 3<&0; cat <&3 & wait";
    let nest = ["unshare", "--pid", "--fork"];
    let mut command = Command::new(nest[0]);
    command.args(&nest[1..]);
    for _ in 1..more {
        command.args(nest);
    }
    command.args(["sh", "-c", script]).stdin(Stdio::piped());
    let outermost = Nest(command.spawn().expect("unshare(1)"));
    let mut inits = vec![descendant(outermost.0.id())];
    while inits.len() < more as usize {
        inits.push(descendant(*inits.last().expect("the first")));
    }
    let innermost = *inits.last().expect("the first");
    let child = descendant(innermost);
    let namespace = |of: u32| fs::metadata(format!("/proc/{of}/ns/pid")).expect("ns").ino();
    let (of_init, of_child) = (namespace(innermost), namespace(child));
    let depth = own + more;

    kill(pid(child), signal::Signal::SIGKILL).expect("signal");
    let seen = probes.signal_to(child, 9).target;
    assert_eq!((seen.tgid, seen.ns_level, seen.ppid), (Pid(child), depth, Pid(innermost)));
    assert_eq!((u64::from(seen.pidns), seen.ns_pid > 1), (of_child, true));

    // The shell has waited for it, and ends: so do all the namespaces, from within.
    for (at, &init) in inits.iter().enumerate().rev() {
        let ended = probes.exit_of(init).task;
        let level = own + 1 + u32::try_from(at).expect("a level");
        assert_eq!((ended.ns_level, ended.ns_pid), (level, 1), "{init} of {inits:?}");
        assert!(ended.is_ns_init());
    }
    let innermost = probes.exit_of(innermost).task;
    assert_eq!(u64::from(innermost.pidns), of_init);
}

/// unshare(1) and all below it.
struct Nest(Child);

impl Drop for Nest {
    fn drop(&mut self) {
        // Closes its input first.
        let _ = self.0.wait();
    }
}

fn own_level(probes: &mut Probes) -> u32 {
    let (player, _) = Player::ready(&["default"]);
    player.kill(signal::Signal::SIGTERM);
    probes.signal_to(player.pid(), 15).sender.ns_level
}
