//! The journal's directory as an agent without capabilities finds it: shared with a group, another user's, not there.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::sync::Arc;

use epitaph_core::fixtures::terminations::{ignored, observation};
use epitaph_core::report::Report;

use super::export::Export;
use super::journaling::{self, FinishedReport, Journaling};
use super::privileges;
use crate::config::Config;
use crate::error::lines;
use crate::journal::{Opened, Trouble};
use crate::render::span;
use crate::sink::http::Health;
use crate::sink::otlp::Exporters;

/// A group that no process of this machine is in, and a user that is not root.
const GROUP: u32 = 4_242_424;
const SOMEBODY: u32 = 65_534;

/// Capabilities are what the test gives up, and files of others what it makes.
fn is_root() -> bool {
    let is = nix::unistd::geteuid().is_root();
    if !is {
        println!("not root: skipped");
    }
    is
}

/// As the agent: without capabilities. Errors as text.
fn open(directory: &Path, group: Option<u32>) -> Result<Opened, String> {
    let mut config = Config::default();
    config.journal.directory = Some(directory.to_owned());
    config.journal.group = group;
    let export = Export::start(&config).unwrap();
    let opened = privileges::without(|| journaling::open(&config, &observation(), &export.metrics, &|| false));
    opened
        .map(|opened| opened.expect("a directory"))
        .map_err(|error| lines(&error))
}

/// Lets the journal write a segment.
fn write(opened: Opened) {
    let journaling = Journaling::new(&opened);
    let report = Report::Terminated(Box::new(ignored(1)));
    let trace = match &report {
        Report::Terminated(t) => span::trace(t, &observation(), &span::Options::default()),
        _ => unreachable!("a termination"),
    };
    let finished = FinishedReport::of(&report, &trace, &observation(), false).expect("a termination");
    journaling.report(crate::clock::now(), &finished, &Exporters::default());
    journaling::close(opened.thread);
}

/// A directory for the journal, with owner, group and mode.
fn directory(within: &Path, owner: u32, group: u32, mode: u32) -> std::path::PathBuf {
    let directory = within.join("journal");
    fs::create_dir(&directory).unwrap();
    chown(&directory, Some(owner), Some(group)).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
    directory
}

fn mode_and_group(path: &Path) -> (u32, u32) {
    let metadata = fs::metadata(path).unwrap();
    (metadata.mode() & 0o7777, metadata.gid())
}

/// Segments with mode and group.
fn segments(directory: &Path) -> Vec<(u32, u32)> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let segments = files.filter(|path| path.extension().is_some_and(|extension| extension == "journal"));
    segments.map(|path| mode_and_group(&path)).collect()
}

#[test]
fn a_group_that_the_agent_is_not_in_reads_a_directory_that_was_prepared() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let directory = directory(place.path(), 0, GROUP, 0o2750);
    write(open(&directory, Some(GROUP)).unwrap());
    assert_eq!(mode_and_group(&directory), (0o2750, GROUP));
    assert_eq!(segments(&directory), [(0o640, GROUP)]);
}

/// Instead of a journal that the group believes to read.
#[test]
fn a_directory_that_the_agent_cannot_share_is_refused_with_the_command() {
    if !is_root() {
        return;
    }
    // Not there; there with a mode that the agent cannot correct without losing the set-group-ID bit; there without the bit.
    for prepared in [None, Some(0o2770), Some(0o750)] {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("journal");
        if let Some(mode) = prepared {
            directory(place.path(), 0, GROUP, mode);
        }
        let refused = open(&path, Some(GROUP)).err().expect("refused");
        let expected = format!(
            "cannot give the journal {path} to group {GROUP}: Operation not permitted (os error 1)\nremedy: let the agent run in group \
             {GROUP} (systemd: `SupplementaryGroups={GROUP}`, Kubernetes: `supplementalGroups: [{GROUP}]`), or `install -d -o 0 -g \
             {GROUP} -m 2750 {path}`",
            path = path.display()
        );
        assert_eq!(refused, expected, "{prepared:?}");
        // The command helps.
        chown(&path, Some(0), Some(GROUP)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o2750)).unwrap();
        write(open(&path, Some(GROUP)).unwrap());
        assert_eq!(segments(&path), [(0o640, GROUP)], "{prepared:?}");
    }
}

