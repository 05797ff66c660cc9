//! What each program costs the kernel's verifier.

use aya::VerifierLogLevel;
use aya::programs::ProgramError;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::error::{self, AttachError, LoadError};
use super::memlock;
use super::probes::{self, Choice, PROBES, Probe};
use super::{Options, load_at, load_at_function, load_object, read_types, sizes};

/// The verifier's result for one program.
pub struct Verified {
    pub program: String,
    /// Instructions that the verifier processed, on all paths (the kernel's limit is one million); or why it refuses the program.
    pub instructions: Result<u32, String>,
}

/// Runs the running kernel's verifier on every program that [`Kernel::load`](super::Kernel::load) would take. Nothing is
/// attached, and nothing stays loaded.
///
/// For a separate process: meanwhile no thread of the process can open a file.
///
/// # Errors
/// As [`Kernel::load`](super::Kernel::load).
pub fn verify(options: &Options) -> Result<Vec<Verified>, LoadError> {
    error::check_capabilities()?;
    let (layout, types) = read_types(options)?;
    let _raised = memlock::Raised::where_it_counts();
    let sizes = sizes(options)?;
    let mut ebpf = load_object(options, sizes, &layout, &types, VerifierLogLevel::STATS)?;

    let _held = NoMoreFiles::hold().map_err(|errno| LoadError::Object(format!("cannot limit open files: {errno}")))?;
    let chosen = PROBES.iter().flat_map(|probe| {
        let own = match probe.choose(&layout, options.oldest) {
            Choice::Program(program) => Some(program),
            Choice::Unsupported(_) => None,
        };
        let nested = own.and_then(|program| probe.nested(program));
        let own = own.map(str::to_owned);
        own.into_iter().chain(nested).map(|program| (program, probe.tracepoint))
    });
    let mut verified: Vec<Verified> = chosen
        .map(|(program, tracepoint)| Verified {
            instructions: instructions(load_at(&mut ebpf, &program, tracepoint, &types).map(drop)),
            program,
        })
        .collect();
    let lacks_refusals = |probe: &Probe| {
        let choice = probe.choose(&layout, options.oldest);
        !options.oldest && probe.lacks_refusals(&choice, &layout, false)
    };
    let at_functions = PROBES.iter().any(lacks_refusals).then(|| probes::reset_functions(&layout));
    for function in at_functions.and_then(Result::ok).into_iter().flatten() {
        verified.push(Verified {
            instructions: instructions(load_at_function(&mut ebpf, function, &types).map(drop)),
            program: (*function).to_owned(),
        });
    }
    Ok(verified)
}

/// Before 5.16 only the verifier's log has the count, and aya returns the log with a failure only. Loading that fails for want of
/// a file descriptor fails after the complete verification.
fn instructions(loaded: Result<(), AttachError>) -> Result<u32, String> {
    match loaded {
        Err(AttachError::Program(ProgramError::LoadError { io_error, verifier_log }))
            if io_error.raw_os_error() == Some(Errno::EMFILE as i32) =>
        {
            let log = verifier_log.to_string();
            processed(&log).ok_or_else(|| format!("the verifier's log has no count of processed instructions: {log:?}"))
        }
        Err(error) => Err(error::chain(&error)),
        Ok(()) => Err("it was loaded although no file could be opened".to_owned()),
    }
}

/// The count in `processed 3148 insns (limit 1000000) max_states_per_insn 4 ...`.
fn processed(log: &str) -> Option<u32> {
    let mut words = log.lines().rev().find_map(|line| line.strip_prefix("processed "))?.split(' ');
    let count = words.next()?.parse().ok()?;
    (words.next() == Some("insns")).then_some(count)
}

/// While a value of this type lives, this process gets no new file descriptor.
struct NoMoreFiles {
    before: u64,
    hard: u64,
}

impl NoMoreFiles {
    fn hold() -> Result<NoMoreFiles, Errno> {
        let (before, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, 0, hard)?;
        Ok(NoMoreFiles { before, hard })
    }
}

impl Drop for NoMoreFiles {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, self.before, self.hard);
    }
}

#[cfg(test)]
mod tests {
    use super::processed;

    #[test]
    fn the_instruction_count_is_in_the_verifiers_last_line() {
        let log = "verification time 2042 usec\nstack depth 328+0\nprocessed 3148 insns (limit 1000000) max_states_per_insn 4 \
                   total_states 190 peak_states 190 mark_read 18\n";
        assert_eq!(processed(log), Some(3148));
        assert_eq!(processed(""), None);
        assert_eq!(processed("processed many insns\n"), None);
    }
}
