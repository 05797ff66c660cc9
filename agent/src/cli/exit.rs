//! Exit codes, stable because scripts depend on them; from `sysexits.h`.

use std::process::ExitCode;

/// Shown below `epitaph --help`.
pub const HELP: &str = "Exit codes: 0 done, 64 wrong usage, 65 bad data in a file, 66 no such input, 69 something needed is not available, \
                        70 a bug in epitaph, 71 the system refused, 73 cannot create a file, 77 not permitted, 78 bad configuration.";

/// Exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SysExit {
    Ok = 0,
    /// A flag, an argument or a verdict that does not exist.
    Usage = 64,
    /// A recording that is corrupted or from a newer version.
    Data = 65,
    /// A recording or BTF file that cannot be read.
    NoInput = 66,
    /// A port in use; a kernel without BTF or without the essential probes.
    Unavailable = 69,
    /// A bug in epitaph.
    Software = 70,
    /// The kernel refused a system call.
    Os = 71,
    /// A recording that cannot be written.
    CantCreat = 73,
    /// Not root, or a capability is missing.
    NoPerm = 77,
    /// A wrong configuration file, variable or value.
    Config = 78,
}

impl From<SysExit> for ExitCode {
    fn from(code: SysExit) -> ExitCode {
        ExitCode::from(code as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_code() {
        use SysExit::*;
        for code in [Ok, Usage, Data, NoInput, Unavailable, Software, Os, CantCreat, NoPerm, Config] {
            let code = (code as u8).to_string();
            assert!(
                HELP.split([' ', ',', ':']).any(|word| word == code),
                "{code} is not in the help"
            );
        }
    }
}
