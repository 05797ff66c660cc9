//! The processes that terminate in the stories, one behaviour per name. Each behaviour is real: the process installs the handler,
//! blocks the signal, faults, allocates. The process prints `ready` on stdout once its signals are as the story wants them.

mod forks;
mod http;
pub mod load;
mod memory;
mod serve;
mod signals;

use std::io::{Error, PipeReader, Read, Result, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::libc::{SIGHUP, SIGKILL, SIGQUIT, SIGTERM};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};

use crate::sys;
pub use load::{Failure, Totals, What};
pub use serve::OVER;

/// systemd's own stop signal for a container: glibc's SIGRTMIN is 34.
pub const SIGRTMIN_3: i32 = 37;

/// A reader without a handler can close a Unix socket unseen, so that traffic is known only if it serves by TCP.
const ANY_PORT: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
/// Longer than any grace.
const FOREVER: Duration = Duration::from_secs(120);
/// From `ready` to an end of one's own accord: the observer has seen it running by then.
const A_WHILE: Duration = Duration::from_millis(300);

/// Entry point of the `victim` binary; its exit code.
pub fn main(args: &[String]) -> i32 {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match behave(&args) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("victim {}: {e}", args.join(" "));
            // Not a code that any story expects.
            99
        }
    }
}

fn behave(args: &[&str]) -> Result<i32> {
    match args {
        ["handle", code] => {
            let mut handled = handle()?;
            ready("")?;
            next(&mut handled)?;
            parse(code)
        }
        ["handle-slowly"] => {
            let mut handled = handle()?;
            ready("")?;
            next(&mut handled)?;
            run_on();
            Ok(0)
        }
        ["handle-for", seconds, code] => {
            let mut handled = handle()?;
            ready("")?;
            next(&mut handled)?;
            run_for(seconds)?;
            parse(code)
        }
        // What a preStop hook or a probe runs.
        ["hook", seconds, code] => {
            run_for(seconds)?;
            parse(code)
        }
        // So many MiB; then as `handle 0`.
        ["fill", file, mebibytes] => {
            let mut handled = handle()?;
            std::fs::write(file, vec![1; (parse(mebibytes)? as usize) << 20])?;
            ready("")?;
            next(&mut handled)?;
            Ok(0)
        }
        // So many MiB of memory; goes on after its stop signal.
        ["hold", mebibytes] => {
            let mut handled = handle()?;
            let held = memory::touched((parse(mebibytes)? as usize) << 20)?;
            ready("")?;
            next(&mut handled)?;
            run_on();
            drop(held);
            Ok(0)
        }
        ["reraise"] => {
            let mut handled = handle()?;
            ready("")?;
            let signal = next(&mut handled)?;
            // The work in flight. Without it, this would be a language runtime's own handler, which only raises the signal again.
            run(Duration::from_millis(50));
            sys::set_default(signal)?;
            sys::raise(signal)?;
            // PID 1 only, for which the kernel discards it.
            Ok(1)
        }
        ["held", seconds, code] => forks::held(seconds, code),
        ["idle"] => idle(),
        ["ignore"] => {
            sys::ignore(SIGTERM)?;
            idle()
        }
        ["block"] => {
            let _blocked = sys::Blocked::new(SIGTERM)?;
            idle()
        }
        ["signalfd"] => {
            let _listener = TcpListener::bind(ANY_PORT)?;
            let blocked = sys::Blocked::new(SIGTERM)?;
            ready("")?;
            expect(blocked.read_fd()?, SIGTERM)
        }
        ["sigwait"] => {
            let _listener = TcpListener::bind(ANY_PORT)?;
            let blocked = sys::Blocked::new(SIGTERM)?;
            ready("")?;
            expect(blocked.wait()?, SIGTERM)
        }
        ["named", name, rest @ ..] => {
            let name = std::ffi::CString::new(*name).map_err(Error::other)?;
            prctl::set_name(&name)?;
            behave(rest)
        }
        ["exit", code] => {
            ready("")?;
            run_a_while();
            parse(code)
        }
        ["fault"] => {
            no_core()?;
            ready("")?;
            run_a_while();
            sys::fault()
        }
        ["abort"] => {
            no_core()?;
            ready("")?;
            run_a_while();
            std::process::abort()
        }
        ["abort-with-core"] => {
            setrlimit(Resource::RLIMIT_CORE, 1 << 26, 1 << 26)?;
            ready("")?;
            run_a_while();
            std::process::abort()
        }
        ["leader-exits-first", code] => leader_exits_first(parse(code)?),
        ["allocate"] => {
            ready("")?;
            run_a_while();
            memory::allocate()
        }
        ["allocate", mebibytes] => {
            ready("")?;
            run_a_while();
            memory::touch((parse(mebibytes)? as usize) << 20)?;
            Ok(0)
        }
        ["allocate-at-once"] => memory::allocate(),
        ["child-allocates"] => child_allocates(),
        // Ready once its child was killed: the OOM kill stays in the container's status, and is not what ends it.
        ["outlives-a-child", code] => {
            let mut handled = handle()?;
            lose_a_child()?;
            ready("")?;
            next(&mut handled)?;
            parse(code)
        }
        ["pool"] => forks::pool(),
        ["idle-pool"] => forks::idle_pool(),
        ["write-to-nobody", how] => signals::write_to_nobody(*how == "ignore"),
        ["alarm", how] => signals::sleep_by_alarm(*how == "handle"),
        ["spin", milliseconds] => signals::spin(milliseconds),
        ["write", path, kibibytes] => signals::write_file(path, kibibytes),
        ["filtered", how] => signals::filtered(*how == "refuse"),
        // Without a handler, which every other server has.
        ["listen", address] => {
            let listener = TcpListener::bind(address)?;
            ready(&listener.local_addr()?.to_string())?;
            run_on();
            Ok(0)
        }
        ["serve-udp"] => serve::udp(),
        ["serve-unix", path] => serve::unix(path),
        ["http", mode, address, options @ ..] => http::serve(mode, address, options),
        ["load", address, options @ ..] => load::load(address, options),
        ["serve", mode, address] => serve::serve(mode, address),
        _ => Err(Error::other("no such behaviour")),
    }
}

