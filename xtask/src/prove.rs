//! The last result of each tier of tests, in `docs/tiers.md`: run here, and written from what the tier printed. And the last runs in a row
//! ([`crate::in_a_row`]). And the proof of each claim ([`proof`]).

mod attacks;
mod claims;
mod proof;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, ExitCode, ExitStatus, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use pico_args::Arguments;

use crate::{dist, done, shell};

pub const FLAGS: &str = "--quick | --all | TIER... | claims [--quick] [--only TEXT]";

const PAGE: &str = "docs/tiers.md";

struct Tier {
    name: &'static str,
    /// After `cargo xtask`.
    command: &'static str,
    what: &'static str,
    /// Within a quarter of an hour on two cores, once built.
    is_quick: bool,
}

const fn tier(name: &'static str, command: &'static str, is_quick: bool, what: &'static str) -> Tier {
    Tier {
        name,
        command,
        what,
        is_quick,
    }
}

const TIERS: &[Tier] = &[
    tier("everyday", "test", true, "what CI runs on every change"),
    tier(
        "programs",
        "test programs",
        true,
        "real programs of Debian's packages as containers",
    ),
    tier(
        "oldest",
        "test oldest",
        true,
        "chart, agent and observer at the API server of Kubernetes 1.28",
    ),
    tier(
        "image",
        "test image",
        true,
        "the container image, through a registry and containerd",
    ),
    tier(
        "release",
        "test release",
        false,
        "a release's artefacts, twice, through a registry",
    ),
    tier(
        "platforms",
        "test platforms",
        true,
        "`kubectl epitaph` built for Windows, checked for macOS",
    ),
    tier("deb", "test deb", true, "the Debian package, installed and purged"),
    tier("cluster", "test cluster", false, "the stories on a real Kubernetes cluster"),
    tier("runtimes", "test runtimes", false, "containers of Docker, Podman and CRI-O"),
    tier("oom", "test oom", false, "systemd-oomd and earlyoom of Debian 12"),
    tier("shutdowns", "test systemd", false, "shutdowns of Debian 13"),
    tier("shutdowns-11", "test systemd --debian 11", false, "shutdowns of Debian 11"),
    tier(
        "kernels",
        "test kernels",
        false,
        "probes, agent and stories on kernels from 5.10 on",
    ),
    tier("journal", "test journal", false, "1,000 kills of agents, 50 power cuts"),
    tier("fresh", "test fresh", false, "the README's commands in a minimal Debian"),
    tier("random", "test random", false, "200 random histories against an oracle"),
    tier(
        "random-killed",
        "test random 200 --kill-agents",
        false,
        "200 random histories, while agents are killed every 4 to 9 s",
    ),
    tier(
        "random-kernels",
        "test random 40 --kernels 5.10,6.1,6.12,7.3",
        false,
        "40 random histories on each of these kernels, in emulated machines",
    ),
    tier(
        "faults",
        "test faults",
        false,
        "deliberate faults of the product, each found by a test that looks for it",
    ),
    tier("fuzz", "fuzz", false, "an hour of hostile bytes"),
];

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let (quick, all) = (args.contains("--quick"), args.contains("--all"));
    let only: Option<String> = args.opt_value_from_str("--only")?;
    let mut names: Vec<String> = Vec::new();
    while let Some(name) = args.opt_free_from_str().context("reading the name of a tier")? {
        names.push(name);
    }
    done(args)?;
    if names == ["claims"] {
        ensure!(
            !all,
            "`claims` runs all of them, or with --quick those of less than five minutes each"
        );
        return proof::task(quick, only.as_deref());
    }
    ensure!(only.is_none(), "--only is for `claims`");
    if let Some(unknown) = names.iter().find(|name| !TIERS.iter().any(|tier| tier.name == **name)) {
        let known: Vec<&str> = TIERS.iter().map(|tier| tier.name).collect();
        bail!("no tier `{unknown}`; the tiers are {}", known.join(", "));
    }
    let wanted = |tier: &&Tier| all || (quick && tier.is_quick) || names.iter().any(|name| name == tier.name);
    let chosen: Vec<&Tier> = TIERS.iter().filter(wanted).collect();
    if chosen.is_empty() {
        bail!("which tiers? {FLAGS}");
    }
    let path = shell::root().join(PAGE);
    let stamp = stamp()?;
    let mut failed = 0;
    for tier in chosen {
        let result = run(tier, &stamp)?;
        failed += u32::from(!result.succeeded);
        // After each: a tier that is cut short costs none of the others.
        let before = fs::read_to_string(&path).unwrap_or_default();
        fs::write(&path, page(&before, Some((tier, &result)), None)).with_context(|| format!("writing {}", path.display()))?;
    }
    shell::log(format_args!("the results are in {PAGE}"));
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tests that ran several times.
pub struct Row {
    /// Which tests, and the number of busy loops: a row for each pair.
    pub key: [String; 2],
    /// Runs, runs without a failure, minutes of a run, what failed.
    pub cells: [String; 4],
}

