//! A worker process of a benchmark: this program again, controlled line by line.
//!
//! ```text
//!  starter                          worker (`pario-bench worker`)
//!    | ---- Job, one line of JSON ---> |
//!    | <--- Outcome, one line -------- |      … until the starter closes the pipe
//! ```
//! Always: a worker ends with its starter.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use pario::group::Invitation;

use super::error::BenchError;
use super::job::{BenchJob, JobOutcome, JobState};

/// The starter's end of a worker.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a fresh process that uses `registry`, with additional environment variables.
    pub(crate) fn start(registry: &Path, variables: &[(&str, &str)]) -> Result<Worker, BenchError> {
        Worker::spawn(None, registry, variables.iter().map(|(name, value)| (*name, OsStr::new(*value))))
    }

    /// The same for a member of a group.
    pub(crate) fn invited(
        registry: &Path,
        invitation: &Invitation,
        variables: &[(&str, &str)],
    ) -> Result<Worker, BenchError> {
        Worker::inside(None, registry, invitation, variables)
    }

    /// The same, in the namespaces that a process holds.
    pub(crate) fn inside(
        holder: Option<u32>,
        registry: &Path,
        invitation: &Invitation,
        variables: &[(&str, &str)],
    ) -> Result<Worker, BenchError> {
        let more = variables.iter().map(|(name, value)| (*name, OsStr::new(*value)));
        let invitation = invitation.variables();
        let variables = invitation.iter().map(|(name, value)| (*name, value.as_os_str())).chain(more);
        Worker::spawn(holder, registry, variables)
    }

    fn spawn<'a>(
        holder: Option<u32>,
        registry: &Path,
        variables: impl Iterator<Item = (&'a str, &'a OsStr)>,
    ) -> Result<Worker, BenchError> {
        let program = std::env::current_exe().map_err(BenchError::when("looking for this program"))?;
        let mut command = match holder {
            None => Command::new(program),
            Some(pid) => {
                let mut command = Command::new("nsenter");
                command.args(["--target", &pid.to_string(), "--net", "--mount", "--"]).arg(program);
                command
            }
        };
        let mut child = command
            .arg("worker")
            .env("PARIO_REGISTRY", registry)
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(BenchError::when("starting a worker"))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        Ok(Worker { child, input, output })
    }

    /// Sends a job and waits for its outcome.
    pub(crate) fn run_job(&mut self, job: &BenchJob) -> Result<JobOutcome, BenchError> {
        self.send(job)?;
        self.receive()
    }

    /// Sends a job.
    pub(crate) fn send(&mut self, job: &BenchJob) -> Result<(), BenchError> {
        let mut line = serde_json::to_string(job).expect("jobs are plain data");
        line.push('\n');
        let input = self.input.as_mut().expect("open until the worker is dropped");
        input.write_all(line.as_bytes()).map_err(BenchError::when("telling a worker its job"))
    }

    /// Waits for the outcome of the sent job.
    pub(crate) fn receive(&mut self) -> Result<JobOutcome, BenchError> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(BenchError::when("waiting for a worker"))?;
        if line.is_empty() {
            let status = self.child.wait().map_err(BenchError::when("waiting for a worker's end"))?;
            return Err(BenchError::Worker(format!("a worker ended in the middle of its job: {status}")));
        }
        let said: Result<JobOutcome, String> = serde_json::from_str(&line).map_err(|error| {
            BenchError::Worker(format!("the outcome of a worker cannot be decoded: {error}"))
        })?;
        said.map_err(BenchError::Worker)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.input.take());
        if let Err(error) = self.child.wait() {
            tracing::warn!(%error, "a worker cannot be waited for");
        }
    }
}

/// Sends all workers their jobs, so that they work concurrently, and waits for all.
pub(crate) fn together(
    workers: &mut [Worker],
    job: impl Fn(usize) -> BenchJob,
) -> Result<Vec<JobOutcome>, BenchError> {
    for (index, worker) in workers.iter_mut().enumerate() {
        worker.send(&job(index))?;
    }
    workers.iter_mut().map(Worker::receive).collect()
}

/// Body of a worker: runs jobs until its input ends.
pub(crate) fn serve() -> Result<(), BenchError> {
    // Without its parent the result is useless.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let mut state = JobState::default();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(BenchError::when("waiting for a job"))?;
        let said = match serde_json::from_str::<BenchJob>(&line) {
            Ok(job) => state.run(&job).map_err(|error| error.to_string()),
            Err(error) => Err(format!("unknown job: {error}")),
        };
        let mut answer = serde_json::to_string(&said).expect("outcomes are plain data");
        answer.push('\n');
        let mut output = std::io::stdout().lock();
        output
            .write_all(answer.as_bytes())
            .and_then(|()| output.flush())
            .map_err(BenchError::when("telling the outcome"))?;
    }
    Ok(())
}
