//! The process behind a forged signal, from `/proc`: the role sees the host's processes on a host, the agent sees them in a pod, too.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use epitaph_core::node::SignalSender;

/// Bytes of a `cgroup` file that are read.
const MOST: u64 = 16 << 10;

/// Adds what is not known yet. A process that is gone stays unknown.
pub(super) fn complete(sender: &mut SignalSender, proc: &Path) {
    let SignalSender::Other {
        pid: Some(pid),
        comm,
        unit,
        ..
    } = sender
    else {
        return;
    };
    let of = |file: &str| text(&proc.join(pid.0.to_string()).join(file));
    if comm.is_none() {
        *comm = of("comm").map(|comm| comm.trim_end_matches('\n').to_owned());
    }
    if unit.is_none() {
        *unit = of("cgroup").as_deref().and_then(unit_of_cgroup);
    }
}

/// The innermost unit of the path in systemd's hierarchy.
fn unit_of_cgroup(cgroups: &str) -> Option<String> {
    let path = |line: &'_ str| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        matches!(controllers, "" | "name=systemd").then(|| path.to_owned())
    };
    let path = cgroups.lines().find_map(path)?;
    let unit = path
        .rsplit('/')
        .find(|part| part.ends_with(".service") || part.ends_with(".scope"));
    unit.map(str::to_owned)
}

fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use epitaph_core::ids::Pid;

    use super::*;

    #[test]
    fn the_process_of_a_sender() {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("7")).unwrap();
        fs::write(proc.path().join("7/comm"), "dbus-send\n").unwrap();
        fs::write(proc.path().join("7/cgroup"), "0::/system.slice/cron.service/x\n").unwrap();
        let of = |pid| {
            let mut sender = SignalSender::Other {
                name: ":1.9".to_owned(),
                pid: Some(Pid(pid)),
                uid: None,
                comm: None,
                unit: None,
            };
            complete(&mut sender, proc.path());
            match sender {
                SignalSender::Other { comm, unit, .. } => (comm, unit),
                SignalSender::Logind => panic!("another sender"),
            }
        };
        assert_eq!(of(7), (Some("dbus-send".to_owned()), Some("cron.service".to_owned())));
        assert_eq!(of(8), (None, None));
    }

    #[test]
    fn units_of_both_hierarchies() {
        let v1 = "12:cpu:/a.service\n1:name=systemd:/user.slice/session-3.scope\n";
        assert_eq!(unit_of_cgroup(v1).as_deref(), Some("session-3.scope"));
        assert_eq!(unit_of_cgroup("0::/\n"), None);
        assert_eq!(unit_of_cgroup(""), None);
    }
}