impl Row {
    fn begin(&self) -> String {
        format!("| {} |", self.key.join(" | "))
    }
}

/// Writes the row into the page, and returns it.
pub fn record(row: &Row, stamp: &Stamp) -> Result<String> {
    let path = shell::root().join(PAGE);
    let before = fs::read_to_string(&path).unwrap_or_default();
    let text = format!("{} {} | {} |", row.begin(), row.cells.join(" | "), stamp.join(" | "));
    let page = page(&before, None, Some((row, &text)));
    fs::write(&path, page).with_context(|| format!("writing {}", path.display()))?;
    Ok(text)
}

/// The cells of the row with this key, if its runs were of the same content and on the same kernel, so that more of them add up.
pub fn recorded(key: &[String; 2], stamp: &Stamp) -> Option<[String; 4]> {
    let path = shell::root().join(PAGE);
    of_same(&fs::read_to_string(&path).unwrap_or_default(), key, stamp)
}

fn of_same(page: &str, key: &[String; 2], [_, kernel, tested]: &Stamp) -> Option<[String; 4]> {
    let (_, rows) = page.split_once(RUNS)?;
    let cells = |row: &str| -> Option<[String; 9]> {
        let row = row.strip_prefix("| ")?.strip_suffix(" |")?;
        row.split(" | ").map(str::to_owned).collect::<Vec<_>>().try_into().ok()
    };
    rows.lines().filter_map(cells).find_map(|row| {
        let [tests, loops, runs, well, minutes, failures, _, of_kernel, of_tested] = row;
        let content = |tested: &str| tested.split_once(' ').map(|(_, content)| content.to_owned());
        let same = [tests, loops] == *key && of_kernel == *kernel && content(&of_tested) == content(tested);
        same.then_some([runs, well, minutes, failures])
    })
}

/// Date, kernel, commit and content.
pub type Stamp = [String; 3];

/// Of what is tested: the pages themselves are written by the runs, and test nothing.
pub fn stamp() -> Result<Stamp> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").context("reading the kernel's release")?;
    Ok([
        shell::read(Command::new("date").args(["-u", "+%F"]))?,
        kernel.trim().to_owned(),
        format!("{} {}", dist::git(&["describe", "--always"])?, content()?),
    ])
}

/// The tree that git would write for the tracked files as they are, without the pages that runs write: the same after these are committed,
/// and in another checkout.
fn content() -> Result<String> {
    let directory = shell::root().join("target/xtask");
    fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        // An index of its own: what is staged stays as it is.
        git.current_dir(shell::root())
            .env("GIT_INDEX_FILE", directory.join("index"))
            .args(args);
        shell::read(&mut git)
    };
    git(&["read-tree", "HEAD"])?;
    git(&["add", "--update"])?;
    git(&["rm", "--cached", "--quiet", "--ignore-unmatch", "--", PAGE, proof::PAGE])?;
    let mut tree = git(&["write-tree"])?;
    tree.truncate(12);
    Ok(tree)
}

struct Outcome {
    succeeded: bool,
    /// Result, date, kernel, commit and content.
    cells: [String; 4],
}

fn run(tier: &Tier, stamp: &Stamp) -> Result<Outcome> {
    let [date, kernel, tested] = stamp.clone();
    let (lines, status) = printed(&tier.command.split(' ').collect::<Vec<_>>())?;
    let totals = lines.iter().rev().find_map(|line| closing(line));
    Ok(Outcome {
        succeeded: status.success(),
        cells: [result(totals, status), date, kernel, tested],
    })
}

