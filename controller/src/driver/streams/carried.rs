//! Interfaces that another device may carry: what listens and speaks there moves along.
//!
//! A connection over such an interface hears by any device (`tunnel::egress` says why), and
//! nothing happens to it when its way changes. Listeners, and connections where the kernel leads
//! no marks, are bound to the device.

use std::{io, net::SocketAddr, sync::Arc};

use keepline_engine::net::ListenerId;
use socket2::SockRef;
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle};

use super::{Key, Place, Streams, listen, listen::Path};
use crate::driver::sockets::Heard;

/// A second listener at an address, on a device that the interface was on.
#[derive(Debug)]
pub(super) struct Ear {
    listening: Arc<TcpListener>,
    accepting: JoinHandle<()>,
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Streams {
    /// Another device may carry this interface some time: connections are made so that they can
    /// move. Before any is there.
    pub(in crate::driver) fn may_carry(&mut self, interface: &str) {
        let own = interface.to_owned();
        self.carried.insert(own.clone(), own);
    }

    /// This mark leads what leaves by the interface, whatever carries it: its later connections
    /// are bound to no device.
    pub(in crate::driver) fn mark(&mut self, interface: &str, mark: u32) {
        self.marks.insert(interface.to_owned(), mark);
    }

    /// A device was made anew: its listeners are bound to it again. Connections that are bound to
    /// the one that is gone end, and their names are returned.
    pub(in crate::driver) fn rebind(&mut self, interface: &str) -> Vec<Key> {
        self.listen_again(interface);
        let mut lost = self.of(interface);
        if self.marks.contains_key(interface) {
            lost.clear();
        }
        lost.iter().for_each(|key| self.drop_now(*key));
        lost
    }

    /// What uses an interface is on this device from now on: its listeners, and its connections,
    /// which do not notice. Those that cannot move end, and their names are returned.
    pub(in crate::driver) fn carry(&mut self, interface: &str, device: &str) -> Vec<Key> {
        let left = self.device(interface).to_owned();
        if let Some(carrier) = self.carried.get_mut(interface) {
            device.clone_into(carrier);
        }
        let beside = self.beside.clone();
        let _beside = beside.enter();
        self.listen_again(interface);
        if left != device {
            self.listen_at(interface, &left);
        }
        let path = self.path(interface);
        if let Path::Mark(_) = path {
            return Vec::new();
        }
        let moves = |key: &Key| {
            let hold = self.connections.get(key)?.socket.as_ref()?.get()?;
            path.set(&SockRef::from(hold)).ok()
        };
        let mut lost = self.of(interface);
        lost.retain(|key| moves(key).is_none());
        lost.iter().for_each(|key| self.drop_now(*key));
        lost
    }

    /// Binds the listeners of an interface to the device that is or carries it.
    fn listen_again(&self, interface: &str) {
        let device = self.device(interface);
        let on = self.places.values();
        for place in on.filter(|place| place.interface == interface) {
            put(&place.listening, device);
        }
    }

    /// The listeners of the interface, which left this device, listen there too: who connects
    /// may not know yet, and the kernel would refuse him.
    fn listen_at(&mut self, interface: &str, left: &str) {
        let on = self.places.iter_mut();
        for (id, place) in on.filter(|(_, place)| place.interface == interface) {
            match &place.ear {
                Some(ear) => put(&ear.listening, left),
                None => place.ear = Ear::open(*id, place, left, &self.heard),
            }
        }
    }

    /// The connections of an interface's listeners.
    fn of(&self, interface: &str) -> Vec<Key> {
        let on = |key: &&Key| {
            let place = self.place(key.0);
            place.is_some_and(|place| place.interface == interface)
        };
        self.connections.keys().filter(on).copied().collect()
    }

    /// The device that is or carries an interface.
    pub(super) fn device<'a>(&'a self, interface: &'a str) -> &'a str {
        self.carried
            .get(interface)
            .map_or(interface, String::as_str)
    }

    /// What a connection over an interface leaves by.
    pub(super) fn path(&self, interface: &str) -> Path {
        let device = self.device(interface).to_owned();
        match self.marks.get(interface) {
            Some(mark) => Path::Mark(*mark),
            None if device == interface => Path::Device(device),
            None => Path::Away(device),
        }
    }
}

impl Ear {
    fn open(
        id: ListenerId,
        place: &Place,
        left: &str,
        heard: &mpsc::Sender<Heard>,
    ) -> Option<Self> {
        let open = |at: SocketAddr| -> io::Result<Self> {
            let listening = Arc::new(listen::bind(&Path::Away(left.to_owned()), at, false)?);
            let accepting = listen::accept(id, listening.clone(), heard.clone());
            Ok(Self {
                listening,
                accepting: tokio::spawn(accepting),
            })
        };
        open(place.address)
            .inspect_err(|error| tracing::debug!(%error, left, "who connects there is refused"))
            .ok()
    }
}

fn put(listening: &TcpListener, device: &str) {
    if let Err(error) = SockRef::from(listening).bind_device(Some(device.as_bytes())) {
        tracing::warn!(%error, device, "a listener stays deaf");
    }
}
