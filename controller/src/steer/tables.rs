//! The maps as the steering code sees them: a trait, so that tests run it on a fake.

use std::io;

use keepline_common::record::{
    Address, ClientKey, FlowKey, FlowState, Hop, Listener, ListenerKey, Plan, TalkState,
};

/// The maps of the fast path. Indexes are within the bounds of `keepline_common::limits`; words
/// are single aligned stores.
pub trait Tables {
    /// Writes a plan into a slot that no word leads to.
    ///
    /// # Errors
    /// What the kernel says.
    fn set_plan(&mut self, slot: u32, plan: &Plan) -> io::Result<()>;
    /// Reads a plan back.
    ///
    /// # Errors
    /// What the kernel says.
    fn plan(&self, slot: u32) -> io::Result<Plan>;
    /// Number of plan slots.
    fn plan_slots(&self) -> u32;
    /// Zeroes a slot's counters.
    ///
    /// # Errors
    /// What the kernel says.
    fn reset_state(&mut self, slot: u32) -> io::Result<()>;
    /// Reads a slot's counters.
    ///
    /// # Errors
    /// What the kernel says.
    fn state(&self, slot: u32) -> io::Result<FlowState>;
    /// The first media port and how many there are.
    fn media_range(&self) -> (u16, u32);
    /// Reads a word of `MEDIA`.
    fn media(&self, index: u32) -> u64;
    /// Stores a word of `MEDIA`.
    fn set_media(&mut self, index: u32, word: u64);
    /// Reads a word of `GROUPS`.
    fn group(&self, index: u32) -> u32;
    /// Stores a word of `GROUPS`.
    fn set_group(&mut self, index: u32, hop: u32);
    /// Reads a word of `PATHS`.
    fn path(&self, index: u32) -> u64;
    /// Stores a word of `PATHS`.
    fn set_path(&mut self, index: u32, word: u64);
    /// Writes a hop that no word leads to.
    ///
    /// # Errors
    /// What the kernel says.
    fn set_hop(&mut self, index: u32, hop: &Hop) -> io::Result<()>;
    /// Reads a hop back.
    ///
    /// # Errors
    /// What the kernel says.
    fn hop(&self, index: u32) -> io::Result<Hop>;
    /// Names an address as ours and gives it a slot of `MEDIA`.
    ///
    /// # Errors
    /// What the kernel says.
    fn set_address(&mut self, address: Address, slot: u32) -> io::Result<()>;
    /// Forgets an address.
    ///
    /// # Errors
    /// What the kernel says.
    fn clear_address(&mut self, address: Address) -> io::Result<()>;
    /// All addresses and their slots.
    ///
    /// # Errors
    /// What the kernel says.
    fn addresses(&self) -> io::Result<Vec<(Address, u32)>>;
    /// Writes a listener.
    ///
    /// # Errors
    /// What the kernel says.
    fn set_listener(&mut self, key: ListenerKey, value: Listener) -> io::Result<()>;
    /// Forgets a listener.
    ///
    /// # Errors
    /// What the kernel says.
    fn clear_listener(&mut self, key: ListenerKey) -> io::Result<()>;
    /// All listeners.
    ///
    /// # Errors
    /// What the kernel says.
    fn listeners(&self) -> io::Result<Vec<ListenerKey>>;
    /// Writes a client's path.
    ///
    /// # Errors
    /// What the kernel says.
    fn set_client(&mut self, key: ClientKey, path: u32) -> io::Result<()>;
    /// Forgets a client.
    ///
    /// # Errors
    /// What the kernel says.
    fn clear_client(&mut self, key: ClientKey) -> io::Result<()>;
    /// Forgets every client.
    ///
    /// # Errors
    /// What the kernel says.
    fn clear_clients(&mut self) -> io::Result<()>;
    /// Writes a word of `FLOWS`.
    ///
    /// # Errors
    /// What the kernel says.
    fn set_flow(&mut self, key: FlowKey, word: u64) -> io::Result<()>;
    /// Forgets a flow.
    ///
    /// # Errors
    /// What the kernel says.
    fn clear_flow(&mut self, key: FlowKey) -> io::Result<()>;
    /// All flows and their words.
    ///
    /// # Errors
    /// What the kernel says.
    fn flow_words(&self) -> io::Result<Vec<(FlowKey, u64)>>;
    /// Reads what was stamped of a talk.
    ///
    /// # Errors
    /// What the kernel says.
    fn talk(&self, index: u32) -> io::Result<TalkState>;
    /// Forgets what was stamped of a talk.
    ///
    /// # Errors
    /// What the kernel says.
    fn reset_talk(&mut self, index: u32) -> io::Result<()>;
    /// Lets packets be redirected to a device.
    ///
    /// # Errors
    /// What the kernel says.
    fn set_device(&mut self, ifindex: u32) -> io::Result<()>;
    /// The kernel's monotonic clock, as the program reads it, in nanoseconds.
    fn kernel_now(&self) -> u64;
    /// Returns `true` when no program still reads what was unlinked before the call; `false`
    /// where the kernel does not offer to wait.
    fn grace(&mut self) -> bool;
}