/// Runs a task of xtask; the lines that it prints, which are printed here, too.
fn printed(words: &[&str]) -> Result<(Vec<String>, ExitStatus)> {
    let mut cargo = shell::cargo();
    cargo.args(["run", "--quiet", "--package", "xtask", "--"]).args(words);
    shell::log(format_args!("cargo xtask {}", words.join(" ")));
    let mut child = cargo
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("running cargo")?;
    let output = BufReader::new(child.stdout.take().context("the pipe that was just asked for")?);
    let mut lines = Vec::new();
    // Not always UTF-8: a process of a story writes any bytes.
    for line in output.split(b'\n') {
        let line = line.context("reading what the task prints")?;
        let line = String::from_utf8_lossy(&line).into_owned();
        println!("{line}");
        lines.push(line);
    }
    let status = child.wait().context("waiting for the task")?;
    Ok((lines, status))
}

/// The totals, if this is a closing line of `cargo xtask test`: `12 passed, 0 failed, 1 skipped`. A tier with goals has
/// `, goals missed: 1` behind it, and random histories what was allowed and counted: `, unknown: 3`.
pub fn closing(line: &str) -> Option<String> {
    let mut parts = line.split(", ");
    let mut is_next = |word: &str| parts.next()?.strip_suffix(word)?.parse::<u64>().ok();
    [" passed", " failed", " skipped"]
        .into_iter()
        .try_for_each(|word| is_next(word).map(drop))?;
    let is_count = |part: &str| part.split_once(": ").is_some_and(|(_, count)| count.parse::<u64>().is_ok());
    parts.all(is_count).then(|| line.to_owned())
}

fn result(totals: Option<String>, status: ExitStatus) -> String {
    match (totals, status.success()) {
        (Some(totals), true) => totals,
        (Some(totals), false) => format!("**failed**: {totals}"),
        (None, true) => "passed".to_owned(),
        (None, false) => format!("**failed**: {status}"),
    }
}

/// The page with the new result of a tier, or of runs in a row; the other rows as they were.
fn page(before: &str, tier: Option<(&Tier, &Outcome)>, runs: Option<(&Row, &str)>) -> String {
    let mut page = String::from(
        "# Tiers of tests\n\n\
         This page answers: which tests ran last, when, and with which result? Written by `cargo xtask prove` and `cargo xtask test --repeat`;\n\
         do not edit. Each row is the last run that was recorded, with the kernel of the machine, the commit, and the content:\n\
         the tree that git writes for the tracked files as they were, without this page and [proof.md](proof.md).\n\n\
         | Tier | `cargo xtask …` | What | Result | Date | Kernel | Commit, content |\n|---|---|---|---|---|---|---|\n",
    );
    for known in TIERS {
        let begin = format!("| {} | `{}` | {} |", known.name, known.command, known.what);
        let of_before = before.lines().find(|line| line.starts_with(&format!("| {} | `", known.name)));
        let cells = match (tier, of_before) {
            (Some((tier, outcome)), _) if tier.name == known.name => outcome.cells.join(" | "),
            (_, Some(row)) => row
                .trim_end_matches(" |")
                .splitn(8, " | ")
                .skip(3)
                .collect::<Vec<_>>()
                .join(" | "),
            (_, None) => "not recorded | – | – | –".to_owned(),
        };
        page += &format!("{begin} {cells} |\n");
    }
    page += RUNS;
    let of_before = before.split_once(RUNS).map_or("", |(_, rows)| rows);
    let kept = of_before.lines().take_while(|line| line.starts_with("| "));
    let kept = kept.filter(|line| runs.is_none_or(|(row, _)| !line.starts_with(&row.begin())));
    for row in kept.chain(runs.map(|(_, text)| text)) {
        page += &format!("{row}\n");
    }
    page + "\nNext: [development.md](development.md).\n"
}

