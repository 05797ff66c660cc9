//! Completion, as kubectl asks plugins for it: `kubectl_complete-epitaph WORD...` prints what can follow, and how to go on.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args as _, CommandFactory as _, Parser as _};

use crate::cli::{AccessArgs, Cli, CompleteArgs, Limit};
use crate::cluster::{Cluster, DAEMON_SETS, DEPLOYMENTS, EPITAPHS, Kind, NAMESPACES, NODES, Place, STATEFUL_SETS, Selection};
use crate::failure::{Exit, Failure};
use crate::output::print;

/// Cobra's directive for "no names of files".
const NO_FILES: &str = ":4\n";
/// The shell's own completion.
const FILES: &str = ":0\n";
/// Nobody waits longer after a tab.
const LONGEST: Duration = Duration::from_secs(5);

pub async fn run(args: &CompleteArgs) -> Result<Exit, Failure> {
    let words: Vec<String> = args.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (last, before) = words
        .split_last()
        .map_or((String::new(), &[][..]), |(last, before)| (last.clone(), before));
    let (before, last) = apart(before, last);
    // A completion that fails is silent: the terminal shows the half of a line.
    let wanted = wanted(&before, &last);
    let directive = if wanted == Wanted::Files { FILES } else { NO_FILES };
    let names = match wanted {
        Wanted::Files => Vec::new(),
        Wanted::Known(names) => names,
        Wanted::Asked(kinds) => ask(&before, kinds).await.unwrap_or_default(),
    };
    let mut out: String = names
        .into_iter()
        .filter(|name| name.starts_with(&last))
        .map(|name| name + "\n")
        .collect();
    out.push_str(directive);
    print(&out)?;
    Ok(Exit::Done)
}

/// `--flag=val` as `--flag val`: kubectl's scripts for the shells put the flag before what is printed.
fn apart(before: &[String], last: String) -> (Vec<String>, String) {
    let mut before = before.to_vec();
    match last.split_once('=') {
        Some((flag, value)) if flag.starts_with('-') => {
            before.push(flag.to_owned());
            (before, value.to_owned())
        }
        _ => (before, last),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Known(Vec<String>),
    Files,
    /// Names of objects.
    Asked(What),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Pods,
    Nodes,
    Namespaces,
    Workloads,
}

fn wanted(before: &[String], last: &str) -> Wanted {
    let cli = Cli::command();
    let commands = || cli.get_subcommands().filter(|of| !of.is_hide_set());
    let command = before.iter().find_map(|word| commands().find(|of| of.get_name() == word));
    // A flag is followed by its value.
    let flags = || {
        command
            .into_iter()
            .flat_map(clap::Command::get_arguments)
            .chain(cli.get_arguments())
    };
    let flag = before
        .last()
        .and_then(|word| flags().find(|flag| takes_value(flag) && is_named(flag, word)));
    match flag.map(|flag| (flag, flag.get_long())) {
        Some((_, Some("kubeconfig"))) => return Wanted::Files,
        Some((_, Some("namespace"))) => return Wanted::Asked(What::Namespaces),
        Some((flag, _)) => {
            let comma = flag.get_value_delimiter().and_then(|delimiter| last.rfind(delimiter));
            let earlier = comma.map_or("", |comma| &last[..=comma]);
            let values = flag.get_possible_values();
            return Wanted::Known(values.iter().map(|value| format!("{earlier}{}", value.get_name())).collect());
        }
        None => {}
    }
    if last.starts_with('-') {
        return Wanted::Known(
            flags()
                .filter_map(|flag| flag.get_long())
                .map(|flag| format!("--{flag}"))
                .collect(),
        );
    }
    match command.map(clap::Command::get_name) {
        None => Wanted::Known(commands().map(|of| of.get_name().to_owned()).collect()),
        Some("why") => Wanted::Asked(What::Pods),
        Some("node" | "doctor") => Wanted::Asked(What::Nodes),
        Some("rollout") => Wanted::Asked(What::Workloads),
        Some(_) => Wanted::Known(Vec::new()),
    }
}

fn takes_value(flag: &clap::Arg) -> bool {
    flag.get_action().takes_values()
}

fn is_named(flag: &clap::Arg, word: &str) -> bool {
    let is_long = flag.get_long().is_some_and(|long| word.strip_prefix("--") == Some(long));
    let is_short = flag.get_short().is_some_and(|short| word == format!("-{short}"));
    is_long || is_short
}

async fn ask(before: &[String], what: What) -> Result<Vec<String>, Failure> {
    let args = AccessArgs {
        request_timeout: Limit(Some(LONGEST)),
        ..access(before)
    };
    let cluster = Cluster::connect(&args).await?;
    let own = Place::Namespace(&cluster.namespace);
    let all = Selection::default();
    let named = async |kind: Kind, place: Place<'_>| {
        let (objects, _) = cluster.list(kind, place, &all).await?;
        Ok::<_, Failure>(
            objects
                .into_iter()
                .filter_map(|object| object.metadata.name)
                .collect::<Vec<String>>(),
        )
    };
    match what {
        What::Nodes => named(NODES, Place::Cluster).await,
        What::Namespaces => named(NAMESPACES, Place::Cluster).await,
        What::Pods => {
            let (objects, _) = cluster.list(EPITAPHS, own, &all).await?;
            let pods = objects
                .iter()
                .filter_map(|object| object.data["report"]["pod"]["name"].as_str());
            Ok(pods.map(str::to_owned).collect())
        }
        What::Workloads => {
            let mut names = Vec::new();
            for kind in [DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS] {
                let prefix = kind.name().to_lowercase();
                names.extend(named(kind, own).await?.into_iter().map(|name| format!("{prefix}/{name}")));
            }
            Ok(names)
        }
    }
}

