//! Input and output of the service's connections, and their end.

use std::os::fd::AsFd;

use pario_core::SessionId;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::link::{OutgoingFrame, ServiceLink};
use super::{LinkId, Service, describe};

impl Service {
    pub(super) fn serve_link(&mut self, id: LinkId, flags: EventFlags, scratch: &mut [u8]) {
        if flags.intersects(EventFlags::OUT) {
            self.flush_link(id);
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP) {
            return;
        }
        let Some(link) = self.links.get_mut(&id) else { return };
        if !link.wants_input() && flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            // The peer closed the connection; epoll would report it repeatedly until the link is read.
            return self.drop_link(id, None);
        }
        let heard = link.read_frames(scratch);
        for frame in heard.frames {
            if !self.links.contains_key(&id) {
                return;
            }
            self.handle_frame(id, frame);
        }
        match heard.end {
            Some(pario_net::frame::FrameError::Ended) => self.drop_link(id, None),
            Some(error) => self.drop_link(id, Some(&error.to_string())),
            None => self.watch_link(id),
        }
    }

    /// Registers the link's current interest with epoll.
    pub(super) fn watch_link(&mut self, id: LinkId) {
        let Some(link) = self.links.get(&id) else { return };
        let mut flags = EventFlags::empty();
        if link.wants_input() && link.stream.has_pending() && !self.unread.contains(&id) {
            self.unread.push(id);
        }
        if link.wants_input() {
            flags |= EventFlags::IN;
        }
        if link.wants_output() {
            flags |= EventFlags::OUT;
        }
        if link.watched.get() != flags {
            link.watched.set(flags);
            if let Err(error) =
                epoll::modify(&self.epoll, link.stream.as_fd(), EventData::new_u64(id.0), flags)
            {
                tracing::warn!(%error, "could not watch a connection");
            }
        }
    }

    pub(super) fn flush_link(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.flush().is_err() {
            link.note_reset();
            self.drop_link(id, None);
            return;
        }
        if link.closing && !link.wants_output() {
            self.drop_link(id, None);
            return;
        }
        self.watch_link(id);
    }

    /// Removes a connection without further consequences.
    pub(super) fn forget_link(&mut self, id: LinkId) -> Option<ServiceLink> {
        let link = self.links.remove(&id)?;
        self.unproved.leave(id);
        if let Err(error) = epoll::delete(&self.epoll, link.stream.as_fd()) {
            tracing::debug!(%error, "a connection was not watched");
        }
        self.open.retain(|(owner, _), _| *owner != id);
        Some(link)
    }

    /// Ends a connection; `why` is logged when the peer is to blame.
    pub(super) fn drop_link(&mut self, id: LinkId, why: Option<&str>) {
        let Some(link) = self.forget_link(id) else { return };
        let reset = link.was_reset().then_some("the connection broke");
        self.bound_link_ended(id, why.or(reset));
        let peer = link.hello().map_or_else(|| "a peer that had not greeted".to_owned(), describe);
        if let Some(why) = why {
            self.stats.count_refused();
            tracing::warn!("ended the connection of {peer}: {why}");
        }
        if let Some(hello) = link.hello() {
            let (session, purpose) = (hello.session, hello.purpose);
            self.session_left(session, purpose);
        }
    }

    pub(super) fn drop_violator(&mut self, session: SessionId, what: &str) {
        let ids: Vec<LinkId> = self.links_of(session);
        for id in ids {
            self.drop_link(id, Some(what));
        }
    }

    pub(super) fn links_of(&self, session: SessionId) -> Vec<LinkId> {
        let mine = |link: &ServiceLink| link.hello().is_some_and(|hello| hello.session == session);
        self.links.iter().filter(|(_, link)| mine(link)).map(|(id, _)| *id).collect()
    }

    pub(super) fn push(&mut self, id: LinkId, outgoing: OutgoingFrame) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.push(outgoing);
        self.flush_link(id);
    }
}
