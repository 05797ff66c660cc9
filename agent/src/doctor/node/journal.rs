//! Whether the agent can write its journal, and whether the journal outlives a boot.

use std::path::PathBuf;

use super::super::{Finding, Topic, Trouble};
use crate::cli::SysExit;

/// The directory of the agent's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    pub path: PathBuf,
    pub writable: Result<(), NotWritable>,
    /// Kind of a file system that does not outlive a boot.
    pub volatile: Option<&'static str>,
}

/// Why the agent cannot write its journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotWritable {
    /// The file system of this directory.
    ReadOnly(PathBuf),
    /// What exists of the path does not let this user create files.
    Denied {
        at: PathBuf,
        owner: u32,
        user: u32,
    },
    /// The agent makes the directory itself, and not those above it.
    NoParent(PathBuf),
    /// A link, a file or another thing: the agent follows no link.
    NotADirectory,
    /// The agent writes to a directory of its own user only.
    Foreign {
        owner: u32,
        user: u32,
    },
    /// `journal.group`: only a member of the group may give it the directory.
    Group(u32),
    Other {
        at: PathBuf,
        error: String,
    },
}

const LOST: &str = "without a journal, a restart forgets terminations in progress, and `epitaph why` and `list` find nothing";

pub(super) fn finding(journal: &Journal) -> Finding {
    let path = journal.path.display();
    let finding = match (&journal.writable, journal.volatile) {
        (Err(why), _) => Finding::problem(
            "journal",
            &Trouble {
                code: SysExit::CantCreat,
                problem: format!("{path} (`journal.directory`) cannot be written: {}; {LOST}", problem(why)),
                remedy: Some(remedy(&journal.path, why).into()),
            },
        ),
        (Ok(()), Some(kind)) => Finding::problem(
            "journal",
            &Trouble {
                code: SysExit::Config,
                problem: format!("{path} is on {kind}: it does not outlive a boot"),
                remedy: Some("give `journal.directory` a directory on a disk, such as /var/lib/epitaph/journal".into()),
            },
        ),
        (Ok(()), None) => Finding::ok("journal", format!("{path} is writable and outlives a boot")),
    };
    Finding {
        topic: Topic::Journal,
        ..finding
    }
}

/// Where no journal is configured.
pub fn none() -> Finding {
    Finding {
        topic: Topic::Journal,
        ..Finding::note(
            "journal",
            format!("`journal.directory` is not set: {LOST}"),
            Some("set `journal.directory` to a directory on a disk, such as /var/lib/epitaph/journal".into()),
        )
    }
}

fn problem(why: &NotWritable) -> String {
    match why {
        NotWritable::ReadOnly(at) => format!("the file system of {} is read-only", at.display()),
        NotWritable::Denied { at, owner, user } => {
            format!(
                "user {user} may not create files in {}, which belongs to user {owner}",
                at.display()
            )
        }
        NotWritable::NoParent(parent) => format!("{} does not exist", parent.display()),
        NotWritable::NotADirectory => "it is a link or not a directory".to_owned(),
        NotWritable::Foreign { owner, user } => {
            format!("it belongs to user {owner}, and an agent of user {user} does not use it")
        }
        NotWritable::Group(group) => format!("this user is not in group {group} (`journal.group`)"),
        NotWritable::Other { at, error } => format!("{}: {error}", at.display()),
    }
}

