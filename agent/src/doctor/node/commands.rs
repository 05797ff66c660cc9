//! Which commands go through logind, by the version of systemd: only they wait for the kubelet.

use super::{Node, Unknown, not_checked};
use crate::cli::SysExit;
use crate::doctor::{Finding, Trouble};

/// Commands as root, and a version of systemd from which on they ask logind.
struct Way {
    commands: &'static str,
    from: u32,
    /// Whether versions before `from` are known to bypass logind, or have no such command. Otherwise they are not known.
    is_first: bool,
}

const WAYS: [Way; 6] = [
    Way {
        commands: "systemctl poweroff and reboot",
        from: 227,
        is_first: true,
    },
    Way {
        commands: "shutdown +MINUTES",
        from: 235,
        is_first: true,
    },
    Way {
        commands: "systemctl halt",
        from: 237,
        is_first: false,
    },
    Way {
        commands: "systemctl kexec",
        from: 249,
        is_first: false,
    },
    Way {
        commands: "shutdown now, poweroff, reboot and halt",
        from: 251,
        is_first: true,
    },
    Way {
        commands: "systemctl soft-reboot",
        from: 254,
        is_first: true,
    },
];

/// On every version.
const BYPASS: &str = "--force, reboot -f, halt -p -f, systemctl start poweroff.target, Ctrl-Alt-Del and sysrq bypass it";

pub(super) fn check(node: &Node) -> Vec<Finding> {
    let check = "commands";
    let Some(version) = node.logind.systemd else {
        return vec![not_checked(check, Unknown::new("the version of systemd is not known", None))];
    };
    let listed = |wanted: &dyn Fn(&Way) -> bool| {
        let ways: Vec<&str> = WAYS.iter().filter(|way| wanted(way)).map(|way| way.commands).collect();
        ways.join(", ")
    };
    let through = listed(&|way| way.from <= version);
    // A command that came later does not exist.
    let around = listed(&|way| way.from > version && way.is_first && way.commands != "systemctl soft-reboot");
    let unknown = listed(&|way| way.from > version && !way.is_first);
    if through.is_empty() {
        let trouble = Trouble {
            code: SysExit::Unavailable,
            problem: format!("on systemd {version} no command goes through logind: no shutdown waits for pods"),
            remedy: Some("upgrade to systemd 227 or later; until then, drain the node first".into()),
        };
        return vec![Finding::problem(check, &trouble)];
    }
    let mut message = format!("on systemd {version}, {through} go through logind");
    if !unknown.is_empty() {
        message.push_str(&format!("; {unknown}: not known"));
    }
    vec![match around.is_empty() {
        true => Finding::ok(check, format!("{message}; {BYPASS}")),
        false => Finding::note(
            check,
            format!("{message}; {around} bypass it, and kill the pods at once; {BYPASS}"),
            Some("use systemctl poweroff or systemctl reboot".into()),
        ),
    }]
}
