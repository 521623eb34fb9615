//! Interfaces that another device may carry: what hears and speaks there by UDP moves along, and
//! hears by the device that was left too. A neighbour may send there for a while yet, and the
//! kernel would answer that nobody is there.

use std::{io, net::SocketAddr, sync::Arc};

use tokio::{net::UdpSocket, task::JoinHandle};

use super::{Bound, Sockets, bind, read_listener, read_media};

/// A second socket at an address, on a device that carries it no more or not yet. It only hears.
#[derive(Debug)]
pub(super) struct Ear {
    socket: Arc<UdpSocket>,
    task: JoinHandle<()>,
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Sockets {
    /// The sockets of an interface are on this device from now on.
    pub(in crate::driver) fn carry(&mut self, interface: &str, device: &str) {
        let left = self.device(interface).to_owned();
        if interface == device {
            self.carried.remove(interface);
        } else {
            self.carried.insert(interface.to_owned(), device.to_owned());
        }
        self.rebind(interface);
        if left != device {
            self.listen_at(interface, &left);
        }
    }

    pub(super) fn device<'a>(&'a self, interface: &'a str) -> &'a str {
        self.carried
            .get(interface)
            .map_or(interface, String::as_str)
    }

    /// Binds the sockets of an interface to it anew: a binding is to a device, by its index, and
    /// the device was made anew.
    pub(in crate::driver) fn rebind(&self, interface: &str) {
        let media = self.media.values().map(|(bound, _)| bound);
        for bound in self.listeners.iter().chain(media) {
            if bound.interface == interface {
                put(&bound.socket, self.device(interface));
            }
        }
    }

    /// What a media socket hears by its interface's own device, while another one carries it.
    pub(super) fn media_ear(&self, interface: &str, at: SocketAddr) -> Option<Ear> {
        let heard = self.heard.clone();
        let read = |socket| tokio::spawn(read_media(at, socket, heard));
        told(Ear::open(interface, at, read), interface)
    }

    /// Every socket of the interface, which left this device, hears there.
    fn listen_at(&mut self, interface: &str, left: &str) {
        let heard = &self.heard;
        let listeners = (0..).zip(&mut self.listeners);
        for (id, bound) in listeners.filter(|(_, bound)| bound.interface == interface) {
            bound.listen_at(left, |socket| {
                let id = keepline_engine::net::ListenerId(id);
                tokio::spawn(read_listener(id, None, socket, heard.clone()))
            });
        }
        for (at, (bound, _)) in &mut self.media {
            if bound.interface == interface {
                bound.listen_at(left, |socket| {
                    tokio::spawn(read_media(*at, socket, heard.clone()))
                });
            }
        }
    }
}

impl Bound {
    fn listen_at(&mut self, left: &str, read: impl FnOnce(Arc<UdpSocket>) -> JoinHandle<()>) {
        if let Some(ear) = &self.ear {
            return put(&ear.socket, left);
        }
        // What takes everything is a listener for phones, which no tunnel carries.
        if let Ok(at) = self.socket.local_addr()
            && !self.takes
        {
            self.ear = told(Ear::open(left, at, read), left);
        }
    }
}

impl Ear {
    fn open(
        device: &str,
        at: SocketAddr,
        read: impl FnOnce(Arc<UdpSocket>) -> JoinHandle<()>,
    ) -> io::Result<Self> {
        let socket = Arc::new(bind(device, at, false, true)?);
        let task = read(socket.clone());
        Ok(Self { socket, task })
    }
}

fn told(ear: io::Result<Ear>, device: &str) -> Option<Ear> {
    ear.inspect_err(|error| tracing::debug!(%error, device, "what comes there is refused"))
        .ok()
}

fn put(socket: &UdpSocket, device: &str) {
    if let Err(error) = socket2::SockRef::from(socket).bind_device(Some(device.as_bytes())) {
        tracing::warn!(%error, device, "a socket stays deaf");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc;

    use super::*;
    use crate::driver::sockets::Heard;

    /// The loopback stands for the device that was left.
    #[tokio::test]
    async fn mx8_what_comes_by_the_device_that_was_left_is_heard() {
        let (heard, mut told) = mpsc::channel(8);
        let free = std::net::UdpSocket::bind("[::1]:0").unwrap();
        let at = free.local_addr().unwrap();
        drop(free);
        let read = |socket| tokio::spawn(read_media(at, socket, heard));
        let ear = Ear::open("lo", at, read).unwrap();
        let peer = std::net::UdpSocket::bind("[::1]:0").unwrap();
        peer.send_to(b"late", at).unwrap();
        let came = tokio::time::timeout(Duration::from_secs(10), told.recv()).await;
        let Ok(Some(Heard::Media { local, bytes, .. })) = came else {
            panic!("{came:?}")
        };
        assert_eq!((local, &bytes[..]), (at, &b"late"[..]));
        drop(ear);
        assert!(told.recv().await.is_none(), "it hears no more");
    }

    #[tokio::test]
    async fn mx8_an_ipv6_address_of_another_device_is_spoken_from() {
        let elsewhere = "[2001:db8::7]:0".parse().unwrap();
        let own = bind("lo", elsewhere, false, false).unwrap_err();
        assert_eq!(own.kind(), io::ErrorKind::AddrNotAvailable);
        bind("lo", elsewhere, false, true).unwrap();
    }
}
