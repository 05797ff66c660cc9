//! The players alone: each story's real wait status, cgroup, pid namespace, who sent what, and what its clients saw.

use std::path::Path;
use std::sync::Arc;

use epitaph_tests::play::Players;
use epitaph_tests::skip::skip;
use epitaph_tests::stories::STORIES;
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
    let trials = STORIES
        .iter()
        .map(|story| {
            let unplayable = players
                .machine()
                .can_play(story)
                .inspect_err(|reason| skip(story.name, &reason.to_string()));
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
        .collect();
    let conclusion = libtest_mimic::run(&args, trials);
    drop(players);
    conclusion.exit();
}