const RUNS: &str = "\n## The same tests in a row\n\n\
    By `cargo xtask test --repeat RUNS --loops N --only TESTS`: beside so many busy loops, no test retried. Runs of one content add up.\n\n\
    | Tests | Busy loops | Runs | Without a failure | Minutes of a run | Failures | Date | Kernel | Commit, content |\n\
    |---|---|---|---|---|---|---|---|---|\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(result: &str) -> Outcome {
        Outcome {
            succeeded: true,
            cells: [result, "2026-01-02", "6.18", "abc"].map(str::to_owned),
        }
    }

    fn with(before: &str, tier: &Tier, outcome: &Outcome) -> String {
        page(before, Some((tier, outcome)), None)
    }

    #[test]
    fn a_result_replaces_its_row_and_keeps_the_others() {
        let first = with("", &TIERS[0], &outcome("1 passed, 0 failed, 0 skipped"));
        let both = with(&first, &TIERS[1], &outcome("2 passed, 0 failed, 0 skipped"));
        assert!(both.contains(
            "| everyday | `test` | what CI runs on every change | 1 passed, 0 failed, 0 skipped | 2026-01-02 | 6.18 | abc |"
        ));
        assert!(both.contains("containers | 2 passed, 0 failed, 0 skipped | 2026-01-02 | 6.18 | abc |"));
        let again = with(&both, &TIERS[0], &outcome("**failed**: 3 passed, 1 failed, 0 skipped"));
        assert!(again.contains("**failed**: 3 passed") && !again.contains("| 1 passed"));
        let tiers = again.split_once("\n## ").expect("the runs").0;
        let rows = tiers.lines().filter(|line| line.starts_with("| ")).skip(1);
        assert!(rows.clone().all(|row| row.matches('|').count() == 8), "{again}");
        assert_eq!(rows.count(), TIERS.len());
        assert_eq!(
            with(&again, &TIERS[0], &outcome("**failed**: 3 passed, 1 failed, 0 skipped")),
            again
        );
    }

    #[test]
    fn runs_in_a_row_replace_their_row_and_keep_the_tiers_and_the_others() {
        let row = |loops: &str| Row {
            key: ["`timing`".to_owned(), loops.to_owned()],
            cells: Default::default(),
        };
        let idle = page("", None, Some((&row("0"), "| `timing` | 0 | first |")));
        let both = page(&idle, None, Some((&row("2"), "| `timing` | 2 | beside |")));
        let again = page(&both, None, Some((&row("0"), "| `timing` | 0 | second |")));
        assert!(
            again.contains("| beside |\n| `timing` | 0 | second |\n\nNext: ") && !again.contains("first"),
            "{again}"
        );
        let proven = with(&again, &TIERS[0], &outcome("1 passed, 0 failed, 0 skipped"));
        assert!(proven.contains("| 1 passed, 0 failed, 0 skipped |") && proven.ends_with(again.split_once("## ").unwrap().1));
    }

    #[test]
    fn runs_add_up_of_one_content_and_on_one_kernel() {
        let key = ["`timing`", "2"].map(str::to_owned);
        let row = Row {
            key: key.clone(),
            cells: ["5", "4", "1.0 to 2.0", "a, b (2 times)"].map(str::to_owned),
        };
        let recorded = |tested: &str| {
            let text = format!("{} {} | 2026-01-02 | 6.18 | {tested} |", row.begin(), row.cells.join(" | "));
            page("", None, Some((&row, &text)))
        };
        let stamp = |kernel: &str, tested: &str| ["2026-01-03", kernel, tested].map(str::to_owned);
        let before = recorded("abc 123");
        // On another day, and at a later commit, too.
        assert_eq!(of_same(&before, &key, &stamp("6.18", "abc 123")), Some(row.cells.clone()));
        assert_eq!(of_same(&before, &key, &stamp("6.18", "def 123")), Some(row.cells.clone()));
        assert_eq!(of_same(&before, &key, &stamp("6.18", "abc-dirty 124")), None);
        assert_eq!(of_same(&before, &key, &stamp("6.19", "abc 123")), None);
        let idle = ["`timing`", "0"].map(str::to_owned);
        assert_eq!(of_same(&before, &idle, &stamp("6.18", "abc 123")), None);
        assert_eq!(of_same("", &key, &stamp("6.18", "abc 123")), None);
    }

    #[test]
    fn only_a_closing_line_is_a_total() {
        assert!(closing("2184 passed, 0 failed, 3 skipped").is_some());
        assert!(closing("7 passed, 0 failed, 0 skipped, goals missed: 1").is_some());
        assert!(closing("200 passed, 0 failed, 0 skipped, unknown: 1, by docs/limits: 40, known: 0").is_some());
        assert!(closing("200 passed, 0 failed, 0 skipped, and more").is_none());
        assert!(closing("test result: ok. 1 passed; 0 failed; 0 ignored").is_none());
        assert!(closing("all passed, none failed, some skipped").is_none());
    }
}