#[test]
fn an_agent_in_the_group_shares_what_was_there_before() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let own = nix::unistd::getegid().as_raw();
    let directory = directory(place.path(), 0, GROUP, 0o700);
    let old = directory.join("0000000000000007.journal");
    fs::write(&old, "x").unwrap();
    chown(&old, Some(0), Some(GROUP)).unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o600)).unwrap();
    write(open(&directory, Some(own)).unwrap());
    assert_eq!(mode_and_group(&directory), (0o2750, own));
    assert_eq!(segments(&directory), [(0o640, own), (0o640, own)]);
}

#[test]
fn another_users_directory_is_refused_with_both_users() {
    if !is_root() {
        return;
    }
    for mode in [0o700, 0o777] {
        let place = tempfile::tempdir().unwrap();
        let directory = directory(place.path(), SOMEBODY, SOMEBODY, mode);
        let refused = open(&directory, None).err().expect("refused");
        let expected = format!(
            "the journal {} belongs to user {SOMEBODY}, and the agent is user 0\nremedy: give a directory of the agent's own user as \
             `journal.directory`",
            directory.display()
        );
        assert_eq!(refused, expected, "{mode:o}");
    }
}

/// A wrong setting is not a broken disk: what is wrong is named.
#[test]
fn a_directory_that_cannot_be_made_is_named_with_its_reason() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let closed = place.path().join("closed");
    fs::create_dir(&closed).unwrap();
    chown(&closed, Some(SOMEBODY), None).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    let missing = place.path().join("no/such/journal");
    let (missing, closed) = (missing.as_path(), closed.join("journal"));
    let at = |path: &Path| path.display().to_string();
    let cases = [
        (
            missing,
            Trouble::Missing,
            format!(
                "cannot create {}: {} does not exist",
                at(missing),
                at(missing.parent().unwrap())
            ),
            "create the parent of `journal.directory`",
        ),
        (
            Path::new("/proc/epitaph"),
            Trouble::Missing,
            "cannot create /proc/epitaph: No such file or directory (os error 2)".to_owned(),
            "on a disk",
        ),
        (
            &closed,
            Trouble::Refused,
            format!(
                "cannot create {}: {} belongs to user {SOMEBODY}, mode 755, and the agent is user 0 without capabilities",
                at(&closed),
                at(closed.parent().unwrap())
            ),
            "let the agent's user create files",
        ),
    ];
    for (path, kind, error, remedy) in cases {
        let opened = open(path, None).unwrap();
        let troubled = opened.journal.stats().troubled().expect("in memory only");
        assert_eq!((troubled.kind, troubled.error.as_str()), (kind, error.as_str()));
        assert!(troubled.remedy.contains(remedy), "{}", troubled.remedy);
        journaling::close(opened.thread);
    }
}

#[test]
fn an_agent_without_a_directory_says_so() {
    let export = Export::start(&Config::default()).unwrap();
    let health = Arc::new(Health::default());
    journaling::not_configured(&export.metrics, &health);
    let metrics = export.metrics.text().unwrap();
    let states: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with("epitaph_journal_state{"))
        .collect();
    let of = |state: &str| {
        states
            .iter()
            .find(|line| line.contains(&format!("state=\"{state}\"")))
            .map(|line| line.ends_with(" 1"))
    };
    assert_eq!(
        (of("not_configured"), of("written"), of("failing")),
        (Some(true), Some(false), Some(false)),
        "{states:?}"
    );
    let shown = serde_json::to_string(&health.journal_state()).unwrap();
    assert_eq!(
        shown,
        "{\"state\":\"memory_only\",\"reason\":\"not_configured\",\"remedy\":\"set `journal.directory`, for example to \
         /var/lib/epitaph/journal\"}"
    );
}
