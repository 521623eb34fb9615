//! The other end of a veth (case X13). Frames that a program sends to a veth are lost, without a
//! counter, unless the other end carries a program too: where that end is in reach and bare, it
//! gets one that passes everything. Everywhere the driver is asked whether it takes such frames.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    Error, Fastpath, Mode, XdpChoice, attach,
    device::{self, Device, Peer},
    object, pins,
};

/// Said of a device that loses what is sent to it.
pub(super) const LOSES: &str = "the device takes no frames from XDP: what is answered or \
                                forwarded there is lost without a counter. Put an XDP program on \
                                its other end (a bare PASS will do), or set xdp = \"generic\"";
/// What is to know of a veth whose other end is out of reach.
pub(super) const ELSEWHERE: &str = "a veth whose other end is in another network namespace: it \
                                    must keep an XDP program (a bare PASS will do), else frames \
                                    sent to it are lost, and must not offload checksums (ethtool \
                                    -K DEV tx off)";

impl Fastpath {
    /// Looks to what stands behind every interface that carries our program natively, and says
    /// anew what is wrong there.
    ///
    /// # Errors
    /// When a pin cannot be moved or removed.
    pub(super) fn face_peers(&mut self, older: &[PathBuf]) -> Result<(), Error> {
        let wanted = |interface: &&super::Interface| interface.xdp != XdpChoice::Off;
        let interfaces = self.options.interfaces.iter().filter(wanted);
        let ours: Vec<String> = interfaces.map(|i| i.name.clone()).collect();
        let mut peers = Vec::new();
        for index in 0..self.attached.len() {
            let Ok(device) = Device::find(&self.attached[index].name) else {
                continue;
            };
            let peer = match device.peer {
                Some(Peer::Here(peer)) => device::name_of(peer).filter(|peer| !ours.contains(peer)),
                _ => None,
            };
            let native = self.attached[index].mode == Mode::Native;
            let mut wrong = Vec::new();
            if let Some(peer) = peer.filter(|_| native) {
                wrong.extend(self.stub_on(&peer, older).err());
                peers.push(peer);
            }
            let on = &mut self.attached[index];
            on.notes.clear();
            if device.peer == Some(Peer::Elsewhere) {
                on.notes.push(ELSEWHERE.to_owned());
            }
            on.degraded.retain(|why| why != LOSES);
            if native && device.features().is_some_and(|features| !features.target) {
                on.degraded.push(LOSES.to_owned());
            }
            for error in wrong {
                on.degraded
                    .push(format!("its other end stays bare: {error}"));
            }
        }
        remove_others(&self.directory, &peers)
    }

    /// Makes a bare device pass everything by a program of ours.
    fn stub_on(&mut self, peer: &str, older: &[PathBuf]) -> Result<(), Error> {
        let pin = pins::stub(&self.directory, peer);
        for place in older {
            let old = pins::stub(place, peer);
            if old.exists() && !pin.exists() {
                fs::rename(&old, &pin).map_err(Error::io(&old))?;
            }
        }
        let device = Device::find(peer)?;
        if device.carried.is_some() {
            return Ok(());
        }
        if pin.exists() {
            // Severed: it held a device that is no more.
            fs::remove_file(&pin).map_err(Error::io(&pin))?;
        }
        let program = object::stub(&mut self.ebpf)?;
        attach::one_mode(program, &device, &pin, Mode::Native).map(drop)
    }
}

/// Takes our passing program off devices that are no longer the other end of anything.
fn remove_others(directory: &Path, peers: &[String]) -> Result<(), Error> {
    for name in pins::stubs(directory) {
        if !peers.contains(&name) {
            let pin = pins::stub(directory, &name);
            fs::remove_file(&pin).map_err(Error::io(pin))?;
        }
    }
    Ok(())
}
