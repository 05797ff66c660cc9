//! What failed and what to do, and the exit codes.

use std::process::ExitCode;

use kube::core::Status;

/// Exit code of the process: as kubectl's, where any failure is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Done = 0,
    /// Wrong usage, nothing found, no right, no API server.
    Failed = 1,
    /// What `--fail-on` names happened.
    Condition = 2,
    /// `--wait` ran out of time.
    TimedOut = 3,
}

/// Shown below `kubectl epitaph --help`.
pub const HELP: &str = "Exit codes: 0 done, 1 any failure (as in kubectl), 2 the rollout had a result that --fail-on names, 3 the time of --wait was over.";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// What may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No answer.
    Silent,
    /// An error of the API server itself, or too many requests.
    Server,
}

/// Printed as `error: …` and `remedy: …`.
#[derive(Debug)]
pub struct Failure {
    pub problem: String,
    pub remedy: Option<String>,
    pub exit: Exit,
    /// The API server does not know the kind.
    pub is_kind_absent: bool,
    pub is_forbidden: bool,
    /// The same request may succeed later.
    pub trouble: Option<Trouble>,
}

impl Failure {
    pub fn new(problem: impl Into<String>) -> Failure {
        Failure {
            problem: problem.into(),
            remedy: None,
            exit: Exit::Failed,
            is_kind_absent: false,
            is_forbidden: false,
            trouble: None,
        }
    }

    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Failure {
        self.remedy = Some(remedy.into());
        self
    }

    /// A failed request. `what`: after "cannot", such as `list Epitaphs of namespace shop`.
    pub fn of(error: &kube::Error, what: &str) -> Failure {
        let kube::Error::Api(status) = error else {
            let failure = Failure {
                trouble: matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_)).then_some(Trouble::Silent),
                ..Failure::new(format!("cannot {what}: {}", chain(error)))
            };
            return failure.with_remedy("`kubectl cluster-info` shows whether kubectl itself reaches the API server");
        };
        let failure = Failure::new(format!("cannot {what}: {}", shown(&status.message)));
        match status.code {
            401 => failure.with_remedy("log in again: the API server does not accept the credentials of this context"),
            403 => Failure {
                is_forbidden: true,
                ..failure.with_remedy(
                    "ask for the role `view` of the namespace (`kubectl create rolebinding … --clusterrole=view`): the chart of Epitaph \
                     adds the right to it",
                )
            },
            404 if names_no_object(status) => Failure {
                is_kind_absent: true,
                ..failure.with_remedy(
                    "install Epitaph's chart or manifests again, which bring the CustomResourceDefinition; `kubectl epitaph doctor` \
                     shows what is missing",
                )
            },
            429 | 500.. => Failure {
                trouble: Some(Trouble::Server),
                ..failure
            },
            _ => failure,
        }
    }

    /// To standard error.
    pub fn show(&self) -> Exit {
        eprintln!("error: {}", self.problem);
        if let Some(remedy) = &self.remedy {
            eprintln!("remedy: {remedy}");
        }
        self.exit
    }
}

/// A 404 about the path itself, not about an object or a namespace.
fn names_no_object(status: &Status) -> bool {
    status.details.as_ref().is_none_or(|details| details.name.is_empty())
}

/// Safe for a terminal, at any length that an API server chooses.
pub fn shown(text: &str) -> String {
    epitaph_core::text::bounded(text, 1024).into_owned()
}

/// An error and its causes, safe for a terminal.
pub fn chain(error: &dyn std::error::Error) -> String {
    shown(&epitaph_core::text::chain(error))
}
