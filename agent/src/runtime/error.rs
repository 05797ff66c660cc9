//! Why a command ended early.

use crate::cli::SysExit;
use crate::config::ConfigError;
use crate::error::{HasRemedy, Remedy, chain};
use crate::journal::RefusedError;
use crate::recording::WriteError;
use crate::sink::http::HttpError;
use crate::sink::otlp::BuildError;
use crate::source::kernel::LoadError;
use crate::source::logind::ListenError;
use crate::source::pods::PodsError;
use crate::source::procfs::ProcfsError;

/// What failed, the remedy, and the exit code for scripts.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct RuntimeError {
    pub code: SysExit,
    problem: String,
    remedy: Option<Remedy>,
}

impl HasRemedy for RuntimeError {
    fn remedy(&self) -> Option<Remedy> {
        self.remedy.clone()
    }
}

impl RuntimeError {
    pub(super) fn new(code: SysExit, problem: impl Into<String>) -> Self {
        RuntimeError {
            code,
            problem: problem.into(),
            remedy: None,
        }
    }

    pub(super) fn with_remedy(self, remedy: impl Into<Remedy>) -> Self {
        RuntimeError {
            remedy: Some(remedy.into()),
            ..self
        }
    }

    pub(super) fn of(code: SysExit, error: &(impl HasRemedy + 'static)) -> Self {
        RuntimeError {
            code,
            problem: chain(error),
            remedy: error.remedy(),
        }
    }

    /// Adds the file to the problem.
    pub(super) fn at(self, file: &impl std::fmt::Display) -> Self {
        RuntimeError {
            problem: format!("{file}: {}", self.problem),
            ..self
        }
    }

    pub(super) fn os<E: std::fmt::Display>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |error| RuntimeError::new(SysExit::Os, format!("cannot {action}: {error}"))
    }
}

impl From<ConfigError> for RuntimeError {
    fn from(error: ConfigError) -> Self {
        RuntimeError::of(SysExit::Config, &error)
    }
}

impl From<BuildError> for RuntimeError {
    fn from(error: BuildError) -> Self {
        RuntimeError::of(SysExit::Config, &error)
    }
}

impl From<HttpError> for RuntimeError {
    fn from(error: HttpError) -> Self {
        RuntimeError::of(SysExit::Unavailable, &error)
    }
}

impl From<ProcfsError> for RuntimeError {
    fn from(error: ProcfsError) -> Self {
        RuntimeError::of(SysExit::Unavailable, &error)
    }
}

impl From<PodsError> for RuntimeError {
    fn from(error: PodsError) -> Self {
        RuntimeError::of(SysExit::Config, &error)
    }
}

impl From<ListenError> for RuntimeError {
    fn from(error: ListenError) -> Self {
        RuntimeError::of(SysExit::CantCreat, &error)
    }
}

impl From<LoadError> for RuntimeError {
    fn from(error: LoadError) -> Self {
        RuntimeError::of(code_of_load(&error), &error)
    }
}

impl From<WriteError> for RuntimeError {
    fn from(error: WriteError) -> Self {
        RuntimeError::of(SysExit::CantCreat, &error)
    }
}

impl From<RefusedError> for RuntimeError {
    fn from(error: RefusedError) -> Self {
        RuntimeError::of(SysExit::CantCreat, &error)
    }
}

pub(super) fn code_of_load(error: &LoadError) -> SysExit {
    match error {
        LoadError::Capability(_) | LoadError::Refused { .. } | LoadError::Memlock(_) => SysExit::NoPerm,
        LoadError::Btf(_) | LoadError::BtfParse { .. } | LoadError::Controller(_) => SysExit::Unavailable,
        LoadError::RingSize(_) => SysExit::Usage,
        LoadError::Object(_) | LoadError::Map(_) | LoadError::Ring(_) | LoadError::Watch(_) => SysExit::Os,
        LoadError::NoMap(_) => SysExit::Software,
    }
}
