//! People who look after the fact: at a running agent its log line, and `epitaph why` and `list` from its journal; the file of a killed
//! `epitaph record`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use anyhow::{Context as _, ensure};
use epitaph_tests::agent::program;
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::machine::is_root;
use epitaph_tests::play::Players;
use epitaph_tests::service::Service;
use epitaph_tests::skip::skip;
use epitaph_tests::stories::stories;
use epitaph_tests::timeout::{TO_END, until};
use serde_json::Value;

fn binaries() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_BIN_EXE_victim"));
    path.pop();
    path
}

#[test]
fn an_unclean_termination_is_logged_and_found_in_the_journal() -> anyhow::Result<()> {
    let test = "an_unclean_termination_is_logged_and_found_in_the_journal";
    if !is_root() {
        skip(test, "observing needs root");
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let players = Players::new(&binaries())?;
    let epitaph = Epitaph::copied(&program(&binaries()), directory.path())?;
    let (journal, stdout) = (directory.path().join("journal"), directory.path().join("stdout"));
    // As in a pod: a service address, and standard output that is collected.
    let script = format!(
        "export KUBERNETES_SERVICE_HOST=127.0.0.1 EPITAPH_KUBERNETES=off EPITAPH_JOURNAL_DIRECTORY={}; exec \"$0\" \"$@\" >{}",
        journal.display(),
        stdout.display()
    );
    let mut agent = Service::inside(&["sh", "-c", &script], &epitaph, directory.path())?;
    let story = stories()
        .find(|story| story.name == "ignored-without-handler")
        .context("no such story")?;
    let role = players.cast(story)?;
    let differs = players.play(&role)?.differs(&role);
    ensure!(differs.is_empty(), "{}", differs.join("\n"));

    let line = logged(&stdout, &role.subject)?;
    assert_eq!(
        (&line["level"], &line["verdict"]),
        (&"WARN".into(), &"ignored-stop-signal".into()),
        "{line}"
    );
    assert!(
        line["message"]
            .as_str()
            .is_some_and(|text| text.contains("has no SIGTERM handler")),
        "{line}"
    );
    assert!(!agent.log().contains("epitaph::termination"), "logged twice: {}", agent.log());

    // While the agent writes.
    let ask = |args: &[&str]| epitaph.command().args(args).arg("--journal").arg(&journal).output();
    let why = answered(|| ask(&["why", &role.subject[..12]]))?;
    for part in [
        "ignored-stop-signal  UNCLEAN",
        "SIGTERM from the runtime",
        "SIGKILL from the runtime",
        "Remedy",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let trace = line["trace_id"].as_str().context("no trace id")?;
    assert!(answered(|| ask(&["why", &trace[..8]]))?.contains(trace));
    let list = answered(|| ask(&["list", "--since", "1h", "--unclean"]))?;
    assert!(list.lines().any(|line| line.contains(&role.subject[..12])), "{list}");
    let object: Value = serde_json::from_str(&answered(|| ask(&["why", "--output", "json", &role.subject]))?)?;
    assert_eq!(object["report"]["trace_id"], line["trace_id"]);

    // Only the agent's user and group may read what containers did.
    let refused = epitaph.as_nobody("").args(["list", "--journal"]).arg(&journal).output()?;
    assert_eq!(refused.status.code(), Some(77), "{refused:?}");
    let missing = ask(&["why", "no-such-pod"])?;
    assert_eq!(missing.status.code(), Some(66), "{missing:?}");

    let status = agent.end(TO_END)?;
    ensure!(status.success(), "{status}: {}", agent.log());
    Ok(())
}

/// What `epitaph record` has shown is in its file, whenever it is killed, and the file claims no loss that did not happen.
#[test]
fn a_recording_that_was_killed_has_what_was_shown_and_no_false_loss() -> anyhow::Result<()> {
    let test = "a_recording_that_was_killed_has_what_was_shown_and_no_false_loss";
    if !is_root() {
        skip(test, "observing needs root");
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let players = Players::new(&binaries())?;
    let epitaph = Epitaph::copied(&program(&binaries()), directory.path())?;
    let file = directory.path().join("evidence.epitaph");
    let mut recorder = epitaph
        .command()
        .args(["record", "--output", "json"])
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(recorder.stdout.take().context("piped")?).lines();
    ensure!(lines.next().context("it ended")??.contains("\"observing\""));
    let mut shown = Vec::new();
    for name in ["default-action", "ignored-without-handler"] {
        let story = stories().find(|story| story.name == name).context("no such story")?;
        let role = players.cast(story)?;
        let differs = players.play(&role)?.differs(&role);
        ensure!(differs.is_empty(), "{}", differs.join("\n"));
        loop {
            let object: Value = serde_json::from_str(&lines.next().context("it ended")??)?;
            let is_of_it = object["type"] == "termination" && object["subject"]["id"] == *role.subject;
            shown.push(object);
            if is_of_it {
                break;
            }
        }
    }
    recorder.kill()?;
    recorder.wait()?;
    // What it had shown by then, but for a line that is there in part.
    shown.extend(
        lines
            .map_while(Result::ok)
            .filter_map(|line| serde_json::from_str(&line).ok()),
    );

    let replayed = epitaph.command().args(["replay", "--output", "json"]).arg(&file).output()?;
    // 65 if the recorder was killed in the middle of a write.
    ensure!(matches!(replayed.status.code(), Some(0 | 65)), "{replayed:?}");
    let objects: Vec<Value> = String::from_utf8(replayed.stdout)?
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    for object in &shown {
        ensure!(objects.contains(object), "shown, and not in the file: {object}");
    }
    let lost = |objects: &[Value]| objects.iter().filter(|object| object["type"] == "lost").count();
    ensure!(lost(&objects) == lost(&shown), "a loss that did not happen: {objects:?}");
    Ok(())
}

/// The agent's line about this container.
fn logged(stdout: &Path, container: &str) -> anyhow::Result<Value> {
    until(&format!("a line about {container}"), || {
        let text = std::fs::read_to_string(stdout)?;
        // The last line may be there in part.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let line: Value = serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))?;
            if line["container_id"] == container {
                return Ok(Ok(line));
            }
        }
        Ok(Err(text))
    })
}

/// The output of a command once it succeeds: what is not synced yet is not found.
fn answered(ask: impl Fn() -> std::io::Result<Output>) -> anyhow::Result<String> {
    until("an answer", || {
        let output = ask()?;
        if output.status.success() {
            return Ok(Ok(String::from_utf8(output.stdout)?));
        }
        Ok(Err(format!("{output:?}")))
    })
}
