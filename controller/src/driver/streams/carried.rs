//! Interfaces that another device may carry: what listens and speaks there moves along.

use super::{Key, Streams};

impl Streams {
    /// Another device may carry this interface some time: connections are made so that they can
    /// move. Before any is there.
    pub(in crate::driver) fn may_carry(&mut self, interface: &str) {
        let own = interface.to_owned();
        self.carried.insert(own.clone(), own);
    }

    /// A device was made anew: its listeners are bound to it again. Its connections are bound to
    /// the one that is gone: they end, and their names are returned.
    pub(in crate::driver) fn rebind(&mut self, interface: &str) -> Vec<Key> {
        self.listen_again(interface);
        let lost = self.of(interface);
        lost.iter().for_each(|key| self.drop_now(*key));
        lost
    }

    /// What uses an interface is on this device from now on: its listeners, and its connections,
    /// which do not notice as a rule: where the way that was left still works, some were seen to
    /// end and be opened anew. Those that cannot move end, and their names are returned.
    pub(in crate::driver) fn carry(&mut self, interface: &str, device: &str) -> Vec<Key> {
        if let Some(carrier) = self.carried.get_mut(interface) {
            device.clone_into(carrier);
        }
        self.listen_again(interface);
        let moves = |key: &Key| {
            let hold = self.connections.get(key)?.socket.as_ref()?.get()?;
            socket2::SockRef::from(hold)
                .bind_device(Some(device.as_bytes()))
                .ok()
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
            let socket = socket2::SockRef::from(&*place.listening);
            if let Err(error) = socket.bind_device(Some(device.as_bytes())) {
                tracing::warn!(%error, interface, device, "a listener stays deaf");
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
}
