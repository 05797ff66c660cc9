//! The players alone: each story's real wait status, cgroup, pid namespace, who sent what, and what its clients saw.

use std::path::Path;
use std::sync::Arc;

use epitaph_tests::machine::is_root;
use epitaph_tests::play::{Players, Role};
use epitaph_tests::skip::skip;
use epitaph_tests::stories::all;
use epitaph_tests::story::Story;
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let mut args = Arguments::from_args();
    // Stories mostly wait: more of them at once than there are cores.
    args.test_threads.get_or_insert(8);
    let players = match Players::new(Path::new(env!("CARGO_BIN_EXE_victim")).parent().unwrap_or(Path::new("."))) {
        Ok(players) => Some(Arc::new(players)),
        Err(_) if !is_root() => None,
        Err(e) => {
            eprintln!("players: {e:#}");
            std::process::exit(1);
        }
    };
    let mut trials: Vec<Trial> = all()
        .map(|story| {
            let players = players.clone();
            Trial::test(format!("players::{}", story.name), move || {
                ground_truth(players.as_deref(), story)
            })
        })
        .collect();
    let noticing = players.clone();
    trials.push(Trial::test("players::another-story-is-noticed", move || {
        another_story_is_noticed(noticing.as_deref())
    }));
    let conclusion = libtest_mimic::run(&args, trials);
    drop(players);
    conclusion.exit();
}

fn ground_truth(players: Option<&Players>, story: &'static Story) -> Result<(), Failed> {
    let Some(players) = players else {
        skip(story.name, "playing it needs root");
        return Ok(());
    };
    if let Err(reason) = players.machine().can_play(story) {
        skip(story.name, &reason);
        return Ok(());
    }
    let role = players.cast(story).map_err(|e| format!("{e:#}"))?;
    let played = players.play(&role).map_err(|e| format!("{e:#}"))?;
    let differs = played.differs(&role);
    if differs.is_empty() {
        Ok(())
    } else {
        Err(format!("{}\n{played:#?}", differs.join("\n")).into())
    }
}

/// What was played as one story does not pass as another.
fn another_story_is_noticed(players: Option<&Players>) -> Result<(), Failed> {
    let Some(players) = players else {
        skip("another-story-is-noticed", "playing needs root");
        return Ok(());
    };
    let story = |name: &str| all().find(|s| s.name == name).ok_or_else(|| format!("no story {name}"));
    let role = players.cast(story("completed")?).map_err(|e| format!("{e:#}"))?;
    let played = players.play(&role).map_err(|e| format!("{e:#}"))?;
    for (name, words) in [
        ("exits-1-by-itself", "its end was"),
        ("abort", "its own pid"),
        ("drains", "the stop signal was"),
    ] {
        let differs = played.differs(&Role {
            story: story(name)?,
            ..role.clone()
        });
        if !differs.iter().any(|d| d.contains(words)) {
            return Err(format!("played `completed`, taken for `{name}`: {differs:?}").into());
        }
    }
    Ok(())
}
