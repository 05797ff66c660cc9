//! The stories on a real cluster, a test each: `cargo xtask cluster test` brings the cluster up and names it.

mod chart;
mod foundation;
mod machine;
mod readers;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use epitaph_tests::cluster::lost::{self, Death};
use epitaph_tests::cluster::node_shutdown::{self, Case};
use epitaph_tests::cluster::play::Stage;
use epitaph_tests::cluster::rollouts::forecast::Compared;
use epitaph_tests::cluster::rollouts::{self, Row};
use epitaph_tests::cluster::stories::{self, Story, stories};
use epitaph_tests::cluster::{Cluster, apparmor, deploy};
use epitaph_tests::skip::skip;
use libtest_mimic::{Arguments, Failed, Trial};

/// Emulated processors are slow, and stories mostly wait.
const AT_ONCE: usize = 4;

fn main() {
    // libtest takes one name; a person may want several stories.
    let (flags, names): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|word| word.starts_with('-'));
    let mut args = Arguments::from_iter(std::iter::once("cluster".to_owned()).chain(flags));
    args.test_threads.get_or_insert(AT_ONCE);
    let shared = Arc::new(Shared::default());
    type Test = fn() -> anyhow::Result<()>;
    let foundation: [(&str, Test); 3] = [
        (
            "a-pod-runs-and-answers-and-is-deleted",
            foundation::a_pod_runs_and_answers_and_is_deleted,
        ),
        (
            "a-node-is-root-s-and-reaches-jaeger",
            foundation::a_node_is_root_s_and_reaches_jaeger_on_the_host,
        ),
        (
            "a-machine-is-commanded-paused-reset-and-unplugged",
            machine::a_machine_is_commanded_paused_reset_and_unplugged,
        ),
    ];
    let foundation = foundation.into_iter().map(|(name, test)| {
        Trial::test(format!("foundation::{name}"), move || {
            Ok(test().map_err(|error| format!("{error:#}"))?)
        })
    });
    let stories = stories().map(|story| {
        let shared = Arc::clone(&shared);
        let name = format!("cluster::{}", story.name);
        Trial::test(name, move || match stories::lacks(story) {
            Some(reason) => {
                skip(story.name, reason);
                Ok(())
            }
            None => shared.play(story),
        })
    });
    let rollouts = [("prompt-proxy", false), ("late-proxy", true)]
        .into_iter()
        .map(|(name, late)| {
            let shared = Arc::clone(&shared);
            Trial::test(format!("rollouts::{name}"), move || shared.roll(late))
        });
    let forecasts = rollouts::SERVERS.into_iter().map(|server| {
        let shared = Arc::clone(&shared);
        Trial::test(format!("rollouts::forecasts-{server}"), move || shared.forecast(server))
    });
    let modes = rollouts::placed::PROXIES.into_iter().filter(|_| lost::is_possible());
    let placed = modes.map(|proxy| {
        let shared = Arc::clone(&shared);
        Trial::test(format!("rollouts::placed-clients-{proxy}"), move || {
            shared.roll_with(|stage| rollouts::placed::all(stage, proxy), rollouts::placed::unproven)
        })
    });
    // A cluster of one node has none to lose: `cargo xtask cluster up --nodes 2`.
    let lost = Death::ALL.into_iter().filter(|_| lost::is_possible()).map(|death| {
        let shared = Arc::clone(&shared);
        Trial::test(format!("lost-nodes::{}", death.name()), move || shared.lose(death))
    });
    let shutdowns = Case::ALL.into_iter().filter(|_| lost::is_possible()).map(|case| {
        let shared = Arc::clone(&shared);
        Trial::test(format!("node-shutdown::{}", case.name()), move || shared.shut_down(case))
    });
    let install = {
        let shared = Arc::clone(&shared);
        Trial::test("chart::installed-upgraded-tested-and-removed", move || shared.install())
    };
    let confined = {
        let shared = Arc::clone(&shared);
        Trial::test("apparmor::the-bus-with-and-without-the-default-profile", move || {
            shared.confine()
        })
    };
    let readers = {
        let shared = Arc::clone(&shared);
        Trial::test("readers::of-one-namespace-by-certificate-and-token", move || {
            // With Epitaph installed.
            shared.stage()?;
            let _beside = shared.place.read().map_err(|_| "a story panicked")?;
            done(
                "who may view a namespace reads its Epitaphs and no others",
                readers::who_may_view_a_namespace_reads_its_epitaphs_and_no_others().map(|()| Vec::new()),
            )
        })
    };
    let gone = lost::is_possible().then(|| {
        let shared = Arc::clone(&shared);
        Trial::test("readers::of-pods-whose-node-and-agent-are-gone", move || {
            shared.read_of_the_gone()
        })
    });
    let mut trials: Vec<Trial> = foundation
        .chain(stories)
        .chain(rollouts)
        .chain(forecasts)
        .chain(placed)
        .chain(lost)
        .chain(shutdowns)
        .chain([confined, readers])
        .chain(gone)
        .chain([install])
        .collect();
    // Nothing played is nothing shown.
    if let Some(name) = names
        .iter()
        .find(|name| !trials.iter().any(|trial| trial.name().contains(*name)))
    {
        eprintln!(
            "no story has `{name}` in its name; stories of lost nodes and of shutdowns need two nodes: `cargo xtask cluster up --nodes 2`"
        );
        std::process::exit(1);
    }
    trials.retain(|trial| names.is_empty() || names.iter().any(|name| trial.name().contains(name)));
    libtest_mimic::run(&args, trials).exit();
}

