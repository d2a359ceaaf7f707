//! The command of `pario run`, once or as several ranks: spawn, signals, wait.
//!
//! Never: sends a signal to a process that has been reaped. Always: a signal that the terminal has sent to the command is not
//! forwarded; a signal reaches all ranks or arrives before the first is spawned.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;

use crate::error::{CliError, CliResult, EXIT_NO_COMMAND, EXIT_NOT_RUN, signal_code};
use crate::signals::{Stop, heeded};

/// Phase of `pario run`; decides the effect of a signal.
#[derive(Clone, PartialEq, Eq, Debug)]
enum CommandPhase {
    /// Bringing up, staging in: a signal stops it.
    Before,
    /// The command runs: signals are forwarded to it. `pids` have not been reaped.
    Command { pids: Vec<Pid>, group: bool },
    /// Staging out: only the second signal stops it.
    StageOut { signals: u32 },
    /// Taking down: signals are ignored, so that it completes.
    After,
}

/// Signal handling of `pario run`.
#[derive(Clone, Debug)]
pub(crate) struct SignalWatch {
    phase: Arc<Mutex<CommandPhase>>,
    /// Set by a signal before the command runs, or by the second one while staging out.
    pub(crate) stop: Stop,
}

impl SignalWatch {
    /// Installs the handlers.
    pub(crate) fn start() -> CliResult<SignalWatch> {
        let failed = |error| CliError::failed(format!("cannot catch signals: {error}"));
        let mut signals = SignalsInfo::<WithOrigin>::new(heeded()).map_err(failed)?;
        let watch = SignalWatch { phase: Arc::new(Mutex::new(CommandPhase::Before)), stop: Stop::default() };
        let own = watch.clone();
        let thread = std::thread::Builder::new().name("signals".into()).spawn(move || {
            for origin in signals.forever() {
                own.arrived(origin.signal, origin.process.is_some());
            }
        });
        thread.map_err(failed)?;
        Ok(watch)
    }

    fn phase(&self) -> MutexGuard<'_, CommandPhase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrived(&self, signal: i32, from_process: bool) {
        let mut phase = self.phase();
        match &mut *phase {
            CommandPhase::Before => self.stop.set(signal),
            CommandPhase::Command { pids, group } => {
                pids.iter().for_each(|pid| pass_on(*pid, *group, signal, from_process));
            }
            CommandPhase::StageOut { signals } => {
                *signals += 1;
                if *signals == 1 {
                    let text = "staging out goes on; a second signal stops it and keeps the partition";
                    crate::context::complain(&CliError::failed(text));
                } else {
                    self.stop.set(signal);
                }
            }
            CommandPhase::After => {}
        }
    }

    /// From now on the first signal only warns.
    pub(crate) fn stage_out(&self) {
        *self.phase() = CommandPhase::StageOut { signals: 0 };
    }

    /// From now on signals are ignored.
    pub(crate) fn take_down(&self) {
        *self.phase() = CommandPhase::After;
    }

    /// Runs a command to its end; signals are forwarded to it.
    pub(crate) fn run(&self, words: &[OsString], variables: &[(&str, OsString)]) -> CliResult<ExitStatus> {
        let mut command = command(words);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let mut child = self.spawn_all(vec![command])?.pop().expect("one command is one child");
        wait_ended(pid_of(&child));
        self.stage_out();
        child.wait().map_err(|error| cannot_run(&words[0], &error))
    }

    /// Spawns the command's processes, all or none; from now on signals are forwarded to them.
    pub(crate) fn spawn_all(&self, commands: Vec<Command>) -> CliResult<Vec<Child>> {
        // On a terminal the command stays in this process group: it may read, and receives the terminal's signals directly.
        let group = !std::io::stdin().is_terminal();
        let mut phase = self.phase();
        self.stop.check()?;
        let mut children: Vec<Child> = Vec::new();
        for mut command in commands {
            if group {
                command.process_group(0);
            }
            match command.spawn() {
                Ok(child) => children.push(child),
                Err(error) => {
                    for mut child in children {
                        // The process has hardly started.
                        let _ = child.kill();
                        let _ = child.wait();
                    }
                    return Err(cannot_run(command.get_program(), &error));
                }
            }
        }
        *phase = CommandPhase::Command { pids: children.iter().map(pid_of).collect(), group };
        Ok(children)
    }

    /// Reaps a process that has ended; its number may be reused afterwards.
    pub(crate) fn collect(&self, child: &mut Child) -> std::io::Result<ExitStatus> {
        let mut phase = self.phase();
        if let CommandPhase::Command { pids, .. } = &mut *phase {
            let gone = pid_of(child);
            pids.retain(|pid| *pid != gone);
        }
        child.wait()
    }

    /// Sends a signal to the remaining processes of the command.
    pub(crate) fn send(&self, signal: Signal) {
        if let CommandPhase::Command { pids, group } = &*self.phase() {
            pids.iter().for_each(|pid| pass_on(*pid, *group, signal.as_raw(), true));
        }
    }
}

/// A command from its arguments.
pub(crate) fn command(words: &[OsString]) -> Command {
    let (program, arguments) = words.split_first().expect("a command has at least one word");
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// The number of a child.
pub(crate) fn pid_of(child: &Child) -> Pid {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a child has a process number")
}

/// Waits until a child has ended, without reaping it: its number stays valid while signals are forwarded.
pub(crate) fn wait_ended(pid: Pid) {
    while let Err(rustix::io::Errno::INTR) =
        rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
    {}
}

fn cannot_run(program: &OsStr, error: &std::io::Error) -> CliError {
    let text = format!("cannot run {}: {error}", program.display());
    let code = if error.kind() == std::io::ErrorKind::NotFound { EXIT_NO_COMMAND } else { EXIT_NOT_RUN };
    crate::context::complain(&CliError::with_cure(text, "give a program that is in PATH, or its path"));
    CliError::Reported { code }
}

fn pass_on(pid: Pid, group: bool, signal: i32, from_process: bool) {
    let Some(signal) = Signal::from_named_raw(signal) else { return };
    let sent = match (group, from_process) {
        (true, _) => rustix::process::kill_process_group(pid, signal),
        (false, true) => rustix::process::kill_process(pid, signal),
        (false, false) => Ok(()),
    };
    if let Err(error) = sent {
        tracing::info!(%error, "the command is gone already");
    }
}

/// The exit code of a command.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, Some(signal)) => signal_code(signal),
        (None, None) => crate::error::EXIT_FAILED,
    }
}