/// A program before it terminates by itself.
fn run_a_while() {
    run(A_WHILE);
}

/// Longer than any grace period, and not for ever if nobody ends it.
fn run_on() {
    run(FOREVER);
}

fn run_for(seconds: &str) -> Result<()> {
    run(Duration::from_secs(parse(seconds)? as u64));
    Ok(())
}

fn run(time: Duration) {
    // The subject is time: what a program takes for its work.
    sleep(time);
}

fn ready(address: &str) -> Result<()> {
    writeln!(std::io::stdout(), "ready {address}")
}

fn idle() -> Result<i32> {
    ready("")?;
    run_on();
    Ok(0)
}

fn handle() -> Result<PipeReader> {
    sys::handle(&[SIGTERM, SIGQUIT, SIGRTMIN_3])
}

/// SIGHUP, too.
fn handle_with_reload() -> Result<PipeReader> {
    sys::handle(&[SIGHUP, SIGTERM])
}

fn next(handled: &mut PipeReader) -> Result<i32> {
    let mut signal = [0];
    handled.read_exact(&mut signal)?;
    Ok(i32::from(signal[0]))
}

/// The value of `--name=VALUE` among the options.
fn option<T: std::str::FromStr>(options: &[&str], name: &str, default: T) -> Result<T> {
    let value = options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
    let Some(value) = value else { return Ok(default) };
    value
        .parse()
        .map_err(|_| Error::other(format!("{name}={value} has no such value")))
}

/// An option that is not known is a mistake, not a default.
fn known(options: &[&str], names: &[&str]) -> Result<()> {
    let name = |option: &&str| option.split('=').next().unwrap_or_default().to_owned();
    match options.iter().map(name).find(|name| !names.contains(&name.as_str())) {
        Some(unknown) => Err(Error::other(format!("no option `{unknown}`, but {}", names.join(", ")))),
        None => Ok(()),
    }
}

fn parse(code: &str) -> Result<i32> {
    code.parse()
        .map_err(|_| Error::other(format!("exit code `{code}` is not a number")))
}

fn expect(signal: i32, wanted: i32) -> Result<i32> {
    if signal == wanted {
        Ok(0)
    } else {
        Err(Error::other(format!("read signal {signal}, not {wanted}")))
    }
}

fn no_core() -> Result<()> {
    Ok(setrlimit(Resource::RLIMIT_CORE, 0, 0)?)
}

/// The first thread ends with code 5 at once; another waits for the stop signal and ends the process with `code`.
fn leader_exits_first(code: i32) -> Result<i32> {
    let mut handled = handle()?;
    std::thread::spawn(move || {
        let result = sys::until_alone().and_then(|()| ready("")).and_then(|()| next(&mut handled));
        std::process::exit(if result.is_ok() { code } else { 99 });
    });
    sys::exit_thread(5)
}

/// As in a shell or a supervisor: the child's exit by SIGKILL becomes exit code 137 of this process.
fn child_allocates() -> Result<i32> {
    ready("")?;
    run_a_while();
    lose_a_child()
}

/// The code with which a shell passes on that the OOM killer killed a child.
fn lose_a_child() -> Result<i32> {
    use std::os::unix::process::ExitStatusExt;
    let status = Command::new(std::env::current_exe()?)
        .arg("allocate-at-once")
        .stdout(Stdio::null())
        .status()?;
    match status.signal() {
        Some(SIGKILL) => Ok(128 + SIGKILL),
        _ => Err(Error::other(format!("the OOM killer did not kill the child: {status}"))),
    }
}