/// Said at once: the other stories take their time.
fn done(what: &str, played: anyhow::Result<Vec<String>>) -> Result<(), Failed> {
    let problems = played.unwrap_or_else(|error| vec![format!("{error:#}")]);
    if problems.is_empty() {
        return Ok(());
    }
    let problems = format!("{what}\n{}", problems.join("\n"));
    eprintln!("{problems}");
    Err(problems.into())
}

/// `cargo xtask cluster test` builds the programs of all packages into one directory.
fn plugin() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_victim")).with_file_name("kubectl-epitaph")
}

#[derive(Default)]
struct Shared {
    stage: OnceLock<Result<Stage, String>>,
    /// Written by a story that needs the cluster for itself.
    place: RwLock<()>,
    forecasts: Mutex<Vec<Compared>>,
}

impl Shared {
    fn play(&self, story: &Story) -> Result<(), Failed> {
        let poisoned = "a story panicked";
        let (_alone, _beside) = if story.alone {
            (Some(self.place.write().map_err(|_| poisoned)?), None)
        } else {
            (None, Some(self.place.read().map_err(|_| poisoned)?))
        };
        done(story.what, self.stage()?.play(story))
    }

    fn roll(&self, late_proxy: bool) -> Result<(), Failed> {
        self.roll_with(|stage| rollouts::all(stage, late_proxy), rollouts::unproven)
    }

    /// The load is measured: nothing else may run.
    fn roll_with(
        &self,
        all: impl Fn(&Stage) -> anyhow::Result<Vec<Row>>,
        unproven: fn(&[Row]) -> Vec<String>,
    ) -> Result<(), Failed> {
        let _alone = self.place.write().map_err(|_| "a story panicked")?;
        let rows = all(self.stage()?).map_err(|error| format!("{error:#}"))?;
        let table: Vec<String> = rows.iter().map(Row::to_string).collect();
        let table = table.join("\n");
        println!("{table}");
        let unproven = unproven(&rows);
        if unproven.is_empty() {
            return Ok(());
        }
        Err(format!("{table}\n{}", unproven.join("\n")).into())
    }

    /// One forecast of all servers' may be wrong: those that were played before count, too.
    fn forecast(&self, server: &'static str) -> Result<(), Failed> {
        let _alone = self.place.write().map_err(|_| "a story panicked")?;
        let rows = rollouts::forecast::of_server(self.stage()?, server, &plugin());
        let mut all = self.forecasts.lock().map_err(|_| "a story panicked")?;
        let unproven = rows.map(|rows| {
            all.extend(rows);
            rollouts::forecast::unproven(&all)
        });
        done("forecasts", unproven)
    }

    /// A node is switched off and deleted, and agents and observers are taken away.
    fn read_of_the_gone(&self) -> Result<(), Failed> {
        self.stage()?;
        let _alone = self.place.write().map_err(|_| "a story panicked")?;
        let played = readers::nodes_and_agents_are_gone(&plugin());
        done("who may view a namespace reads of what is gone", played.map(|()| Vec::new()))
    }

    /// A node, with its observer, is lost.
    fn lose(&self, death: Death) -> Result<(), Failed> {
        let _alone = self.place.write().map_err(|_| "a story panicked")?;
        done(death.name(), lost::play(self.stage()?, death))
    }

    /// A node is shut down, and switched on again.
    fn shut_down(&self, case: Case) -> Result<(), Failed> {
        let _alone = self.place.write().map_err(|_| "a story panicked")?;
        done(case.name(), node_shutdown::play(self.stage()?, case))
    }

    /// Takes the bus away from the agents, where the kernel mediates it.
    fn confine(&self) -> Result<(), Failed> {
        let _alone = self.place.write().map_err(|_| "a story panicked")?;
        done("AppArmor in force", apparmor::play(self.stage()?))
    }

    /// Takes the agent away from the other stories.
    fn install(&self) -> Result<(), Failed> {
        let _alone = self.place.write().map_err(|_| "a story panicked")?;
        let played = chart::installed_upgraded_tested_and_removed();
        // The other stories need it again.
        let again = Cluster::named().and_then(|cluster| deploy::deploy(&cluster));
        Ok(played.and(again).map_err(|error| format!("{error:#}"))?)
    }

    fn stage(&self) -> Result<&Stage, Failed> {
        let stage = self
            .stage
            .get_or_init(|| Stage::named().map_err(|error| format!("{error:#}")));
        stage.as_ref().map_err(Failed::from)
    }
}
