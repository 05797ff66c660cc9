//! System calls by their numbers.

use std::fmt;

use syscalls::{aarch64, arm, x86, x86_64};

/// Whose numbers they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAbi {
    X86_64,
    /// 32-bit programs, also on x86-64.
    X86,
    Arm64,
    /// 32-bit programs, also on arm64.
    Arm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemCall {
    pub abi: CallAbi,
    pub number: i32,
}

impl SystemCall {
    /// None: newer than the table, or not a system call.
    pub fn name(self) -> Option<&'static str> {
        let number = usize::try_from(self.number).ok()?;
        match self.abi {
            CallAbi::X86_64 => x86_64::Sysno::new(number).map(|call| call.name()),
            CallAbi::X86 => x86::Sysno::new(number).map(|call| call.name()),
            CallAbi::Arm64 => aarch64::Sysno::new(number).map(|call| call.name()),
            CallAbi::Arm => arm::Sysno::new(number).map(|call| call.name()),
        }
    }
}

/// `` `ptrace` (number 101)``, `number 26 of 32-bit x86`.
impl fmt::Display for SystemCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = match self.abi {
            CallAbi::X86_64 | CallAbi::Arm64 => "",
            CallAbi::X86 => " of 32-bit x86",
            CallAbi::Arm => " of 32-bit arm",
        };
        match self.name() {
            Some(name) => write!(f, "`{name}` (number {}{of})", self.number),
            None => write!(f, "number {}{of}", self.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_architecture_has_its_own_numbers() {
        let text = |abi, number| SystemCall { abi, number }.to_string();
        assert_eq!(text(CallAbi::X86_64, 101), "`ptrace` (number 101)");
        assert_eq!(text(CallAbi::X86, 26), "`ptrace` (number 26 of 32-bit x86)");
        assert_eq!(text(CallAbi::Arm64, 117), "`ptrace` (number 117)");
        assert_eq!(text(CallAbi::Arm, 26), "`ptrace` (number 26 of 32-bit arm)");
        assert_eq!(text(CallAbi::X86_64, 0), "`read` (number 0)");
        assert_eq!(text(CallAbi::X86_64, 100_000), "number 100000");
        assert_eq!(text(CallAbi::Arm64, -1), "number -1");
    }
}