fn remedy(path: &std::path::Path, why: &NotWritable) -> String {
    const ELSEWHERE: &str = "or set `journal.directory` to a directory on a disk that is writable";
    match why {
        NotWritable::ReadOnly(at) => format!(
            "mount it writable (`findmnt -T {at}` shows the mount, `mount -o remount,rw` changes it; after an error of the disk see \
             `dmesg`), {ELSEWHERE}",
            at = at.display()
        ),
        NotWritable::Denied { at, user, .. } => format!(
            "run the doctor as the agent's user; if that is user {user}: `install -d -o {user} -m 700 {}` as root, or let the user write to {}",
            path.display(),
            at.display()
        ),
        NotWritable::NoParent(parent) => format!("`mkdir -p {}`, {ELSEWHERE}", parent.display()),
        NotWritable::NotADirectory => {
            format!(
                "set `journal.directory` to a directory, not to a link to one (`ls -ld {}`)",
                path.display()
            )
        }
        NotWritable::Foreign { user, .. } => format!(
            "run the agent and the doctor as the same user, or `chown -R {user} {}`",
            path.display()
        ),
        NotWritable::Group(group) => format!(
            "run the doctor as the agent, and the agent in group {group} (systemd: `SupplementaryGroups={group}`, Kubernetes: \
             `supplementalGroups: [{group}]`), or `install -d -g {group} -m 2750 {}`",
            path.display()
        ),
        NotWritable::Other { at, .. } => format!("check the disk of {} (`dmesg`), {ELSEWHERE}", at.display()),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::super::{code, text};
    use super::*;

    fn of(writable: Result<(), NotWritable>, volatile: Option<&'static str>) -> Finding {
        finding(&Journal {
            path: "/srv/epitaph/journal".into(),
            writable,
            volatile,
        })
    }

    #[test]
    fn what_cannot_be_written_is_named_with_what_to_do() {
        let whys = [
            NotWritable::ReadOnly("/srv".into()),
            NotWritable::Denied {
                at: "/srv/epitaph".into(),
                owner: 0,
                user: 991,
            },
            NotWritable::NoParent("/srv/epitaph".into()),
            NotWritable::NotADirectory,
            NotWritable::Foreign { owner: 33, user: 0 },
            NotWritable::Other {
                at: "/srv".into(),
                error: "Input/output error".to_owned(),
            },
        ];
        let findings = whys.map(|why| of(Err(why), None));
        for finding in &findings {
            assert_eq!(code(std::slice::from_ref(finding)), SysExit::CantCreat, "{finding:?}");
        }
        expect![[r#"
            problem  journal  /srv/epitaph/journal (`journal.directory`) cannot be written: the file system of /srv is read-only; without a journal, a restart forgets terminations in progress, and `epitaph why` and `list` find nothing
                              remedy: mount it writable (`findmnt -T /srv` shows the mount, `mount -o remount,rw` changes it; after an error of the disk see `dmesg`), or set `journal.directory` to a directory on a disk that is writable
            problem  journal  /srv/epitaph/journal (`journal.directory`) cannot be written: user 991 may not create files in /srv/epitaph, which belongs to user 0; without a journal, a restart forgets terminations in progress, and `epitaph why` and `list` find nothing
                              remedy: run the doctor as the agent's user; if that is user 991: `install -d -o 991 -m 700 /srv/epitaph/journal` as root, or let the user write to /srv/epitaph
            problem  journal  /srv/epitaph/journal (`journal.directory`) cannot be written: /srv/epitaph does not exist; without a journal, a restart forgets terminations in progress, and `epitaph why` and `list` find nothing
                              remedy: `mkdir -p /srv/epitaph`, or set `journal.directory` to a directory on a disk that is writable
            problem  journal  /srv/epitaph/journal (`journal.directory`) cannot be written: it is a link or not a directory; without a journal, a restart forgets terminations in progress, and `epitaph why` and `list` find nothing
                              remedy: set `journal.directory` to a directory, not to a link to one (`ls -ld /srv/epitaph/journal`)
            problem  journal  /srv/epitaph/journal (`journal.directory`) cannot be written: it belongs to user 33, and an agent of user 0 does not use it; without a journal, a restart forgets terminations in progress, and `epitaph why` and `list` find nothing
                              remedy: run the agent and the doctor as the same user, or `chown -R 0 /srv/epitaph/journal`
            problem  journal  /srv/epitaph/journal (`journal.directory`) cannot be written: /srv: Input/output error; without a journal, a restart forgets terminations in progress, and `epitaph why` and `list` find nothing
                              remedy: check the disk of /srv (`dmesg`), or set `journal.directory` to a directory on a disk that is writable
            6 problems: the agent here would keep no journal, or none over a reboot
        "#]].assert_eq(&text(&findings, None));
    }

    #[test]
    fn a_journal_that_does_not_outlive_the_boot_is_a_problem() {
        let findings = [of(Ok(()), None), of(Ok(()), Some("tmpfs"))];
        assert_eq!((code(&findings[..1]), code(&findings)), (SysExit::Ok, SysExit::Config));
    }
}