/// The flags about the cluster, wherever they stand in an unfinished line.
fn access(before: &[String]) -> AccessArgs {
    #[derive(clap::Parser)]
    struct Access {
        #[command(flatten)]
        args: AccessArgs,
    }
    let flags = AccessArgs::augment_args(clap::Command::new("flags"));
    let takes = |word: &str| flags.get_arguments().any(|flag| is_named(flag, word));
    let mut kept: Vec<OsString> = vec!["kubectl-epitaph".into()];
    let mut words = before.iter();
    while let Some(word) = words.next() {
        let is_joined = word.split_once('=').is_some_and(|(flag, _)| takes(flag));
        if is_joined {
            kept.push(word.into());
        } else if takes(word)
            && let Some(value) = words.next()
        {
            kept.extend([word.into(), value.into()]);
        }
    }
    Access::try_parse_from(kept).map_or_else(|_| AccessArgs::default(), |access| access.args)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Wanted {
        let (last, before) = words.split_last().expect("a word");
        let before: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
        let (before, last) = apart(&before, (*last).to_owned());
        wanted(&before, &last)
    }

    #[test]
    fn commands_flags_and_names_follow() {
        let Wanted::Known(commands) = of(&[""]) else {
            panic!("names of objects")
        };
        assert_eq!(commands, ["list", "why", "node", "rollout", "watch", "doctor"]);
        let Wanted::Known(flags) = of(&["rollout", "--"]) else {
            panic!("names of objects")
        };
        for flag in ["--wait", "--fail-on", "--context", "--namespace"] {
            assert!(flags.contains(&flag.to_owned()), "{flag} is not in {flags:?}");
        }
        assert_eq!(of(&["why", "web"]), Wanted::Asked(What::Pods));
        assert_eq!(of(&["--context", "a", "node", ""]), Wanted::Asked(What::Nodes));
        assert_eq!(of(&["rollout", ""]), Wanted::Asked(What::Workloads));
        assert_eq!(of(&["list", "-n", ""]), Wanted::Asked(What::Namespaces));
        assert_eq!(of(&["list", ""]), Wanted::Known(Vec::new()));
        let values = of(&["why", "-o", ""]);
        assert!(
            matches!(&values, Wanted::Known(values) if values.contains(&"markdown".to_owned())),
            "{values:?}"
        );
        assert_eq!(of(&["why", "--output=ma"]), values);
        let Wanted::Known(kinds) = of(&["rollout", "--fail-on=lost,un"]) else {
            panic!("names of objects")
        };
        assert!(kinds.contains(&"lost,unclean".to_owned()), "{kinds:?}");
        assert_eq!(of(&["list", "--kubeconfig", ""]), Wanted::Files);
        assert_eq!(of(&["list", "--context", ""]), Wanted::Known(Vec::new()));
    }

    #[test]
    fn the_cluster_of_the_line_is_asked() {
        let words = ["why", "-n", "shop", "--output=json", "--context=far", "--kubeconfig", "/k"].map(str::to_owned);
        let args = access(&words);
        assert_eq!(
            (args.namespace.as_deref(), args.context.as_deref()),
            (Some("shop"), Some("far"))
        );
        assert_eq!(args.kubeconfig.as_deref(), Some(std::path::Path::new("/k")));
    }
}
