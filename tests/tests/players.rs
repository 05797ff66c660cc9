//! The players alone: each story's real wait status, cgroup, pid namespace, who sent what, and what its clients saw.

use std::path::Path;
use std::sync::Arc;

use epitaph_tests::play::{Players, Role};
use epitaph_tests::stories::stories;
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let mut args = Arguments::from_args();
    // Stories mostly wait: more of them at once than there are cores.
    args.test_threads.get_or_insert(8);
    let players = match Players::new(Path::new(env!("CARGO_BIN_EXE_victim")).parent().unwrap_or(Path::new("."))) {
        Ok(players) => Arc::new(players),
        Err(e) => {
            eprintln!("players: {e:#}");
            std::process::exit(1);
        }
    };
    let trials = stories()
        .map(|story| {
            let unplayable = players
                .machine()
                .can_play(story)
                .inspect_err(|reason| println!("skipped: {}: {reason}", story.name));
            let players = Arc::clone(&players);
            let play = move || {
                let role = players.cast(story).map_err(|e| Failed::from(format!("{e:#}")))?;
                let played = players.play(&role).map_err(|e| Failed::from(format!("{e:#}")))?;
                let differs = played.differs(&role);
                if differs.is_empty() {
                    Ok(())
                } else {
                    Err(format!("{}\n{played:#?}", differs.join("\n")).into())
                }
            };
            Trial::test(story.name, play).with_ignored_flag(unplayable.is_err())
        })
        .chain([{
            let players = Arc::clone(&players);
            Trial::test("another-story-is-noticed", move || another_story_is_noticed(&players))
        }])
        .collect();
    let conclusion = libtest_mimic::run(&args, trials);
    drop(players);
    conclusion.exit();
}

/// What was played as one story does not pass as another.
fn another_story_is_noticed(players: &Players) -> Result<(), Failed> {
    let story = |name: &str| stories().find(|s| s.name == name).ok_or_else(|| format!("no story {name}"));
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
