//! `epitaph doctor`: gathers the facts for [`crate::doctor`]. Loads and attaches the probes for a moment, as the agent does; about a
//! node's shutdown it only reads.

mod bus;
mod epitaphs;
mod journal;
mod node;

use std::path::Path;

use super::error::code_of_load;
use super::{RuntimeError, privileges};
use crate::cli::{self, Question, SysExit};
use crate::clock;
use crate::config::{Config, Env};
use crate::doctor::{self, Cgroups, Facts, Probes, Topic, Trouble};
use crate::error::{HasRemedy, chain};
use crate::source::kernel::{self, Kernel, LoadError, Rights};
use crate::source::procfs::Procfs;

/// Prints the findings; returns the exit code.
pub fn doctor(args: &cli::DoctorArgs, env: &dyn Env) -> Result<SysExit, RuntimeError> {
    let config = Config::for_person(env, &args.overrides())?;
    let mut findings = Vec::new();
    if let Some(root) = &args.root {
        findings.extend(doctor::node::examine(&node::image(root, args.config.as_deref(), env)?));
    } else {
        let is_asked = |question| args.only.is_none_or(|only| only == question);
        if is_asked(Question::Observation) {
            let mut facts = gather(&config);
            facts.epitaphs = epitaphs::served(args, &config, env)?;
            findings.extend(doctor::examine(&facts));
        }
        if is_asked(Question::Shutdown) || is_asked(Question::Journal) {
            let found = doctor::node::examine(&node::live(args, &config, env)?);
            // What the agent of this machine is configured to do is known with the node only.
            findings.extend(found.into_iter().filter(|finding| match finding.topic {
                Topic::Journal => is_asked(Question::Journal),
                Topic::Shutdown | Topic::Observation => is_asked(Question::Shutdown),
            }));
            if findings.is_empty() {
                findings.push(doctor::node::no_journal());
            }
        }
    }
    let shown = match args.output {
        cli::FindingsFormat::Json => doctor::json(&findings),
        cli::FindingsFormat::Text => doctor::text(&findings, super::terminal()),
    };
    cli::print(&shown).map_err(RuntimeError::os("write to standard output"))?;
    Ok(doctor::code(&findings))
}

fn gather(config: &Config) -> Facts {
    let procfs = Procfs::new(&config.host.proc, &config.host.sys);
    let options = kernel::Options {
        v1: procfs.as_ref().ok().and_then(Procfs::v1),
        ..config.kernel.options()
    };
    // Dropped at once, which detaches the probes.
    let (btf, probes) = match Kernel::load(&options) {
        Ok(kernel) => (
            Ok(kernel::btf_path(&options)),
            Probes::Tried {
                states: kernel.probes().to_vec(),
                shrunk: kernel.shrunk(),
            },
        ),
        Err(error) => {
            let trouble = match kernel::incapable(&options, &config.host.proc) {
                Some(reason) => Trouble {
                    code: code_of_load(&error),
                    problem: format!("no probe can run, and `epitaph agent` observes pods and logind only: {reason}"),
                    remedy: Some(kernel::NEWER.into()),
                },
                None => of_load(&error),
            };
            let (btf, fitting) = match kernel::fitting(&options) {
                Ok(fitting) => (Ok(kernel::btf_path(&options)), fitting),
                Err(error) => (Err(of_load(&error)), Vec::new()),
            };
            (btf, Probes::Refused { trouble, fitting })
        }
    };
    let proc = config.host.proc.clone();
    Facts {
        kernel: release(&proc),
        btf,
        rights: Rights::read(),
        probes,
        cgroups: match procfs {
            Ok(procfs) => Ok(Cgroups {
                mount: procfs.mount().to_owned(),
                mode: procfs.cgroups(),
            }),
            Err(error) => Err(trouble(SysExit::Unavailable, &error)),
        },
        // Our own process, and at least one other.
        shows_others: privileges::shown(&proc) > 1,
        proc,
        now: clock::now(),
        wall_offset: clock::wall_offset(),
        epitaphs: None,
    }
}

fn release(proc: &Path) -> Result<String, String> {
    let path = proc.join("sys/kernel/osrelease");
    let read = std::fs::read_to_string(&path);
    read.map(|text| text.trim().to_owned())
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn trouble(code: SysExit, error: &(impl HasRemedy + 'static)) -> Trouble {
    Trouble {
        code,
        problem: chain(error),
        remedy: error.remedy(),
    }
}

fn of_load(error: &LoadError) -> Trouble {
    trouble(code_of_load(error), error)
}
