//! New connections: accepted in portions, and not at all while descriptors or memory are short.

use std::io;
use std::os::fd::AsFd;

use pario_core::Clock;
use pario_net::stream::Stream;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::event_loop::{TOKEN_TCP, TOKEN_UNIX};
use super::link::ServiceLink;
use super::unproved::ConnectionOrigin;
use super::{LinkId, Service, listen};

/// Connections accepted in one iteration: requests on existing connections are read in between.
const ACCEPTS_PER_TURN: usize = 64;

impl Service {
    pub(super) fn accept_all(&mut self, token: u64) {
        for _ in 0..ACCEPTS_PER_TURN {
            if !listen::has_descriptors(&self.epoll) {
                // Unauthenticated connections are closed first: the next one may be a client's.
                if let Some(oldest) = self.unproved.oldest_of_network() {
                    self.drop_link(
                        oldest,
                        Some("it had not proved the partition's secret when its descriptor was needed"),
                    );
                    continue;
                }
                let error = io::Error::from(rustix::io::Errno::MFILE);
                return self.pause_accepting(&error);
            }
            match self.listeners.accept(token == TOKEN_UNIX) {
                None => return,
                Some(Ok(stream)) => {
                    self.pause_logged = false;
                    self.accept(stream);
                }
                Some(Err(error)) => {
                    if !matches!(
                        error.kind(),
                        io::ErrorKind::PermissionDenied | io::ErrorKind::ConnectionAborted
                    ) {
                        return self.pause_accepting(&error);
                    }
                    self.stats.count_refused();
                    tracing::warn!(%error, "refused a connection");
                }
            }
        }
    }

    /// Out of descriptors or memory: connections stay in the accept queue until resources are free. Logged once per pause.
    fn pause_accepting(&mut self, error: &io::Error) {
        self.stats.count_refused();
        if !self.pause_logged {
            tracing::warn!(%error, "out of descriptors or memory: new connections wait until some are free");
        }
        self.pause_logged = true;
        self.watch_listeners_for(EventFlags::empty());
        self.accept_paused_until = Some(self.clock.now().plus_ms(500));
    }

    pub(super) fn watch_listeners_for(&self, flags: EventFlags) {
        let unix = self.listeners.unix.as_ref().map(|unix| (unix.as_fd(), TOKEN_UNIX));
        let tcp = self.listeners.tcp.as_ref().map(|tcp| (tcp.as_fd(), TOKEN_TCP));
        for (listener, token) in unix.into_iter().chain(tcp) {
            if let Err(error) = epoll::modify(&self.epoll, listener, EventData::new_u64(token), flags) {
                tracing::warn!(%error, "could not watch a listener");
            }
        }
    }

    pub(super) fn accept(&mut self, stream: Stream) {
        let id = LinkId(self.next_link);
        self.next_link += 1;
        let origin = ConnectionOrigin::of(&stream);
        let added = ServiceLink::new(stream).and_then(|link| {
            epoll::add(&self.epoll, link.stream.as_fd(), EventData::new_u64(id.0), EventFlags::IN)?;
            Ok(link)
        });
        match added {
            Ok(link) => {
                self.stats.count_connection();
                self.links.insert(id, link);
                if let Some(oldest) = self.unproved.enter(id, origin) {
                    self.drop_link(
                        oldest,
                        Some("newer connections arrived before it had proved the partition's secret"),
                    );
                }
            }
            Err(error) => tracing::warn!(%error, "could not take a connection"),
        }
    }
}
