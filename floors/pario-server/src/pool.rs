//! A few threads for what may block: reading, opening, syncing, cutting and removing objects.
//!
//! Never: keeps the service thread waiting. Always: jobs of one pool run in the order they came, as threads become free.

use crossbeam_channel::Sender;

type Job = Box<dyn FnOnce() + Send>;

/// A pool of named threads; ends when dropped and empty.
#[derive(Clone)]
pub(crate) struct Pool {
    jobs: Sender<Job>,
}

impl Pool {
    /// Starts `threads` threads.
    pub(crate) fn start(name: &str, threads: usize) -> std::io::Result<Pool> {
        let (jobs, inbox) = crossbeam_channel::unbounded::<Job>();
        for number in 0..threads {
            let inbox = inbox.clone();
            std::thread::Builder::new().name(format!("{name}-{number}")).spawn(move || {
                for job in inbox {
                    job();
                }
            })?;
        }
        Ok(Pool { jobs })
    }

    /// Runs a job soon.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        // Threads end only when every handle is gone, so somebody listens.
        let _ = self.jobs.send(Box::new(job));
    }
}
