//! A phone that comes with another Contact than before: the softswitch must not ring the old one
//! (signalling.md section 4: one contact per phone upstream).

use std::net::SocketAddr;

use super::{
    Gateway,
    bindings::Binding,
    registrar::{Pending, instance_of},
};

impl Gateway {
    /// Bindings that a REGISTER takes the place of, though it does not name them: those of the
    /// same phone, known by its source and by its Call-ID (RFC 3261 section 10.2: a phone keeps
    /// it for all its REGISTERs), its socket, or its instance.
    pub(super) fn superseded(&self, register: &Pending) -> Vec<u64> {
        let comes = register.asked.iter().any(|asked| asked.expires > 0);
        let of_aor = self.bindings.of_aor(&register.aor);
        let all = of_aor.into_iter().filter(|_| comes);
        all.filter(|id| {
            let binding = self.bindings.get(*id);
            binding.is_some_and(|binding| self.is_of_phone(register, binding))
        })
        .collect()
    }

    fn is_of_phone(&self, register: &Pending, binding: &Binding) -> bool {
        let named = |contact: &[u8]| register.asked.iter().any(|asked| asked.contact == contact);
        if named(&binding.contact) || !binding.is_from(register.source.ip(), register.proof) {
            return false;
        }
        let instance = instance_of(&binding.params);
        let mut asked = register.asked.iter();
        match asked.find_map(|asked| instance_of(&asked.params)) {
            // Two flows of one phone live side by side (RFC 5626).
            Some(now) if instance.is_some() => instance.as_ref() == Some(&now),
            _ => {
                binding.call_id == register.call_id || self.is_same_socket(register, binding.source)
            }
        }
    }

    /// Connections come from another port each time.
    fn is_same_socket(&self, register: &Pending, source: SocketAddr) -> bool {
        !self.transport(register.listener).is_stream() && register.source == source
    }
}
